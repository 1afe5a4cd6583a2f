//! What goes wrong around them.

use crate::{
    lock_service::{has_gone_backwards, token},
    rule::{Change, Write},
    scene::{Scene, Trap},
    world::{Database, Flight, Job, Key, Kind, Memory, Phase, Proxy, Request, World},
};

impl World {
    /// The connection of a proxy breaks. What was in flight may commit all the same, at any later
    /// time or never; whoever waits for it is told that its outcome is unknown.
    pub fn cut(&mut self, scene: &Scene, proxy: u8) {
        match self.proxy(proxy).flight.take() {
            Some(Flight::Sent(batch)) => {
                self.leave_unknown(scene, batch.iter().map(|job| job.request));
                self.database.orphans.push(batch);
            }
            Some(Flight::Committed { answers, .. }) => {
                self.leave_unknown(scene, answers.iter().map(|(request, _)| *request));
            }
            None => {}
        }
    }

    /// A proxy is killed, and another one started in its place.
    pub fn kill(&mut self, scene: &Scene, proxy: u8) {
        self.cut(scene, proxy);
        let Proxy { queue, .. } = std::mem::take(self.proxy(proxy));
        self.leave_unknown(scene, queue.iter().map(|job| job.request));
    }

    /// The database dies and recovers: what was committed is there, what was not will never be.
    pub fn crash(&mut self, scene: &Scene) {
        for proxy in 0..scene.proxies {
            self.cut(scene, proxy);
        }
        self.database.orphans.clear();
    }

    /// The standby takes over. What it had not received is gone.
    pub fn fail_over(&mut self, scene: &Scene) {
        self.crash(scene);
        self.replace_primary();
        self.database.unguarded = !scene.is(Trap::FailoverUnnoticed);
        self.witness.disturbed = true;
        // A claim that is lost was never handed out.
        self.witness.last_claimed = self
            .witness
            .granted
            .checked_ilog2()
            .and_then(|token| token.try_into().ok())
            .unwrap_or(0);
        let value = self.row(Key::Data).value;
        self.witness.deleted &= !value;
        if !scene.synchronous {
            // This is what asynchronous replication promises: nothing.
            let lost = self.witness.acknowledged & !value & !self.witness.deleted;
            self.witness.sights.lost_by_failover |= lost != 0;
            self.witness.acknowledged &= !lost;
        }
    }

    fn replace_primary(&mut self) {
        let Database { primary, standby, .. } = &mut self.database;
        *primary = standby.clone();
    }

    /// The first thing that is done on a new timeline: the lock service is asked for its newest
    /// token, as it always is, with an eye on whether it has gone backwards; and all below it become
    /// stale.
    pub fn raise_floor(&mut self, scene: &Scene) {
        let shown = self.lock_service.revision;
        let stored = &mut self.database.primary;
        stored.memory = if has_gone_backwards(scene, stored.memory, shown) {
            Memory { epoch: stored.memory.epoch + 1, seen: shown }
        } else {
            Memory { seen: shown, ..stored.memory }
        };
        stored.floor = stored.floor.max(token(stored.memory.epoch, shown));
        self.database.unguarded = false;
    }

    /// The lock service comes back as it was when the snapshot was taken.
    pub fn restore(&mut self) {
        self.lock_service = self.saved.clone();
        self.witness.disturbed = true;
    }

    pub fn forge(&mut self) {
        let write = Write { token: 63, seq: 0, change: Change::Put(1 << 15), above: false };
        let (key, kind) = (Key::Data, Kind::Forged);
        self.send(Request { by: u8::MAX, key, scope: None, write, kind, adds: 0 });
    }

    fn leave_unknown(&mut self, scene: &Scene, requests: impl Iterator<Item = Request>) {
        for request in requests {
            let Request { by, adds, kind, .. } = request;
            match kind {
                // A claim that may have failed: the grant is given back, or its lease ends.
                Kind::Grant => self.holder(by).phase = Phase::Idle,
                Kind::Write
                    if scene.is(Trap::UnknownCalledFailed)
                        && self.request(scene, by) == Some(request) =>
                {
                    self.witness.called_failed |= adds;
                    self.holder(by).phase = Phase::FencedOff;
                }
                // It goes on waiting, and may send the same again.
                _ => {}
            }
        }
    }
}

/// Whether the batch still waits to be judged.
pub fn is_sent(flight: Option<&Flight>) -> Option<&Vec<Job>> {
    match flight {
        Some(Flight::Sent(batch)) => Some(batch),
        _ => None,
    }
}
