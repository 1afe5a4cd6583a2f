//! A world of its own: what is cut, filled or mounted in it is nobody else's business, and is gone when
//! this process ends, however it ends.

use std::{
    io::Write as _,
    process::{Command, Stdio},
};

use nix::sched::{CloneFlags, unshare};

/// What is lost on the way. `cut` is for what passes between two hosts, from one to the other; the other
/// two are for what goes to a port of this machine, and for what comes back from there.
const FILTER: &str = "
table inet chaos {
    set cut { type ipv4_addr . ipv4_addr; }
    set requests { type inet_service; }
    set answers { type inet_service; }
    chain between { type filter hook forward priority 0; ip saddr . ip daddr @cut drop; }
    chain here {
        type filter hook output priority 0;
        tcp dport @requests drop
        tcp sport @answers drop
    }
}";

/// To be called before there is a second thread: those that come later are born into it.
pub fn enter() {
    unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS)
        .expect("root, for a network and mounts of its own");
    run("mount", &["--make-rprivate", "/"]);
    run("ip", &["link", "set", "lo", "up"]);
    std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").expect("it passes packets on");
    filter(FILTER);
}

pub fn run(program: &str, arguments: &[&str]) {
    let status = Command::new(program).args(arguments).status();
    assert!(status.is_ok_and(|status| status.success()), "{program} {arguments:?}");
}

/// Whatever `nft -f` understands.
pub fn filter(rules: &str) {
    let mut nft = Command::new("nft")
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("nft is installed: run `make setup`");
    let mut stdin = nft.stdin.take().expect("its input");
    stdin.write_all(rules.as_bytes()).expect("nft reads");
    drop(stdin);
    assert!(nft.wait().is_ok_and(|status| status.success()), "nft: {rules}");
}
