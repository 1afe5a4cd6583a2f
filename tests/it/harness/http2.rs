//! HTTP/2 as client libraries do not speak it: who chooses how much of an answer they take.

use axum::http::{Method, Request};
use bytes::Bytes;
use h2::{
    RecvStream, SendStream,
    client::{ResponseFuture, SendRequest},
};
use tokio::{net::TcpStream, task::JoinHandle};

use super::PATIENCE;

/// One connection.
pub struct Connection {
    requests: SendRequest<Bytes>,
    address: String,
    ended: JoinHandle<()>,
}

impl Connection {
    /// `room`: the bytes of each answer that it takes before it grants more.
    pub async fn open(address: &str, room: u32) -> Self {
        let stream = TcpStream::connect(address).await.expect("it listens");
        let mut client = h2::client::Builder::new();
        client.initial_window_size(room);
        let (requests, connection) = client.handshake(stream).await.expect("HTTP/2");
        // It answers pings, too.
        let ended = tokio::spawn(async move { drop(connection.await) });
        Self { requests, address: address.to_owned(), ended }
    }

    /// The status, and the rest of the answer, of which nothing is taken. `None`: the connection is at
    /// its end.
    pub async fn get(&mut self, path: &str, headers: &[(&str, &str)]) -> Option<(u16, RecvStream)> {
        let (answer, _) = self.begin(Method::GET, path, headers, true).await?;
        let (head, body) = answer.await.ok()?.into_parts();
        Some((head.status.as_u16(), body))
    }

    /// Sends the head of a request: its answer will come, and unless it is whole, a body may follow.
    pub async fn begin(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        is_whole: bool,
    ) -> Option<(ResponseFuture, SendStream<Bytes>)> {
        let uri = format!("http://{}{path}", self.address);
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(()).expect("a request");
        let mut ready = self.requests.clone().ready().await.ok()?;
        ready.send_request(request, is_whole).ok()
    }

    /// Waits until the server has closed it.
    pub async fn until_closed(self) {
        tokio::time::timeout(PATIENCE, self.ended).await.expect("it is closed").expect("no panic");
    }

    pub fn is_open(&self) -> bool {
        !self.ended.is_finished()
    }
}
