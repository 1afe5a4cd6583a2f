//! What is done under a lock, one step at a time.

use futures_util::future::join_all;

use super::{Held, ITEMS, LOOSE, Service, Step, Worker, chain, item, loose, step};
use crate::{
    check::chains,
    history::{Outcome, Request, Write},
};

impl<S: Service> Worker<'_, S> {
    pub(super) async fn random_step(&mut self, held: &Held) -> Step {
        match self.random.u8(..100) {
            0..30 => self.add_to_chain(held).await,
            30..37 => {
                let number = self.random.usize(..ITEMS);
                self.write(held, vec![(number, true)], false).await
            }
            37..43 => self.replace_what_was_read(held).await,
            43..45 => self.send_and_hang_up(held).await,
            45..53 => {
                let number = self.random.usize(..ITEMS);
                self.write(held, vec![(number, false)], false).await
            }
            53..65 => {
                let mut puts: Vec<(usize, bool)> =
                    (0..ITEMS).map(|number| (number, self.random.u8(..4) > 0)).collect();
                // Whoever locked rows in the order of the request would meet others in the middle.
                self.random.shuffle(&mut puts);
                self.write(held, puts, true).await
            }
            65..80 => self.burst(held).await,
            80..88 => {
                let key = item(&held.lock, self.random.usize(..ITEMS));
                let token = Some(held.token);
                step(&self.attempt(Request::Read { key, token }).await)
            }
            88..93 => {
                let key = item(&held.lock, self.random.usize(..ITEMS));
                step(&self.attempt(Request::Claim { key, token: held.token }).await)
            }
            93..97 => {
                let Held { lock, token } = held.clone();
                self.ask(Request::Renew { lock, token }).await;
                Step::Fine
            }
            // For longer than the lease: a holder that does not know what time it is.
            _ => {
                self.service.pause(self.terms.ttl_ms * 3 / 2).await;
                Step::Fine
            }
        }
    }

    /// Reads under the lock, adds to what is there, writes it back.
    pub async fn add_to_chain(&mut self, held: &Held) -> Step {
        let key = chain(&held.lock);
        let read = Request::Read { key: key.clone(), token: Some(held.token) };
        let outcome = self.attempt(read).await;
        let Outcome::Done(seen) = &outcome else { return step(&outcome) };
        let value = chains::link(&self.new_name(), seen[0].value.as_deref());
        let mut write = self.scoped(held, key, Some(value));
        // Without a scope, the fenced read alone must keep older holders out.
        if self.random.bool() {
            write.scope = None;
        }
        self.insist(Request::Write(write)).await
    }

    async fn write(&mut self, held: &Held, which: Vec<(usize, bool)>, batch: bool) -> Step {
        let mut writes = Vec::new();
        for (number, put) in which {
            let value = put.then(|| self.new_name());
            writes.push(self.scoped(held, item(&held.lock, number), value));
        }
        // By its key's own mark alone: that is one statement, and another way through the store.
        if !batch && self.random.u8(..4) == 0 {
            writes[0].scope = None;
        }
        let earlier = writes[0].clone();
        if batch && self.random.u8(..5) == 0 {
            // One that cannot pass, perhaps after others that could: none may.
            let place = self.random.usize(..writes.len());
            writes[place].expects = Some(1 << 40);
        }
        let request = if batch { Request::Batch(writes) } else { Request::Write(earlier.clone()) };
        let outcome = self.insist(request).await;
        // Some mesh sends it twice: the second is told what the first was.
        if !batch && outcome == Step::Fine && self.random.u8(..100) < 25 {
            self.ask(Request::Write(earlier.clone())).await;
        }
        // Another one under the same seq, by mistake.
        if !batch && outcome == Step::Fine && earlier.value.is_some() && self.random.u8(..100) < 8 {
            let mistaken = Write { value: Some(self.new_name()), ..earlier.clone() };
            self.ask(Request::Write(mistaken)).await;
        }
        // A copy of it that some mesh sends again, after something else.
        if !batch && outcome == Step::Fine && self.random.u8(..100) < 30 {
            let value = Some(self.new_name());
            let later = self.scoped(held, earlier.key.clone(), value);
            self.insist(Request::Write(later)).await;
            self.ask(Request::Write(earlier)).await;
        }
        outcome
    }

    /// Only if it is still as it was read, or, now and then, as it cannot be.
    async fn replace_what_was_read(&mut self, held: &Held) -> Step {
        let key = item(&held.lock, self.random.usize(..ITEMS));
        let outcome = self.ask(Request::Read { key: key.clone(), token: None }).await;
        let Outcome::Done(seen) = &outcome else { return step(&outcome) };
        let version = seen[0].version.unwrap_or(0);
        let name = self.new_name();
        let mut write = self.scoped(held, key, Some(name));
        let wrong = i64::from(self.random.u8(..4) == 0);
        write.expects = Some(version + wrong);
        if self.random.bool() {
            (write.scope, write.seq) = (None, 0);
            // Without a seq it must not be repeated.
            return step(&self.attempt(Request::Write(write)).await);
        }
        self.insist(Request::Write(write)).await
    }

    /// Whatever becomes of it, the holder does not know, and goes on with its next seq.
    async fn send_and_hang_up(&mut self, held: &Held) -> Step {
        let name = self.new_name();
        let key = item(&held.lock, self.random.usize(..ITEMS));
        let write = self.scoped(held, key, Some(name));
        let patience_us = self.random.u64(..4_000);
        let (request, name) = (Request::Write(write), self.new_name());
        let via = self.service.choose();
        self.note_sent(&name, via, &request);
        let outcome = self.service.hang_up(via, &request, patience_us).await;
        self.note_answered(name, &outcome);
        Step::Fine
    }

    pub(super) fn scoped(&mut self, held: &Held, key: String, value: Option<String>) -> Write {
        self.seq += 1;
        let scope = Some(held.lock.clone());
        Write { key, scope, token: held.token, seq: self.seq, value, expects: None }
    }

    /// Many plain writes at once, some of the same key.
    async fn burst(&mut self, held: &Held) -> Step {
        let count = self.random.usize(2..7);
        let requests: Vec<Request> = (0..count)
            .map(|_| {
                let key = loose(&held.lock, self.random.usize(..LOOSE));
                let value = Some(self.new_name());
                let token = held.token;
                Request::Write(Write { key, scope: None, token, seq: 0, value, expects: None })
            })
            .collect();
        let vias: Vec<usize> = requests.iter().map(|_| self.service.choose()).collect();
        let asked = vias.iter().zip(&requests).map(|(via, request)| self.ask_at(*via, request));
        let outcomes = join_all(asked).await;
        let Some(place) = outcomes.iter().position(|outcome| step(outcome) != Step::Fine) else {
            return Step::Fine;
        };
        self.look_into(vias[place], &requests[place], &outcomes[place]).await;
        step(&outcomes[place])
    }
}
