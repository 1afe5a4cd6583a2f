//! Bodies on their way in and out, counted by the memory that they take up.

use std::{
    error::Error,
    pin::Pin,
    task::{Context, Poll, ready},
};

use axum::{
    body::{Body, Bytes, HttpBody},
    http::{HeaderValue, header},
    response::Response,
};
use hyper::body::{Frame, SizeHint};
use serde::Serialize;

use super::{misnamed, render};
use crate::{
    auth::Identity,
    engine::Reserve,
    limits::{LISTED_ROW, Limits, Load, OverLimit, SMALL, STORED, SharedLoad},
};

/// A request's body, which is refused where there is no room for more of it.
pub struct Incoming<'a> {
    pub body: &'a mut Body,
    pub limits: &'a Limits,
    pub who: Option<&'a Identity>,
    pub received: u64,
    /// `None` as long as it is small.
    pub load: Option<Load>,
}

impl Incoming<'_> {
    fn grow(&mut self, bytes: usize) -> Result<(), OverLimit> {
        self.received = self.received.saturating_add(bytes as u64);
        if self.received <= SMALL {
            return Ok(());
        }
        let load = self.load.get_or_insert_with(|| self.limits.load(self.who));
        self.limits.grow(load, self.received.saturating_mul(STORED))
    }
}

/// A whole body, and what it counts for. `load` is `None` if it is small.
pub struct Received {
    pub bytes: Bytes,
    pub load: Option<Load>,
}

impl Received {
    /// Counts for as long as these bytes are in memory.
    pub fn into_bytes(self) -> Bytes {
        match self.load {
            Some(load) => load.of(self.bytes),
            None => self.bytes,
        }
    }

    /// The same, for a body that is taken apart. Its parts are to be counted with it.
    pub fn into_parts(self) -> (Bytes, Option<SharedLoad>) {
        let load = self.load.map(Load::shared);
        match &load {
            Some(load) => (load.of(self.bytes), Some(load.clone())),
            None => (self.bytes, None),
        }
    }
}

/// Room for a value, asked for before it is fetched.
pub struct ValueRoom<'a> {
    limits: &'a Limits,
    load: Load,
    over: Option<OverLimit>,
}

/// Marks an answer whose body counts already.
#[derive(Clone, Copy)]
pub struct Counted;

impl<'a> ValueRoom<'a> {
    pub fn new(limits: &'a Limits, who: Option<&Identity>) -> Self {
        Self { limits, load: limits.load(who), over: None }
    }

    /// Which limit was met, if one was.
    pub fn over(&self) -> Option<OverLimit> {
        self.over
    }

    /// The value counts from now on until its last byte is gone. `None` if there was no need to ask.
    pub fn of(self, value: &Bytes) -> Option<Bytes> {
        (self.load.bytes() > 0).then(|| self.load.of(value.clone()))
    }
}

impl Reserve for ValueRoom<'_> {
    fn reserve(&mut self, bytes: u64) -> bool {
        self.over = self.limits.grow(&mut self.load, bytes).err();
        self.over.is_none()
    }
}

/// Room for a listing: for its rows before they are fetched, and for its JSON before that is rendered.
pub struct ListingRoom<'a> {
    limits: &'a Limits,
    load: Load,
    may_refuse: bool,
}

impl<'a> ListingRoom<'a> {
    /// `rows`: how many there may be.
    pub fn new(limits: &'a Limits, who: Option<&Identity>, rows: usize) -> Result<Self, OverLimit> {
        let mut room = Self { limits, load: limits.load(who), may_refuse: true };
        room.grow((rows as u64).saturating_mul(LISTED_ROW))?;
        Ok(room)
    }

    /// For operators, who must be able to look while clients have taken all the room. It counts all the same.
    pub fn for_operator(limits: &'a Limits) -> Self {
        Self { limits, load: limits.load(None), may_refuse: false }
    }

    fn grow(&mut self, bytes: u64) -> Result<(), OverLimit> {
        if self.may_refuse {
            return self.limits.grow(&mut self.load, bytes);
        }
        self.load.grow_anyway(bytes);
        Ok(())
    }

    /// The answer with this document. It counts until the client has taken it.
    pub fn json(mut self, document: &impl Serialize) -> Result<Response, OverLimit> {
        let length = render::json_length(document);
        let rows = self.load.bytes();
        self.grow(rows.saturating_add(length))?;
        let body = Bytes::from(render::json_bytes(length, document));
        let body = if length > SMALL {
            // The rows go when this is done.
            self.load.shrink_to(length);
            self.load.of(body)
        } else {
            body
        };
        let mut answer = Response::new(Body::from(body));
        answer.extensions_mut().insert(Counted);
        let json = HeaderValue::from_static("application/json");
        answer.headers_mut().insert(header::CONTENT_TYPE, json);
        Ok(answer)
    }
}

impl HttpBody for Incoming<'_> {
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let frame = match ready!(Pin::new(&mut *self.body).poll_frame(context)) {
            Some(Ok(frame)) => frame,
            Some(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
            None => return Poll::Ready(None),
        };
        if let Some(trailers) = frame.trailers_ref()
            && misnamed::is_in_trailers(trailers)
        {
            return Poll::Ready(Some(Err(misnamed::InTrailers.into())));
        }
        let bytes = frame.data_ref().map_or(0, Bytes::len);
        Poll::Ready(Some(self.grow(bytes).map(|()| frame).map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// An answer that is there as a whole counts until its client has taken it; of a stream, each event does.
/// `may_refuse`: nothing has been changed that the client must hear of.
pub fn outgoing(
    answer: Response,
    limits: &Limits,
    who: Option<&Identity>,
    may_refuse: bool,
) -> Result<Response, OverLimit> {
    if answer.extensions().get::<Counted>().is_some() {
        return Ok(answer);
    }
    let Some(bytes) = answer.body().size_hint().exact() else {
        let account = limits.load(who);
        return Ok(answer.map(|body| Body::new(OutgoingStream { body, account })));
    };
    if bytes <= SMALL {
        return Ok(answer);
    }
    let mut load = limits.load(who);
    if may_refuse {
        limits.grow(&mut load, bytes)?;
    } else {
        load.grow_anyway(bytes);
    }
    Ok(answer.map(|body| Body::new(Outgoing { body, load: Some(load) })))
}

struct Outgoing {
    body: Body,
    load: Option<Load>,
}

impl HttpBody for Outgoing {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        // What has a length is one piece, and may stay in a buffer when the body is gone.
        let last = self.body.is_end_stream();
        Poll::Ready(frame.map(|frame| {
            frame.map(|frame| {
                frame.map_data(|bytes| match self.load.take_if(|_| last) {
                    Some(load) => load.of(bytes),
                    None => bytes,
                })
            })
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Events, of which each counts until it has left the buffers of its connection. None can be refused: the
/// client has been promised them.
struct OutgoingStream {
    body: Body,
    /// Empty: whose events they are.
    account: Load,
}

impl HttpBody for OutgoingStream {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        let count = |bytes: Bytes| {
            if bytes.len() as u64 <= SMALL {
                return bytes;
            }
            let mut load = self.account.another();
            load.grow_anyway(bytes.len() as u64);
            load.of(bytes)
        };
        Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(count))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
