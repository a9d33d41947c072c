//! The temporary folder, and the process that removes it and ends the program if this one is killed.

use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Signal, geteuid, kill_process};
use tempfile::TempDir;

use super::processes::{LONGEST_END, started};
use crate::args::GUARD_TRY;

const PREFIX: &str = "gpuwhy-try-";
/// The file that is locked for as long as the folder is used.
const LOCK: &str = "lock";
/// Time to end by SIGTERM.
const AFTER_TERM: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(10);

/// The folder. Dropped in this order: the guard finds that there is nothing to do.
pub struct Folder {
    folder: TempDir,
    _lock: File,
    _guard: Option<Child>,
}

impl Folder {
    /// Makes it in the system's folder for temporary files, from which those of killed processes are removed.
    pub fn new() -> Result<Self> {
        // The program may change its working directory.
        let all = std::path::absolute(std::env::temp_dir())?;
        remove_left_ones(&all);
        let folder = TempDir::with_prefix_in(PREFIX, &all);
        // Its errors name the path.
        let folder = folder.context("cannot make a folder for temporary files (TMPDIR)")?;
        let path = folder.path().join("lock.new");
        let lock = File::create(&path).with_context(|| path.display().to_string())?;
        // A file system without locks: the folder then stays if both processes are killed.
        let _ = flock(&lock, FlockOperation::NonBlockingLockExclusive);
        // Another process that starts now must not find it without its lock.
        fs::rename(&path, folder.path().join(LOCK)).with_context(|| path.display().to_string())?;
        let guard = guard(folder.path()).inspect_err(|error| tracing::info!(%error, "no guard")).ok();
        Ok(Self { folder, _lock: lock, _guard: guard })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Starts the guard, in a process group of its own. It lives until the pipe to it is closed, also by a kill.
fn guard(folder: &Path) -> io::Result<Child> {
    let mut guard = Command::new(std::env::current_exe()?);
    guard.arg(GUARD_TRY).arg(folder).current_dir("/").process_group(0);
    guard.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
}

/// The guard: waits for the end of the process that started it, and does what that one could not.
pub fn watch(folder: &Path) -> Result<u8> {
    let _ = io::copy(&mut io::stdin(), &mut io::sink());
    let begun = Instant::now();
    let mut signal = Some(Signal::TERM);
    while folder.exists() && begun.elapsed() < AFTER_TERM + LONGEST_END {
        let left = started(folder);
        let signal = signal.take().or((begun.elapsed() > AFTER_TERM).then_some(Signal::KILL));
        for &(process, is_marked) in &left {
            // Without its parent, one without the variable would not be found again.
            let signal = if is_marked { signal } else { Some(Signal::KILL) };
            // It may have ended.
            let _ = signal.map(|signal| kill_process(process, signal));
        }
        if left.is_empty() && fs::remove_dir_all(folder).is_ok() {
            break;
        }
        thread::sleep(POLL);
    }
    Ok(0)
}

/// Removes folders of this user whose processes were killed together with their guards.
fn remove_left_ones(all: &Path) {
    let folders = fs::read_dir(all).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let is_ours = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.as_bytes().starts_with(PREFIX.as_bytes()))
            && path.symlink_metadata().is_ok_and(|about| about.is_dir() && about.uid() == geteuid().as_raw())
    };
    for folder in folders.filter(is_ours) {
        let Ok(lock) = File::open(folder.join(LOCK)) else { continue };
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = fs::remove_dir_all(&folder);
        }
    }
}
