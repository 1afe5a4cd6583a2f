//! Requests beside those that are measured, as many a second as is asked for: a zombie's stale writes,
//! or as many that are refused before anybody knows what they want. The two differ in what a
//! rejection costs: to judge, count and record it.
//!
//! They come in bursts, many on one connection, so that the generator takes little of the machine.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Instant, MissedTickBehavior, interval},
};

use super::{plan::KEYS, template::Template};

/// What a zombie in a tight loop, or a fleet of them, may send.
pub const RATE: u64 = 50_000;

const CONNECTIONS: u64 = 8;
const BURST: Duration = Duration::from_millis(10);

#[derive(Clone, Copy)]
pub enum Flood {
    Nothing,
    /// Refused from memory, as is any write of a holder that was overtaken.
    Stale,
    /// The same bytes to a path that is not there: 404.
    Astray,
}

/// A flood that has begun.
pub struct Flowing {
    over: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    since: Instant,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Flood {
    pub fn begin(self, address: &str) -> Flowing {
        let (over, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let requests = match self {
            Self::Nothing => None,
            Self::Stale => Some((Template::stale_put(address), "HTTP/1.1 409")),
            Self::Astray => Some((Template::astray_put(address), "HTTP/1.1 404")),
        };
        let thread = requests.map(|(template, answer)| {
            let (over, answered) = (over.clone(), answered.clone());
            let address = address.to_owned();
            thread::spawn(move || flow(&address, template, answer, &over, &answered))
        });
        Flowing { over, answered, since: Instant::now(), thread }
    }
}

impl Flowing {
    /// Ends it: how many were answered a second.
    pub fn end(mut self) -> io::Result<f64> {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("a flood does not panic")?;
        }
        #[expect(clippy::cast_precision_loss, reason = "a count of answers")]
        let answered = self.answered.load(Ordering::Relaxed) as f64;
        Ok(answered / self.since.elapsed().as_secs_f64())
    }
}

fn flow(
    address: &str,
    template: Template,
    answer: &'static str,
    over: &AtomicBool,
    answered: &AtomicU64,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let flows =
            (0..CONNECTIONS).map(|_| pour(address, template.clone(), answer, over, answered));
        futures_util::future::try_join_all(flows).await.map(drop)
    })
}

/// One connection's share: a burst, then its answers; then what the clock says is due.
async fn pour(
    address: &str,
    mut template: Template,
    answer: &'static str,
    over: &AtomicBool,
    answered: &AtomicU64,
) -> io::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    let (mut reader, mut writer) = stream.split();
    let burst = RATE * u64::try_from(BURST.as_millis()).unwrap_or(1) / 1000 / CONNECTIONS;
    let mut due = interval(BURST);
    // One that cannot keep up is not made to catch up.
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut received = Vec::new();
    while !over.load(Ordering::Relaxed) {
        due.tick().await;
        let mut requests = Vec::new();
        for _ in 0..burst {
            requests.extend_from_slice(template.fill(fastrand::u64(..KEYS)));
        }
        let send = writer.write_all(&requests);
        let receive = async {
            let mut answers = 0;
            while answers < burst {
                if reader.read_buf(&mut received).await? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                let windows = received.windows(answer.len());
                answers += windows.filter(|window| *window == answer.as_bytes()).count() as u64;
                // The beginning of one may be the end of what was read.
                received.drain(..received.len().saturating_sub(answer.len() - 1));
            }
            Ok(())
        };
        tokio::try_join!(send, receive)?;
        answered.fetch_add(burst, Ordering::Relaxed);
    }
    Ok(())
}
