//! Local source of responses: the control sockets of this host.
//!
//! One thread scans for sockets, and one thread per process reads its lines, so that a hanging process does
//! not delay the others. The threads end when the receiver is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use gpuwhy_inject::control::address::ProcessName;
use serde_json::Value;

use super::answer::StatusReply;
use super::dashboard::Update;
use super::process::ProcessKey;
use crate::control::connection::{self, ANSWER_TIMEOUT, Connection, parsed};

/// Interval between scans for new processes.
const APPEARANCE: Duration = Duration::from_secs(1);
/// Maximum wait for events before the reader checks for an interruption.
const TICK: Duration = Duration::from_millis(100);

/// Event from a source.
#[derive(Debug)]
pub enum SourceEvent {
    /// A process has responded; with the line as received.
    Answer(ProcessKey, Box<Value>),
    /// Any other update.
    Update(Update),
    /// A scan is complete; with the number of processes that are watched.
    Round(usize),
}

impl SourceEvent {
    /// Update for the display, if the event changes it.
    pub fn into_update(self) -> Option<Update> {
        match self {
            Self::Answer(key, json) => Some(Update::Answer(key, Box::new(StatusReply::of(&json)))),
            Self::Update(update) => Some(update),
            Self::Round(_) => None,
        }
    }
}

/// Watches processes of this host: all until the receiver is gone, or those in `only` until they have ended.
pub fn watch(events: Sender<SourceEvent>, interval: Duration, only: Vec<ProcessName>) {
    let (ended, ends) = channel();
    let mut watched: BTreeSet<ProcessName> = BTreeSet::new();
    let mut reported = BTreeSet::new();
    let mut first = true;
    loop {
        let (found, refused) = connection::processes();
        for why in refused.into_iter().filter(|why| reported.insert(why.clone())) {
            let _ = events.send(SourceEvent::Update(Update::Note(why)));
        }
        for process in ends.try_iter() {
            watched.remove(&process);
        }
        let wanted = |process: &ProcessName| only.is_empty() || only.contains(process);
        for (process, socket) in found.into_iter().filter(|(process, _)| wanted(process)) {
            if watched.insert(process) {
                let (events, ended) = (events.clone(), ended.clone());
                thread::spawn(move || {
                    follow(process, &socket, interval, &events);
                    let _ = ended.send(process);
                });
            }
        }
        if first {
            for process in only.iter().filter(|process| !watched.contains(process)) {
                let why = format!("no process {process} of this user runs with gpuwhy");
                let _ = events.send(SourceEvent::Update(Update::Note(why)));
            }
            first = false;
        }
        if !only.is_empty() && watched.is_empty() {
            return;
        }
        if events.send(SourceEvent::Round(watched.len())).is_err() {
            return;
        }
        thread::sleep(APPEARANCE.max(interval));
    }
}

/// Forwards the lines of one process until it ends.
fn follow(process: ProcessName, socket: &Path, interval: Duration, events: &Sender<SourceEvent>) {
    let key = ProcessKey { host: String::new(), process: process.to_string() };
    let send = |update| events.send(SourceEvent::Update(update)).is_ok();
    let deadline = Instant::now() + ANSWER_TIMEOUT;
    let mut connection = match Connection::open(socket, &format!("live {}", interval.as_millis()), deadline) {
        Ok(Some(connection)) => connection,
        Ok(None) => {
            send(Update::Ended(key));
            return;
        }
        Err(error) => {
            send(Update::Silent(key, error.to_string()));
            // The next scan tries this process again, after a delay.
            thread::sleep(ANSWER_TIMEOUT);
            return;
        }
    };
    let mut answered = false;
    loop {
        let line = connection.line(Instant::now() + ANSWER_TIMEOUT + interval);
        let json = line.and_then(|line| parsed(&line));
        match json {
            // The library is older than `live`.
            Ok(json) if json["type"] == "error" && !answered => {
                if connection.send(&format!("watch {}", interval.as_millis())).is_err() {
                    send(Update::Ended(key));
                    return;
                }
            }
            Ok(json) => {
                answered = true;
                if events.send(SourceEvent::Answer(key.clone(), Box::new(json))).is_err() {
                    return;
                }
            }
            // The process may continue later: it is stopped, or starved of CPU time.
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                if !send(Update::Silent(key.clone(), "it does not respond: is it stopped?".to_owned())) {
                    return;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return,
            Err(error) if is_closed(&error) && !answered && socket.exists() => {
                send(Update::Silent(key, "it takes no more connections: eight are open".to_owned()));
                thread::sleep(ANSWER_TIMEOUT);
                return;
            }
            Err(error) if is_closed(&error) => {
                send(Update::Ended(key));
                return;
            }
            Err(error) => {
                send(Update::Silent(key, error.to_string()));
                thread::sleep(ANSWER_TIMEOUT);
                return;
            }
        }
    }
}

fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), UnexpectedEof | ConnectionReset | BrokenPipe)
}

/// Socket of a process on this host.
pub fn socket(process: ProcessName) -> Option<PathBuf> {
    let (found, _) = connection::processes();
    found.into_iter().find(|(found, _)| *found == process).map(|(_, socket)| socket)
}

/// One response of each process, or the reason why there is none.
pub fn once(only: &[ProcessName]) -> Vec<SourceEvent> {
    let (found, refused) = connection::processes();
    let notes = refused.into_iter().map(|why| SourceEvent::Update(Update::Note(why)));
    let missing = only.iter().filter(|process| !found.iter().any(|(found, _)| found == *process)).map(|process| {
        SourceEvent::Update(Update::Note(format!("no process {process} of this user runs with gpuwhy")))
    });
    let mut events: Vec<_> = notes.chain(missing).collect();
    let asked: Vec<_> = found.into_iter().filter(|(process, _)| only.is_empty() || only.contains(process)).collect();
    let sockets: BTreeMap<_, _> = asked.iter().cloned().collect();
    for (process, live) in connection::query_all(asked, "live") {
        let key = ProcessKey { host: String::new(), process: process.to_string() };
        let answer = match live {
            // The library is older than `live`.
            Ok(Some((_, json))) if json["type"] == "error" => connection::ask(&sockets[&process], "status"),
            live => live,
        };
        match answer {
            Ok(Some((_, json))) => events.push(SourceEvent::Answer(key, Box::new(json))),
            Ok(None) => {}
            Err(error) => events.push(SourceEvent::Update(Update::Silent(key, error.to_string()))),
        }
    }
    events
}

/// Waits for events, at most `TICK`, and returns all that have arrived; `None` when no source is left.
pub fn events(from: &Receiver<SourceEvent>) -> Option<Vec<SourceEvent>> {
    use std::sync::mpsc::RecvTimeoutError;
    match from.recv_timeout(TICK) {
        Ok(first) => Some(std::iter::once(first).chain(from.try_iter()).collect()),
        Err(RecvTimeoutError::Timeout) => Some(Vec::new()),
        Err(RecvTimeoutError::Disconnected) => None,
    }
}
