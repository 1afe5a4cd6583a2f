//! How much is remembered of what was refused.

use clap::Args;

use super::values::{self, Size, Time};
use crate::rejections::Keep;

const REJECTIONS: &str = "Rejections";

#[derive(Args, Clone, Debug)]
pub struct RejectionSettings {
    /// Memory for the newest rejections
    #[arg(
        long,
        env = "FENCEPOST_REJECTIONS_MEMORY",
        value_name = "SIZE",
        default_value = "4MiB",
        help_heading = REJECTIONS
    )]
    pub rejections_memory: Size,

    /// Rejections that are kept in the store, by all its fenceposts together; 0 keeps none there
    #[arg(
        long,
        env = "FENCEPOST_REJECTIONS_KEEP",
        value_name = "N",
        default_value = "100000",
        value_parser = clap::value_parser!(u64).range(0..=10_000_000),
        help_heading = REJECTIONS
    )]
    pub rejections_keep: u64,

    /// How long rejections are kept in the store
    #[arg(
        long,
        env = "FENCEPOST_REJECTIONS_KEEP_FOR",
        value_name = "TIME",
        default_value = "7d",
        value_parser = values::some_time,
        help_heading = REJECTIONS
    )]
    pub rejections_keep_for: Time,
}

impl RejectionSettings {
    /// What is kept in the store, if anything is.
    pub fn keep(&self) -> Option<Keep> {
        let keep = Keep { rows: self.rejections_keep, age: self.rejections_keep_for.0 };
        (keep.rows > 0).then_some(keep)
    }
}
