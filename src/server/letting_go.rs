//! Letting connections go, in paused time: clients with seeded schedules, on streams in memory.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use axum::{http::HeaderMap, response::IntoResponse};
use futures_util::stream;
use tokio::{
    io::{AsyncReadExt, DuplexStream},
    sync::mpsc,
    time::{Instant, sleep},
};

use super::*;
use crate::paused_time::for_each_seed;

const SEEDS: u64 = 300;

const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// What became of one request.
#[derive(Clone, Copy, Debug)]
struct Story {
    began: Instant,
    /// Its answer has no end of its own.
    lingers: bool,
    answered: Option<Instant>,
    said_close: bool,
}

/// The stories by number. A request that no handler has begun is not in it.
#[derive(Default)]
struct Diary {
    stories: Mutex<BTreeMap<usize, Story>>,
    numbers: AtomicUsize,
}

impl Diary {
    fn begun(&self, number: usize, lingers: bool) {
        let story = Story { began: Instant::now(), lingers, answered: None, said_close: false };
        let earlier = self.stories.lock().unwrap().insert(number, story);
        assert!(earlier.is_none(), "request {number} was begun twice");
    }

    fn answered(&self, number: usize, answer: &str) {
        let mut stories = self.stories.lock().unwrap();
        let story = stories.get_mut(&number).expect("it was begun");
        story.answered = Some(Instant::now());
        story.said_close = answer.contains("connection: close");
    }

    fn stories(&self) -> Vec<Story> {
        self.stories.lock().unwrap().values().copied().collect()
    }
}

/// Works for as long as it is told. Told nothing, it answers without an end, until there is one.
fn router(diary: Arc<Diary>, drain: Drain) -> Router {
    Router::new().fallback(async move |headers: HeaderMap| {
        let number = |name| headers.get(name)?.to_str().ok()?.parse::<usize>().ok();
        let work = number("work");
        diary.begun(number("number").expect("every request has one"), work.is_none());
        if let Some(work) = work {
            sleep(Duration::from_millis(1) * u32::try_from(work).expect("not for ever")).await;
            return "done".into_response();
        }
        let closing = drain.closing().clone();
        let body = stream::once(async move {
            closing.cancelled().await;
            Ok::<_, Infallible>("done")
        });
        let mut answer = Body::from_stream(body).into_response();
        answer.extensions_mut().insert(Lingering);
        answer
    })
}

/// Asks now and then, on one connection for as long as it is kept, then on another.
async fn client(mut rng: fastrand::Rng, listener: mpsc::Sender<DuplexStream>, diary: Arc<Diary>) {
    let mut connection: Option<DuplexStream> = None;
    for _ in 0..rng.usize(1..8) {
        // All that clients do happens at full hundredths of a second.
        let up_to = *rng.choice(&[2, 50, 500, 1200]).expect("some");
        sleep(Duration::from_millis(10 * rng.u64(0..up_to))).await;
        let mut stream = if let Some(kept) = connection.take() {
            kept
        } else {
            let (ours, theirs) = tokio::io::duplex(4096);
            if listener.send(theirs).await.is_err() {
                return;
            }
            ours
        };
        let number = diary.numbers.fetch_add(1, Ordering::Relaxed);
        let work = format!("work: {}\r\n", 10 * rng.u64(0..400));
        let work = if rng.u8(0..10) == 0 { "" } else { &work };
        let request = format!("PUT / HTTP/1.1\r\nhost: x\r\nnumber: {number}\r\n{work}\r\n");
        if stream.write_all(request.as_bytes()).await.is_err() {
            continue;
        }
        let mut answer = String::new();
        let mut bytes = [0; 1024];
        while !answer.ends_with("done") && !answer.ends_with("\r\n0\r\n\r\n") {
            match stream.read(&mut bytes).await {
                Ok(0) | Err(_) => break,
                Ok(count) => answer += std::str::from_utf8(&bytes[..count]).expect("plain text"),
            }
        }
        if answer.contains("done") {
            diary.answered(number, &answer);
            connection = Some(stream);
        }
    }
}

async fn play(seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let period = Duration::from_millis(10 * *rng.choice(&[0, 2, 50, 300, 2000]).expect("some"));
    let (starter, drain) = Drain::new(period);
    let diary = Arc::new(Diary::default());
    let router = router(diary.clone(), drain.clone());
    let limits = Limits {
        connections: 100,
        turned_away: Counter::default(),
        by_identity: false,
        head: 16 << 10,
        header_timeout: HEADER_TIMEOUT,
        write_timeout: Duration::from_secs(10),
    };
    let (listener, mut arrivals) = mpsc::channel(1);
    for _ in 0..rng.usize(0..10) {
        tokio::spawn(client(rng.fork(), listener.clone(), diary.clone()));
    }
    let begins = Duration::from_millis(10 * rng.u64(0..1000) + 5);
    let began = Instant::now() + begins;
    tokio::spawn(async move {
        sleep(begins).await;
        starter.begin();
        // Kept: a starter that is gone would never end it.
        std::future::pending::<()>().await;
    });

    // As `serve` has it, with streams in memory.
    let activity = Arc::new(Activity::default());
    let (connections, stopping) = (TaskTracker::new(), CancellationToken::new());
    let taking = async {
        while let Some(stream) = arrivals.recv().await {
            let peer = Peer(([127, 0, 0, 1], 1).into());
            let from = OtherEnd { peer, certified: None };
            let (router, limits) = (router.clone(), limits.clone());
            let stopping = stopping.child_token();
            let (activity, drain) = (activity.clone(), drain.clone());
            let served = serve_connection(stream, from, router, limits, activity, drain, stopping);
            connections.spawn(served);
        }
    };
    tokio::select! {
        () = taking => unreachable!("the listener is kept"),
        () = drain.stop_accepting(&activity) => drop(arrivals),
    }
    let closing = Instant::now();
    let_go(connections, stopping, &drain).await;
    let ended = Instant::now();

    // Clients take what was sent to them.
    sleep(Duration::from_millis(1)).await;
    let deadline = began + period;
    let stories = diary.stories();
    let context = format!("seed {seed}: {period:?} from {began:?}, {closing:?} to {ended:?}");
    assert!(began <= closing && closing <= ended && ended <= deadline, "{context}");
    assert!(drain.closing().is_cancelled(), "{context}");
    for story in &stories {
        assert!(story.began <= closing, "begun too late: {story:?}, {context}");
        assert!(story.answered.is_some() || ended == deadline, "cut off: {story:?}, {context}");
        let says_close =
            story.answered.is_none_or(|answered| (answered > began) == story.said_close);
        // What lingers may have been begun before the drain.
        assert!(story.lingers || says_close, "{story:?}, {context}");
    }
    // Nobody is waited for in vain.
    let last_answer = stories.iter().filter_map(|story| story.answered).max();
    assert!(ended == deadline || ended <= closing.max(last_answer.unwrap_or(closing)), "{context}");
    sleep(Duration::from_mins(1)).await;
    assert_eq!(diary.stories().len(), stories.len(), "begun after the end: {context}");
}

#[test]
fn what_is_in_flight_is_finished_unless_time_is_up_and_nothing_is_begun() {
    for_each_seed(SEEDS, play);
}
