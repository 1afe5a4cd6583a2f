//! An answer on its way: in flight until the last of it was handed to the socket.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use axum::body::{Body, Bytes, HttpBody};
use bytes::Buf;
use hyper::body::{Frame, SizeHint};

use super::{
    activity::Answering,
    unsent::{Unsent, Waiting},
};

/// On the listener, unless nobody needs the answer, and on its connection.
pub type InFlight = (Option<Answering>, Answering);

pub struct Sending {
    body: Body,
    in_flight: Option<InFlight>,
    /// Where the client says how much it takes, and the socket does not.
    unsent: Option<Arc<Unsent>>,
}

/// Some bytes of it. The last ones keep the answer in flight, though the body is gone by then.
pub struct Piece {
    bytes: Bytes,
    waiting: Option<Waiting>,
    _in_flight: Option<InFlight>,
}

impl Sending {
    pub fn new(body: Body, in_flight: InFlight, unsent: Option<Arc<Unsent>>) -> Self {
        Self { body, in_flight: Some(in_flight), unsent }
    }

    fn piece(&mut self, bytes: Bytes) -> Piece {
        let last = self.body.is_end_stream();
        Piece {
            bytes,
            waiting: self.unsent.as_ref().map(Unsent::one_more),
            _in_flight: self.in_flight.take_if(|_| last),
        }
    }
}

impl HttpBody for Sending {
    type Data = Piece;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Piece>, axum::Error>>> {
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(context));
        Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(|bytes| self.piece(bytes)))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
        if let Some(waiting) = &self.waiting {
            waiting.some_was_taken(count);
        }
    }
}
