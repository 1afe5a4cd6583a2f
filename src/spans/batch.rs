//! Writes that are settled together: one `batch` with one `statement`, whoever asked.
//!
//! Their requests may belong to many traces. The batch is a part of the first one's, and is linked
//! with the others; the `queue` of each is linked with the batch. So the way leads there and back.

use std::time::{Instant, SystemTime};

use super::{
    Spans,
    span::{Context, Kind, Span, calendar, now},
};
use crate::{rejections::Caller, store::Unit, trace::SpanId};

/// OpenTelemetry's own bound.
const MOST_LINKS: usize = 128;

pub struct Batch<'a> {
    spans: &'a Spans,
    context: Context,
    parent: SpanId,
    links: Vec<Context>,
    since: SystemTime,
    requests: i64,
    failed: bool,
}

impl Spans {
    /// A batch begins with requests that have waited since the given moments. `None` if nobody
    /// traces any of them.
    pub fn batch<'a, 'b>(
        &'a self,
        waiting: impl Iterator<Item = (Instant, &'b Caller)>,
    ) -> Option<Batch<'a>> {
        let mut requests = 0;
        let counted = waiting.inspect(|_| requests += 1);
        let mut traced = counted.filter_map(|(since, caller)| Some((since, caller.step?.context)));
        let (since, first) = traced.next()?;
        let context = Context { trace: first.trace, span: SpanId::random() };
        self.queued(first, since, context);
        let mut links = Vec::new();
        for (since, other) in traced {
            self.queued(other, since, context);
            if links.len() < MOST_LINKS {
                links.push(other);
            }
        }
        let (parent, since) = (first.span, now());
        Some(Batch { spans: self, context, parent, links, since, requests, failed: false })
    }

    fn queued(&self, request: Context, since: Instant, batch: Context) {
        let mut queue = Span::inside(request, "queue", calendar(since));
        queue.links.push(batch);
        self.record(queue);
    }
}

impl Batch<'_> {
    /// The store has been asked, and has answered.
    pub fn stated(&mut self, since: Instant, units: &[Unit], failed: bool) {
        let mut statement = Span::inside(self.context, "statement", calendar(since));
        statement.kind = Kind::Client;
        statement.failed = failed;
        statement.attributes.push(("db.system.name", self.spans.database.into()));
        let writes: usize = units.iter().map(|unit| unit.writes().len()).sum();
        let writes = i64::try_from(writes).unwrap_or(i64::MAX);
        statement.attributes.push(("db.operation.batch.size", writes.into()));
        self.failed = failed;
        self.spans.record(statement);
    }

    /// There was no session to ask with.
    pub fn failed(&mut self) {
        self.failed = true;
    }

    /// Everybody has been answered.
    pub fn settled(self) {
        let batch = Span::alone("batch".into(), Kind::Internal, self.context, self.since);
        self.spans.record(Span {
            parent: Some(self.parent),
            links: self.links,
            attributes: vec![("fencepost.batch.requests", self.requests.into())],
            failed: self.failed,
            ..batch
        });
    }
}
