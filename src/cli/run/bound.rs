//! A program that does not outlive the one that started it, even if that is killed with SIGKILL.
//!
//! Linux kills a process with its parent if the process itself has asked for that. Between fork and
//! exec only unsafe code could ask. So this program starts itself once more, as `run-child`, which
//! asks, and then becomes the program that was meant.

use std::{
    ffi::OsString,
    io,
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{self, Command},
};

use clap::Args;

use crate::cli::exit::{self, Failure};

const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Starts `command`; to be spawned from a thread that lives as long as the process.
pub fn command(command: &[OsString]) -> Command {
    let mut starter = Command::new(this_program());
    starter.arg0("fencepost").args(["run-child", "--parent", &process::id().to_string(), "--"]);
    starter.args(command);
    starter
}

/// On Linux this also works after an upgrade has replaced the file.
pub fn this_program() -> PathBuf {
    if cfg!(target_os = "linux") {
        return "/proc/self/exe".into();
    }
    std::env::current_exe().unwrap_or_else(|_| "fencepost".into())
}

#[derive(Args)]
pub struct RunChild {
    /// The process to die with
    #[arg(long, value_name = "PID")]
    parent: u32,

    #[arg(value_name = "CMD", required = true, last = true)]
    command: Vec<OsString>,
}

impl RunChild {
    pub fn run(self) -> Result<(), Failure> {
        die_with(self.parent)?;
        let (program, arguments) = self.command.split_first().expect("clap requires one");
        let error = Command::new(program).args(arguments).exec();
        exit::say(&format!("cannot run {}: {error}", program.display()));
        Err(Failure::Told(match error.kind() {
            io::ErrorKind::NotFound => NOT_FOUND,
            _ => NOT_EXECUTABLE,
        }))
    }
}

#[cfg(target_os = "linux")]
fn die_with(parent: u32) -> Result<(), Failure> {
    use nix::{
        sys::{prctl::set_pdeathsig, signal::Signal},
        unistd::getppid,
    };
    set_pdeathsig(Signal::SIGKILL)
        .map_err(|error| Failure::failed(format!("cannot tie the command to its lock: {error}")))?;
    // It may have died before it was asked for.
    if u32::try_from(getppid().as_raw()) == Ok(parent) {
        Ok(())
    } else {
        Err(Failure::failed("whoever started this command has died"))
    }
}

/// Elsewhere a child that is orphaned goes on.
#[cfg(not(target_os = "linux"))]
fn die_with(_parent: u32) -> Result<(), Failure> {
    Ok(())
}
