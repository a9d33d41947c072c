//! Which process is looked at: this one, as a rule.

use std::fs;
use std::path::{Path, PathBuf};

/// The folder of a process in `/proc`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    id: u32,
    folder: PathBuf,
}

impl Process {
    /// The calling process. The folder bears its number, so that a child of a fork that goes on using the value looks
    /// at its parent and not, by accident, at itself; it is the number that this `/proc` knows the process by.
    #[must_use]
    pub fn this() -> Self {
        let itself = fs::read_link("/proc/self").ok();
        let id = itself.and_then(|name| name.to_str()?.parse().ok());
        Self::with_id(id.unwrap_or_else(std::process::id))
    }

    /// Another process. The kernel lets a process read its children's memory, as a rule, and nobody else's.
    #[must_use]
    pub fn with_id(id: u32) -> Self {
        Self { id, folder: PathBuf::from(format!("/proc/{id}")) }
    }

    /// Its number, which is also that of its first thread.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Its folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}
