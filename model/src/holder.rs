//! What a holder does under its lock: it reads, and writes back what it read with something added.
//!
//! It sends one request at a time, and goes on when it is answered. If it hears nothing it may send
//! the same again, with the same seq. That it may be frozen for any time needs no step of its own: it
//! is what happens when the others go on.

use crate::{
    rule::{Bits, Change, Token, Write},
    scene::{Scene, Trap},
    world::{Answer, Key, Kind, Phase, Request, World},
};

impl Phase {
    /// Right after the grant.
    pub fn at_work(scene: &Scene, token: Token) -> Self {
        match scene.writes {
            0 => Self::Idle,
            _ => Self::Holding { token, step: 0, known: 0, waits: false },
        }
    }
}

impl World {
    pub fn request(&self, scene: &Scene, holder: u8) -> Option<Request> {
        let Phase::Holding { token, step, known, .. } = self.holders[usize::from(holder)].phase
        else {
            return None;
        };
        let scope = (scene.scoped && !scene.is(Trap::SeveralKeysOneLock)).then_some(Key::Lock);
        let of = |kind, seq, change, adds| Request {
            by: holder,
            key: Key::Data,
            scope,
            write: Write { token, seq, change, above: false },
            kind,
            adds,
        };
        let seq = if scene.is(Trap::LateDuplicate) { 0 } else { step };
        if step == 0 {
            let bare = scene.is(Trap::ReadBeforeTheFirstWrite);
            let kind = if bare { Kind::BareRead } else { Kind::Read };
            return Some(of(kind, 0, Change::Claim, 0));
        }
        if step == scene.writes && scene.deletes {
            return Some(of(Kind::Write, seq, Change::Delete, 0));
        }
        let adds = self.contribution(scene, holder, step);
        Some(of(Kind::Write, seq, Change::Put(known | adds), adds))
    }

    /// Each write of each term of each holder has a bit of its own.
    fn contribution(&self, scene: &Scene, holder: u8, step: u8) -> Bits {
        let term = self.holders[usize::from(holder)].terms - 1;
        1 << ((holder * scene.terms + term) * scene.writes + step - 1)
    }

    /// For the first time, or again.
    pub fn ask(&mut self, scene: &Scene, holder: u8) {
        let Some(request) = self.request(scene, holder) else { return };
        if let Phase::Holding { waits, .. } = &mut self.holder(holder).phase {
            *waits = true;
        }
        self.send(request);
    }

    /// An answer has reached whoever asked; if they still wait for it.
    pub fn tell(&mut self, scene: &Scene, request: &Request, answer: &Answer) {
        match request.kind {
            Kind::Grant => return self.tell_of_the_claim(scene, request, *answer),
            Kind::Forged => return,
            Kind::Read | Kind::BareRead | Kind::Write => {}
        }
        let Phase::Holding { token, step, known, waits: true } = self.holder(request.by).phase
        else {
            return;
        };
        if self.request(scene, request.by).as_ref() != Some(request) {
            return;
        }
        if !answer.verdict.is_success() {
            self.holder(request.by).phase = Phase::FencedOff;
            return;
        }
        self.witness.acknowledged |= request.adds;
        let known = match request.kind {
            Kind::Read | Kind::BareRead => answer.value,
            _ => known | request.adds,
        };
        self.holder(request.by).phase = if step == scene.writes {
            Phase::Idle
        } else {
            Phase::Holding { token, step: step + 1, known, waits: false }
        };
    }

    fn tell_of_the_claim(&mut self, scene: &Scene, request: &Request, answer: Answer) {
        let claimed = request.write.token;
        if !matches!(self.holder(request.by).phase, Phase::Claiming { token, .. } if token == claimed)
        {
            return;
        }
        if answer.verdict.is_success() {
            self.witness.see_token(claimed);
            self.holder(request.by).phase = Phase::at_work(scene, claimed);
        } else {
            // The grant is given back.
            self.holder(request.by).phase = Phase::Idle;
        }
    }
}
