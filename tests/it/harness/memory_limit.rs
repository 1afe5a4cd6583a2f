//! A limit on a process's memory, which the kernel enforces by killing it, as on Kubernetes.

use std::{fs, io, path::PathBuf};

use super::fencepost::Fencepost;

/// A control group with one process in it. It is removed when the process has ended.
pub struct MemoryLimit(PathBuf);

impl MemoryLimit {
    /// `None` where this machine does not let us have one.
    pub fn of(server: &Fencepost, bytes: u64) -> Option<Self> {
        let name = format!("fencepost-test-{}", server.pid());
        let (directory, limit) =
            [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")]
                .into_iter()
                .map(|(root, limit)| (PathBuf::from(root).join(&name), limit))
                .find(|(directory, limit)| {
                    fs::create_dir(directory).is_ok()
                        && (directory.join(limit).exists() || fs::remove_dir(directory).is_err())
                })?;
        let limited = Self(directory);
        limited.set(limit, bytes).ok()?;
        // Where there is swap, it must not help.
        let _ = limited.set("memory.swap.max", 0);
        limited.set("cgroup.procs", server.pid().into()).ok()?;
        Some(limited)
    }

    fn set(&self, file: &str, value: u64) -> io::Result<()> {
        fs::write(self.0.join(file), value.to_string())
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}
