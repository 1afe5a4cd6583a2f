//! How a lock is taken, by way of a proxy: `src/authority/etcd/queue.rs`.
//!
//! What is remembered of the lock service is read first; then it is asked. If it shows less than is
//! remembered, it has gone backwards, and the epoch moves on before anything is granted.

use crate::{
    rule::{Change, Token, Write},
    scene::{Scene, Trap},
    world::{Entry, Job, Key, Kind, Memory, Phase, Request, World},
};

/// `epoch << 48 | revision`, in small. Four bits are enough for the revisions of any scene.
pub fn token(epoch: u8, revision: u8) -> Token {
    debug_assert!(revision < 16 && epoch < 4, "tokens must fit into the witness's bits");
    epoch << 4 | revision
}

impl World {
    pub fn holds_the_lock(&self, holder: u8) -> bool {
        self.lock_service.queue.first().is_some_and(|entry| entry.holder == holder)
    }

    fn place_of(&self, holder: u8, created: u8) -> Option<usize> {
        let entry = Entry { holder, created };
        self.lock_service.queue.iter().position(|other| *other == entry)
    }

    /// Whether a look would bring a waiter any news.
    pub fn should_look(&self, holder: u8, created: u8) -> bool {
        self.place_of(holder, created).is_none_or(|place| place == 0)
    }

    pub fn read_row(&mut self, holder: u8) {
        let row = self.database.primary.memory;
        let holder = self.holder(holder);
        holder.phase = match holder.phase {
            Phase::Waiting { created } => Phase::RowReadAgain { created, row },
            _ => Phase::RowRead(row),
        };
    }

    /// One transaction makes the entry, and says who was there before.
    pub fn enter(&mut self, scene: &Scene, holder: u8, row: Memory) {
        self.lock_service.revision += 1;
        let created = self.lock_service.revision;
        self.lock_service.queue.push(Entry { holder, created });
        // Our own entry is no sign of memory: what counts is how far it had come before.
        let shown = if scene.is(Trap::OwnCreationCounts) { created } else { created - 1 };
        let at_the_head = self.place_of(holder, created) == Some(0);
        let decides = at_the_head || has_gone_backwards(scene, row, shown);
        self.holder(holder).terms += 1;
        self.holder(holder).phase = if decides {
            Phase::Entered { created, row, shown }
        } else {
            Phase::Waiting { created }
        };
    }

    /// A waiter asks for its place, after what is remembered was read.
    pub fn look(&mut self, holder: u8, created: u8, row: Memory) {
        let shown = self.lock_service.revision;
        let phase = match self.place_of(holder, created) {
            Some(0) => Phase::Entered { created, row, shown },
            Some(_) => Phase::Waiting { created },
            None => Phase::Idle,
        };
        self.holder(holder).phase = phase;
    }

    /// Nobody is before us. The grant stands once its revision is remembered, in the epoch that the
    /// lock service was in when it showed us at the head.
    pub fn take_turn(&mut self, scene: &Scene, holder: u8, proxy: u8) {
        let Phase::Entered { created, row, shown } = self.holder(holder).phase else { return };
        let mut memory = self.database.primary.memory;
        if memory.epoch != row.epoch {
            self.holder(holder).phase = Phase::Waiting { created };
        } else if has_gone_backwards(scene, row, shown) {
            memory = Memory { epoch: row.epoch + 1, seen: shown };
            self.witness.sights.epoch_moved = true;
            self.holder(holder).phase = Phase::Waiting { created };
        } else {
            if !scene.is(Trap::GrantedBeforeNoted) {
                memory.seen = memory.seen.max(created);
            }
            self.grant(scene, holder, created, row.epoch, proxy);
        }
        self.database.primary.memory = memory;
        if scene.synchronous {
            self.database.standby.memory = memory;
        }
    }

    fn grant(&mut self, scene: &Scene, holder: u8, created: u8, epoch: u8, proxy: u8) {
        let token = match scene.trap {
            Some(Trap::HeaderRevision) => token(epoch, self.lock_service.revision),
            Some(Trap::OneTokenPerLease) if self.holder(holder).last > 0 => {
                self.holder(holder).last
            }
            _ => token(epoch, created),
        };
        self.holder(holder).last = token;
        if scene.grants_claim && !scene.is(Trap::ReadBeforeTheFirstWrite) {
            // A lock service that went backwards behind everybody's back may issue a token twice.
            // The second claim of it finds that its key has seen it.
            let above = !scene.is(Trap::EqualClaimPasses);
            let write = Write { token, seq: 0, change: Change::Claim, above };
            let key = if scene.scoped { Key::Lock } else { Key::Data };
            let request =
                Request { by: holder, key, scope: None, write, kind: Kind::Grant, adds: 0 };
            self.holder(holder).phase = Phase::Claiming { created, token, proxy };
            self.proxy(proxy).queue.push(Job { request, judged: false });
        } else {
            self.witness.see_token(token);
            self.holder(holder).phase = Phase::at_work(scene, token);
        }
    }

    /// A lease has ended, or was given up. Its holder need not know.
    pub fn expire(&mut self, entry: Entry) {
        self.lock_service.queue.retain(|other| *other != entry);
    }
}

/// The answer counts only if the lock service was asked after the row was read.
pub fn has_gone_backwards(scene: &Scene, row: Memory, shown: u8) -> bool {
    shown < row.seen && !scene.is(Trap::NoEpochs)
}
