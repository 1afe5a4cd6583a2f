//! What is known of the disk that the file is on.

use std::{
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use nix::sys::statvfs::statvfs;

use crate::store::{DiskTrouble, StoreError};

/// After a write has failed for want of room, so many bytes must be free before it is tried again.
pub const ENOUGH_BYTES: u64 = 1 << 20;

pub struct Disk {
    directory: PathBuf,
    /// What the last write has failed of, until it is seen to be over.
    trouble: Mutex<Option<DiskTrouble>>,
}

impl Disk {
    /// The one that this file is on.
    pub fn of(file: &Path) -> Self {
        let directory = match file.parent() {
            Some(parent) if parent != Path::new("") => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        Self { directory, trouble: Mutex::default() }
    }

    /// Bytes that this user may still write; `None` where the system does not say.
    pub fn free_bytes(&self) -> Option<u64> {
        let found = statvfs(&self.directory).ok()?;
        #[allow(clippy::useless_conversion, reason = "the type differs between systems")]
        let (blocks, bytes) =
            (u64::from(found.blocks_available()), u64::from(found.fragment_size()));
        Some(blocks.saturating_mul(bytes))
    }

    pub fn trouble(&self) -> Option<DiskTrouble> {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A write has failed. Only what the disk is to blame for is remembered.
    pub fn note(&self, error: &StoreError) {
        if let StoreError::Disk(trouble, _) = error {
            *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(*trouble);
        }
    }

    pub fn forget(&self) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Whether it is worth while to try a write.
    pub fn has_room(&self) -> Result<(), StoreError> {
        match self.free_bytes() {
            Some(free) if free < ENOUGH_BYTES => {
                Err(StoreError::Disk(DiskTrouble::Full, format!("{free} bytes are free")))
            }
            _ => Ok(()),
        }
    }
}
