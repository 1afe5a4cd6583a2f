//! The one thing that Postgres says only as a warning, and that changes what an answer means.
//!
//! A commit waits for its synchronous standby. If that wait is cancelled, Postgres reports success all the
//! same, with a warning that the commit may not have been replicated. `sqlx` hands warnings to `tracing` alone,
//! so this listens there. What counts is that a warning came while a commit was under way, on the connection that
//! carried it: its text depends on the server's language, and nothing that Fencepost sends causes another one. That
//! warnings are sent at all is pinned on every connection (`client_min_messages`, see `connection.rs`).

use std::cell::Cell;

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::{Layer, filter::Targets, layer::Context, registry::LookupSpan};

/// Where `sqlx` reports them, at the level of their untranslated severity.
const TARGET: &str = "sqlx::postgres::notice";

tokio::task_local! {
    /// Whether a warning has come since this scope was entered.
    static WARNED: Cell<bool>;
}

/// Runs `work`, and says whether Postgres has sent a warning meanwhile, on a connection that `work` has read from. A
/// connection is read by the task that uses it, and what is read is reported at once: so a warning that another task's
/// connection receives is not counted here.
pub async fn listening<T>(work: impl Future<Output = T>) -> (T, bool) {
    let listened = async {
        let done = work.await;
        (done, WARNED.with(Cell::get))
    };
    WARNED.scope(Cell::new(false), listened).await
}

/// Hears warnings, whatever else is logged. Without it in the subscriber, none is heard.
pub fn layer<S: Subscriber + for<'a> LookupSpan<'a>>() -> impl Layer<S> {
    Listener.with_filter(Targets::new().with_target(TARGET, Level::WARN))
}

struct Listener;

impl<S: Subscriber> Layer<S> for Listener {
    fn on_event(&self, _: &Event<'_>, _: Context<'_, S>) {
        // Outside of a scope nothing is under way that it could concern.
        let _ = WARNED.try_with(|warned| warned.set(true));
    }
}

#[cfg(test)]
mod tests {
    use tracing::instrument::WithSubscriber;
    use tracing_subscriber::{EnvFilter, prelude::*};

    use super::*;

    /// As the command line sets it up, with everything else switched off.
    fn quiet() -> impl Subscriber + Send + Sync {
        let log = tracing_subscriber::fmt::layer().with_filter(EnvFilter::new("off"));
        tracing_subscriber::registry().with(log).with(layer())
    }

    #[tokio::test]
    async fn a_warning_is_heard_whatever_is_logged() {
        let warn = async { tracing::warn!(target: TARGET, "abgebrochen") };
        let ((), heard) = listening(warn).with_subscriber(quiet()).await;
        assert!(heard);
    }

    #[tokio::test]
    async fn only_warnings_of_postgres_count() {
        let others = async {
            tracing::info!(target: TARGET, "a notice");
            tracing::error!(target: "sqlx::query", "slow");
        };
        let ((), heard) = listening(others).with_subscriber(quiet()).await;
        assert!(!heard);
    }

    #[tokio::test]
    async fn a_warning_that_somebody_else_gets_does_not_count() {
        let work = async {
            let (waiting, somebody_else) =
                tokio::join!(listening(tokio::task::yield_now()), async {
                    tracing::warn!(target: TARGET, "collation version mismatch");
                });
            let ((), heard) = waiting;
            let () = somebody_else;
            heard
        };
        assert!(!work.with_subscriber(quiet()).await);
    }
}
