//! When a listener stops taking connections, in paused time. Every seed is a schedule of requests
//! around the moment at which the drain begins.

use super::*;
use crate::paused_time::for_each_seed;

const SEEDS: u64 = 500;

/// A request, from when to when; requests never begin or end just when somebody looks.
struct Visit {
    from: Duration,
    to: Duration,
}

fn schedule(rng: &mut fastrand::Rng) -> Vec<Visit> {
    let between_looks = |looks: u64| Duration::from_millis(100 * looks + 37);
    let (most, longest) = (rng.usize(0..40), *rng.choice(&[1, 5, 50, 500]).expect("not empty"));
    let visit = |rng: &mut fastrand::Rng| {
        let from = rng.u64(0..400);
        let to = from + rng.u64(0..longest);
        Visit { from: between_looks(from), to: between_looks(to) }
    };
    (0..most).map(|_| visit(rng)).collect()
}

/// The first look that finds it quiet for long enough, or nothing left but the last part.
fn expected(visits: &[Visit], begins: Duration, period: Duration) -> Duration {
    let last_part = begins + period.mul_f64(1.0 - LAST_PART);
    let looks = (0..).map(|look| (begins + BETWEEN_LOOKS * look).min(last_part));
    let quiet = |now: Duration| {
        let began = visits.iter().filter(|visit| visit.from < now);
        now >= begins + QUIET && began.map(|visit| visit.to).all(|end| end + QUIET <= now)
    };
    looks.into_iter().find(|look| *look >= last_part || quiet(*look)).expect("there is an end")
}

async fn play(seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let visits = schedule(&mut rng);
    let begins = Duration::from_millis(100 * rng.u64(0..50));
    let period = Duration::from_millis(10 * *rng.choice(&[0, 3, 50, 500, 3000]).expect("some"));
    let expected = expected(&visits, begins, period);

    let start = Instant::now();
    let activity = Arc::new(Activity::default());
    let (starter, drain) = Drain::new(period);
    for Visit { from, to } in visits {
        let activity = activity.clone();
        tokio::spawn(async move {
            tokio::time::sleep_until(start + from).await;
            let answering = activity.request();
            tokio::time::sleep_until(start + to).await;
            drop(answering);
        });
    }
    let begin = async {
        tokio::time::sleep_until(start + begins).await;
        assert!(!drain.has_begun() && drain.remaining() == period);
        starter.begin();
        assert!(drain.has_begun());
    };
    tokio::join!(begin, drain.stop_accepting(&activity));
    assert_eq!(start.elapsed(), expected, "seed {seed}: began {begins:?}, for {period:?}");
    assert_eq!(begins + period, expected + drain.remaining(), "seed {seed}");
}

#[test]
fn it_goes_on_until_it_is_quiet_or_time_is_short() {
    for_each_seed(SEEDS, play);
}

#[tokio::test(start_paused = true)]
async fn without_a_starter_there_is_no_end() {
    let activity = Arc::new(Activity::default());
    let drain = Drain::never();
    let stopped = drain.stop_accepting(&activity);
    assert!(tokio::time::timeout(Duration::from_hours(24 * 365), stopped).await.is_err());
}
