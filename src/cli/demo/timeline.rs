//! What is seen of the story, as it happens.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cli::{exit::Failure, output};

/// On a terminal, long enough for the eye to follow.
const BEAT: Duration = Duration::from_millis(150);

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Who {
    A,
    B,
    /// What is done to them.
    World,
}

impl Who {
    pub fn name(self) -> &'static str {
        match self {
            Self::A => "A",
            Self::B => "B",
            Self::World => "-",
        }
    }

    fn colour(self) -> &'static str {
        match self {
            Self::A => "\x1b[36m",
            Self::B => "\x1b[35m",
            Self::World => "\x1b[33m",
        }
    }
}

pub struct Timeline {
    start: Instant,
    json: bool,
}

impl Timeline {
    pub fn new(json: bool) -> Self {
        Self { start: Instant::now(), json }
    }

    /// Something happens. `facts` are for programs; they add to what every line has.
    pub async fn event(
        &self,
        who: Who,
        event: &str,
        facts: Value,
        text: &str,
    ) -> Result<(), Failure> {
        let at = self.start.elapsed();
        if self.json {
            return self.line(json!({"who": who.name(), "event": event, "text": text}), facts);
        }
        let (colour, plain) = (paint(who.colour()), paint("\x1b[0m"));
        let seconds = at.as_secs_f64();
        let (name, text) = (who.name(), output::printable(text));
        output::print(&format!("{seconds:6.2} s  {colour}{name}  {text}{plain}\n"))?;
        if std::io::IsTerminal::is_terminal(&std::io::stdout()) {
            tokio::time::sleep(BEAT).await;
        }
        Ok(())
    }

    /// The beginning of an act.
    pub fn heading(&self, text: &str) -> Result<(), Failure> {
        self.passage("heading", "\x1b[1m", text)
    }

    /// How an act ends.
    pub fn outcome(&self, good: bool, text: &str) -> Result<(), Failure> {
        self.passage("outcome", if good { "\x1b[1;32m" } else { "\x1b[1;31m" }, text)
    }

    /// What is to be said between the acts.
    pub fn remark(&self, text: &str) -> Result<(), Failure> {
        self.passage("remark", "", text)
    }

    fn passage(&self, event: &str, colour: &'static str, text: &str) -> Result<(), Failure> {
        if self.json {
            return self
                .line(json!({"who": Who::World.name(), "event": event, "text": text}), json!({}));
        }
        let space = if event == "remark" { "" } else { "\n" };
        output::print(&format!("{space}{}{text}{}\n", paint(colour), paint("\x1b[0m")))
    }

    fn line(&self, mut line: Value, facts: Value) -> Result<(), Failure> {
        line["at_ms"] = json!(u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX));
        if let (Some(line), Value::Object(facts)) = (line.as_object_mut(), facts) {
            for (name, value) in facts {
                line.entry(name).or_insert(value);
            }
        }
        output::print(&format!("{line}\n"))
    }
}

fn paint(sequence: &'static str) -> &'static str {
    output::colour(&std::io::stdout(), sequence)
}
