//! Processes with gpuwhy that this exporter cannot ask: those of other users, and those with another /tmp, such as in a
//! pod, a job of Slurm with a private /tmp, or a unit of systemd with PrivateTmp.
//!
//! Only the names of threads tell: libprof.so's memory map can be read by its own user alone, and a forked child and a
//! program that only uses NVTX have it too.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The thread that listens on the socket of a process.
const THREAD: &str = "gpuwhy-control";
/// Time between two searches: each reads a file for each thread on this node.
const EVERY: Duration = Duration::from_secs(10);
/// Age from which a process without a socket counts: it has one a moment after its thread starts, and none a moment
/// before that ends.
const OLD: Duration = Duration::from_secs(5);

/// Number of processes that cannot be asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unreachable {
    /// Of the exporter's user.
    pub own: usize,
    /// Of other users.
    pub others: usize,
}

impl Unreachable {
    /// What to do about it; `None` if there is none.
    pub fn sentence(self) -> Option<String> {
        let Self { own, others } = self;
        let counted =
            |count: usize, what: &str| format!("{count} process{} {what}", if count == 1 { "" } else { "es" });
        let own = (own > 0).then(|| {
            counted(
                own,
                "of this user with gpuwhy cannot be asked: another /tmp or GPUWHY_CONTROL (pods, private /tmp); give \
                          them and the exporter one folder in GPUWHY_CONTROL",
            )
        });
        let others = (others > 0).then(|| {
            counted(others, "of other users with gpuwhy cannot be asked: run an exporter as each of these users")
        });
        let sentences: Vec<_> = own.into_iter().chain(others).collect();
        (!sentences.is_empty()).then(|| sentences.join("; "))
    }
}

/// The search, which remembers processes without a socket.
#[derive(Debug, Default)]
pub struct Search {
    since: BTreeMap<u32, Instant>,
    last: Option<(Instant, Unreachable)>,
}

impl Search {
    /// The result of the last search, which is repeated if it is due. `is_once`: there will be no other.
    pub fn unreachable(&mut self, sockets: &[PathBuf], user: u32, is_once: bool) -> Unreachable {
        if let Some((_, found)) = self.last.filter(|(at, _)| at.elapsed() < EVERY) {
            return found;
        }
        let without = without_socket(Path::new("/proc"), sockets);
        self.since.retain(|process, _| without.contains_key(process));
        let mut found = Unreachable::default();
        for (process, owner) in without {
            let since = self.since.entry(process).or_insert_with(Instant::now);
            if is_once || since.elapsed() >= OLD {
                *(if owner == user { &mut found.own } else { &mut found.others }) += 1;
            }
        }
        self.last = Some((Instant::now(), found));
        found
    }
}

/// Processes that listen, without those that have one of these sockets, and their users.
fn without_socket(proc: &Path, sockets: &[PathBuf]) -> BTreeMap<u32, u32> {
    // A socket is named after the process, as that sees itself: `1.sock`, or `1-2.sock` for the second one.
    let mut free: BTreeMap<u32, usize> = BTreeMap::new();
    for socket in sockets {
        let stem = socket.file_stem().unwrap_or_default().to_string_lossy();
        if let Some(process) = stem.split('-').next().and_then(|number| number.parse().ok()) {
            *free.entry(process).or_default() += 1;
        }
    }
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(proc).into_iter().flatten().flatten() {
        let Some(process) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let Ok(about) = entry.metadata() else { continue };
        if !listens(&entry.path()) {
            continue;
        }
        match free.get_mut(&own_number(&entry.path()).unwrap_or(process)).filter(|count| **count > 0) {
            Some(count) => *count -= 1,
            None => {
                found.insert(process, about.uid());
            }
        }
    }
    found
}

/// True if the process has the thread that listens on a socket.
fn listens(process: &Path) -> bool {
    let tasks: Vec<_> = fs::read_dir(process.join("task")).into_iter().flatten().flatten().collect();
    // It is never the first one.
    tasks.len() > 1
        && tasks.iter().any(|task| fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.trim() == THREAD))
}

/// The process id in the innermost namespace.
fn own_number(process: &Path) -> Option<u32> {
    let status = fs::read_to_string(process.join("status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_whitespace().next_back()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_without_a_socket_are_found_by_their_threads() {
        let proc = tempfile::tempdir().unwrap();
        let process = |number: u32, inner: u32, threads: &[&str]| {
            for (at, name) in threads.iter().enumerate() {
                let task = proc.path().join(format!("{number}/task/{at}"));
                fs::create_dir_all(&task).unwrap();
                fs::write(task.join("comm"), format!("{name}\n")).unwrap();
            }
            fs::write(proc.path().join(format!("{number}/status")), format!("Name:\tx\nNSpid:\t{number}\t{inner}\n"))
                .unwrap();
        };
        let program = ["python", "gpuwhy-collect", "gpuwhy-control"];
        process(100, 100, &program);
        process(200, 1, &program);
        process(300, 1, &program);
        process(400, 400, &["python", "gpuwhy-collect"]);
        process(500, 500, &["gpuwhy-control"]);
        let found = |sockets: &[&str]| {
            let sockets: Vec<_> = sockets.iter().map(PathBuf::from).collect();
            without_socket(proc.path(), &sockets).into_keys().collect::<Vec<_>>()
        };
        assert_eq!(found(&[]), [100, 200, 300]);
        assert_eq!(found(&["/s/100.sock"]), [200, 300]);
        assert_eq!(found(&["/s/100.sock", "/s/1.sock"]).len(), 1, "one of two namespaces shares the folder");
        assert_eq!(found(&["/s/100.sock", "/s/1.sock", "/s/1-2.sock", "/s/9.sock"]), [0; 0]);
    }

    #[test]
    fn a_process_that_starts_is_not_counted_yet() {
        let unreachable = Unreachable { own: 1, others: 2 };
        let text = unreachable.sentence().unwrap();
        assert!(text.starts_with("1 process of this user") && text.contains("; 2 processes of other users"), "{text}");
        assert_eq!(Unreachable::default().sentence(), None);
        let mut search = Search { since: BTreeMap::new(), last: Some((Instant::now(), unreachable)) };
        assert_eq!(search.unreachable(&[], 0, false), unreachable, "not more often than every ten seconds");
    }
}
