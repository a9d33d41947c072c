//! The sampled process, which is normally the current one.

use std::fs;
use std::path::{Path, PathBuf};

/// Folder of a process in `/proc`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    id: u32,
    folder: PathBuf,
}

impl Process {
    /// The calling process. The path contains its id, so that a forked child that continues to use the value
    /// reads its parent rather than itself. It is the id by which this `/proc` lists the process.
    pub fn this() -> Self {
        let itself = fs::read_link("/proc/self").ok();
        let id = itself.and_then(|name| name.to_str()?.parse().ok());
        Self::with_id(id.unwrap_or_else(std::process::id))
    }

    /// Another process. The kernel usually lets a process read the memory of its children only.
    #[must_use]
    pub fn with_id(id: u32) -> Self {
        Self { id, folder: PathBuf::from(format!("/proc/{id}")) }
    }

    /// Process id, which is also the id of its first thread.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Name of its first thread; `None` if it has ended.
    pub fn name(&self) -> Option<String> {
        let name = fs::read(self.folder.join("comm")).ok()?;
        Some(String::from_utf8_lossy(&name).trim_end_matches('\n').to_owned())
    }

    /// Path of its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}
