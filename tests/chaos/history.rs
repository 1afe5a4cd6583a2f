//! What every client saw: each request with the moments before it was sent and after it was answered,
//! by the one monotonic clock that all processes of a machine share.
//!
//! A request is written down before it is sent, so that a client which is killed leaves it behind as
//! one whose outcome is unknown.

use std::{
    collections::{HashMap, HashSet},
    fs::{self, File},
    io::Write as _,
    path::Path,
    sync::Mutex,
};

use serde::{Deserialize, Serialize};

/// Nanoseconds of a clock that never goes back.
pub type Moment = u64;
pub const NEVER: Moment = Moment::MAX;

/// A put, or a delete where there is no value. Every value begins with a name of its own, so that
/// whoever reads it knows which write it came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Write {
    pub key: String,
    pub scope: Option<String>,
    pub token: i64,
    /// 0 where there is none.
    pub seq: i64,
    pub value: Option<String>,
    /// The version that it is meant for; 0 where there must be no value.
    #[serde(default)]
    pub expects: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    Write(Write),
    Batch(Vec<Write>),
    /// With a token it is a fenced read.
    Read {
        key: String,
        token: Option<i64>,
    },
    Claim {
        key: String,
        token: i64,
    },
    Acquire {
        lock: String,
        ttl_ms: u64,
        wait_ms: u64,
    },
    Renew {
        lock: String,
        token: i64,
    },
    Release {
        lock: String,
        token: i64,
    },
}

/// What is said of a key in an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    pub mark: Option<i64>,
    pub version: Option<i64>,
    pub value: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// One for each write, or for the one key that was read or claimed.
    Done(Vec<Seen>),
    Granted {
        token: i64,
    },
    /// By the fence. `mark` is what the token was held against, `seen` what is said of the key.
    Refused {
        reason: String,
        index: usize,
        mark: i64,
        seen: Seen,
    },
    /// Surely nothing was changed, and nothing will be.
    NotApplied {
        reason: String,
    },
    Unknown {
        reason: String,
    },
}

#[derive(Clone, Debug)]
pub struct Op {
    /// Whose it was, and its number there.
    pub name: String,
    pub request: Request,
    pub outcome: Outcome,
    pub from: Moment,
    /// [`NEVER`] where the outcome is unknown: it may take effect at any time.
    pub till: Moment,
    /// Whether everything had been healed before it was sent, so that it must succeed.
    pub due: bool,
    /// Which fencepost was asked.
    pub via: usize,
}

/// A standby took over, and every token below the floor is void.
#[derive(Clone, Debug)]
pub struct Takeover {
    /// When the old server was last known to answer, and when the new one was there.
    pub from: Moment,
    pub till: Moment,
    /// Whether it may have lost what was acknowledged.
    pub lossy: bool,
    /// The floor that was found afterwards.
    pub floor: i64,
}

#[derive(Clone, Debug, Default)]
pub struct History {
    pub ops: Vec<Op>,
    pub takeovers: Vec<Takeover>,
    /// Whether something happened by which a lock can be lost before its time.
    pub leases_cut_short: bool,
    /// Requests that were answered twice, or answers to what nobody asked.
    pub muddled: Vec<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    Sent { name: String, at: Moment, due: bool, via: usize, request: Request },
    Answered { name: String, at: Moment, outcome: Outcome },
}

/// Where a client writes down what it does.
pub struct Recorder {
    file: Option<File>,
    lines: Mutex<Vec<Line>>,
}

impl Recorder {
    pub fn in_memory() -> Self {
        Self { file: None, lines: Mutex::default() }
    }

    pub fn in_file(path: &Path) -> Self {
        Self { file: Some(File::create(path).expect("a history file")), lines: Mutex::default() }
    }

    pub fn note(&self, line: Line) {
        let Some(mut file) = self.file.as_ref() else {
            return self.lines.lock().expect("the lines").push(line);
        };
        let mut text = serde_json::to_string(&line).expect("a line");
        text.push('\n');
        // In one piece, unbuffered: the client may be killed at any moment.
        file.write_all(text.as_bytes()).expect("the history is kept");
    }

    pub fn take(&self) -> Vec<Line> {
        std::mem::take(&mut self.lines.lock().expect("the lines"))
    }
}

/// What a client has left behind. The last line may be half a line.
pub fn lines_of(path: &Path) -> Vec<Line> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

impl History {
    pub fn of(lines: Vec<Line>) -> Self {
        let mut history = Self::default();
        let mut places = HashMap::new();
        for line in lines {
            match line {
                Line::Sent { name, at, due, via, request } => {
                    places.insert(name.clone(), history.ops.len());
                    let outcome = Outcome::Unknown { reason: "nobody noted an answer".into() };
                    let (from, till) = (at, NEVER);
                    history.ops.push(Op { name, request, outcome, from, till, due, via });
                }
                Line::Answered { name, at, outcome } => match places.remove(&name) {
                    None => history.muddled.push(name),
                    Some(place) => {
                        let op = &mut history.ops[place];
                        op.till =
                            if matches!(outcome, Outcome::Unknown { .. }) { NEVER } else { at };
                        op.outcome = outcome;
                    }
                },
            }
        }
        history.ops.sort_by_key(|op| op.from);
        history
    }

    /// As if nobody knew what became of anything that was begun before the last loss. Where nothing that was
    /// acknowledged is lost, readers may still have seen what was not.
    pub fn since_the_last_loss(&self) -> Self {
        let mut history = self.clone();
        for takeover in self.takeovers.iter().filter(|takeover| !takeover.lossy) {
            history.forget_what_only_readers_saw(takeover.till);
        }
        let lossy = self.takeovers.iter().filter(|takeover| takeover.lossy);
        let Some(end) = lossy.map(|takeover| takeover.till).max() else { return history };
        for op in history.ops.iter_mut().filter(|op| op.from < end) {
            op.outcome = Outcome::Unknown { reason: "a standby may have lost it".into() };
            op.till = NEVER;
        }
        history
    }
}

impl History {
    fn forget_what_only_readers_saw(&mut self, end: Moment) {
        let values = |op: &Op| -> Vec<String> {
            let names = op.writes().iter().filter_map(|write| write.value.as_deref().map(name_of));
            names.map(str::to_owned).collect()
        };
        let done = self.ops.iter().filter(|op| matches!(op.outcome, Outcome::Done(_)));
        let acknowledged: HashSet<String> = done.flat_map(values).collect();
        for op in self.ops.iter_mut().filter(|op| op.from < end) {
            let (Request::Read { .. }, Outcome::Done(seen)) = (&op.request, &op.outcome) else {
                continue;
            };
            let value = seen.first().and_then(|seen| seen.value.as_deref());
            if value.is_some_and(|value| !acknowledged.contains(name_of(value))) {
                op.outcome = Outcome::Unknown { reason: "it was acknowledged to nobody".into() };
                op.till = NEVER;
            }
        }
    }
}

impl Request {
    /// The one that it is about, or the first of them.
    pub fn key(&self) -> Option<&String> {
        match self {
            Self::Write(write) => Some(&write.key),
            Self::Batch(writes) => writes.first().map(|write| &write.key),
            Self::Read { key, .. } | Self::Claim { key, .. } => Some(key),
            Self::Acquire { .. } | Self::Renew { .. } | Self::Release { .. } => None,
        }
    }

    /// Those that it carries.
    pub fn tokens(&self) -> Vec<i64> {
        match self {
            Self::Write(write) => vec![write.token],
            Self::Batch(writes) => writes.iter().map(|write| write.token).collect(),
            Self::Read { token, .. } => token.iter().copied().collect(),
            Self::Claim { token, .. } => vec![*token],
            Self::Acquire { .. } | Self::Renew { .. } | Self::Release { .. } => Vec::new(),
        }
    }
}

impl Op {
    pub fn writes(&self) -> &[Write] {
        match &self.request {
            Request::Write(write) => std::slice::from_ref(write),
            Request::Batch(writes) => writes,
            _ => &[],
        }
    }

    /// Each write with what its answer says of it, if it was accepted.
    pub fn accepted(&self) -> impl Iterator<Item = (&Write, &Seen)> {
        let seen: &[Seen] = match &self.outcome {
            Outcome::Done(seen) => seen,
            _ => &[],
        };
        self.writes().iter().zip(seen)
    }

    /// Whether a write passed the fence and was refused for its precondition alone.
    pub fn mismatched(&self) -> bool {
        matches!(&self.outcome, Outcome::Refused { reason, .. } if reason == "version-mismatch")
    }

    /// Whether it can have changed something, or can yet.
    pub fn may_apply(&self) -> bool {
        matches!(self.outcome, Outcome::Done(_) | Outcome::Granted { .. } | Outcome::Unknown { .. })
    }

    pub fn is_unknown(&self) -> bool {
        matches!(self.outcome, Outcome::Unknown { .. })
    }
}

/// The name at the beginning of a value.
pub fn name_of(value: &str) -> &str {
    value.split(' ').next().unwrap_or_default()
}

/// `CLOCK_MONOTONIC`: the same for all processes of this machine.
pub fn now() -> Moment {
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).expect("a clock");
    let [seconds, nanos] = [time.tv_sec(), time.tv_nsec()].map(|part| u64::try_from(part).unwrap());
    seconds * 1_000_000_000 + nanos
}
