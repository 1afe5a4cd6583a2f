//! Where the steps of requests are sent, and of which requests.

use std::fmt;

use clap::Args;
use url::Url;

use super::TRACES;

/// The name that everything else in a cluster is told it by.
const STANDARD: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

#[derive(Args, Clone, Debug)]
pub struct TraceSettings {
    /// Collector to send traces to, by OTLP over HTTP: `http://HOST:4318`. `OTEL_EXPORTER_OTLP_ENDPOINT` is heeded too
    #[arg(long, env = "FENCEPOST_OTLP_ENDPOINT", value_name = "URL", help_heading = TRACES)]
    pub otlp_endpoint: Option<CollectorUrl>,

    /// Share of requests to trace, from 0 to 1, of those whose `traceparent` does not decide it
    #[arg(
        long,
        env = "FENCEPOST_TRACE_RATIO",
        value_name = "SHARE",
        default_value = "0",
        value_parser = share,
        help_heading = TRACES
    )]
    pub trace_ratio: f64,
}

impl TraceSettings {
    /// The collector, if there is one.
    pub fn endpoint(&self) -> Result<Option<CollectorUrl>, String> {
        if self.otlp_endpoint.is_some() {
            return Ok(self.otlp_endpoint.clone());
        }
        match std::env::var(STANDARD) {
            Ok(text) if !text.is_empty() => {
                text.parse().map(Some).map_err(|error| format!("{STANDARD}: {error}"))
            }
            _ => Ok(None),
        }
    }
}

/// `http://collector:4318`; the path of traces is added to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectorUrl(String);

impl CollectorUrl {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::str::FromStr for CollectorUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let url = Url::parse(text).ok().filter(|url| {
            matches!(url.scheme(), "http" | "https") && url.query().or(url.fragment()).is_none()
        });
        match url {
            None => Err("write it as http://collector:4318".into()),
            // It is shown in the log.
            Some(url) if !url.username().is_empty() || url.password().is_some() => {
                Err("what proves who we are goes into OTEL_EXPORTER_OTLP_HEADERS".into())
            }
            Some(_) => Ok(Self(text.trim_end_matches('/').into())),
        }
    }
}

impl fmt::Display for CollectorUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "a share is a number from 0 to 1, such as 0.01".into())
}
