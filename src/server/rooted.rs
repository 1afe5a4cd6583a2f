//! A socket that wakes the thread on which it is used, also if that has become another one.
//!
//! A thread has a runtime of its own, and a socket is known to one of them, which wakes whoever waits for it. A
//! task that goes on elsewhere takes its socket along: when it is used there for the first time, it is made
//! known to the runtime there.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

use crate::threads;

/// Bytes that are read at a time. hyper doubles the buffer of a connection whenever it is filled at once, and keeps
/// it: with a thousand connections that send large bodies, that would be a hundred megabytes.
const MOST_READ: usize = 8 << 10;

pub struct Rooted {
    /// Missing only after it could not be taken along, which ends the connection.
    stream: Option<TcpStream>,
    place: usize,
}

impl Rooted {
    /// On the thread that it is known to.
    pub fn here(stream: TcpStream) -> Self {
        Self { stream: Some(stream), place: threads::place() }
    }

    fn stream(self: Pin<&mut Self>) -> io::Result<Pin<&mut TcpStream>> {
        let this = self.get_mut();
        if this.place != threads::place() {
            this.come_along().inspect_err(|error| {
                tracing::warn!(%error, "a connection cannot be handed to its thread, and is closed");
            })?;
        }
        this.stream.as_mut().map(Pin::new).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    fn come_along(&mut self) -> io::Result<()> {
        self.place = threads::place();
        if let Some(stream) = self.stream.take() {
            self.stream = Some(TcpStream::from_std(stream.into_std()?)?);
        }
        Ok(())
    }
}

impl AsyncRead for Rooted {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if buffer.remaining() <= MOST_READ {
            return self.stream()?.poll_read(context, buffer);
        }
        let read = {
            let mut part = ReadBuf::new(buffer.initialize_unfilled_to(MOST_READ));
            ready!(self.stream()?.poll_read(context, &mut part))?;
            part.filled().len()
        };
        buffer.advance(read);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Rooted {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stream()?.poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream()?.poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream()?.poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream()?.poll_shutdown(context)
    }
}
