//! What is known of the disk that the file is on.

use std::{
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use nix::sys::statvfs::statvfs;

use crate::{
    sparse_log::SparseLog,
    store::{DiskTrouble, StoreError},
};

/// With less room than this the disk counts as full, though no write has failed yet: what SQLite writes for
/// one small change takes up some pages.
pub const LEAST_BYTES: u64 = 64 << 10;

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

    /// What became of a write: trouble is remembered until a write succeeds.
    pub fn note_outcome<T>(&self, written: Result<T, StoreError>) -> Result<T, StoreError> {
        match &written {
            Ok(_) => self.forget(),
            Err(error) => self.note(error),
        }
        written
    }

    /// A write has failed. Only what the disk is to blame for is remembered.
    pub fn note(&self, error: &StoreError) {
        if let StoreError::Disk(trouble, _) = error {
            *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(*trouble);
        }
    }

    fn forget(&self) {
        static LOG: SparseLog = SparseLog::new();
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(was) = trouble {
            LOG.write(|_| tracing::info!(%was, "the store can be written again"));
        }
    }

    /// Whether there are so many bytes left, as far as the system says.
    pub fn has_room(&self, bytes: u64) -> Result<(), StoreError> {
        match self.free_bytes() {
            Some(free) if free < bytes => {
                Err(StoreError::Disk(DiskTrouble::Full, format!("{free} bytes are free")))
            }
            _ => Ok(()),
        }
    }
}
