//! The processes of this node over time: those that respond and, for five minutes, those that have ended.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use gpuwhy_inject::control::address::{self, ProcessName};
use gpuwhy_inject::control::last_numbers::{self, FRESH, KEPT};

use super::numbers::ProcessMetrics;
use super::unreachable::{Search, Unreachable};
use crate::control::connection::{Connection, parsed};
use crate::message;

/// Maximum number of processes to query; a node has one for each GPU, and a few more. The same limit applies
/// to ended processes.
const MAX_PROCESSES: usize = 64;
/// Time limit for a response; all processes are queried at once.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Shorter time limit for a process that did not respond. It gets the full limit again at intervals: it may
/// just be slow.
const SILENT_TIMEOUT: Duration = Duration::from_millis(100);
const PATIENT_AGAIN: Duration = Duration::from_secs(30);
/// Time in which a process whose socket is gone may still write its last numbers: twice the default exit
/// timeout. After that it counts as lost.
const ENDING: Duration = Duration::from_secs(6);

/// State of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProcessState {
    /// A capture is active.
    Capturing,
    /// No capture is active, and samples divide the time.
    Watching,
    /// No capture is active.
    Waiting,
    /// Measuring is finished, the program continues.
    Finished,
    /// The process does not respond.
    Silent,
    Ended,
    /// The process ended without leaving its last numbers: killed by a signal, crashed, or left by `_exit`.
    /// Only its parent learns which.
    Lost,
}

impl ProcessState {
    pub const ALL: [Self; 7] =
        [Self::Capturing, Self::Watching, Self::Waiting, Self::Finished, Self::Silent, Self::Ended, Self::Lost];

    /// Value of the label.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Capturing => "capturing",
            Self::Watching => "watching",
            Self::Waiting => "waiting",
            Self::Finished => "finished",
            Self::Silent => "silent",
            Self::Ended => "ended",
            Self::Lost => "lost",
        }
    }

    fn of(numbers: &ProcessMetrics) -> Self {
        match numbers.status.state.as_str() {
            "capturing" => Self::Capturing,
            "watching" => Self::Watching,
            "finished" | "ended" => Self::Finished,
            // A state of a newer version: measuring is not over.
            _ => Self::Waiting,
        }
    }
}

/// Process with its most recent numbers.
#[derive(Clone, Debug)]
pub struct Known {
    pub numbers: ProcessMetrics,
    pub state: ProcessState,
    /// 1, or more if other processes have the same run and rank.
    pub number: u32,
    /// Time at which the process was found to have ended.
    gone: Option<Instant>,
}

/// Metrics of the exporter itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    pub states: Vec<(ProcessState, usize)>,
    pub left_out: usize,
    pub refused: usize,
    pub unreachable: Unreachable,
    pub answered_in: Duration,
    /// Start time of the exporter, since the Unix epoch; `None` when unknown.
    pub start_unix: Option<Duration>,
}

/// Response of a socket.
enum SocketReply {
    Metrics(Box<ProcessMetrics>),
    /// The process does not know the `metrics` command.
    OtherVersion,
    Nobody,
    Silent,
}

/// All processes of this user on this node.
#[derive(Debug, Default)]
pub struct Node {
    /// Processes by socket.
    known: BTreeMap<PathBuf, Known>,
    /// Sockets that do not respond, with the time of the last wait with the full limit.
    silent: BTreeMap<PathBuf, Instant>,
    left_out: usize,
    ended_left_out: usize,
    refused: usize,
    search: Search,
    unreachable: Unreachable,
    answered_in: Duration,
    start_unix: Option<Duration>,
    /// True if processes should save their last numbers when they end. Next: the folders where this is
    /// announced, and the time of the last announcement.
    announces: bool,
    announced: Vec<PathBuf>,
    last_announcement: Option<Instant>,
    /// Messages already printed.
    reported: Vec<String>,
}

impl Node {
    /// Creates a node without processes. `announces`: processes should save their last numbers when they end.
    pub fn new(announces: bool) -> Self {
        Self { announces, start_unix: SystemTime::now().duration_since(UNIX_EPOCH).ok(), ..Self::default() }
    }

    /// The processes, by socket.
    pub fn processes(&self) -> impl Iterator<Item = &Known> + Clone {
        self.known.values()
    }

    /// Metrics of the exporter itself.
    pub fn summary(&self) -> Summary {
        let nameless = self.silent.keys().filter(|socket| !self.known.contains_key(*socket)).count();
        let count = |state| {
            let nameless = if state == ProcessState::Silent { nameless } else { 0 };
            nameless + self.known.values().filter(|known| known.state == state).count()
        };
        Summary {
            states: ProcessState::ALL.iter().map(|&state| (state, count(state))).collect(),
            left_out: self.left_out + self.ended_left_out,
            refused: self.refused,
            unreachable: self.unreachable,
            answered_in: self.answered_in,
            start_unix: self.start_unix,
        }
    }

    /// Queries all processes, and reads the last numbers of ended ones.
    pub fn look(&mut self) {
        let (folders, sockets) = self.sockets();
        let begin = Instant::now();
        let asked = &sockets[..sockets.len().min(MAX_PROCESSES)];
        let answers: Vec<_> = thread::scope(|scope| {
            let patient = asked.iter().map(|socket| (socket, begin + self.patience(socket, begin)));
            let asking: Vec<_> = patient.map(|(socket, deadline)| scope.spawn(move || ask(socket, deadline))).collect();
            asking.into_iter().map(|thread| thread.join().unwrap_or(SocketReply::Silent)).collect()
        });
        self.answered_in = begin.elapsed();
        self.left_out = sockets.len() - asked.len();
        self.unreachable = self.search.unreachable(&sockets, address::user(), !self.announces);
        if let Some(sentence) = self.unreachable.sentence() {
            self.tell(&sentence);
        }
        for (socket, answer) in asked.iter().zip(answers) {
            if matches!(answer, SocketReply::Silent) {
                self.is_silent(socket, begin);
            } else {
                self.silent.remove(socket);
            }
            match answer {
                SocketReply::Metrics(numbers) => {
                    let state = ProcessState::of(&numbers);
                    self.take(socket, *numbers, state, None);
                }
                SocketReply::OtherVersion => self.left_out += 1,
                SocketReply::Silent => {
                    if let Some(known) = self.known.get_mut(socket).filter(|known| known.gone.is_none()) {
                        known.state = ProcessState::Silent;
                    }
                }
                SocketReply::Nobody => self.gone(socket),
            }
        }
        self.follow_up(&folders, &sockets);
    }

    /// Time limit for the response of a process.
    fn patience(&self, socket: &Path, now: Instant) -> Duration {
        let fresh = |last: &Instant| now.duration_since(*last) < PATIENT_AGAIN;
        if self.silent.get(socket).is_some_and(fresh) { SILENT_TIMEOUT } else { ANSWER_TIMEOUT }
    }

    /// Records that a process did not respond in a round that started at `now`. Prints a message once each
    /// time that a process stops responding.
    fn is_silent(&mut self, socket: &Path, now: Instant) {
        if !self.silent.contains_key(socket) {
            let process = socket.file_stem().unwrap_or_default().to_string_lossy();
            message::say(&format!("process {process} does not respond: is it stopped?"));
        }
        if self.patience(socket, now) == ANSWER_TIMEOUT {
            self.silent.insert(socket.to_owned(), now);
        }
    }

    /// Finds processes that have ended, without querying any.
    pub fn scan(&mut self) {
        let (folders, sockets) = self.sockets();
        self.follow_up(&folders, &sockets);
    }

    /// Withdraws the announcement when the exporter ends: processes need not save numbers for it.
    pub fn withdraw(&self) {
        self.announced.iter().for_each(|folder| last_numbers::withdraw(folder, address::user()));
    }

    /// Usable folders, and the sockets in them.
    fn sockets(&mut self) -> (Vec<PathBuf>, Vec<PathBuf>) {
        let user = address::user();
        let all = address::folders(user);
        let is_due = self.last_announcement.is_none_or(|last| last.elapsed() > FRESH / 5);
        let announce = self.announces && is_due;
        if announce {
            self.last_announcement = Some(Instant::now());
            // New processes will listen in this folder.
            if let Some(Err(error)) = all.first().map(|folder| address::make_private(folder, user)) {
                self.tell(&error.to_string());
            }
        }
        let (mut folders, mut sockets) = (Vec::new(), Vec::new());
        self.refused = 0;
        for folder in all {
            match address::check(&folder, user) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => {
                    self.refused += 1;
                    self.tell(&format!("{error}; the folder is not used"));
                    continue;
                }
            }
            // The folder that a process uses depends on its environment, so announce in all of them.
            if announce {
                if !self.announced.contains(&folder) {
                    self.announced.push(folder.clone());
                }
                if let Err(error) = last_numbers::announce(&folder, user) {
                    self.tell(&format!("{}: {error}; numbers of processes that end are not kept", folder.display()));
                }
            }
            sockets.extend(address::sockets(&folder, user).into_iter().map(|(_, socket)| socket));
            folders.push(folder);
        }
        (folders, sockets)
    }

    fn follow_up(&mut self, folders: &[PathBuf], sockets: &[PathBuf]) {
        let vanished: Vec<_> = self.known.keys().filter(|socket| !sockets.contains(socket)).cloned().collect();
        vanished.iter().for_each(|socket| self.gone(socket));
        self.silent.retain(|socket, _| sockets.contains(socket));
        self.ended_left_out = 0;
        for folder in folders {
            let Ok((newest, beyond)) = last_numbers::newest(folder, address::user(), MAX_PROCESSES) else { continue };
            let socket = |process: &ProcessName| folder.join(format!("{process}.sock"));
            self.ended_left_out += beyond.iter().filter(|process| !self.known.contains_key(&socket(process))).count();
            for (process, age, text) in newest {
                let numbers = serde_json::from_str(&text).ok().and_then(|json| ProcessMetrics::of(&json));
                let Some(numbers) = numbers else { continue };
                let socket = socket(&process);
                // The numbers are from an earlier process with the same id.
                let older = |known: &Known| {
                    known.gone.is_none() && known.numbers.metrics.start_unix_ns != numbers.metrics.start_unix_ns
                };
                if !self.known.get(&socket).is_some_and(older) && !self.has_successor(&socket, &numbers, age) {
                    let since = Instant::now().checked_sub(age).unwrap_or_else(Instant::now);
                    self.take(&socket, numbers, ProcessState::Ended, Some(since));
                }
            }
        }
        self.forget();
    }

    /// True if a process that started after the end of this one, which ended `age` ago, took over its labels:
    /// sums would count both.
    fn has_successor(&self, socket: &Path, numbers: &ProcessMetrics, age: Duration) -> bool {
        let end = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().saturating_sub(age);
        let known = |known: &Known| known.numbers.metrics.start_unix_ns == numbers.metrics.start_unix_ns;
        let later = |known: &Known| {
            known.numbers.place() == numbers.place() && Duration::from_nanos(known.numbers.metrics.start_unix_ns) >= end
        };
        !self.known.get(socket).is_some_and(known) && self.known.values().any(later)
    }

    fn take(&mut self, socket: &Path, numbers: ProcessMetrics, state: ProcessState, gone: Option<Instant>) {
        match self.known.get_mut(socket) {
            Some(known) if known.numbers.metrics.start_unix_ns == numbers.metrics.start_unix_ns => {
                known.numbers.update(numbers);
                known.state = state;
                known.gone = known.gone.filter(|_| gone.is_some()).or(gone);
            }
            _ => {
                self.known.remove(socket);
                let number = self.free_number(&numbers);
                let known = Known { numbers, state, number, gone };
                self.known.insert(socket.to_owned(), known);
            }
        }
    }

    /// Lowest free number among the processes with the same run and rank. Removes those that have ended: a
    /// restarted rank gets the labels of its predecessor.
    fn free_number(&mut self, numbers: &ProcessMetrics) -> u32 {
        let wanted = numbers.place();
        self.known.retain(|_, known| {
            known.gone.is_none()
                || known.numbers.place() != wanted
                || known.numbers.metrics.start_unix_ns > numbers.metrics.start_unix_ns
        });
        let taken: Vec<_> =
            self.known.values().filter(|known| known.numbers.place() == wanted).map(|known| known.number).collect();
        (1..).find(|number| !taken.contains(number)).unwrap_or(1)
    }

    fn gone(&mut self, socket: &Path) {
        let Some(known) = self.known.get_mut(socket) else { return };
        let since = *known.gone.get_or_insert_with(Instant::now);
        // The process left its last numbers.
        let said = known.numbers.status.state == ProcessState::Ended.name();
        let lost = !said && since.elapsed() > ENDING;
        known.state = if lost { ProcessState::Lost } else { ProcessState::Ended };
    }

    /// Adds a process as if it had responded.
    #[cfg(test)]
    pub(super) fn insert(&mut self, socket: &str, numbers: ProcessMetrics) {
        let state = ProcessState::of(&numbers);
        self.take(Path::new(socket), numbers, state, None);
    }

    /// Forgets ended processes after some time; keeps at most the most recent ones.
    fn forget(&mut self) {
        self.known.retain(|_, known| known.gone.is_none_or(|since| since.elapsed() < KEPT));
        let mut gone: Vec<_> = self.known.iter().filter_map(|(socket, known)| Some((known.gone?, socket))).collect();
        gone.sort_unstable_by(|a, b| b.cmp(a));
        let surplus: Vec<_> = gone.into_iter().skip(MAX_PROCESSES).map(|(_, socket)| socket.clone()).collect();
        self.ended_left_out += surplus.len();
        for socket in surplus {
            self.known.remove(&socket);
        }
    }

    fn tell(&mut self, what: &str) {
        if !self.reported.iter().any(|reported| reported == what) {
            message::say(what);
            self.reported.push(what.to_owned());
        }
    }
}

fn ask(socket: &Path, deadline: Instant) -> SocketReply {
    let answer = Connection::open(socket, "metrics", deadline).and_then(|connection| {
        let Some(mut connection) = connection else { return Ok(None) };
        connection.line(deadline).and_then(|line| parsed(&line)).map(Some)
    });
    match answer {
        Ok(None) => SocketReply::Nobody,
        Ok(Some(json)) => ProcessMetrics::of(&json)
            .map_or(SocketReply::OtherVersion, |numbers| SocketReply::Metrics(Box::new(numbers))),
        Err(_) => SocketReply::Silent,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn numbers(pid: u64, start: u64, rank: u64, state: &str) -> ProcessMetrics {
        let json = json!({"type": "metrics", "pid": pid, "start_unix_ns": start, "run": "r", "rank": rank,
            "host": "h", "state": state, "devices": []});
        ProcessMetrics::of(&json).unwrap()
    }

    fn labels(node: &Node) -> Vec<(u64, ProcessState, u32)> {
        node.processes().map(|known| (known.numbers.status.pid, known.state, known.number)).collect()
    }

    #[test]
    fn a_restarted_rank_takes_the_labels_of_its_predecessor() {
        let mut node = Node::default();
        let [first, second, child] = ["/s/1.sock", "/s/2.sock", "/s/3.sock"].map(Path::new);
        node.take(first, numbers(1, 10, 0, "capturing"), ProcessState::Capturing, None);
        node.gone(first);
        assert_eq!(labels(&node), [(1, ProcessState::Ended, 1)]);
        node.take(second, numbers(2, 20, 0, "capturing"), ProcessState::Capturing, None);
        assert_eq!(labels(&node), [(2, ProcessState::Capturing, 1)]);
        node.take(child, numbers(3, 30, 0, "capturing"), ProcessState::Capturing, None);
        assert_eq!(labels(&node)[1], (3, ProcessState::Capturing, 2), "both live");
        node.take(second, numbers(2, 20, 0, "waiting"), ProcessState::Waiting, None);
        assert_eq!(labels(&node)[0], (2, ProcessState::Waiting, 1));
    }

    #[test]
    fn a_predecessor_does_not_come_back_from_what_it_left() {
        let mut node = Node::default();
        let [first, second, other] = ["/s/1.sock", "/s/2.sock", "/s/3.sock"].map(Path::new);
        let minute = Duration::from_secs(60);
        let now = u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos()).unwrap();
        let started = |ago: u32| now - u64::try_from((minute * ago).as_nanos()).unwrap();
        node.take(second, numbers(2, started(2), 0, "capturing"), ProcessState::Capturing, None);
        let left = numbers(1, started(4), 0, "ended");
        assert!(node.has_successor(first, &left, minute * 3), "restarted");
        assert!(!node.has_successor(first, &left, minute), "both ran for a minute");
        assert!(!node.has_successor(other, &numbers(3, started(4), 1, "ended"), minute * 3), "another rank");
        // The first process was served before.
        node.take(first, numbers(1, started(4), 0, "capturing"), ProcessState::Capturing, None);
        assert!(!node.has_successor(first, &left, minute * 3), "its last numbers");
    }

    #[test]
    fn of_those_that_have_ended_the_newest_stay() {
        let mut node = Node::default();
        let now = Instant::now();
        for rank in 0..100 {
            let socket = PathBuf::from(format!("/s/{rank}.sock"));
            let since = now.checked_sub(Duration::from_secs(rank)).unwrap();
            node.take(&socket, numbers(rank, 10, rank, "ended"), ProcessState::Ended, Some(since));
        }
        node.forget();
        assert!(node.processes().all(|known| known.numbers.status.pid < 64));
        assert_eq!((node.processes().count(), node.summary().left_out), (64, 36));
    }

    #[test]
    fn who_is_silent_is_waited_for_now_and_then() {
        let mut node = Node::default();
        let (socket, begin) = (Path::new("/s/1.sock"), Instant::now());
        assert_eq!(node.patience(socket, begin), ANSWER_TIMEOUT);
        node.is_silent(socket, begin);
        assert_eq!(node.patience(socket, begin + SILENT_TIMEOUT), SILENT_TIMEOUT);
        node.is_silent(socket, begin + SILENT_TIMEOUT);
        assert_eq!(node.patience(socket, begin + PATIENT_AGAIN), ANSWER_TIMEOUT);
        assert!(node.summary().states.contains(&(ProcessState::Silent, 1)), "though nothing is known of it");
    }

    #[test]
    fn who_leaves_no_last_numbers_is_lost_after_a_while_and_forgotten_later() {
        let mut node = Node::default();
        let [socket, killed] = ["/s/1.sock", "/s/2.sock"].map(Path::new);
        node.take(socket, numbers(1, 10, 0, "ended"), ProcessState::Ended, Some(Instant::now()));
        node.take(killed, numbers(2, 10, 1, "capturing"), ProcessState::Capturing, None);
        node.gone(killed);
        assert_eq!(labels(&node)[1], (2, ProcessState::Ended, 1), "its last numbers may still come");
        node.known.get_mut(killed).unwrap().gone = Instant::now().checked_sub(ENDING * 2);
        node.gone(killed);
        assert_eq!(labels(&node)[1], (2, ProcessState::Lost, 1));
        node.known.get_mut(killed).unwrap().gone = Instant::now().checked_sub(KEPT);
        node.forget();
        assert_eq!(labels(&node).len(), 1);
    }
}
