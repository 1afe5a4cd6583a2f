use super::*;

const EACH: Bounds = Bounds {
    requests_per_second: 2,
    connections: 1,
    locks: 2,
    waiters: 1,
    streams: 1,
    bodies: 2000,
};
const TOTAL: Bounds = Bounds {
    requests_per_second: 3,
    connections: 1,
    locks: 3,
    waiters: 0,
    streams: 2,
    bodies: 3000,
};

fn limits(total: Bounds, each: Option<Bounds>) -> (Limits, Arc<Metrics>) {
    let metrics = Arc::new(Metrics::new(true, Arc::default()));
    (Limits::new(total, each, metrics.clone()), metrics)
}

fn whose(refused: Result<Place, OverLimit>) -> Whose {
    refused.expect_err("one too many").whose
}

#[test]
fn each_has_its_own_and_all_have_the_total() {
    let (limits, _) = limits(TOTAL, Some(EACH));
    let (a, b) = (Identity::new("a"), Identity::new("b"));
    let place = |who| limits.place(Limited::Locks, Some(who));
    let first = place(&a).unwrap();
    let _second = place(&a).unwrap();
    assert_eq!(whose(place(&a)), Whose::Identity);
    let _third = place(&b).unwrap();
    assert_eq!(whose(place(&b)), Whose::Total);
    drop(first);
    // What the total has refused was not taken from b's own either.
    let _fourth = place(&b).unwrap();
    assert_eq!(whose(limits.place(Limited::Locks, None)), Whose::Total);
}

#[test]
fn whoever_has_not_proved_who_they_are_meets_the_total_only() {
    let (limits, _) = limits(TOTAL, Some(EACH));
    let places: Vec<_> = (0..3).map(|_| limits.place(Limited::Locks, None).unwrap()).collect();
    assert_eq!(whose(limits.place(Limited::Locks, None)), Whose::Total);
    drop(places);
    // No limit at all.
    let _many: Vec<_> = (0..100).map(|_| limits.place(Limited::Waiters, None).unwrap()).collect();
}

#[test]
fn requests_are_limited_by_the_second_and_say_when_to_ask_again() {
    let (limits, metrics) = limits(TOTAL, Some(EACH));
    assert!(limits.concern_requests());
    let who = Identity::new("a");
    let refused = (0..50).find_map(|_| limits.request(Some(&who)).err()).expect("a limit");
    assert_eq!((refused.limit, refused.whose), (Limited::Requests, Whose::Identity));
    assert!(refused.retry_after <= Duration::from_secs(1) && !refused.retry_after.is_zero());
    let refused = (0..50).find_map(|_| limits.request(None).err()).expect("a limit");
    assert_eq!(refused.whose, Whose::Total);
    let text = metrics.render(crate::metrics::Format::Prometheus);
    for whose in ["identity", "total"] {
        let series =
            format!("fencepost_over_limit_total{{limit=\"requests\",whose=\"{whose}\"}} 1");
        assert!(text.contains(&series), "{text}");
    }
}

#[test]
fn by_default_a_request_is_not_even_looked_at() {
    let (unlimited, _) = limits(Bounds::default(), None);
    assert!(!unlimited.concern_requests());
    for _ in 0..10_000 {
        unlimited.request(None).unwrap();
    }
}

#[test]
fn a_connection_is_counted_once_for_whoever_uses_it() {
    let (limits, _) = limits(TOTAL, Some(EACH));
    let (a, b) = (Identity::new("a"), Identity::new("b"));
    let (first, second) = (Line::default(), Line::default());
    for _ in 0..3 {
        first.belongs_to(&a, &limits).unwrap();
    }
    let refused = second.belongs_to(&a, &limits).expect_err("a second one");
    assert_eq!((refused.limit, refused.whose), (Limited::Connections, Whose::Identity));
    second.belongs_to(&b, &limits).unwrap();
    drop(first);
    Line::default().belongs_to(&a, &limits).unwrap();
}

#[test]
fn what_is_kept_of_identities_is_bounded() {
    let accounts = Accounts::up_to(3, EACH);
    let busy = accounts.of(&Identity::new("busy"));
    let _place = busy.place(Limited::Locks).unwrap();
    drop(busy);
    for number in 0..1_000 {
        accounts.of(&Identity::new(format!("guest {number}")));
        assert!(accounts.len() <= 3);
    }
    assert!(accounts.of(&Identity::new("busy")).is_in_use(), "it was not forgotten");
    // All in use: the rest share one account.
    let two = ["x", "y"].map(|name| accounts.of(&Identity::new(name)).place(Limited::Locks));
    let others =
        ["p", "q", "r"].map(|name| accounts.of(&Identity::new(name)).place(Limited::Locks));
    assert!(two.iter().all(Result::is_ok));
    assert_eq!(others.iter().filter(|place| place.is_ok()).count(), 2);
    assert_eq!(accounts.len(), 3);
}

#[test]
fn bodies_count_for_as_long_as_their_bytes_are_there() {
    let (limits, _) = limits(TOTAL, Some(EACH));
    let (a, b) = (Identity::new("a"), Identity::new("b"));
    let mut first = limits.load(Some(&a));
    limits.grow(&mut first, 500).unwrap();
    limits.grow(&mut first, 1500).unwrap();
    let mut second = limits.load(Some(&a));
    assert_eq!(limits.grow(&mut second, 1000).unwrap_err().whose, Whose::Identity);
    let mut other = limits.load(Some(&b));
    assert_eq!(limits.grow(&mut other, 1600).unwrap_err().whose, Whose::Total);
    limits.grow(&mut other, 1500).unwrap();
    // Whoever has the bytes has the room.
    let bytes = first.of(bytes::Bytes::from_static(b"value"));
    let part = bytes.slice(1..3);
    drop(bytes);
    assert_eq!(limits.grow(&mut second, 1000).unwrap_err().limit, Limited::Bodies);
    drop(part);
    limits.grow(&mut second, 1000).unwrap();
}

#[test]
fn what_is_larger_than_all_the_room_gets_it_alone() {
    let (limits, _) = limits(TOTAL, None);
    let mut large = limits.load(None);
    for bytes in [1000, 10_000, 100_000] {
        limits.grow(&mut large, bytes).unwrap();
    }
    assert!(limits.grow(&mut limits.load(None), 1).is_err());
    drop(large);
    // An answer that must be given counts too.
    let mut answer = limits.load(None);
    answer.grow_anyway(10_000);
    assert!(limits.grow(&mut limits.load(None), 1).is_err());
}

#[test]
fn strangers_have_requests_of_their_own() {
    let (limits, _) = limits(TOTAL, Some(EACH));
    let refused = (0..50).find_map(|_| limits.stranger().err()).expect("a limit");
    assert_eq!((refused.limit, refused.whose), (Limited::Requests, Whose::Strangers));
    limits.request(Some(&Identity::new("a"))).expect("nothing was taken from those who are known");
}
