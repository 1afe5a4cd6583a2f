//! Rejections as they happen, for as long as anybody looks.

use std::{collections::VecDeque, time::Duration};

use serde_json::Value;

use super::{Rejections, row};
use crate::cli::{
    client::{
        events::{Event, Events},
        http,
    },
    exit::Failure,
    output,
};

/// The server says something every five seconds, if only that it is there.
const SILENCE: Duration = Duration::from_secs(20);

const BETWEEN_ATTEMPTS: Duration = Duration::from_secs(1);

/// More than a listing can hold.
const REMEMBERED: usize = 2000;

/// What has been shown, so that nothing is shown twice: a listing and a stream overlap.
#[derive(Default)]
struct Shown {
    ids: VecDeque<String>,
    /// When the last one was.
    last: Option<String>,
}

/// How a stream ends.
enum End {
    /// Nobody reads any more.
    Unread,
    ServerGone,
}

impl Rejections {
    pub(super) async fn follow(&self) -> Result<(), Failure> {
        let mut shown = Shown::default();
        let mut end = self.stream(&mut shown, &mut false).await;
        loop {
            match end {
                Ok(End::Unread) => return Ok(()),
                Ok(End::ServerGone) => {}
                Err(failure) => return Err(failure),
            }
            eprintln!("the server has gone; trying to reach it again");
            let mut connected = false;
            end = loop {
                tokio::time::sleep(BETWEEN_ATTEMPTS).await;
                match self.stream(&mut shown, &mut connected).await {
                    Err(failure) if !connected && failure.passes() => {}
                    ended => break ended,
                }
            };
        }
    }

    /// What has happened, then what happens. The stream begins before the list is asked for, so that
    /// nothing falls in between.
    async fn stream(&self, shown: &mut Shown, connected: &mut bool) -> Result<End, Failure> {
        let again = shown.last.is_some();
        let since = shown.last.clone().or_else(|| self.since.clone());
        let mut events = Events::of(self.request(None)?, http::PATIENCE).await?;
        let listed = self.list(since.as_deref()).await?;
        if again || *connected {
            eprintln!("the server is back");
        }
        *connected = true;
        for rejection in listed {
            if shown.is_new(&rejection) && !self.show(&rejection)? {
                return Ok(End::Unread);
            }
        }
        loop {
            let unread = match events.next(SILENCE).await {
                Ok(Some(Event { name, data })) if name == "dropped" => {
                    eprintln!("{} more were refused than can be shown", data["count"]);
                    false
                }
                Ok(Some(Event { data, .. })) => shown.is_new(&data) && !self.show(&data)?,
                Ok(None) | Err(Failure::Unavailable(_)) => return Ok(End::ServerGone),
                Err(failure) => return Err(failure),
            };
            if unread {
                return Ok(End::Unread);
            }
        }
    }

    /// `false`: nobody reads it.
    fn show(&self, rejection: &Value) -> Result<bool, Failure> {
        if self.server.output.is_table() {
            return output::print_more(&format!("{}\n", row::line(rejection)));
        }
        output::print_more(&format!("{rejection}\n"))
    }
}

impl Shown {
    fn is_new(&mut self, rejection: &Value) -> bool {
        let id = rejection["id"].as_str().unwrap_or_default();
        if self.ids.iter().any(|shown| shown == id) {
            return false;
        }
        if self.ids.len() == REMEMBERED {
            self.ids.pop_front();
        }
        self.ids.push_back(id.to_owned());
        self.last = rejection["at"].as_str().map(str::to_owned);
        true
    }
}
