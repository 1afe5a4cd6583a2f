//! What must never be seen, and what must be seen somewhere or the check would prove nothing.
//!
//! The names of the first are those of the invariants in docs/model.md.

use stateright::Property;

use crate::{
    scene::Scene,
    world::{KEYS, Key, World},
};

pub const NO_STALE_WRITE: &str = "no stale write is accepted";
pub const MARKS_NEVER_FALL: &str = "marks never fall";
pub const NOTHING_LOST: &str = "no acknowledged write is lost";
pub const DELETED_STAYS_DELETED: &str = "what was deleted does not come back";
pub const FAILED_IS_FAILED: &str = "what was called failed never takes effect";
pub const TOKENS_RISE: &str = "tokens rise, and none is granted twice";
pub const CACHE_IS_RIGHT: &str = "the cache refuses nothing wrongly";
pub const LIVE_HOLDER_PASSES: &str = "whoever holds the lock is not refused as stale";

pub const ALWAYS: [&str; 8] = [
    NO_STALE_WRITE,
    MARKS_NEVER_FALL,
    NOTHING_LOST,
    DELETED_STAYS_DELETED,
    FAILED_IS_FAILED,
    TOKENS_RISE,
    CACHE_IS_RIGHT,
    LIVE_HOLDER_PASSES,
];

pub fn all(scene: &Scene) -> Vec<Property<Scene>> {
    let mut all = vec![
        Property::<Scene>::always(NO_STALE_WRITE, |_, world| !world.witness.wrongs.stale_accepted),
        Property::<Scene>::always(MARKS_NEVER_FALL, |_, world| marks_stand(world)),
        Property::<Scene>::always(NOTHING_LOST, |_, world| {
            let gone = !value(world) & !world.witness.deleted;
            world.database.unguarded || world.witness.acknowledged & gone == 0
        }),
        Property::<Scene>::always(DELETED_STAYS_DELETED, |_, world| {
            value(world) & world.witness.deleted == 0
        }),
        Property::<Scene>::always(FAILED_IS_FAILED, |_, world| {
            value(world) & world.witness.called_failed == 0
        }),
        Property::<Scene>::always(TOKENS_RISE, |_, world| !world.witness.wrongs.token_repeated),
        Property::<Scene>::always(CACHE_IS_RIGHT, |_, world| {
            !world.witness.wrongs.refused_wrongly_by_cache
        }),
        Property::<Scene>::always(LIVE_HOLDER_PASSES, |_, world| {
            !world.witness.wrongs.live_holder_refused
        }),
    ];
    if scene.trap.is_none() {
        all.extend(sights(scene));
    }
    all
}

/// After a failover the floor stands in for marks that are lost.
fn marks_stand(world: &World) -> bool {
    let stored = &world.database.primary;
    world.database.unguarded
        || (0..KEYS).all(|key| {
            let highest = world.witness.marks[key];
            stored.rows[key].mark >= highest || stored.floor >= highest.token
        })
}

fn value(world: &World) -> u16 {
    world.row(Key::Data).value
}

fn sights(scene: &Scene) -> Vec<Property<Scene>> {
    let mut sights = Vec::new();
    let mut expect = |here: bool, name, condition: fn(&Scene, &World) -> bool| {
        if here {
            sights.push(Property::sometimes(name, condition));
        }
    };
    let faults = &scene.faults;
    let work = scene.writes > 0;
    expect(work, "a zombie is refused by a cache", |_, world| {
        world.witness.sights.refused_by_cache
    });
    expect(work, "a zombie is refused by the store", |_, world| {
        world.witness.sights.refused_by_store
    });
    expect(work, "writes gather in a batch", |_, world| world.witness.sights.gathered);
    expect(work, "every holder finishes", |scene, world| {
        let done = |holder: &crate::world::Holder| {
            holder.terms == scene.terms && holder.phase == crate::world::Phase::Idle
        };
        world.holders.iter().all(done) && world.witness.acknowledged.count_ones() > 1
    });
    expect(faults.repeats > 0, "a write is replayed", |_, world| world.witness.sights.replayed);
    expect(faults.cuts > 0, "an unknown outcome becomes a commit", |_, world| {
        world.witness.sights.orphan_committed
    });
    expect(faults.restores > 0, "an epoch moves on", |_, world| world.witness.sights.epoch_moved);
    let lossy = faults.failovers > 0 && !scene.synchronous;
    expect(lossy, "a failover loses what was acknowledged", |_, world| {
        world.witness.sights.lost_by_failover
    });
    sights
}
