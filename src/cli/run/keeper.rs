//! Keeps the lock while the child runs, and the child from running without it.
//!
//! Nothing is done to the child before the clock has been looked at: this process may have been
//! frozen at any await, for longer than the lease.

use std::{io, pin::Pin, process::ExitStatus, time::Duration};

use futures_util::{StreamExt, stream::FuturesUnordered};
use nix::sys::signal::Signal;
use reqwest::Method;

use super::{
    child::Child,
    lease::{self, Lease, Moment},
    signals::{Received, Signals},
};
use crate::cli::{
    client::{
        Address,
        grants::{self, PATH},
    },
    exit::{self, Failure},
};

/// Timers do not count the time in which the machine sleeps. So none is set for longer than this,
/// and the clock, which does, is looked at afterwards.
const NAP: Duration = Duration::from_secs(1);

/// How long a child that has ended waits for its lock to be given back. The lease would do it too.
const FAREWELL: Duration = Duration::from_secs(5);

/// The lock that was granted.
#[derive(Clone)]
pub struct Lock {
    pub address: Address,
    pub name: String,
    pub token: i64,
}

impl Lock {
    pub async fn renew(&self, mut lease: Lease, patience: Duration) -> Result<Lease, Failure> {
        lease.renewed = lease::now();
        let request = self.address.request(Method::PUT, PATH, &self.name)?;
        let request = request.timeout(patience);
        let renewed = grants::renew(request, &self.token.to_string()).await?;
        if let Some(ttl) = renewed["ttl_ms"].as_u64() {
            lease.ttl = Duration::from_millis(ttl);
        }
        Ok(lease)
    }

    pub async fn release(&self, lease: &Lease) -> Result<(), Failure> {
        let request = self.address.request(Method::DELETE, PATH, &self.name)?;
        let request = request.timeout(lease.ttl.min(FAREWELL));
        grants::release(request, &self.token.to_string()).await
    }
}

/// How it went.
pub enum End {
    /// The child ended by itself.
    Ended(ExitStatus),
    /// The lock was lost, and the child is dead.
    Lost,
}

pub struct Keeper<'a> {
    child: Child,
    lease: Lease,
    lock: &'a Lock,
    signals: Signals,
    /// Those on their way. A slow answer is as good as a quick one, so an attempt is not given up
    /// for the next.
    renewals: FuturesUnordered<Renewal>,
    next_try: Moment,
    /// Why the last attempt failed, if it did.
    trouble: Option<String>,
}

type Renewal = Pin<Box<dyn Future<Output = Result<Lease, Failure>>>>;

enum Event {
    Ended(ExitStatus),
    Signal(Received),
    Renewed(Result<Lease, Failure>),
    Tick,
}

impl<'a> Keeper<'a> {
    pub fn new(child: Child, lease: Lease, lock: &'a Lock, signals: Signals) -> Self {
        let next_try = lease.renew_at();
        Self {
            child,
            lease,
            lock,
            signals,
            renewals: FuturesUnordered::new(),
            next_try,
            trouble: None,
        }
    }

    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    pub async fn keep(&mut self) -> io::Result<End> {
        loop {
            let event = self.next().await?;
            let mut lost = None;
            let mut signal = None;
            match event {
                Event::Ended(status) => return Ok(End::Ended(status)),
                Event::Renewed(outcome) => lost = self.renewed(outcome),
                Event::Signal(received) => signal = Some(received),
                Event::Tick => {}
            }
            let now = lease::now();
            if now >= self.lease.stop_at() {
                lost = lost.or_else(|| Some(self.why_too_late()));
            }
            if let Some(why) = lost {
                self.stop(now, &why).await?;
                return Ok(End::Lost);
            }
            if let Some(signal) = signal {
                self.child.pass_on(signal);
            }
            if now >= self.next_try {
                let (lock, lease) = (self.lock.clone(), self.lease);
                self.renewals.push(Box::pin(async move { lock.renew(lease, lease.ttl).await }));
                self.next_try = now + self.lease.patience();
            }
        }
    }

    async fn next(&mut self) -> io::Result<Event> {
        let due = self.lease.stop_at().min(self.next_try).saturating_sub(lease::now());
        tokio::select! {
            ended = self.child.ended() => Ok(Event::Ended(ended?)),
            received = self.signals.next() => Ok(Event::Signal(received)),
            Some(outcome) = self.renewals.next() => Ok(Event::Renewed(outcome)),
            () = tokio::time::sleep(due.min(NAP)) => Ok(Event::Tick),
        }
    }

    /// Says why the lock is lost, if it is.
    fn renewed(&mut self, outcome: Result<Lease, Failure>) -> Option<String> {
        match outcome {
            Ok(lease) => {
                self.renewals.clear();
                self.lease = lease;
                self.next_try = lease.renew_at();
                self.trouble = None;
                None
            }
            Err(failure) if failure.code() == exit::LOST => Some(failure.message()),
            Err(failure) => {
                self.next_try = self.next_try.min(lease::now() + self.lease.pace());
                self.trouble = Some(failure.message());
                None
            }
        }
    }

    fn why_too_late(&self) -> String {
        let why = match &self.trouble {
            Some(trouble) => trouble,
            None if !self.renewals.is_empty() => "the server does not answer",
            None => "this process was not running",
        };
        format!("it could not be renewed in time: {why}")
    }

    /// Ends the child: gently if there is time left, and surely.
    async fn stop(&mut self, now: Moment, why: &str) -> io::Result<()> {
        exit::say(&format!(
            "the lock {:?} with token {} is lost: {why}; stopping the command",
            self.lock.name, self.lock.token,
        ));
        self.child.terminate();
        let grace_ends = self.lease.grace_ends(now);
        loop {
            let left = grace_ends.saturating_sub(lease::now());
            if left.is_zero() {
                break;
            }
            tokio::select! {
                ended = self.child.ended() => {
                    ended?;
                    break;
                }
                // Not the one that would stop us as well: the child's time goes on.
                received = self.signals.next() => if received.signal != Signal::SIGTSTP {
                    self.child.pass_on(received);
                },
                () = tokio::time::sleep(left.min(NAP)) => {}
            }
        }
        // Also if the child has ended: what it has started may not have.
        self.child.kill();
        self.child.ended().await.map(drop)
    }
}
