//! The proxy that one would write in an afternoon, with axum and sqlx: a pool of connections, and
//! one fenced statement for each request. It parses and checks next to nothing.

use std::sync::Arc;

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Path, State},
    http::{
        HeaderMap, StatusCode,
        header::{CONTENT_TYPE, ETAG},
    },
    response::{IntoResponse, Response},
    routing::get,
};
use fencepost::api::{FENCING_MARK, FENCING_TOKEN};
use sqlx::{PgPool, Row, postgres::PgPoolOptions};
use tokio::net::TcpListener;

use super::sql;

/// More of them make a single Postgres on two processors no faster.
const CONNECTIONS: u32 = 32;

struct Plain {
    pool: PgPool,
    upsert: &'static str,
    select: &'static str,
}

type Answer = Result<Response, StatusCode>;

pub async fn serve(database: &str) {
    let pool = PgPoolOptions::new()
        .max_connections(CONNECTIONS)
        .min_connections(CONNECTIONS)
        // A round trip more for each request.
        .test_before_acquire(false)
        .connect(database)
        .await
        .expect("the database answers");
    let upsert = sql::with(sql::UPSERT, &[("key", "$1"), ("token", "$2"), ("value", "$3")]).leak();
    let select = sql::with(sql::SELECT, &[("key", "$1")]).leak();
    let plain = Arc::new(Plain { pool, upsert, select });
    let router =
        Router::new().route("/v1/resources/{*key}", get(read).put(write)).with_state(plain);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    println!("{}", listener.local_addr().expect("its address"));
    #[expect(clippy::disallowed_methods, reason = "it is what a plain proxy would use")]
    axum::serve(listener, router).await.expect("it serves");
}

async fn write(
    State(plain): State<Arc<Plain>>,
    Path(key): Path<String>,
    headers: HeaderMap,
    value: Bytes,
) -> Answer {
    let token = headers.get(FENCING_TOKEN).and_then(|token| token.to_str().ok()?.parse().ok());
    let token: i64 = token.ok_or(StatusCode::BAD_REQUEST)?;
    let written = sqlx::query(plain.upsert)
        .bind(&key)
        .bind(token)
        .bind(&value[..])
        .fetch_optional(&plain.pool)
        .await
        .map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    let Some(written) = written else { return Ok(StatusCode::CONFLICT.into_response()) };
    let version: i64 = written.get(0);
    let answer = format!(r#"{{"key":"{key}","version":{version},"token":{token}}}"#);
    let answer = Response::builder()
        .header(CONTENT_TYPE, "application/json")
        .header(FENCING_MARK, token)
        .header(ETAG, format!("\"{version}\""))
        .body(Body::from(answer));
    answer.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
}

async fn read(State(plain): State<Arc<Plain>>, Path(key): Path<String>) -> Answer {
    let row = sqlx::query(plain.select)
        .bind(&key)
        .fetch_optional(&plain.pool)
        .await
        .map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    let row = row.ok_or(StatusCode::NOT_FOUND)?;
    let (token, version): (i64, i64) = (row.get("token"), row.get("version"));
    let (value, content_type): (Option<Vec<u8>>, Option<String>) =
        (row.get("value"), row.get("content_type"));
    let answer = Response::builder()
        .header(CONTENT_TYPE, content_type.unwrap_or_default())
        .header(FENCING_MARK, token)
        .header(ETAG, format!("\"{version}\""))
        .body(Body::from(value.ok_or(StatusCode::NOT_FOUND)?));
    answer.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
}
