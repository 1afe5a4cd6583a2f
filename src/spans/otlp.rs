//! OTLP over HTTP, as OpenTelemetry's own crates speak it.
//!
//! Of the SDK only the exporter and its words are used: its tracer and its queue count nothing that
//! was dropped, and are one more thread. `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_SERVICE_NAME` and
//! `OTEL_RESOURCE_ATTRIBUTES` are read by it.

use opentelemetry::{
    InstrumentationScope, KeyValue, Value,
    trace::{Link, SpanContext, SpanKind, Status, TraceFlags, TraceState},
};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::{
    Resource,
    resource::EnvResourceDetector,
    trace::{SpanData, SpanEvents, SpanExporter as _, SpanLinks},
};

use super::{
    sending::PATIENCE,
    span::{Attribute, Context, Kind, Span},
};

pub struct Exporter {
    exporter: SpanExporter,
    scope: InstrumentationScope,
}

impl Exporter {
    pub fn open(endpoint: &str, instance: String) -> Result<Self, String> {
        // Fails if it is already there, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .timeout(PATIENCE)
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| format!("cannot make an HTTP client: {error}"))?;
        let mut exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(client)
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(format!("{}/v1/traces", endpoint.trim_end_matches('/')))
            .with_timeout(PATIENCE)
            .build()
            .map_err(|error| format!("traces cannot be sent: {error}"))?;
        exporter.set_resource(&resource(instance));
        let scope = InstrumentationScope::builder("fencepost")
            .with_version(env!("CARGO_PKG_VERSION"))
            .build();
        Ok(Self { exporter, scope })
    }

    pub async fn send(&self, spans: Vec<Span>) -> Result<(), String> {
        let spans = spans.into_iter().map(|span| self.translated(span)).collect();
        self.exporter.export(spans).await.map_err(|error| error.to_string())
    }

    fn translated(&self, span: Span) -> SpanData {
        let mut links = SpanLinks::default();
        links.links.extend(span.links.into_iter().map(|to| Link::with_context(context(to))));
        let attribute = |(name, value)| KeyValue::new::<&str, Value>(name, translated(value));
        SpanData {
            span_context: context(span.context),
            parent_span_id: span.parent.map_or(opentelemetry::SpanId::INVALID, |parent| {
                opentelemetry::SpanId::from_bytes(parent.bytes())
            }),
            parent_span_is_remote: span.parent_is_remote,
            span_kind: match span.kind {
                Kind::Server => SpanKind::Server,
                Kind::Client => SpanKind::Client,
                Kind::Internal => SpanKind::Internal,
            },
            name: span.name,
            start_time: span.start,
            end_time: span.end,
            attributes: span.attributes.into_iter().map(attribute).collect(),
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links,
            status: if span.failed { Status::error("") } else { Status::Unset },
            instrumentation_scope: self.scope.clone(),
        }
    }
}

/// What the environment says wins.
fn resource(instance: String) -> Resource {
    let resource = Resource::builder_empty()
        .with_service_name("fencepost")
        .with_attributes([
            KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
            KeyValue::new("service.instance.id", instance),
        ])
        .with_detector(Box::new(EnvResourceDetector::new()));
    match std::env::var("OTEL_SERVICE_NAME") {
        Ok(name) if !name.is_empty() => resource.with_service_name(name).build(),
        _ => resource.build(),
    }
}

fn context(context: Context) -> SpanContext {
    SpanContext::new(
        opentelemetry::TraceId::from_bytes(context.trace.bytes()),
        opentelemetry::SpanId::from_bytes(context.span.bytes()),
        // Others are not recorded.
        TraceFlags::SAMPLED,
        false,
        TraceState::NONE,
    )
}

fn translated(attribute: Attribute) -> Value {
    match attribute {
        Attribute::Number(number) => number.into(),
        Attribute::Text(text) => Value::String(text.into()),
    }
}
