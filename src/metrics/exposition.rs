//! The metrics as text, in the two forms that there are.
//!
//! The client library writes OpenMetrics, where a counter `x` has a sample `x_total`. To a reader of
//! the older text format (`curl`, `promtool check metrics`) those would be two different metrics, one
//! without samples and one without a type. So for them the counter is declared by its sample's name.

use std::fmt::Write;

use prometheus_client::{encoding::text, registry::Registry};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// What every scraper understands.
    Prometheus,
    /// What a Prometheus asks for by itself.
    OpenMetrics,
}

impl Format {
    /// The older form unless the other is asked for by name, as Prometheus does.
    pub fn accepted_by<'a>(accept: impl IntoIterator<Item = &'a str>) -> Self {
        let mut media_types = accept.into_iter().flat_map(|header| header.split(','));
        let openmetrics = media_types.any(|range| {
            let mut parts = range.split(';').map(str::trim);
            parts
                .next()
                .is_some_and(|name| name.eq_ignore_ascii_case("application/openmetrics-text"))
                && parts
                    .all(|parameter| !matches!(parameter, "q=0" | "q=0.0" | "q=0.00" | "q=0.000"))
        });
        if openmetrics { Self::OpenMetrics } else { Self::Prometheus }
    }

    pub fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

pub fn render(registry: &Registry, format: Format) -> String {
    let mut openmetrics = String::new();
    // A String takes whatever is written to it.
    let _ = text::encode(&mut openmetrics, registry);
    match format {
        Format::OpenMetrics => openmetrics,
        Format::Prometheus => declare_counters_by_their_samples(&openmetrics),
    }
}

fn declare_counters_by_their_samples(openmetrics: &str) -> String {
    let mut text = String::with_capacity(openmetrics.len());
    let mut help = None;
    for line in openmetrics.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            // Its name depends on the type, which comes next.
            help = rest.split_once(' ');
        } else if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            let suffix = if kind == "counter" { "_total" } else { "" };
            if let Some((_, help)) = help.take() {
                let _ = writeln!(text, "# HELP {name}{suffix} {help}");
            }
            let _ = writeln!(text, "# TYPE {name}{suffix} {kind}");
        } else if !line.starts_with('#') {
            text += line;
            text.push('\n');
        }
    }
    text
}
