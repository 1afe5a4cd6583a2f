//! What can happen next, and the model as Stateright sees it.

use stateright::{Model, Property};

use crate::{
    faults::is_sent,
    properties,
    scene::{Scene, Trap},
    world::{Entry, Flight, LockService, Phase, World},
};

/// Numbers are those of holders, proxies, or places in the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    // A holder takes the lock.
    ReadRow { holder: u8 },
    Enter { holder: u8 },
    Look { holder: u8 },
    TakeTurn { holder: u8, proxy: u8 },
    Acquire { holder: u8, proxy: u8 },
    LeaseEnds(Entry),
    // A holder works.
    Ask { holder: u8 },
    AskAgain { holder: u8 },
    Deliver { place: usize, proxy: u8 },
    DeliverCopy { place: usize, proxy: u8 },
    Flush { proxy: u8 },
    Commit { proxy: u8 },
    CommitOrphan(usize),
    Replicate,
    Answer { proxy: u8 },
    // Something goes wrong, or is mended.
    Cut { proxy: u8 },
    Kill { proxy: u8 },
    Crash,
    FailOver,
    RaiseFloor,
    SaveSnapshot,
    Restore,
    Forge,
}

impl Model for Scene {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(self)]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        for holder in 0..self.holders {
            self.actions_of_holder(world, holder, actions);
        }
        actions.extend(world.lock_service.queue.iter().map(|entry| Action::LeaseEnds(*entry)));
        self.actions_of_network(world, actions);
        for proxy in 0..self.proxies {
            self.actions_of_proxy(world, proxy, actions);
        }
        self.actions_of_database(world, actions);
        Self::actions_of_lock_service(world, actions);
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        self.perform(&mut next, action);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all(self)
    }
}

impl Scene {
    fn actions_of_holder(&self, world: &World, holder: u8, actions: &mut Vec<Action>) {
        let by_each_proxy = |of: fn(u8, u8) -> Action, actions: &mut Vec<Action>| {
            actions.extend((0..self.proxies).map(|proxy| of(holder, proxy)));
        };
        let take_turn = |holder, proxy| Action::TakeTurn { holder, proxy };
        let acquire = |holder, proxy| Action::Acquire { holder, proxy };
        let it = &world.holders[usize::from(holder)];
        match it.phase {
            Phase::Idle if it.terms == self.terms => {}
            Phase::Idle if self.slow_grants => actions.push(Action::ReadRow { holder }),
            Phase::Idle => by_each_proxy(acquire, actions),
            Phase::RowRead(_) => actions.push(Action::Enter { holder }),
            Phase::Entered { .. } => by_each_proxy(take_turn, actions),
            Phase::Waiting { created } if world.should_look(holder, created) => {
                actions.push(Action::ReadRow { holder });
            }
            Phase::RowReadAgain { .. } => actions.push(Action::Look { holder }),
            Phase::Holding { waits: false, .. } => actions.push(Action::Ask { holder }),
            Phase::Holding { waits: true, .. } if world.left.repeats > 0 => {
                actions.push(Action::AskAgain { holder });
            }
            Phase::Holding { .. }
            | Phase::Waiting { .. }
            | Phase::Claiming { .. }
            | Phase::FencedOff => {}
        }
    }

    fn actions_of_network(&self, world: &World, actions: &mut Vec<Action>) {
        for place in 0..world.network.len() {
            for proxy in 0..self.proxies {
                actions.push(Action::Deliver { place, proxy });
                if world.left.copies > 0 {
                    actions.push(Action::DeliverCopy { place, proxy });
                }
            }
        }
        if world.left.forgeries > 0 {
            actions.push(Action::Forge);
        }
    }

    fn actions_of_proxy(&self, world: &World, proxy: u8, actions: &mut Vec<Action>) {
        let it = &world.proxies[usize::from(proxy)];
        if it.flight.is_none() && !it.queue.is_empty() && self.may_write(world) {
            actions.push(Action::Flush { proxy });
        }
        if is_sent(it.flight.as_ref()).is_some() {
            actions.push(Action::Commit { proxy });
        }
        if let Some(Flight::Committed { position, .. }) = it.flight
            && world.may_answer(self, position)
        {
            actions.push(Action::Answer { proxy });
        }
        if it.flight.is_some() && world.left.cuts > 0 {
            actions.push(Action::Cut { proxy });
        }
        if world.left.kills > 0 {
            actions.push(Action::Kill { proxy });
        }
    }

    fn actions_of_database(&self, world: &World, actions: &mut Vec<Action>) {
        let database = &world.database;
        actions.extend((0..database.orphans.len()).map(Action::CommitOrphan));
        if self.may_fail_over() && database.standby != database.primary {
            actions.push(Action::Replicate);
        }
        if world.left.crashes > 0 {
            actions.push(Action::Crash);
        }
        if world.left.failovers > 0 {
            actions.push(Action::FailOver);
        }
        if database.unguarded {
            actions.push(Action::RaiseFloor);
        }
    }

    fn actions_of_lock_service(world: &World, actions: &mut Vec<Action>) {
        if world.left.restores > 0 {
            actions.push(Action::Restore);
            if world.saved == LockService::default() && world.saved != world.lock_service {
                actions.push(Action::SaveSnapshot);
            }
        }
    }

    /// On a new timeline no statement is sent before the floor has risen. (To hold back only the
    /// commit would not do: what was sent may commit after its connection is lost.)
    fn may_write(&self, world: &World) -> bool {
        !world.database.unguarded || self.is(Trap::FloorTooLate)
    }

    fn perform(&self, world: &mut World, action: Action) {
        match action {
            Action::ReadRow { holder } => world.read_row(holder),
            Action::Enter { holder } => {
                if let Phase::RowRead(row) = world.holder(holder).phase {
                    world.enter(self, holder, row);
                }
            }
            Action::Look { holder } => {
                if let Phase::RowReadAgain { created, row } = world.holder(holder).phase {
                    world.look(holder, created, row);
                }
            }
            Action::TakeTurn { holder, proxy } => world.take_turn(self, holder, proxy),
            Action::Acquire { holder, proxy } => {
                world.enter(self, holder, world.database.primary.memory);
                world.take_turn(self, holder, proxy);
            }
            Action::LeaseEnds(entry) => world.expire(entry),
            Action::Ask { holder } => world.ask(self, holder),
            Action::AskAgain { holder } => {
                world.left.repeats -= 1;
                world.ask(self, holder);
            }
            Action::Deliver { place, proxy } => {
                let request = world.network.remove(place);
                world.deliver(self, request, proxy);
            }
            Action::DeliverCopy { place, proxy } => {
                world.left.copies -= 1;
                world.deliver(self, world.network[place], proxy);
            }
            Action::Flush { proxy } => world.flush(self, proxy),
            Action::Commit { proxy } => world.commit(self, proxy),
            Action::CommitOrphan(orphan) => world.commit_orphan(self, orphan),
            Action::Replicate => world.replicate(),
            Action::Answer { proxy } => world.answer(self, proxy),
            fault => self.perform_fault(world, fault),
        }
    }

    fn perform_fault(&self, world: &mut World, fault: Action) {
        match fault {
            Action::Cut { proxy } => {
                world.left.cuts -= 1;
                world.cut(self, proxy);
            }
            Action::Kill { proxy } => {
                world.left.kills -= 1;
                world.kill(self, proxy);
            }
            Action::Crash => {
                world.left.crashes -= 1;
                world.crash(self);
            }
            Action::FailOver => {
                world.left.failovers -= 1;
                world.fail_over(self);
            }
            Action::RaiseFloor => world.raise_floor(self),
            Action::SaveSnapshot => world.saved = world.lock_service.clone(),
            Action::Restore => {
                world.left.restores -= 1;
                world.restore();
            }
            Action::Forge => {
                world.left.forgeries -= 1;
                world.forge();
            }
            _ => {}
        }
    }
}
