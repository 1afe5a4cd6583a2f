//! A TCP proxy between fencepost and Postgres that can cut, stall and delay the link, the way a
//! network does: without asking either side.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
};

/// What the link does to bytes that want to pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weather {
    Fair,
    /// Everything arrives late.
    Delayed(Duration),
    /// Connections stay open, and nothing passes in either direction.
    Stalled,
    /// Requests still reach Postgres; its answers are kept back.
    AnswersStalled,
    /// The other way round: what was asked is answered, and no more is heard.
    RequestsStalled,
    /// Every connection is reset, and new ones are refused.
    Cut,
}

pub struct ChaosProxy {
    port: u16,
    target: Arc<Mutex<SocketAddr>>,
    sky: watch::Sender<Sky>,
    links: Arc<AtomicU32>,
}

#[derive(Clone, Copy, Debug)]
struct Sky {
    weather: Weather,
    /// How often lightning has struck. A link ends when this is no longer what it was at its start.
    strikes: u32,
}

impl ChaosProxy {
    /// Listens on a port of its own, and passes everything on to `target` on this machine.
    pub async fn before(target: u16) -> Self {
        Self::towards(here(target)).await
    }

    pub async fn towards(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("its address").port();
        let sky = watch::Sender::new(Sky { weather: Weather::Fair, strikes: 0 });
        let news = sky.subscribe();
        let target = Arc::new(Mutex::new(target));
        let towards = target.clone();
        let links = Arc::<AtomicU32>::default();
        let count = links.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if news.borrow().weather != Weather::Cut {
                    let target = *towards.lock().expect("the target");
                    count.fetch_add(1, Ordering::Relaxed);
                    tokio::spawn(link(client, target, news.clone()));
                }
            }
        });
        Self { port, target, sky, links }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// How many connections there have been.
    pub fn links(&self) -> u32 {
        self.links.load(Ordering::Relaxed)
    }

    /// Whoever connects from now on gets there; those who are connected lose their connection.
    pub fn retarget(&self, target: u16) {
        *self.target.lock().expect("the target") = here(target);
        self.sky.send_modify(|sky| sky.strikes += 1);
    }

    /// Whoever connects from now on gets there; those who are connected stay where they are.
    pub fn lead_new_to(&self, target: u16) {
        *self.target.lock().expect("the target") = here(target);
    }

    pub fn set(&self, weather: Weather) {
        self.sky.send_modify(|sky| {
            sky.weather = weather;
            sky.strikes += u32::from(weather == Weather::Cut);
        });
    }

    /// `url`, by way of this proxy.
    pub fn reroute(&self, url: &str, port: u16) -> String {
        url.replace(&format!(":{port}/"), &format!(":{}/", self.port))
    }
}

fn here(port: u16) -> SocketAddr {
    ([127, 0, 0, 1], port).into()
}

/// One connection, until either side ends it or the link is cut.
async fn link(client: TcpStream, target: SocketAddr, sky: watch::Receiver<Sky>) {
    let strikes = sky.borrow().strikes;
    let Ok(server) = TcpStream::connect(target).await else { return };
    let mut storm = sky.clone();
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::select! {
        () = carry(from_client, to_server, sky.clone(), strikes, false) => {}
        () = carry(from_server, to_client, sky, strikes, true) => {}
        _ = storm.wait_for(|sky| sky.strikes != strikes) => {}
    }
}

async fn carry(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut sky: watch::Receiver<Sky>,
    strikes: u32,
    answers: bool,
) {
    let stalled = |sky: &Sky| match sky.weather {
        Weather::Stalled => sky.strikes == strikes,
        Weather::AnswersStalled => answers && sky.strikes == strikes,
        Weather::RequestsStalled => !answers && sky.strikes == strikes,
        Weather::Fair | Weather::Delayed(_) | Weather::Cut => false,
    };
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        let Ok(now) = sky.wait_for(|sky| !stalled(sky)).await.map(|now| *now) else { return };
        if now.strikes != strikes {
            return;
        }
        if let Weather::Delayed(delay) = now.weather {
            tokio::time::sleep(delay).await;
        }
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}
