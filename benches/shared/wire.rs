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
    /// A write must have been accepted, and may have created what it wrote.
    HttpWritten,
    /// Whoever asks looks at the status.
    AnyHttp,
    Redis,
}

impl Protocol {
    /// Whether `received` is a whole answer; an error if it is not the one that was hoped for.
    fn is_whole(self, received: &[u8]) -> io::Result<bool> {
        match self {
            Self::Http(_) | Self::HttpWritten | Self::AnyHttp => match http_answer(received)? {
                Some((length, _)) if received.len() < length => Ok(false),
                Some((_, got)) => match self {
                    Self::Http(status) if got != status => Err(unexpected(received)),
                    Self::HttpWritten if ![200, 201].contains(&got) => Err(unexpected(received)),
                    _ => Ok(true),
                },
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

/// The length of an answer with its head, and its status, once its head is there. It is looked through once, line
/// by line: what the generator takes of the processors, nobody else has.
fn http_answer(received: &[u8]) -> io::Result<Option<(usize, u16)>> {
    const NO_CONTENT: u16 = 204;
    const LENGTH: &str = "content-length:";
    let text = std::str::from_utf8(received).map_err(|_| unexpected(received))?;
    let mut length = None;
    let mut end = 0;
    loop {
        let Some(line) = text[end..].find('\n').map(|at| &text[end..=end + at]) else {
            return Ok(None);
        };
        end += line.len();
        if line == "\r\n" {
            break;
        }
        if line.get(..LENGTH.len()).is_some_and(|name| name.eq_ignore_ascii_case(LENGTH)) {
            length = line[LENGTH.len()..].trim().parse::<usize>().ok();
        }
    }
    let status = text.get(9..12).and_then(|status| status.parse().ok());
    let length = length.or((status == Some(NO_CONTENT)).then_some(0));
    match (length, status) {
        (Some(length), Some(status)) => Ok(Some((end + length, status))),
        _ => Err(unexpected(received)),
    }
}

/// The value of a header, in an answer or its head.
pub fn header<'a>(answer: &'a str, name: &str) -> Option<&'a str> {
    let head = answer.lines().take_while(|line| !line.is_empty());
    head.skip(1).find_map(|line| {
        let (its_name, value) = line.split_once(':')?;
        its_name.eq_ignore_ascii_case(name).then(|| value.trim())
    })
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

    /// Sends a request, and returns its whole answer.
    pub async fn exchange(&mut self, request: &[u8]) -> io::Result<&[u8]> {
        self.stream.write_all(request).await?;
        let mut length = 0;
        loop {
            match self.stream.read(&mut self.buffer[length..]).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                more => length += more,
            }
            if self.protocol.is_whole(&self.buffer[..length])? {
                return Ok(&self.buffer[..length]);
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
