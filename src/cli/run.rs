//! `fencepost run`: a program runs only while its lock is held.
//!
//! What this keeps: CMD is dead before anybody else can hold the lock, as far as clocks and signals
//! allow. The lease counts from before the last successful renewal was sent, by a clock that also
//! counts the time in which the machine sleeps (`lease.rs`), and whatever else has happened, the
//! clock is looked at first (`keeper.rs`). What no clock can prevent, such as a frozen `run` whose
//! child is not frozen with it, is what the fencing token in CMD's environment is for.

pub mod bound;
mod child;
mod keeper;
mod lease;
mod signals;

use std::{ffi::OsString, process::ExitStatus, time::Duration};

use clap::Args;
use serde_json::Value;

use self::{
    child::Child,
    keeper::{End, Keeper, Lock},
    lease::Lease,
    signals::Signals,
};
use super::{
    block_on,
    client::{Address, grants::Terms, http},
    exit::{self, Failure},
};
use crate::settings::Time;

#[derive(Args)]
#[command(after_help = "\
CMD is run as it is, without a shell; its input and output are its own. In its environment:
  FENCEPOST_TOKEN       the fencing token to send with every write
  FENCEPOST_LOCK        the name of the lock: the scope of client commands under its token
  FENCEPOST_LOCK_TOKEN  the token of that lock, also where FENCEPOST_TOKEN was set to another lock's
  FENCEPOST_URL         the address of the server

The lock is renewed every third of --ttl. If it is lost, or cannot be renewed, CMD gets SIGTERM, \
and SIGKILL before the lease is over. Signals are passed on to CMD. When CMD has ended, the lock is \
given back.

Examples:
  fencepost run --lock jobs/nightly -- ./nightly.sh         # skipped if it runs elsewhere: 75
  fencepost run --lock leader --wait 10m --ttl 5s -- ./serve
  fencepost run --lock orders -- sh -c 'fencepost put orders/42 paid'

Exit codes:
  CMD's own, or 128 + N if signal N ended it   75 the lock was not had in time
  76 the lock was lost   69 the server is away   126 CMD cannot be run   127 CMD was not found")]
pub struct Run {
    /// Name of the lock
    #[arg(long, value_name = "NAME")]
    lock: String,

    #[command(flatten)]
    terms: Terms,

    /// How long CMD may take to end after SIGTERM when the lock is lost; at most half of --ttl
    /// [default: a quarter of --ttl, at most 10s]
    #[arg(long, value_name = "TIME")]
    grace: Option<Time>,

    #[command(flatten)]
    address: Address,

    /// The program and its arguments
    #[arg(
        value_name = "CMD",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    command: Vec<OsString>,
}

impl Run {
    pub fn run(self) -> Result<(), Failure> {
        let ttl = self.terms.ttl.0;
        let grace = self.grace.map_or_else(|| lease::usual_grace(ttl), |grace| grace.0);
        if grace > ttl / 2 {
            return Err(Failure::settings("--grace must be at most half of --ttl"));
        }
        // The kernel ties the child's life to the thread that starts it: this one.
        block_on(self.run_under_lock(grace))?
    }

    async fn run_under_lock(self, grace: Duration) -> Result<(), Failure> {
        let mut signals = Signals::catch().map_err(cannot_start)?;
        let asked = lease::now();
        let grant = tokio::select! {
            // Looked at first: a grant that has come must not be forgotten.
            biased;
            grant = self.terms.acquire(&self.address, &self.lock) => grant?,
            ending = signals.ending() => return Err(Failure::Told(code_of(ending))),
        };
        let (token, ttl) = read(&grant)?;
        let lock = Lock { address: self.address.clone(), name: self.lock.clone(), token };
        let lease = Lease { renewed: asked, ttl, grace };
        let (child, lease) = match self.start(&lock, lease, &mut signals).await {
            Ok(started) => started,
            Err(failure) => {
                // As far as that is possible. If not, the lease will end it.
                let _ = lock.release(&lease).await;
                return Err(failure);
            }
        };
        let mut keeper = Keeper::new(child, lease, &lock, signals);
        match keeper.keep().await.map_err(cannot_start)? {
            End::Ended(status) => give_back(&lock, keeper.lease(), status).await,
            End::Lost => Err(Failure::Told(exit::LOST)),
        }
    }

    /// Starts the command, unless something has come in between.
    async fn start(
        &self,
        lock: &Lock,
        mut lease: Lease,
        signals: &mut Signals,
    ) -> Result<(Child, Lease), Failure> {
        if !lease.is_fresh() {
            // The lock was waited for. A renewal tells how much is left of it.
            lease = lock.renew(lease, lease.ttl / 2).await?;
        }
        if let Some(ending) = signals.ending_by_now() {
            return Err(Failure::Told(code_of(ending)));
        }
        let child = Child::start(&self.command, lock).map_err(cannot_start)?;
        Ok((child, lease))
    }
}

/// The child has ended. If the lock was lost before that, its status is worth little.
async fn give_back(lock: &Lock, lease: &Lease, status: ExitStatus) -> Result<(), Failure> {
    let code = code_of_end(status);
    match lock.release(lease).await {
        Ok(()) => {}
        Err(failure) if failure.code() == exit::LOST || lease.is_over() => {
            exit::say(&format!(
                "the lock {:?} was lost before the command ended with {code}; what it wrote under \
                 token {} since then was refused, if it was fenced",
                lock.name, lock.token,
            ));
            return Err(Failure::Told(exit::LOST));
        }
        Err(failure) => exit::say(&format!(
            "the lock {:?} could not be given back, and will pass on when its lease ends: {}",
            lock.name,
            failure.message(),
        )),
    }
    if code == 0 { Ok(()) } else { Err(Failure::Told(code)) }
}

fn read(grant: &Value) -> Result<(i64, Duration), Failure> {
    match (grant["token"].as_i64(), grant["ttl_ms"].as_u64()) {
        (Some(token), Some(ttl)) => Ok((token, Duration::from_millis(ttl))),
        _ => Err(http::not_a_fencepost("no grant")),
    }
}

/// As a shell has it.
fn code_of_end(status: ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt;
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
    u8::try_from(code).unwrap_or(u8::MAX)
}

fn code_of(signal: nix::sys::signal::Signal) -> u8 {
    u8::try_from(128 + signal as i32).unwrap_or(u8::MAX)
}

fn cannot_start(error: std::io::Error) -> Failure {
    Failure::failed(format!("cannot supervise the command: {error}"))
}
