//! Tests in which time stands still, and leaps when everybody waits for it: a day takes a moment, and
//! what a seed has brought about it brings about again.

/// Plays each seed on a runtime of its own, with one thread.
pub fn for_each_seed<F: Future<Output = ()>>(seeds: u64, play: impl Fn(u64) -> F) {
    for seed in 0..seeds {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().expect("a runtime");
        runtime.block_on(play(seed));
    }
}
