//! Accepting connections, and letting them go.
//!
//! `axum::serve` has no time-out for half-sent headers and no bound on connections, and a client
//! can keep its graceful shutdown waiting for ever. So the loop is our own, on hyper-util:
//! everything that a client can hold open has a deadline or a limit.

mod activity;
mod drain;

use std::{convert::Infallible, io, net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::Request,
    http::{HeaderValue, Version, header::CONNECTION},
};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto, graceful::GracefulShutdown},
};
use socket2::{SockRef, TcpKeepalive};
use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::timeout,
};
use tokio_io_timeout::TimeoutStream;
use tower::ServiceExt;

use self::activity::Activity;
pub use self::drain::Drain;

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub connections: usize,
    /// For a request's head to arrive, and for an idle connection to be used again.
    pub header_timeout: Duration,
    /// For a client to take some more of its answer.
    pub write_timeout: Duration,
}

/// Marks an answer that has no end of its own and that nobody needs: a drain does not wait for it.
#[derive(Clone, Copy)]
pub struct Lingering;

/// Goes with every request: the other end of its connection.
#[derive(Clone, Copy)]
pub struct Peer(pub SocketAddr);

/// How long a client may send nothing before it is asked whether it is still there.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);

/// Connections that may be turned away with an answer at once; beyond that they are just closed.
const FAREWELLS: usize = 64;

/// How long one that is turned away may take to ask, and then to take its answer.
const FAREWELL_TIME: Duration = Duration::from_secs(1);

/// Sent before closing, when there are already as many connections as there may be.
const TOO_MANY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\n\
    content-type: application/problem+json\r\nretry-after: 1\r\nconnection: close\r\n\
    content-length: 173\r\n\r\n\
    {\"type\":\"urn:fencepost:overloaded\",\"title\":\"Too many requests are waiting\",\"status\":503,\
    \"detail\":\"there are too many connections; try again after a moment\",\"retryable\":true}";

/// Serves `router` until `drain` says stop, then lets what is in flight finish. Returns when the
/// last connection is closed or the drain's deadline has passed.
pub async fn serve(listener: TcpListener, router: Router, limits: Limits, drain: Drain) {
    let activity = Arc::new(Activity::default());
    let places = Arc::new(Semaphore::new(limits.connections));
    let farewells = Arc::new(Semaphore::new(FAREWELLS));
    let connections = GracefulShutdown::new();
    let stop_accepting = drain.stop_accepting(&activity);
    tokio::pin!(stop_accepting);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut stop_accepting => break,
        };
        let (stream, address) = match accepted {
            Ok(connection) => connection,
            Err(error) => {
                wait_out(&error).await;
                continue;
            }
        };
        let Ok(place) = places.clone().try_acquire_owned() else {
            if let Ok(farewell) = farewells.clone().try_acquire_owned() {
                tokio::spawn(async move {
                    turn_away(stream).await;
                    drop(farewell);
                });
            }
            continue;
        };
        let watcher = connections.watcher();
        let router = router.clone();
        let activity = activity.clone();
        let drain = drain.clone();
        tokio::spawn(async move {
            serve_connection(stream, Peer(address), router, limits, activity, drain, watcher).await;
            drop(place);
        });
    }
    drop(listener);
    drain.closing().cancel();
    if timeout(drain.remaining(), connections.shutdown()).await.is_err() {
        tracing::warn!("some connections were still open at the end of the drain");
    }
}

async fn serve_connection(
    stream: TcpStream,
    peer: Peer,
    router: Router,
    limits: Limits,
    activity: Arc<Activity>,
    drain: Drain,
    watcher: hyper_util::server::graceful::Watcher,
) {
    // Small answers must not wait for the acknowledgement of the one before.
    let _ = stream.set_nodelay(true);
    notice_if_it_vanishes(&stream, limits);
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(limits.write_timeout));

    let here = Arc::new(Activity::default());
    let service = {
        let here = here.clone();
        hyper::service::service_fn(move |request: hyper::Request<Incoming>| {
            let answering = (activity.request(), here.request());
            let drain = drain.clone();
            let http_1 = request.version() < Version::HTTP_2;
            let mut request = Request::from(request.map(Body::new));
            request.extensions_mut().insert(peer);
            let answer = router.clone().oneshot(request);
            async move {
                let answer = answer.await.map_err(|never: Infallible| match never {});
                answer.map(|mut answer| {
                    if http_1 && drain.has_begun() {
                        // So that the client does not send its next request just as we hang up.
                        answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                    }
                    let (anywhere, here) = answering;
                    let anywhere =
                        answer.extensions().get::<Lingering>().is_none().then_some(anywhere);
                    // In flight until the last of its body is on its way.
                    answer.map(|body| until_sent(body, (anywhere, here)))
                })
            }
        })
    };
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(limits.header_timeout);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(256)
        .keep_alive_interval(limits.header_timeout)
        .keep_alive_timeout(limits.header_timeout);
    let connection = builder.serve_connection(TokioIo::new(Box::pin(stream)), service);
    let connection = watcher.watch(connection.into_owned());
    tokio::pin!(connection);

    // hyper's own time-outs begin once it knows the HTTP version, and HTTP/2 has none for a client
    // that says nothing.
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = here.quiet(limits.header_timeout) => return,
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}

/// A machine that loses its power says no farewell. It may have a lock, or wait for one.
fn notice_if_it_vanishes(stream: &TcpStream, limits: Limits) {
    let socket = SockRef::from(stream);
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_IDLE).with_interval(KEEPALIVE_INTERVAL);
    let asked = socket.set_tcp_keepalive(&keepalive);
    // For what was sent and not acknowledged; this also bounds how often the question is repeated.
    #[cfg(target_os = "linux")]
    let asked = asked.and(socket.set_tcp_user_timeout(Some(limits.write_timeout)));
    if let Err(error) = asked {
        tracing::debug!(%error, "a connection cannot be watched");
    }
}

fn until_sent(body: Body, answering: impl Send + 'static) -> Body {
    Body::new(body.map_frame(move |frame| {
        let _ = &answering;
        frame
    }))
}

/// Client libraries do not understand an answer that comes before the request. And what is still
/// unread when the connection is closed could reset it, and take the answer away again.
async fn turn_away(mut stream: TcpStream) {
    // Not `readable`, which may be true of a new socket before anything has arrived.
    let _ = timeout(FAREWELL_TIME, stream.peek(&mut [0])).await;
    let farewell = async {
        stream.write_all(TOO_MANY).await?;
        stream.shutdown().await?;
        tokio::io::copy(&mut stream, &mut tokio::io::sink()).await
    };
    let _ = timeout(FAREWELL_TIME, farewell).await;
}

/// A connection that died in the queue concerns nobody. Anything else (no file descriptors left)
/// will not be better at once.
async fn wait_out(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    if !matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset) {
        tracing::error!(%error, "cannot accept connections");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::TOO_MANY;

    #[test]
    fn the_farewell_is_a_whole_answer() {
        let text = std::str::from_utf8(TOO_MANY).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}", body.len())), "{}", body.len());
        serde_json::from_str::<serde_json::Value>(body).unwrap();
    }
}
