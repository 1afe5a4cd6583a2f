//! Accepting connections, and letting them go.
//!
//! `axum::serve` has no time-out for half-sent headers and no bound on connections, and a client
//! can keep its graceful shutdown waiting for ever. So the loop is our own, on hyper-util:
//! everything that a client can hold open has a deadline or a limit.

mod activity;
mod drain;
mod guest;
mod in_flight;
#[cfg(test)]
mod letting_go;
mod listening;
mod moving;
mod rooted;
mod sending;
pub mod tls;
mod unsent;

use std::{convert::Infallible, io, net::SocketAddr, pin::Pin, sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::Request,
    http::{HeaderValue, Version, header::CONNECTION},
    response::Response,
};
use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use hyper::body::Incoming;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use prometheus_client::metrics::counter::Counter;
use socket2::{SockRef, TcpKeepalive};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::{sleep, timeout},
};
use tokio_io_timeout::TimeoutStream;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::ServiceExt;

use self::{
    activity::{Activity, Answering},
    rooted::Rooted,
    sending::Sending,
    unsent::Unsent,
};
pub use self::{drain::Drain, guest::Guest, listening::listen, tls::Tls};
use crate::{auth::gate::Certified, limits::Line, threads::Threads};

#[derive(Clone, Debug)]
pub struct Limits {
    pub connections: usize,
    /// Counts those that were turned away.
    pub turned_away: Counter,
    /// Whether connections are also counted by identity.
    pub by_identity: bool,
    /// The most bytes of a request's head.
    pub head: usize,
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

/// Bytes of bodies that an HTTP/2 client may send before they are read, on one stream and on all together.
const STREAM_WINDOW: u32 = 64 << 10;
const CONNECTION_WINDOW: u32 = 256 << 10;

/// Bytes of an answer that wait in the socket's buffer until the client takes them. The kernel would let
/// megabytes wait there, which count as this process's memory where that is limited.
#[cfg(target_os = "linux")]
const UNSENT_BYTES: u32 = 64 << 10;

/// Connections that may be turned away with an answer at once; beyond that they are just closed.
const FAREWELLS: usize = 64;

/// How long one that is turned away may take to ask, and then to take its answer.
const FAREWELL_TIME: Duration = Duration::from_secs(1);

/// Sent before closing, when there are already as many connections as there may be.
const TOO_MANY: &[u8] = b"HTTP/1.1 429 Too Many Requests\r\n\
    content-type: application/problem+json\r\nretry-after: 1\r\nconnection: close\r\n\
    content-length: 189\r\n\r\n\
    {\"type\":\"urn:fencepost:overloaded\",\"title\":\"A limit is reached\",\"status\":429,\
    \"detail\":\"as many connections are open as may; try again after a moment\",\
    \"limit\":\"connections\",\"retryable\":true}";

/// Whoever answers what comes to a listener.
pub trait Answers: Clone + Send + Sync + 'static {
    fn answer(&self, request: Request) -> impl Future<Output = Response> + Send;
}

impl Answers for Router {
    async fn answer(&self, request: Request) -> Response {
        let answer: Result<_, Infallible> = self.clone().oneshot(request).await;
        answer.unwrap_or_else(|never| match never {})
    }
}

/// Has requests answered until `drain` says stop, then lets what is in flight finish. Returns when the
/// last connection is closed or the drain's deadline has passed.
pub async fn serve(
    listener: TcpListener,
    tls: Option<Tls>,
    answers: impl Answers,
    limits: Limits,
    drain: Drain,
    threads: Threads,
) {
    let activity = Arc::new(Activity::default());
    let places = Arc::new(Semaphore::new(limits.connections));
    let farewells = Arc::new(Semaphore::new(FAREWELLS));
    let connections = TaskTracker::new();
    let stopping = CancellationToken::new();
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
            limits.turned_away.inc();
            // Over TLS a farewell would take a handshake, which is what there is no place for.
            if tls.is_none()
                && let Ok(farewell) = farewells.clone().try_acquire_owned()
            {
                tokio::spawn(async move {
                    turn_away(stream).await;
                    drop(farewell);
                });
            }
            continue;
        };
        let (answers, tls) = (answers.clone(), tls.clone());
        let (activity, limits) = (activity.clone(), limits.clone());
        // A token of its own: they would all contend for the lock of one, at every request.
        let (drain, stopping) = (drain.clone(), stopping.child_token());
        let stream = prepared(stream, &limits);
        let serving = async move {
            let stream = with_deadlines(stream, &limits);
            let peer = Peer(address);
            match tls {
                None => {
                    let from = OtherEnd { peer, certified: None };
                    serve_connection(stream, from, answers, limits, activity, drain, stopping)
                        .await;
                }
                Some(tls) => {
                    if let Some((stream, certified)) = tls.accept(stream).await {
                        let from = OtherEnd { peer, certified };
                        serve_connection(stream, from, answers, limits, activity, drain, stopping)
                            .await;
                    }
                }
            }
            drop(place);
        };
        moving::start(serving, &threads, &connections);
    }
    drop(listener);
    let_go(connections, stopping, &drain).await;
}

/// Lets what is in flight finish. Returns when the last connection is closed, or time is up.
async fn let_go(connections: TaskTracker, stopping: CancellationToken, drain: &Drain) {
    drain.closing().cancel();
    stopping.cancel();
    connections.close();
    if timeout(drain.remaining(), connections.wait()).await.is_err() {
        tracing::warn!("some connections were still open at the end of the drain");
    }
}

type Stream = Pin<Box<TimeoutStream<Rooted>>>;

fn prepared(stream: TcpStream, limits: &Limits) -> Rooted {
    // Small answers must not wait for the acknowledgement of the one before.
    let _ = stream.set_nodelay(true);
    notice_if_it_vanishes(&stream, limits);
    Rooted::here(stream)
}

fn with_deadlines(stream: Rooted, limits: &Limits) -> Stream {
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(limits.write_timeout));
    Box::pin(stream)
}

/// What is known of the other end of a connection, for each of its requests.
struct OtherEnd {
    peer: Peer,
    certified: Option<Certified>,
}

async fn serve_connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    from: OtherEnd,
    answers: impl Answers,
    limits: Limits,
    activity: Arc<Activity>,
    drain: Drain,
    stopping: CancellationToken,
) {
    let here = Arc::new(Activity::default());
    let (guest, unsent) = (Arc::new(Guest::default()), Arc::new(Unsent::default()));
    let line = limits.by_identity.then(Line::default);
    let service = {
        let (here, guest, unsent) = (here.clone(), guest.clone(), unsent.clone());
        // A drain has locks inside, which every request of every connection would contend for.
        let drain = Arc::new(drain);
        hyper::service::service_fn(move |request: hyper::Request<Incoming>| {
            let answering = (activity.request(), here.request());
            let drain = drain.clone();
            let multiplexed =
                (request.version() >= Version::HTTP_2).then(|| (guest.clone(), unsent.clone()));
            let mut request: Request = request.map(Body::new);
            request.extensions_mut().insert(from.peer);
            if let Some(certified) = &from.certified {
                request.extensions_mut().insert(certified.clone());
            }
            if let Some(line) = &line {
                request.extensions_mut().insert(line.clone());
            }
            if let Some((guest, _)) = &multiplexed {
                request.extensions_mut().insert(guest.clone());
            }
            let answers = answers.clone();
            async move {
                let answer = answers.answer(request).await;
                Ok::<_, Infallible>(sent(answer, answering, multiplexed, &drain))
            }
        })
    };
    let mut builder = auto::Builder::new(TokioExecutor::new());
    // It would set a timer for every request. One for the whole connection does the same, below.
    builder.http1().header_read_timeout(None).max_buf_size(limits.head);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(256)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(u32::try_from(limits.head).unwrap_or(u32::MAX))
        .keep_alive_interval(limits.header_timeout)
        .keep_alive_timeout(limits.header_timeout);
    let connection = builder.serve_connection(TokioIo::new(stream), service).into_owned();
    tokio::pin!(connection);

    let mut endings = endings(&here, &unsent, &guest, &stopping, &limits);
    let ended = loop {
        tokio::select! {
            biased;
            ended = &mut connection => break ended,
            Some(ending) = endings.next() => match ending {
                Ending::AtOnce => return,
                Ending::Graceful => connection.as_mut().graceful_shutdown(),
            },
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}

/// How a connection ends before its client ends it.
enum Ending {
    AtOnce,
    /// What is in flight is answered.
    Graceful,
}

/// What may end a connection. Each is looked at when its time has come, and not at every turn of the
/// connection, which has several for each request.
fn endings<'a>(
    here: &'a Activity,
    unsent: &'a Unsent,
    guest: &'a Guest,
    stopping: &'a CancellationToken,
    limits: &Limits,
) -> FuturesUnordered<BoxFuture<'a, Ending>> {
    let (header_timeout, write_timeout) = (limits.header_timeout, limits.write_timeout);
    // For a head that does not arrive, a connection that nobody uses, and a client that says nothing:
    // as long as a head is not whole, no request is in flight.
    let idle = here.quiet(header_timeout).map(|()| Ending::AtOnce).boxed();
    let stalled = unsent.stalled(write_timeout).map(|()| Ending::AtOnce).boxed();
    let stopped = async {
        stopping.cancelled().await;
        Ending::Graceful
    };
    // A head of which the rest does not come is nothing to wait for.
    let parted = async {
        stopping.cancelled().await;
        here.quiet(FAREWELL_TIME).await;
        Ending::AtOnce
    };
    let asked_to_leave = async {
        guest.must_leave().await;
        Ending::Graceful
    };
    // Whoever was asked may go on asking all the same.
    let outstayed = async {
        guest.must_leave().await;
        sleep(FAREWELL_TIME).await;
        Ending::AtOnce
    };
    let later = [stopped.boxed(), parted.boxed(), asked_to_leave.boxed(), outstayed.boxed()];
    [idle, stalled].into_iter().chain(later).collect()
}

/// `multiplexed`: over HTTP/2, where one connection has many answers on their way.
fn sent(
    mut answer: Response,
    (anywhere, here): (Answering, Answering),
    multiplexed: Option<(Arc<Guest>, Arc<Unsent>)>,
    drain: &Drain,
) -> hyper::Response<Sending> {
    if multiplexed.is_none() && drain.has_begun() {
        // So that the client does not send its next request just as we hang up.
        answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    let unsent = multiplexed.map(|(guest, unsent)| {
        match answer.headers_mut().remove(CONNECTION) {
            Some(_) => guest.was_turned_away(),
            None => guest.was_welcome(),
        }
        unsent
    });
    let anywhere = answer.extensions().get::<Lingering>().is_none().then_some(anywhere);
    answer.map(|body| Sending::new(body, (anywhere, here), unsent))
}

/// A machine that loses its power says no farewell. It may have a lock, or wait for one.
fn notice_if_it_vanishes(stream: &TcpStream, limits: &Limits) {
    let socket = SockRef::from(stream);
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_IDLE).with_interval(KEEPALIVE_INTERVAL);
    let asked = socket.set_tcp_keepalive(&keepalive);
    // For what was sent and not acknowledged; this also bounds how often the question is repeated.
    #[cfg(target_os = "linux")]
    let asked = asked
        .and(socket.set_tcp_user_timeout(Some(limits.write_timeout)))
        .and(socket.set_tcp_notsent_lowat(UNSENT_BYTES));
    if let Err(error) = asked {
        tracing::debug!(%error, "a connection cannot be watched");
    }
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
