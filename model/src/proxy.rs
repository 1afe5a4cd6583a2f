//! What a proxy does: `src/engine.rs` and what is below it.
//!
//! The cache may refuse. What it does not refuse waits in the queue, and goes to the database as a
//! batch; when that is committed, the cache learns, and everybody is answered.

use crate::{
    rule::{Row, Token, Verdict},
    scene::{Scene, Trap},
    world::{Answer, Flight, Job, Key, Kind, Proxy, Request, World},
};

impl World {
    /// A request arrives.
    pub fn deliver(&mut self, scene: &Scene, request: Request, proxy: u8) {
        let token = request.write.token;
        if scene.is(Trap::CacheFromRequests) {
            self.proxy(proxy).learn(request.key, token);
        }
        if request.kind == Kind::BareRead {
            let answer = self.look_up(&request, Verdict::Accepted);
            self.tell(scene, &request, &answer);
            return;
        }
        if self.proxy(proxy).knows_above(&request) > token {
            self.refuse_from_cache(scene, &request);
            return;
        }
        if request.kind == Kind::Forged && !scene.is(Trap::AnyTokenBelieved) {
            // It was never issued. Nothing comes of it.
            return;
        }
        let judged = match scene.trap {
            Some(Trap::CheckThenForward) => Some(self.would_pass(&request)),
            Some(Trap::LeaseDecides) => Some(self.holds_the_lock(request.by)),
            Some(Trap::CacheAccepts) => Some(true),
            _ => None,
        };
        if judged == Some(false) {
            let answer = self.look_up(&request, Verdict::Stale);
            self.tell(scene, &request, &answer);
            return;
        }
        self.proxy(proxy).queue.push(Job { request, judged: judged.is_some() });
    }

    fn refuse_from_cache(&mut self, scene: &Scene, request: &Request) {
        self.witness.sights.refused_by_cache = true;
        let ever = |key: Key| self.witness.marks[key as usize].token;
        let truth =
            ever(request.key).max(request.scope.map_or(0, ever)).max(self.database.primary.floor);
        if truth <= request.write.token {
            self.witness.wrongs.refused_wrongly_by_cache = true;
        }
        let answer = self.look_up(request, Verdict::Stale);
        self.tell(scene, request, &answer);
    }

    /// What has gathered goes to the database.
    pub fn flush(&mut self, scene: &Scene, proxy: u8) {
        let most = scene.batch.min(self.proxy(proxy).queue.len());
        let mut batch: Vec<Job> = self.proxy(proxy).queue.drain(..most).collect();
        self.witness.sights.gathered |= batch.len() > 1;
        if scene.is(Trap::SelectThenUpdate) {
            batch.retain_mut(|job| {
                job.judged = self.would_pass(&job.request);
                job.judged
            });
        }
        if scene.is(Trap::AnsweredBeforeCommit) {
            for job in batch.iter().filter(|job| job.request.kind == Kind::Write) {
                let answer = self.look_up(&job.request, Verdict::Accepted);
                self.tell(scene, &job.request, &answer);
            }
        }
        self.proxy(proxy).flight = Some(Flight::Sent(batch));
    }

    /// Whether the batch is as durable as was promised, so that it can be answered.
    pub fn may_answer(&self, scene: &Scene, position: u8) -> bool {
        !scene.waits_for_the_standby()
            || scene.is(Trap::CancelledWaitIsSuccess)
            || position <= self.database.standby.position
    }

    pub fn answer(&mut self, scene: &Scene, proxy: u8) {
        let Some(Flight::Committed { answers, .. }) = self.proxy(proxy).flight.take() else {
            return;
        };
        for (request, answer) in answers {
            self.proxy(proxy).learn(request.key, answer.mark);
            if let Some(scope) = request.scope {
                self.proxy(proxy).learn(scope, answer.scope_mark);
            }
            self.tell(scene, &request, &answer);
        }
    }

    /// What the database says right now. Nothing may follow from it, except in a trap.
    fn would_pass(&self, request: &Request) -> bool {
        self.judge(request).0.is_success()
    }

    pub fn look_up(&self, request: &Request, verdict: Verdict) -> Answer {
        let mark = |key: Key| self.row(key).mark.token.max(self.database.primary.floor);
        Answer {
            verdict,
            mark: mark(request.key),
            scope_mark: request.scope.map_or(0, mark),
            value: self.row(request.key).value,
        }
    }

    pub fn row(&self, key: Key) -> &Row {
        &self.database.primary.rows[key as usize]
    }
}

impl Proxy {
    /// By atomic maximum: late news do not lower it.
    fn learn(&mut self, key: Key, mark: Token) {
        let known = &mut self.cache[key as usize];
        *known = mark.max(*known);
    }

    fn knows_above(&self, request: &Request) -> Token {
        let known = |key: Key| self.cache[key as usize];
        known(request.key).max(request.scope.map_or(0, known))
    }
}
