//! Parses the command line, dispatches, and turns the result into an exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    fencepost::cli::main(std::env::args_os().collect())
}
