//! Parses the command line, dispatches, and turns the result into an exit code.

use std::process::ExitCode;

/// Every request is made of many small allocations, and this one is quicker at them than libc's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    fencepost::cli::main(std::env::args_os().collect())
}
