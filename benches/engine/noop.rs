//! What HTTP alone costs: Fencepost's own server, and a PUT that takes the body off the wire and
//! answers as an accepted write would, without having read a header or asked anybody.

use std::{net::SocketAddr, time::Duration};

use axum::{
    body::Body,
    extract::Request,
    http::header::{CONTENT_TYPE, ETAG},
    response::Response,
};
use fencepost::{
    api::FENCING_MARK,
    server::{self, Answers, Drain},
    threads::Threads,
};
use http_body_util::BodyExt;

pub async fn serve(threads: Threads) {
    let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
    let listener = server::listen(anywhere).expect("a free port");
    println!("{}", listener.local_addr().expect("its address"));
    let limits = server::Limits {
        connections: 4096,
        turned_away: prometheus_client::metrics::counter::Counter::default(),
        by_identity: false,
        head: 128 << 10,
        header_timeout: Duration::from_secs(30),
        write_timeout: Duration::from_secs(30),
    };
    server::serve(listener, None, Nothing, limits, Drain::never(), threads).await;
}

#[derive(Clone)]
struct Nothing;

impl Answers for Nothing {
    async fn answer(&self, request: Request) -> Response {
        const ANSWER: &str = r#"{"key":"bench/000000000","version":1,"token":7}"#;
        let _body = request.into_body().collect().await.expect("a whole body").to_bytes();
        let answer = Response::builder()
            .header(CONTENT_TYPE, "application/json")
            .header(FENCING_MARK, "7")
            .header(ETAG, "\"1\"");
        answer.body(Body::from(ANSWER)).expect("a valid answer")
    }
}
