//! Just enough of HTTP/1.1 and of Redis' protocol to know where an answer ends.

use std::{
    fmt::Write as _,
    io::{self, Read, Write},
    net::TcpStream as BlockingStream,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// No answer in here is longer.
const LONGEST_ANSWER: usize = 16 * 1024;

#[derive(Clone, Copy, Debug)]
pub enum Protocol {
    /// With the status that every answer must have.
    Http(u16),
    Redis,
}

impl Protocol {
    /// Whether `received` is a whole answer; an error if it is not the one that was hoped for.
    fn is_whole(self, received: &[u8]) -> io::Result<bool> {
        match self {
            Self::Http(status) => match http_answer(received)? {
                Some((length, _)) if received.len() < length => Ok(false),
                Some((_, got)) if got == status => Ok(true),
                Some(_) => Err(unexpected(received)),
                None => Ok(false),
            },
            // A version above zero: the write was accepted.
            Self::Redis => match received {
                [] => Ok(false),
                [b':', b'1'..=b'9', ..] => Ok(received.ends_with(b"\r\n")),
                _ => Err(unexpected(received)),
            },
        }
    }
}

/// The length of an answer with its head, and its status, once its head is there.
fn http_answer(received: &[u8]) -> io::Result<Option<(usize, u16)>> {
    const LENGTH: &[u8] = b"content-length:";
    let Some(end) = received.windows(4).position(|window| window == b"\r\n\r\n") else {
        return Ok(None);
    };
    let number = |text: &[u8]| std::str::from_utf8(text).ok()?.trim().parse::<usize>().ok();
    let lines = received[..end].split(|byte| *byte == b'\n');
    let mut lengths = lines.filter_map(|line| {
        let name = line.get(..LENGTH.len())?;
        name.eq_ignore_ascii_case(LENGTH).then(|| number(&line[LENGTH.len()..]))?
    });
    let length = lengths.next().ok_or_else(|| unexpected(received))?;
    let status = received.get(9..12).and_then(number).and_then(|status| status.try_into().ok());
    Ok(Some((end + 4 + length, status.ok_or_else(|| unexpected(received))?)))
}

fn unexpected(received: &[u8]) -> io::Error {
    io::Error::other(format!("an answer that was not expected: {}", received.escape_ascii()))
}

/// A command, as Redis takes it.
pub fn redis_command(words: &[&str]) -> String {
    let mut text = format!("*{}\r\n", words.len());
    for word in words {
        let _ = write!(text, "${}\r\n{word}\r\n", word.len());
    }
    text
}

/// A connection on which one request waits for its answer at a time.
pub struct Connection {
    stream: TcpStream,
    protocol: Protocol,
    buffer: Vec<u8>,
}

impl Connection {
    pub async fn open(address: &str, protocol: Protocol) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, protocol, buffer: vec![0; LONGEST_ANSWER] })
    }

    pub async fn exchange(&mut self, request: &[u8]) -> io::Result<()> {
        self.stream.write_all(request).await?;
        let mut length = 0;
        loop {
            match self.stream.read(&mut self.buffer[length..]).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                more => length += more,
            }
            if self.protocol.is_whole(&self.buffer[..length])? {
                return Ok(());
            }
        }
    }
}

/// The same for a thread of its own: it can be woken to the microsecond, tokio's timers cannot.
pub struct BlockingConnection {
    stream: BlockingStream,
    protocol: Protocol,
    buffer: Vec<u8>,
}

impl BlockingConnection {
    pub fn open(address: &str, protocol: Protocol) -> io::Result<Self> {
        let stream = BlockingStream::connect(address)?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, protocol, buffer: vec![0; LONGEST_ANSWER] })
    }

    pub fn exchange(&mut self, request: &[u8]) -> io::Result<()> {
        self.stream.write_all(request)?;
        let mut length = 0;
        loop {
            match self.stream.read(&mut self.buffer[length..])? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                more => length += more,
            }
            if self.protocol.is_whole(&self.buffer[..length])? {
                return Ok(());
            }
        }
    }
}
