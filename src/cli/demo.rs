//! `fencepost demo`: the story of the paused holder.
//!
//! Everything in it is real: a fencepost server on a temporary file, two worker processes, SIGSTOP
//! and SIGCONT. Nothing of it is left behind, however the story ends: the processes die with this
//! one, frozen or not.

mod actor;
mod stage;
mod story;
mod timeline;
pub mod worker;

use clap::{Args, ValueEnum};
use tokio::signal::unix::{SignalKind, signal};

use self::{stage::Stage, timeline::Timeline};
use super::{block_on, exit::Failure};

#[derive(Args)]
#[command(after_help = "\
It needs nothing: it starts a server of its own on a free port, with a file in a temporary \
directory, and cleans up. It takes a few seconds.")]
pub struct Demo {
    #[arg(short, long, value_name = "FORMAT", default_value = "text", help = "How to print")]
    output: Telling,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Telling {
    /// A story, for people
    Text,
    /// An object for each event, one per line
    Json,
}

impl Demo {
    pub fn run(self) -> Result<(), Failure> {
        let timeline = Timeline::new(self.output == Telling::Json);
        // Whoever is dropped here takes its processes along.
        block_on(async {
            tokio::select! {
                told = tell(timeline) => told,
                stopped = interrupted() => stopped,
            }
        })?
    }
}

async fn tell(timeline: Timeline) -> Result<(), Failure> {
    let stage = Stage::set(&timeline).await?;
    story::tell(&stage, &timeline).await
}

async fn interrupted() -> Result<(), Failure> {
    let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
    let listen = |kind| signal(kind).map_err(|error| Failure::failed(error.to_string()));
    let [mut interrupt, mut terminate, mut hangup] =
        [listen(kinds[0])?, listen(kinds[1])?, listen(kinds[2])?];
    let kind = tokio::select! {
        _ = interrupt.recv() => SignalKind::interrupt(),
        _ = terminate.recv() => SignalKind::terminate(),
        _ = hangup.recv() => SignalKind::hangup(),
    };
    Err(Failure::Told(u8::try_from(128 + kind.as_raw_value()).unwrap_or(u8::MAX)))
}
