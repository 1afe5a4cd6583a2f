//! What a write costs before it reaches the database: the parser, the mark cache and the batch
//! builder.
//!
//! `cargo bench --bench micro`. Criterion compares with the last run, and says whether a change is
//! more than noise.

use std::{hint::black_box, sync::Arc, time::Duration};

use axum::http::{HeaderMap, HeaderValue, Uri};
use bytesize::ByteSize;
use criterion::{Criterion, criterion_group, criterion_main};
use fencepost::{
    api::{Api, FENCING_SEQ, FENCING_TOKEN, Guarded, Shared, extract, named::Named},
    engine::{self, Engine, Trust, marks::Marks},
    fence::{Judgement, Standing},
    limits::{Bounds, Limits},
    metrics::Metrics,
    store::{Settled, Store, Unit, postgres::plan::plan, sqlite::SqliteStore},
    threads::Threads,
    token::{Key, Mark, Token, Version},
    write::{Change, Rule, Value, Write},
};
use tokio_util::sync::CancellationToken;

fn parser(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("parser");
    group.bench_function("token", |bencher| {
        bencher.iter(|| Token::parse(black_box("281474976710655")));
    });
    group.bench_function("key", |bencher| {
        bencher.iter(|| Key::from_encoded(black_box("orders/europe/000042")));
    });
    group.bench_function("key with escapes", |bencher| {
        bencher.iter(|| Key::from_encoded(black_box("orders%2Feurope%2F%C3%A9t%C3%A9")));
    });
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let _inside = runtime.enter();
    let api = api();
    let uri: Uri = "/v1/resources/orders/42".parse().expect("a path");
    let mut headers = HeaderMap::new();
    headers.insert("host", HeaderValue::from_static("localhost:7420"));
    headers.insert("content-type", HeaderValue::from_static("text/plain"));
    headers.insert("content-length", HeaderValue::from_static("200"));
    headers.insert(FENCING_TOKEN, HeaderValue::from_static("34"));
    group.bench_function("headers of a write", |bencher| {
        bencher.iter(|| write(&api, black_box(&uri), black_box(&headers)));
    });
    headers.insert(FENCING_SEQ, HeaderValue::from_static("7"));
    headers.insert("if-match", HeaderValue::from_static("\"3\""));
    group.bench_function("headers of a write with seq and If-Match", |bencher| {
        bencher.iter(|| write(&api, black_box(&uri), black_box(&headers)));
    });
    group.finish();
}

fn write(api: &Api, uri: &Uri, headers: &HeaderMap) -> Option<Write> {
    let key = extract::key(uri, "/v1/resources/").ok()?;
    extract::write(api, key, headers, Named::among(headers), Change::Delete).ok()
}

/// Its engine is never used, and never opened.
fn api() -> Api {
    let store: Arc<dyn Store> = Arc::new(SqliteStore::new("never-opened.db".into()));
    let limits = engine::Limits { queue: 1, mark_cache: ByteSize::mib(1) };
    let metrics = Arc::new(Metrics::new(false, Arc::default()));
    let engine = Arc::new(Engine::start(
        &store,
        Trust::Open,
        limits,
        metrics.clone(),
        &Threads::only_this(),
    ));
    Api::from(Shared {
        guarded: Guarded::new(engine, None),
        gate: None,
        limits: Arc::new(Limits::new(Bounds::default(), None, metrics)),
        on_loopback: true,
        rule: Rule::AtLeast,
        max_body: ByteSize::mib(1),
        body_timeout: Duration::from_secs(30),
        closing: CancellationToken::new(),
    })
}

const KEYS: usize = 100_000;

fn mark_cache(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("mark cache");
    let marks = Marks::new(ByteSize::mib(16));
    let [stale, current, newer] = [6, 7, 8].map(claims);
    for unit in &current {
        marks.learn(unit, &accepted(unit));
    }
    let mut next = (0..KEYS).cycle();
    let mut any = move || next.next().unwrap_or_default();
    group.bench_function("refuses a stale write", |bencher| {
        bencher.iter(|| marks.refuse(&stale[any()]));
    });
    group.bench_function("lets a current write pass", |bencher| {
        bencher.iter(|| marks.refuse(&current[any()]));
    });
    let settled: Vec<Settled> = newer.iter().map(accepted).collect();
    group.bench_function("learns a mark", |bencher| {
        bencher.iter(|| {
            let number = any();
            marks.learn(&newer[number], &settled[number]);
        });
    });
    group.finish();
}

fn claims(token: i64) -> Vec<Unit> {
    (0..KEYS).map(|number| Unit::single(claim(number, token))).collect()
}

fn claim(number: usize, token: i64) -> Write {
    let key = Key::new(&format!("bench/{number:09}")).expect("a valid key");
    Write::claim(key, Token::new(token).expect("a valid token"))
}

fn accepted(unit: &Unit) -> Settled {
    let mark = Mark::at(unit.writes()[0].token, None);
    let version = Version::from_stored(3);
    let key = Standing { mark, version, present: true, created: false, digest: None };
    let judgement = Judgement::accepted(key);
    Settled::Applied { judgements: vec![judgement], value: None }
}

/// Which of the writes that came together share a statement.
fn batch_builder(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("batch builder");
    let mut bench = |name: &str, units: Vec<Unit>| {
        let places: Vec<usize> = (0..units.len()).collect();
        group.bench_function(name, |bencher| bencher.iter(|| plan(black_box(&units), &places)));
    };
    bench("64 puts of 64 keys", puts(64, |number| number * 7919 % 64));
    bench("256 puts of 256 keys", puts(256, |number| number * 7919 % 256));
    bench("64 puts of one key", puts(64, |_| 0));
    let mut some_claims = puts(64, |number| number);
    some_claims.extend(claims(7).into_iter().take(16));
    bench("64 puts, and 16 claims of the same keys", some_claims);
    group.finish();
}

fn puts(count: usize, key: impl Fn(usize) -> usize) -> Vec<Unit> {
    let put = |number| {
        let value = Value { body: vec![b'v'; 200].into(), content_type: "text/plain".into() };
        let write = claim(key(number), 7);
        Unit::single(Write { change: Change::Put(value), ..write })
    };
    (0..count).map(put).collect()
}

criterion_group!(micro, parser, mark_cache, batch_builder);
criterion_main!(micro);
