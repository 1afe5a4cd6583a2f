//! The log: readable on a terminal, JSON elsewhere, always on standard error.

mod escaped;

use std::io::IsTerminal;

use tracing_subscriber::{EnvFilter, fmt, prelude::*};

use self::escaped::EscapedStderr;
use super::exit::Failure;
use crate::{settings::LogFormat, store::postgres::notices};

/// For commands that log nothing. The warnings of Postgres that a store needs are heard all the same.
pub fn start_silently() {
    // It fails only where there is a log already.
    let _ = tracing_subscriber::registry().with(notices::layer()).try_init();
}

pub fn start(format: LogFormat, filter: &str) -> Result<(), Failure> {
    let filter =
        EnvFilter::try_new(filter).map_err(|error| Failure::settings(error.to_string()))?;
    let terminal = std::io::stderr().is_terminal();
    let text = match format {
        LogFormat::Auto => terminal,
        LogFormat::Text => true,
        LogFormat::Json => false,
    };
    let layer = if text {
        let layer = fmt::layer().with_writer(std::io::stderr).with_ansi(terminal);
        layer.with_target(false).boxed()
    } else {
        let layer = fmt::layer().with_writer(EscapedStderr).json().flatten_event(true);
        layer.with_current_span(false).with_span_list(false).boxed()
    };
    tracing_subscriber::registry()
        .with(layer.with_filter(filter))
        .with(notices::layer())
        .try_init()
        .map_err(|error| Failure::failed(error.to_string()))
}
