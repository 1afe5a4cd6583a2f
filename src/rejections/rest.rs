//! Whether the recorder rests, so that whoever brings something must ring.
//!
//! The recorder says that it rests *before* it looks whether something has come; who brings something
//! looks *after* it is there. So at least one of them sees the other, and nothing is left lying while
//! the recorder sleeps. `model/tests/loom.rs` tries every order of the two.

use crate::atomics::{AtomicBool, Ordering};

pub struct Rest(AtomicBool);

impl Rest {
    pub fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// From now on somebody has to ring. (Loom takes a plain store for one that a swap which came
    /// before it might still hide. No machine does that, but a swap costs no more here.)
    pub fn begin(&self) {
        self.0.swap(true, Ordering::SeqCst);
    }

    pub fn end(&self) {
        self.0.store(false, Ordering::SeqCst);
    }

    /// Whether it is the caller who has to ring. Most of the time somebody else has rung already, or
    /// the recorder is awake, and a look is all that it costs.
    pub fn interrupt(&self) -> bool {
        self.0.load(Ordering::SeqCst) && self.0.swap(false, Ordering::SeqCst)
    }
}
