//! Who asks, and what they may touch.

mod identity;

pub use identity::Identity;
