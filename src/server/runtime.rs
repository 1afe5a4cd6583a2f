//! The threads that serve.

use std::io;

use tokio::runtime::{Builder, Runtime};

/// One thread needs nothing of what it takes to share work among several, and does a tenth more
/// without. It also lets everybody who is there speak before a lane takes what was said, where
/// several would let the lane go first: the batches are larger.
pub fn runtime(threads: usize) -> io::Result<Runtime> {
    let mut builder = match threads {
        1 => Builder::new_current_thread(),
        several => {
            let mut builder = Builder::new_multi_thread();
            builder.worker_threads(several);
            builder
        }
    };
    builder.enable_all().build()
}
