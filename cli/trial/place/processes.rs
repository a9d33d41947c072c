//! The processes of the program. All are ended after a run, also those that have left its process group.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, wait};

/// Variable of all processes that runs start: the temporary folder. libprof.so warns of unknown names with `GPUWHY_`.
pub const STARTED_BY: &str = "_GPUWHY_TRY";
/// Longest wait for killed processes: one may hang in a system call.
pub const LONGEST_END: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(1);
/// Fields of `/proc/PID/stat` behind the name (proc_pid_stat(5)).
const PARENT: usize = 1;
const START: usize = 19;

/// The descendants of this process that runs of the program started. It may have others: those of the shell that it
/// replaced, and, as the first process of a container, what is orphaned there.
pub struct Processes {
    /// The temporary folder, which their variable names.
    folder: PathBuf,
    /// Those of the last look, with their start: later ones may have the same number. A program may clear variables.
    seen: RefCell<BTreeMap<i32, u64>>,
}

impl Processes {
    /// Makes this process the parent of orphans among its descendants, which it could not find otherwise.
    pub fn adopt(folder: &Path) -> Self {
        // Fails only before Linux 3.4.
        let _ = set_child_subreaper(Some(getpid()));
        Self { folder: folder.to_owned(), seen: RefCell::default() }
    }

    /// Adds the child of a run.
    pub fn add(&self, child: &Child) {
        let process = Pid::from_child(child).as_raw_nonzero().get();
        self.seen.borrow_mut().extend(start(process).map(|start| (process, start)));
    }

    /// Finds and remembers those that are there: with the variable, seen before, and started by these.
    pub fn look(&self) -> BTreeSet<i32> {
        let children = children();
        let mut seen = self.seen.borrow_mut();
        let was_seen = |process: &i32| seen.get(process).is_some_and(|&since| start(*process) == Some(since));
        let mut found = below(&children, [getpid().as_raw_nonzero().get()]);
        found.retain(|process| was_seen(process) || has_variable(*process, &self.folder));
        found.extend(below(&children, found.iter().copied()));
        *seen = found.iter().filter_map(|&process| Some((process, start(process)?))).collect();
        found
    }

    /// True if one has loaded the CUDA driver's library.
    pub fn use_cuda(&self) -> bool {
        let maps = |process| fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default();
        self.look().into_iter().any(|process| maps(process).contains("/libcuda.so"))
    }

    /// Kills all of them.
    pub fn end(&self) {
        let until = Instant::now() + LONGEST_END;
        loop {
            let left = self.look();
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
    let marked: BTreeSet<i32> = all().filter(|process| has_variable(*process, folder)).collect();
    let found = &below(&children(), marked.iter().copied()) | &marked;
    let found = found.into_iter().map(|process| (process, marked.contains(&process)));
    found.filter_map(|(process, is_marked)| Some((Pid::from_raw(process)?, is_marked))).collect()
}

fn has_variable(process: i32, folder: &Path) -> bool {
    let variable = [STARTED_BY.as_bytes(), b"=", folder.as_os_str().as_bytes()].concat();
    let environment = fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|one| one == variable)
}

fn all() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Children of all processes that have some.
fn children() -> BTreeMap<i32, Vec<i32>> {
    let mut children = BTreeMap::<i32, Vec<i32>>::new();
    for process in all() {
        if let Some(parent) = field(process, PARENT) {
            children.entry(parent).or_default().push(process);
        }
    }
    children
}

/// Descendants of processes.
fn below(children: &BTreeMap<i32, Vec<i32>>, roots: impl IntoIterator<Item = i32>) -> BTreeSet<i32> {
    let mut found = BTreeSet::new();
    let mut next: Vec<i32> = roots.into_iter().collect();
    while let Some(process) = next.pop() {
        next.extend(children.get(&process).into_iter().flatten().filter(|child| found.insert(**child)));
    }
    found
}

/// Time since the start of the system, in clock ticks.
fn start(process: i32) -> Option<u64> {
    field(process, START)
}

fn field<T: FromStr>(process: i32, at: usize) -> Option<T> {
    let status = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name, in parentheses, may hold anything.
    status.rsplit(')').next()?.split_ascii_whitespace().nth(at)?.parse().ok()
}
