//! A network of a test's own, in which this machine has an address besides 127.0.0.1.

use std::{cell::RefCell, net::IpAddr, process::Command};

use nix::{
    sched::{CloneFlags, unshare},
    unistd::{getpid, gettid},
};

use super::spawn_bound_to_us;

/// From those that are for documentation only.
const ADDRESS: &str = "192.0.2.1";

thread_local! {
    static NETWORK: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// From now on this thread, and every server that it starts, is alone in a network where whoever asks
/// this address comes from it, too. Needs root, and a runtime that has no other threads.
pub fn another_address() -> IpAddr {
    // Whoever starts everybody's servers must not be born in here.
    let nothing = spawn_bound_to_us(Command::new("true")).expect("true starts").wait();
    assert!(nothing.is_ok());
    unshare(CloneFlags::CLONE_NEWNET).expect("root, for a network of its own");
    for arguments in [&["link", "set", "lo", "up"][..], &["address", "add", ADDRESS, "dev", "lo"]] {
        let status = Command::new("ip").args(arguments).status().expect("ip runs");
        assert!(status.success(), "ip {arguments:?}");
    }
    NETWORK.set(Some(format!("/proc/{}/task/{}/ns/net", getpid(), gettid())));
    ADDRESS.parse().expect("an address")
}

/// Where this thread's servers belong, if it has a network of its own. (They are started by another.)
pub fn network() -> Option<String> {
    NETWORK.with_borrow(Clone::clone)
}
