//! An HTTP client that costs next to nothing, so that what is measured is the server: one connection,
//! one request at a time, and no more of the answer read than is needed.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

const LONGEST_ANSWER: usize = 16 * 1024;

pub struct Lean {
    stream: TcpStream,
    answer: Vec<u8>,
}

impl Lean {
    pub async fn connect(address: &str) -> Self {
        let stream = TcpStream::connect(address).await.expect("a connection");
        stream.set_nodelay(true).expect("an option");
        Self { stream, answer: Vec::with_capacity(LONGEST_ANSWER) }
    }

    /// Sends a request, and returns the head of its answer.
    pub async fn ask(&mut self, request: &str) -> &str {
        self.stream.write_all(request.as_bytes()).await.expect("it is sent");
        self.answer.clear();
        let head = loop {
            assert!(self.answer.len() < LONGEST_ANSWER, "an answer that has an end");
            let read = self.stream.read_buf(&mut self.answer).await.expect("an answer");
            assert!(read > 0, "the connection stays open");
            let end = self.answer.windows(4).position(|window| window == b"\r\n\r\n");
            let Some(end) = end.map(|end| end + 4) else { continue };
            let head = std::str::from_utf8(&self.answer[..end]).expect("text");
            let length = header(head, "content-length")
                .map_or(0, |length| length.parse().expect("a number"));
            if self.answer.len() == end + length {
                break end;
            }
        };
        std::str::from_utf8(&self.answer[..head]).expect("text")
    }
}

pub fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (its_name, value) = line.split_once(':')?;
        its_name.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}
