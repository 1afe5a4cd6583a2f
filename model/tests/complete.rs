//! With no trap set, nothing wrong can be reached: each scene is searched to its end.

use fencepost_model::{Scene, properties::ALWAYS, scene::Faults};
use stateright::{Checker, Model};

const NONE: Faults = Faults {
    repeats: 0,
    copies: 0,
    cuts: 0,
    kills: 0,
    crashes: 0,
    failovers: 0,
    restores: 0,
    forgeries: 0,
};

/// `states`: how many there are at least, so that a scene cannot shrink unnoticed.
fn holds(name: &str, scene: Scene, states: usize) {
    let expected = scene.properties().len() - ALWAYS.len();
    let checker = scene.checker().threads(2).spawn_bfs().join();
    let unique = checker.unique_state_count();
    println!(
        "{name}: {unique} states, {} steps, {} deep",
        checker.state_count(),
        checker.max_depth()
    );
    for property in ALWAYS {
        checker.assert_no_discovery(property);
    }
    assert!(checker.is_done(), "{name} was not searched to its end");
    // The rest are sights: each must have been seen, or the scene proves less than it says.
    let seen = checker.discoveries();
    assert_eq!(seen.len(), expected, "{name} has seen only {:?}", seen.keys());
    assert!(unique >= states, "{name} has only {unique} states");
}

fn own_key() -> Scene {
    Scene { scoped: false, ..Scene::calm() }
}

fn one_write() -> Scene {
    Scene { writes: 1, ..Scene::calm() }
}

fn grants() -> Scene {
    Scene { slow_grants: true, writes: 0, proxies: 1, ..Scene::calm() }
}

#[test]
fn a_network_that_repeats() {
    holds("copies", Scene::calm().with(Faults { copies: 1, ..NONE }), 1_000_000);
}

#[test]
fn a_network_that_repeats_deletes() {
    let scene = Scene { deletes: true, ..own_key() };
    holds("copies and deletes", scene.with(Faults { copies: 1, ..NONE }), 500_000);
}

#[test]
fn holders_that_ask_again() {
    holds("repeats", own_key().with(Faults { repeats: 1, ..NONE }), 500_000);
}

#[test]
fn connections_that_break() {
    let faults = Faults { cuts: 1, repeats: 1, ..NONE };
    holds("cuts and repeats", one_write().with(faults), 600_000);
}

#[test]
fn proxies_and_databases_that_die() {
    let faults = Faults { cuts: 1, kills: 1, crashes: 1, ..NONE };
    let scene = Scene { scoped: false, ..one_write() };
    holds("cuts, kills and crashes", scene.with(faults), 150_000);
}

#[test]
fn a_standby_that_has_everything_takes_over() {
    let faults = Faults { failovers: 1, cuts: 1, ..NONE };
    holds("synchronous failover", one_write().with(faults), 300_000);
}

#[test]
fn a_standby_that_lags_takes_over() {
    let scene = Scene { synchronous: false, scoped: false, ..one_write() };
    holds("asynchronous failover", scene.with(Faults { failovers: 1, ..NONE }), 500_000);
}

#[test]
fn three_holders() {
    holds("three holders", Scene { holders: 3, scoped: false, ..one_write() }, 1_000_000);
}

#[test]
fn holders_that_come_back() {
    let scene = Scene { terms: 2, proxies: 1, scoped: false, ..one_write() };
    holds("two terms", scene.with(Faults { cuts: 1, ..NONE }), 30_000);
}

#[test]
fn holders_whose_grant_was_not_claimed_and_somebody_who_forges() {
    let scene = Scene { grants_claim: false, ..Scene::calm() };
    holds("fenced reads", scene.with(Faults { forgeries: 1, ..NONE }), 40_000);
}

#[test]
fn a_lock_service_that_goes_backwards() {
    let scene = Scene { holders: 3, ..grants() };
    holds("restores", scene.with(Faults { restores: 2, ..NONE }), 700_000);
}

#[test]
fn a_lock_service_that_goes_backwards_under_work() {
    let scene = Scene { writes: 1, ..grants() };
    holds("a restore under work", scene.with(Faults { restores: 1, ..NONE }), 20_000);
}

#[test]
fn a_restore_and_a_synchronous_failover() {
    let faults = Faults { restores: 1, failovers: 1, ..NONE };
    holds("a restore and a failover", grants().with(faults), 20_000);
}

/// Beyond what is promised, and known: a lossy failover takes the memory of the lock service with it,
/// and a restore at the same time goes unnoticed.
#[test]
fn a_restore_and_an_asynchronous_failover_are_too_much() {
    let faults = Faults { restores: 1, failovers: 1, ..NONE };
    let scene = Scene { synchronous: false, ..grants() }.with(faults);
    let checker = scene.checker().threads(2).spawn_bfs().join();
    checker.assert_any_discovery(fencepost_model::properties::TOKENS_RISE);
}
