//! Random histories. Few keys, tokens, seqs and bodies, so that they meet often.

use bytes::Bytes;
use fencepost::{
    store,
    token::{Key, Seq, Token, Version},
    write::{Change, Precondition, Rule, Value, Write},
};
use proptest::{collection::vec, option, prelude::*, sample};

pub const KEYS: [&str; 4] = ["a", "b", "c", "d"];
/// A scope that nobody writes: the key of a lock. Between the others, so that it is neither first nor last.
pub const LOCK: &str = "bb";
const STEPS: usize = 40;
/// More than any history can use up.
const TOKENS_PER_CASE: i64 = 100;

#[derive(Clone, Debug)]
pub enum Step {
    /// Units that a session is given at once. They count as if they had come one by one.
    Settle(Vec<Unit>),
    RaiseFloor(i64),
    /// With a bound that the floor must not pass.
    Compact(i64),
}

#[derive(Clone, Debug)]
pub enum Unit {
    Single(Draft),
    FencedRead { key: &'static str, token: i64, scope: Option<&'static str> },
    Batch(Vec<Draft>),
}

#[derive(Clone, Debug)]
pub struct Draft {
    key: &'static str,
    change: Draw,
    token: i64,
    seq: Option<i64>,
    scope: Option<&'static str>,
    rule: Rule,
    only_if: Option<Expect>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Draw {
    Put(&'static str),
    Delete,
    Claim,
}

#[derive(Clone, Copy, Debug)]
pub enum Expect {
    Version(i64),
    Absent,
}

/// A unit in the store's own words.
pub struct RealUnit {
    pub writes: Vec<Write>,
    pub read_back: bool,
}

/// Where a case's keys and tokens are among those of all cases.
pub struct Names {
    case: i64,
}

impl Names {
    pub fn of_case(case: i64) -> Self {
        Self { case }
    }

    pub fn prefix(&self) -> String {
        format!("{}/", self.case)
    }

    pub fn key(&self, key: &str) -> Key {
        Key::new(&format!("{}{key}", self.prefix())).expect("a key")
    }

    pub fn token(&self, token: i64) -> Token {
        Token::new(self.case * TOKENS_PER_CASE + token).expect("a token")
    }
}

impl Unit {
    pub fn real(&self, names: &Names) -> RealUnit {
        match self {
            Self::Single(draft) => RealUnit { writes: vec![draft.real(names)], read_back: false },
            Self::FencedRead { key, token, scope } => {
                let mut claim = Write::claim(names.key(key), names.token(*token));
                claim.scope = scope.map(|scope| names.key(scope));
                RealUnit { writes: vec![claim], read_back: true }
            }
            Self::Batch(drafts) => RealUnit {
                writes: drafts.iter().map(|draft| draft.real(names)).collect(),
                read_back: false,
            },
        }
    }
}

impl RealUnit {
    pub fn for_store(&self) -> store::Unit {
        if self.read_back {
            return store::Unit::fenced_read(self.writes[0].clone());
        }
        store::Unit::atomic(self.writes.clone())
    }
}

impl Draft {
    fn real(&self, names: &Names) -> Write {
        Write {
            key: names.key(self.key),
            token: names.token(self.token),
            seq: self.seq.and_then(Seq::new),
            scope: self.scope.map(|scope| names.key(scope)),
            rule: self.rule,
            precondition: self.only_if.map(|expect| match expect {
                Expect::Version(version) => Precondition::Version(Version::from_stored(version)),
                Expect::Absent => Precondition::Absent,
            }),
            change: match self.change {
                Draw::Put(body) => Change::Put(Value {
                    body: Bytes::from_static(body.as_bytes()),
                    content_type: "text/plain".into(),
                }),
                Draw::Delete => Change::Delete,
                Draw::Claim => Change::Claim,
            },
        }
    }
}

/// Tokens are drawn near that of the newest holder, who is replaced now and then: otherwise the
/// highest token would soon be everywhere, and all the rest stale.
pub fn any() -> impl Strategy<Value = Vec<Step>> {
    vec((prop::bool::weighted(0.2), step()), 1..STEPS).prop_map(|steps| {
        let mut newest = 1;
        let at = |newest: i64, age: i64| (newest - age).max(1);
        let mut history = Vec::with_capacity(steps.len());
        for (replaced, mut step) in steps {
            newest += i64::from(replaced);
            match &mut step {
                Step::Settle(units) => {
                    for unit in units {
                        match unit {
                            Unit::Single(draft) => draft.token = at(newest, draft.token),
                            Unit::FencedRead { token, .. } => *token = at(newest, *token),
                            Unit::Batch(drafts) => {
                                for draft in drafts {
                                    draft.token = at(newest, draft.token);
                                }
                            }
                        }
                    }
                }
                Step::RaiseFloor(token) | Step::Compact(token) => *token = at(newest, *token),
            }
            history.push(step);
        }
        history
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => unit().prop_map(|unit| Step::Settle(vec![unit])),
        8 => vec(unit(), 2..6).prop_map(Step::Settle),
        4 => vec(prop_oneof![6 => plain_put(), 1 => unit()], 3..12).prop_map(Step::Settle),
        2 => age().prop_map(Step::RaiseFloor),
        1 => age().prop_map(Step::Compact),
    ]
}

fn unit() -> impl Strategy<Value = Unit> {
    let fenced_read = (key(), age(), scope()).prop_map(|(key, token, scope)| Unit::FencedRead {
        key,
        token,
        scope: scope.filter(|scope| *scope != key),
    });
    prop_oneof![
        5 => draft().prop_map(Unit::Single),
        1 => fenced_read,
        1 => batch().prop_map(Unit::Batch),
    ]
}

/// What most clients send, so that many share a statement and some share a row.
fn plain_put() -> impl Strategy<Value = Unit> {
    let body = prop_oneof![Just("x"), Just("y")];
    let scope = option::weighted(0.25, Just(LOCK));
    (key(), body, age(), scope).prop_map(|(key, body, token, scope)| {
        let change = Draw::Put(body);
        let rule = Rule::AtLeast;
        Unit::Single(Draft { key, change, token, seq: None, scope, rule, only_if: None }.sound())
    })
}

/// Each key at most once, in any order.
fn batch() -> impl Strategy<Value = Vec<Draft>> {
    let keys = sample::subsequence(KEYS.to_vec(), 1..=3).prop_shuffle();
    (keys, vec(draft(), 3)).prop_map(|(keys, drafts)| {
        keys.into_iter().zip(drafts).map(|(key, draft)| Draft { key, ..draft }.sound()).collect()
    })
}

fn draft() -> impl Strategy<Value = Draft> {
    let change = prop_oneof![
        2 => Just(Draw::Put("x")),
        2 => Just(Draw::Put("")),
        2 => Just(Draw::Delete),
        1 => Just(Draw::Claim),
    ];
    let rule = prop_oneof![3 => Just(Rule::AtLeast), 1 => Just(Rule::Above)];
    let only_if = prop_oneof![Just(Expect::Absent), (1..5_i64).prop_map(Expect::Version)];
    let seq = option::of(1..4_i64);
    (key(), change, age(), seq, scope(), rule, option::weighted(0.25, only_if)).prop_map(
        |(key, change, token, seq, scope, rule, only_if)| {
            Draft { key, change, token, seq, scope, rule, only_if }.sound()
        },
    )
}

impl Draft {
    /// As the parser would have it: a scope is another key, and a claim is unconditional.
    fn sound(mut self) -> Self {
        self.scope = self.scope.filter(|scope| *scope != self.key);
        self.only_if = self.only_if.filter(|_| self.change != Draw::Claim);
        self
    }
}

fn key() -> impl Strategy<Value = &'static str> {
    sample::select(&KEYS)
}

fn scope() -> impl Strategy<Value = Option<&'static str>> {
    option::weighted(0.25, prop_oneof![key(), Just(LOCK)])
}

/// How far a token is behind the newest holder's. One may also come from the holder after it.
fn age() -> impl Strategy<Value = i64> {
    prop_oneof![8 => Just(0_i64), 2 => Just(1_i64), 1 => Just(2_i64), 1 => Just(-1_i64)]
}
