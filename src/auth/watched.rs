//! Files that may change while they are in use: read again when they have, and taken only if they
//! are good. A broken one is refused, loudly, and what was good before stays in force.
//!
//! They are looked at by their contents, once a second. A watch on a file does not see what
//! Kubernetes does to a mounted Secret, which swaps a link to a folder; and what is the same has not
//! changed, however often it was written.

use std::{path::PathBuf, sync::Arc, time::Duration};

use tokio::sync::watch;

use crate::metrics::{AccessFile, Metrics};

const BETWEEN_LOOKS: Duration = Duration::from_secs(1);

/// Nothing that belongs here is that large; a device or a log file might be.
const MAX_BYTES: u64 = 16 << 20;

/// What files with these contents mean; the error says what to mend.
pub type Parse<T> = Box<dyn Fn(&[Vec<u8>]) -> Result<T, String> + Send + Sync>;

/// The newest good version.
pub struct Watched<T> {
    newest: watch::Receiver<Arc<T>>,
}

/// Keeps a [`Watched`] up to date.
pub struct Watcher<T> {
    files: Vec<PathBuf>,
    parse: Parse<T>,
    seen: Result<Vec<Vec<u8>>, String>,
    newest: watch::Sender<Arc<T>>,
}

impl<T> Clone for Watched<T> {
    fn clone(&self) -> Self {
        Self { newest: self.newest.clone() }
    }
}

impl<T> Watched<T> {
    pub fn now(&self) -> Arc<T> {
        self.newest.borrow().clone()
    }

    /// Its own view of what is new: nothing, until the next change.
    #[must_use]
    pub fn from_now_on(&self) -> Self {
        let mut newest = self.newest.clone();
        newest.mark_unchanged();
        Self { newest }
    }

    /// Returns when there is a newer version than when this was last asked.
    pub async fn changed(&mut self) {
        if self.newest.changed().await.is_err() {
            // Nobody looks any more, so nothing will ever change.
            std::future::pending::<()>().await;
        }
    }
}

impl<T: Send + Sync + 'static> Watcher<T> {
    pub fn start(files: Vec<PathBuf>, parse: Parse<T>) -> Result<(Watched<T>, Self), String> {
        let contents = read(&files)?;
        let first = parse(&contents).map_err(|error| format!("{}: {error}", names(&files)))?;
        let (newest, watched) = watch::channel(Arc::new(first));
        Ok((Watched { newest: watched }, Self { files, parse, seen: Ok(contents), newest }))
    }

    pub async fn run(mut self, kind: AccessFile, metrics: Arc<Metrics>) {
        loop {
            tokio::time::sleep(BETWEEN_LOOKS).await;
            let files = self.files.clone();
            let Ok(contents) = tokio::task::spawn_blocking(move || read(&files)).await else {
                continue;
            };
            if contents == self.seen {
                continue;
            }
            self.seen = contents;
            let read = self.seen.as_ref().map_err(Clone::clone);
            let parsed = read.and_then(|contents| {
                (self.parse)(contents).map_err(|error| format!("{}: {error}", names(&self.files)))
            });
            let refused = parsed.is_err();
            match parsed {
                Ok(newer) => {
                    self.newest.send_replace(Arc::new(newer));
                    metrics.access.reloads[kind].inc();
                    tracing::info!(files = names(&self.files), "read anew, and in force");
                }
                Err(error) => tracing::error!(
                    %error,
                    "REFUSED: the new version is not good, so the old one stays in force; mend it"
                ),
            }
            metrics.access.file_refused[kind].set(refused.into());
        }
    }
}

fn read(files: &[PathBuf]) -> Result<Vec<Vec<u8>>, String> {
    files
        .iter()
        .map(|path| {
            let told = |error: std::io::Error| format!("{}: {error}", path.display());
            if std::fs::metadata(path).map_err(told)?.len() > MAX_BYTES {
                return Err(format!("{}: larger than anything that belongs here", path.display()));
            }
            std::fs::read(path).map_err(told)
        })
        .collect()
}

fn names(files: &[PathBuf]) -> String {
    let names: Vec<String> = files.iter().map(|path| path.display().to_string()).collect();
    names.join(", ")
}
