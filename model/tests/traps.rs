//! Each trap, set, leads to something wrong: the properties bite, and each answer is needed.

use fencepost_model::{
    Scene, Trap,
    properties::{
        CACHE_IS_RIGHT, DELETED_STAYS_DELETED, FAILED_IS_FAILED, LIVE_HOLDER_PASSES,
        MARKS_NEVER_FALL, NO_STALE_WRITE, NOTHING_LOST, TOKENS_RISE,
    },
    scene::Faults,
};
use stateright::{Checker, HasDiscoveries, Model};

/// With the trap the property fails. That it holds without, in scenes like this, is `complete.rs`.
fn caught(trap: Trap, scene: Scene, property: &'static str) {
    let checker = scene
        .trapped(trap)
        .checker()
        .threads(2)
        .finish_when(HasDiscoveries::AnyOf([property].into()))
        .spawn_bfs()
        .join();
    let path = checker.assert_any_discovery(property);
    println!("{trap:?}: {property}?");
    for action in path.into_actions() {
        println!("    {action:?}");
    }
}

fn own_key() -> Scene {
    Scene { scoped: false, ..Scene::calm() }
}

fn grants() -> Scene {
    Scene { slow_grants: true, writes: 0, holders: 3, proxies: 1, ..Scene::calm() }
}

fn none() -> Faults {
    Faults::default()
}

#[test]
fn read_before_the_first_write() {
    caught(Trap::ReadBeforeTheFirstWrite, Scene::calm(), NOTHING_LOST);
}

#[test]
fn several_keys_one_lock() {
    caught(Trap::SeveralKeysOneLock, Scene::calm(), NO_STALE_WRITE);
}

#[test]
fn late_duplicate() {
    let scene = own_key().with(Faults { copies: 1, ..none() });
    caught(Trap::LateDuplicate, scene, NOTHING_LOST);
}

#[test]
fn one_token_per_lease() {
    let scene = Scene { terms: 2, writes: 1, grants_claim: false, ..own_key() };
    caught(Trap::OneTokenPerLease, scene, TOKENS_RISE);
}

#[test]
fn header_revision() {
    let scene = Scene { grants_claim: false, ..grants() };
    caught(Trap::HeaderRevision, scene, TOKENS_RISE);
}

#[test]
fn no_epochs() {
    let scene = Scene { grants_claim: false, ..grants() };
    caught(Trap::NoEpochs, scene.with(Faults { restores: 1, ..none() }), TOKENS_RISE);
}

#[test]
fn granted_before_noted() {
    let scene = Scene { grants_claim: false, ..grants() };
    caught(Trap::GrantedBeforeNoted, scene.with(Faults { restores: 1, ..none() }), TOKENS_RISE);
}

#[test]
fn own_creation_counts() {
    let scene = Scene { grants_claim: false, ..grants() };
    caught(Trap::OwnCreationCounts, scene.with(Faults { restores: 1, ..none() }), TOKENS_RISE);
}

#[test]
fn equal_claim_passes() {
    caught(Trap::EqualClaimPasses, grants().with(Faults { restores: 1, ..none() }), TOKENS_RISE);
}

#[test]
fn failover_unnoticed() {
    let scene = Scene { synchronous: false, ..own_key() };
    let scene = scene.with(Faults { failovers: 1, ..none() });
    caught(Trap::FailoverUnnoticed, scene.clone(), MARKS_NEVER_FALL);
    caught(Trap::FailoverUnnoticed, scene, NO_STALE_WRITE);
}

#[test]
fn floor_too_late() {
    let scene = Scene { synchronous: false, ..own_key() };
    caught(Trap::FloorTooLate, scene.with(Faults { failovers: 1, ..none() }), NO_STALE_WRITE);
}

#[test]
fn cancelled_wait_is_success() {
    let scene = own_key().with(Faults { failovers: 1, ..none() });
    caught(Trap::CancelledWaitIsSuccess, scene, NOTHING_LOST);
}

#[test]
fn unknown_called_failed() {
    let scene = own_key().with(Faults { cuts: 1, ..none() });
    caught(Trap::UnknownCalledFailed, scene, FAILED_IS_FAILED);
}

#[test]
fn one_row_per_key() {
    caught(Trap::OneRowPerKey, own_key(), NOTHING_LOST);
}

#[test]
fn select_then_update() {
    caught(Trap::SelectThenUpdate, own_key(), MARKS_NEVER_FALL);
}

#[test]
fn delete_drops_the_row() {
    let scene = Scene { deletes: true, ..own_key() };
    caught(Trap::DeleteDropsTheRow, scene.clone(), MARKS_NEVER_FALL);
    let scene = scene.with(Faults { copies: 1, ..none() });
    caught(Trap::DeleteDropsTheRow, scene, DELETED_STAYS_DELETED);
}

#[test]
fn answered_before_commit() {
    let scene = own_key().with(Faults { crashes: 1, ..none() });
    caught(Trap::AnsweredBeforeCommit, scene, NOTHING_LOST);
}

#[test]
fn cache_from_requests() {
    let scene = own_key().with(Faults { forgeries: 1, ..none() });
    caught(Trap::CacheFromRequests, scene, CACHE_IS_RIGHT);
}

#[test]
fn any_token_believed() {
    let scene = own_key().with(Faults { forgeries: 1, ..none() });
    caught(Trap::AnyTokenBelieved, scene, LIVE_HOLDER_PASSES);
}

#[test]
fn answers_by_position() {
    caught(Trap::AnswersByPosition, own_key(), NOTHING_LOST);
}

#[test]
fn check_then_forward() {
    caught(Trap::CheckThenForward, own_key(), NO_STALE_WRITE);
}

#[test]
fn lease_decides() {
    caught(Trap::LeaseDecides, own_key(), NO_STALE_WRITE);
}

#[test]
fn cache_accepts() {
    caught(Trap::CacheAccepts, own_key(), NO_STALE_WRITE);
}
