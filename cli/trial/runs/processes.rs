//! The processes of the program. All are ended after a run, also those that have left its process group.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, wait};

/// Longest wait for killed processes: one may hang in a system call.
const LONGEST_END: Duration = Duration::from_secs(5);
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
        Self { others: descendants(&BTreeSet::new()).into_iter().collect() }
    }

    /// True if one has loaded the CUDA driver's library.
    pub fn use_cuda(&self) -> bool {
        let maps = |process| fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default();
        descendants(&self.others).into_iter().any(|process| maps(process).contains("/libcuda.so"))
    }

    /// Kills all of them.
    pub fn end(&self) {
        let until = Instant::now() + LONGEST_END;
        loop {
            let left = descendants(&self.others);
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

/// Descendants of this process, without those below `others`.
fn descendants(others: &BTreeSet<i32>) -> Vec<i32> {
    let mut children = BTreeMap::<i32, Vec<i32>>::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(process) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        if let Some(parent) = parent(process).filter(|_| !others.contains(&process)) {
            children.entry(parent).or_default().push(process);
        }
    }
    let mut found = Vec::new();
    let mut next = vec![getpid().as_raw_nonzero().get()];
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
