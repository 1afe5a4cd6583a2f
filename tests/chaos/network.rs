//! Hosts with a cable to this machine, which passes on what goes between them, or does not.

use std::{
    fs,
    net::Ipv4Addr,
    process::{Child, Command, Stdio},
};

use fastrand::Rng;

use crate::{
    it::harness::{bound_command, eventually, spawn_bound_to_us},
    world,
};

/// A network namespace, which lives as long as the process that does nothing in it.
pub struct Host {
    pub address: Ipv4Addr,
    pub namespace: String,
    sleeper: Child,
    cable: String,
}

impl Host {
    /// `number` tells it from the others.
    pub async fn new(number: u8) -> Self {
        let mut command = bound_command("unshare", None);
        command.args(["--net", "sleep", "infinity"]).stdin(Stdio::null());
        let sleeper = spawn_bound_to_us(command).expect("unshare starts");
        let namespace = format!("/proc/{}/ns/net", sleeper.id());
        let ours = fs::read_link("/proc/self/ns/net").expect("our own");
        eventually("the host has a network", || async {
            fs::read_link(&namespace).is_ok_and(|its| its != ours)
        })
        .await;
        let [near, far] = [1, 2].map(|place| Ipv4Addr::new(10, 77, number, place));
        let cable = format!("host{number}");
        let inside = format!("--net={namespace}");
        let pid = sleeper.id().to_string();
        let peer = ["type", "veth", "peer", "name", "eth0", "netns", &pid];
        world::run("ip", &[&["link", "add", cable.as_str()], &peer[..]].concat());
        world::run("ip", &["address", "add", &format!("{near}/24"), "dev", &cable]);
        world::run("ip", &["link", "set", &cable, "up"]);
        for arguments in [
            &["link", "set", "lo", "up"][..],
            &["address", "add", &format!("{far}/24"), "dev", "eth0"],
            &["link", "set", "eth0", "up"],
            &["route", "add", "default", "via", &near.to_string()],
        ] {
            world::run("nsenter", &[&[inside.as_str(), "ip"], arguments].concat());
        }
        Self { address: far, namespace, sleeper, cable }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // At once: a server that dies slowly would keep the namespace, and so the cable, for a while.
        let _ = Command::new("ip").args(["link", "delete", &self.cable]).status();
        let _ = self.sleeper.kill();
        let _ = self.sleeper.wait();
    }
}

/// What does not get through.
#[derive(Clone, Copy, Debug)]
pub enum Lost {
    Both,
    Requests,
    Answers,
}

impl Lost {
    pub fn any(random: &mut Rng) -> Self {
        [Self::Both, Self::Requests, Self::Answers][random.usize(..3)]
    }
}

/// From now on nothing passes between this host and some of the others, or only one way.
pub fn isolate(hosts: &[Host], place: usize, random: &mut Rng) {
    let lost = Lost::any(random);
    let everybody = random.bool();
    let others = (0..hosts.len()).filter(|other| *other != place);
    let from = hosts[place].address;
    for to in others.take(if everybody { hosts.len() } else { 1 }).map(|other| hosts[other].address)
    {
        let (out, back) = (format!("{from} . {to}"), format!("{to} . {from}"));
        let pairs = match lost {
            Lost::Both => format!("{out}, {back}"),
            Lost::Requests => out,
            Lost::Answers => back,
        };
        world::filter(&format!("add element inet chaos cut {{ {pairs} }}"));
    }
}

/// Everybody reaches everybody again.
pub fn join() {
    world::filter("flush set inet chaos cut");
}

/// From now on packets to these ports of this machine are dropped, or those from them.
pub fn drop_packets(ports: &[u16], lost: Lost) {
    let ports = ports.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    for set in sets(lost) {
        world::filter(&format!("add element inet chaos {set} {{ {ports} }}"));
    }
}

pub fn pass_packets(ports: &[u16], lost: Lost) {
    let ports = ports.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    for set in sets(lost) {
        world::filter(&format!("delete element inet chaos {set} {{ {ports} }}"));
    }
}

fn sets(lost: Lost) -> &'static [&'static str] {
    match lost {
        Lost::Both => &["requests", "answers"],
        Lost::Requests => &["requests"],
        Lost::Answers => &["answers"],
    }
}
