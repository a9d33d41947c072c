//! The processes of the program. All are ended after a run, also those that have left its process group.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, wait};

/// Variable of all processes that runs start: the temporary folder. libprof.so warns of unknown names with `GPUWHY_`.
pub const STARTED_BY: &str = "_GPUWHY_TRY";
/// Longest wait for killed processes: one may hang in a system call.
pub const LONGEST_END: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(1);

/// The descendants of this process that runs of the program started.
pub struct Processes {
    /// Children that this process has had before, as after `exec` in a shell.
    others: BTreeSet<i32>,
}

impl Processes {
    /// Makes this process the parent of orphans among its descendants, which it could not find otherwise.
    pub fn adopt() -> Self {
        // Fails only before Linux 3.4.
        let _ = set_child_subreaper(Some(getpid()));
        Self { others: below(own(), &BTreeSet::new()) }
    }

    /// True if one has loaded the CUDA driver's library.
    pub fn use_cuda(&self) -> bool {
        let maps = |process| fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default();
        below(own(), &self.others).into_iter().any(|process| maps(process).contains("/libcuda.so"))
    }

    /// Kills all of them.
    pub fn end(&self) {
        let until = Instant::now() + LONGEST_END;
        loop {
            let left = below(own(), &self.others);
            if left.is_empty() || Instant::now() > until {
                return;
            }
            for process in left.into_iter().filter_map(Pid::from_raw) {
                // It may have ended.
                let _ = kill_process(process, Signal::KILL);
            }
            thread::sleep(POLL);
            while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
        }
    }
}

/// Processes that runs with `folder` started and what these started; true for those with the variable. Where processes
/// work or what else they have in their environment says nothing: a shell of the user's may be in the folder.
pub fn started(folder: &Path) -> Vec<(Pid, bool)> {
    let variable = [STARTED_BY.as_bytes(), b"=", folder.as_os_str().as_bytes()].concat();
    let has_variable = |process: &i32| {
        let environment = fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|one| one == variable)
    };
    let marked: BTreeSet<i32> = all().filter(has_variable).collect();
    let others = below(marked.iter().copied(), &marked).into_iter().map(|process| (process, false));
    let found = marked.iter().map(|&process| (process, true)).chain(others);
    found.filter_map(|(process, is_marked)| Some((Pid::from_raw(process)?, is_marked))).collect()
}

fn own() -> Option<i32> {
    Some(getpid().as_raw_nonzero().get())
}

fn all() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Descendants of processes, without `others` and those below these.
fn below(roots: impl IntoIterator<Item = i32>, others: &BTreeSet<i32>) -> BTreeSet<i32> {
    let mut children = BTreeMap::<i32, Vec<i32>>::new();
    for process in all().filter(|process| !others.contains(process)) {
        if let Some(parent) = parent(process) {
            children.entry(parent).or_default().push(process);
        }
    }
    let mut found = BTreeSet::new();
    let mut next: Vec<i32> = roots.into_iter().collect();
    while let Some(process) = next.pop() {
        let below = children.remove(&process).unwrap_or_default();
        next.extend(&below);
        found.extend(below);
    }
    found
}

fn parent(process: i32) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name, in parentheses, may hold anything.
    status.rsplit(')').next()?.split_ascii_whitespace().nth(1)?.parse().ok()
}
