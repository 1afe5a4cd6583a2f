//! The judge. A batch is judged and applied in one step, as the conditional statement does it.

use crate::{
    rule::{self, Change, Row, Token, Verdict},
    scene::{Scene, Trap},
    world::{Answer, Flight, Job, Key, Kind, Request, Witness, World},
};

impl World {
    /// The batch of this proxy is committed. Its answer is another step.
    pub fn commit(&mut self, scene: &Scene, proxy: u8) {
        let Some(Flight::Sent(batch)) = self.proxy(proxy).flight.take() else { return };
        let answers = self.settle(scene, &batch);
        let position = self.database.primary.position;
        self.proxy(proxy).flight = Some(Flight::Committed { answers, position });
    }

    /// Its proxy has long gone, and nobody will hear of it.
    pub fn commit_orphan(&mut self, scene: &Scene, orphan: usize) {
        let batch = self.database.orphans.remove(orphan);
        self.witness.sights.orphan_committed = true;
        self.settle(scene, &batch);
    }

    fn settle(&mut self, scene: &Scene, batch: &[Job]) -> Vec<(Request, Answer)> {
        if scene.may_fail_over() {
            self.database.primary.position += 1;
        }
        let mut answers: Vec<(Request, Answer)> = Vec::with_capacity(batch.len());
        for (place, job) in batch.iter().enumerate() {
            let request = job.request;
            let later = batch[place + 1..].iter().any(|other| other.request.key == request.key);
            let verdict = if scene.is(Trap::OneRowPerKey) && later {
                Verdict::Accepted
            } else {
                self.apply(scene, job)
            };
            answers.push((request, self.look_up(&request, verdict)));
        }
        if scene.is(Trap::AnswersByPosition) {
            // Only accepted rows come back, and are taken for the first ones of the batch.
            let mut verdicts: Vec<Answer> = answers.iter().map(|(_, answer)| *answer).collect();
            verdicts.sort_by_key(|answer| !answer.verdict.is_success());
            for ((_, answer), other) in answers.iter_mut().zip(verdicts) {
                *answer = other;
            }
        }
        answers
    }

    fn apply(&mut self, scene: &Scene, job: &Job) -> Verdict {
        let Job { request, judged } = job;
        let before = *self.row(request.key);
        let (verdict, mut after) = self.judge(request);
        let verdict = if *judged {
            after = rule::changed(request.write, before);
            Verdict::Accepted
        } else {
            verdict
        };
        self.witness_verdict(request, verdict);
        if verdict != Verdict::Accepted {
            return verdict;
        }
        if request.write.change == Change::Delete {
            self.witness.deleted |= before.value;
            if scene.is(Trap::DeleteDropsTheRow) {
                after = Row::default();
            }
        }
        self.database.primary.rows[request.key as usize] = after;
        self.witness.see_mark(request.key, after);
        if let Some(scope) = request.scope {
            let raised = rule::seen(*self.row(scope), request.write.token);
            self.database.primary.rows[scope as usize] = raised;
            self.witness.see_mark(scope, raised);
        }
        if request.kind == Kind::Grant {
            self.witness.see_claim(request.write.token);
        }
        verdict
    }

    pub fn judge(&self, request: &Request) -> (Verdict, Row) {
        let scope = request.scope.map_or(0, |scope| self.row(scope).mark.token);
        let guard = scope.max(self.database.primary.floor);
        rule::judge(request.write, *self.row(request.key), guard)
    }

    fn witness_verdict(&mut self, request: &Request, verdict: Verdict) {
        let token = request.write.token;
        let live = self.lock_service.queue.first().is_some_and(|entry| {
            entry.holder == request.by && entry.created == token && request.kind != Kind::Forged
        });
        let witness = &mut self.witness;
        match verdict {
            Verdict::Accepted => {
                witness.wrongs.stale_accepted |= token < witness.newest_accepted;
                witness.newest_accepted = witness.newest_accepted.max(token);
            }
            Verdict::Replayed => witness.sights.replayed = true,
            Verdict::Stale => {
                witness.sights.refused_by_store = true;
                witness.wrongs.live_holder_refused |= live && !witness.disturbed;
            }
            Verdict::OutOfOrder | Verdict::SeqReused => {}
        }
    }

    /// The standby has received everything.
    pub fn replicate(&mut self) {
        self.database.standby = self.database.primary.clone();
    }
}

impl Witness {
    fn see_mark(&mut self, key: Key, row: Row) {
        let highest = &mut self.marks[key as usize];
        *highest = row.mark.max(*highest);
    }

    fn see_claim(&mut self, token: Token) {
        self.wrongs.token_repeated |= token <= self.last_claimed;
        self.last_claimed = token.max(self.last_claimed);
    }

    /// A grant is handed out. An answer may be late, so that only repetition is wrong here.
    pub fn see_token(&mut self, token: Token) {
        let bit = 1 << token;
        self.wrongs.token_repeated |= self.granted & bit != 0;
        self.granted |= bit;
    }
}

impl Scene {
    pub fn may_fail_over(&self) -> bool {
        self.faults.failovers > 0
    }

    pub fn waits_for_the_standby(&self) -> bool {
        self.synchronous && self.may_fail_over()
    }
}
