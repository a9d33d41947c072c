//! State of the process's direct children, such as data-loading workers.
//!
//! The kernel lists children by the thread that started them, so finding them requires reading a file of each
//! thread. The list is therefore cached and only refreshed at intervals.

use std::fs::{self, File};
use std::io::Read;
use std::time::{Duration, Instant};

use gpuwhy_trace::record::ThreadState;

use crate::process::Process;
use crate::thread::{letter, state};

/// Interval between refreshes of the list. Workers are started once, or at each epoch.
const GOOD_FOR: Duration = Duration::from_secs(1);
/// Maximum number of children sampled; a node has 16 to 64 workers for each of its ranks.
const MAX_CHILDREN: usize = 128;

/// Children of a process.
#[derive(Debug)]
pub struct Children {
    process: Process,
    known: Vec<u32>,
    listed: Option<Instant>,
}

/// Number of children by state. The rest are idle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChildCounts {
    /// All sampled children.
    pub all: u32,
    /// On a core or runnable.
    pub running: u32,
    /// Waiting for input, output or storage.
    pub in_io: u32,
}

impl Children {
    /// Creates a reader without reading anything yet.
    pub fn of(process: Process) -> Self {
        Self { process, known: Vec::new(), listed: None }
    }

    /// Samples each child: about 10 microseconds per child.
    pub fn child_counts(&mut self) -> ChildCounts {
        if self.listed.is_none_or(|at| at.elapsed() >= GOOD_FOR) {
            self.list();
            self.listed = Some(Instant::now());
        }
        let mut child_counts = ChildCounts::default();
        for &child in &self.known {
            match look(child) {
                Some(ThreadState::Running) => child_counts.running += 1,
                Some(ThreadState::Io | ThreadState::Disk) => child_counts.in_io += 1,
                Some(_) => {}
                None => continue,
            }
            child_counts.all += 1;
        }
        child_counts
    }

    fn list(&mut self) {
        self.known.clear();
        let Ok(threads) = fs::read_dir(self.process.folder().join("task")) else { return };
        for thread in threads.flatten() {
            // A kernel without such lists reports no children.
            let text = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            self.known.extend(text.split_ascii_whitespace().filter_map(|id| id.parse::<u32>().ok()));
        }
        self.known.truncate(MAX_CHILDREN);
    }
}

/// State of the first thread of a process; `None` if it has ended.
fn look(process: u32) -> Option<ThreadState> {
    let stat = read(process, "stat")?;
    match letter(&stat) {
        'Z' | 'X' => None,
        letter => Some(state(letter, read(process, "syscall").as_deref())),
    }
}

fn read(process: u32, name: &str) -> Option<String> {
    let mut text = String::new();
    File::open(format!("/proc/{process}/{name}")).ok()?.take(1024).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    fn start(script: &str) -> Child {
        Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
    }

    #[test]
    fn children_are_counted_by_what_they_do() {
        let process = Process::this();
        if !process.folder().join(format!("task/{}/children", process.id())).exists() {
            println!("SKIPPED: this kernel does not list children");
            return;
        }
        let mut workers = [start("while :; do :; done"), start("read line"), start("exec sleep 60")];
        let mut children = Children::of(process);
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut child_counts = children.child_counts();
        // Other tests of this binary start no children, so these are all.
        while child_counts != (ChildCounts { all: 3, running: 1, in_io: 1 }) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
            child_counts = children.child_counts();
        }
        for worker in &mut workers {
            worker.kill().unwrap();
            worker.wait().unwrap();
        }
        assert_eq!(child_counts, ChildCounts { all: 3, running: 1, in_io: 1 });
        assert_eq!(children.child_counts(), ChildCounts::default());
    }
}
