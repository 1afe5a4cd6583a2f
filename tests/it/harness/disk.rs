//! A disk that is small enough to be filled.

use std::{
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
};

use super::postgres::{chown_to_postgres, new_directory};

pub struct Disk {
    directory: PathBuf,
}

impl Disk {
    pub fn new(mebibytes: usize) -> Self {
        let directory = new_directory();
        let path = directory.to_str().expect("a path");
        let size = format!("size={mebibytes}m,mode=755");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs", path]).status();
        assert!(mounted.is_ok_and(|mounted| mounted.success()), "root, for a disk of its own");
        chown_to_postgres(&directory);
        Self { directory }
    }

    pub fn path(&self) -> &Path {
        &self.directory
    }

    /// Leaves not one block.
    pub fn fill(&self) {
        let mut file = File::create(self.filler()).expect("a file");
        for block in [vec![0; 1 << 20], vec![0; 4 << 10]] {
            while file.write_all(&block).is_ok() {}
        }
    }

    /// Makes room for so many KiB on a full disk.
    pub fn free_some(&self, kibibytes: u64) {
        let filler = File::options().write(true).open(self.filler()).expect("the file");
        let length = filler.metadata().expect("its length").len();
        filler.set_len(length - (kibibytes << 10)).expect("a shorter file");
    }

    pub fn free(&self) {
        let _ = fs::remove_file(self.filler());
    }

    fn filler(&self) -> PathBuf {
        self.directory.join("filler")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily: a server that is still dying has files open.
        let _ = Command::new("umount").arg("--lazy").arg(&self.directory).status();
        let _ = fs::remove_dir(&self.directory);
    }
}
