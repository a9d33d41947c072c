//! Other hosts: a [`Launcher`] runs `gpuwhy top --follow` there, and its output comes back through a pipe.
//!
//! No port is opened. The output is untrusted: lines have a bounded length, and lines that are not responses
//! are counted.

use std::io::{self, BufReader};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use gpuwhy_report::state::sanitized;
use parking_lot::Mutex;
use serde_json::Value;

use super::dashboard::Update;
use super::process::ProcessKey;
use super::source::SourceEvent;
use crate::remote::{Launcher, line};

/// Delay before a launcher that ended is restarted.
const AGAIN: Duration = Duration::from_secs(10);

/// Running launchers, which end with the display.
#[derive(Clone, Debug, Default)]
pub struct Running(Arc<Mutex<(Vec<Child>, bool)>>);

impl Running {
    /// Adds a launcher. Kills it immediately if [`end`](Self::end) was called before.
    fn add(&self, mut child: Child) -> Option<usize> {
        let mut running = self.0.lock();
        if running.1 {
            end(&mut child);
            return None;
        }
        running.0.push(child);
        Some(running.0.len() - 1)
    }

    /// Exit status of a launcher whose output is closed.
    fn ended(&self, index: usize) -> String {
        let mut running = self.0.lock();
        let status = running.0.get_mut(index).map(Child::wait);
        match status {
            Some(Ok(status)) => status.to_string(),
            Some(Err(error)) => error.to_string(),
            None => String::new(),
        }
    }

    /// Kills all launchers, including those added later.
    pub fn end(&self) {
        let mut running = self.0.lock();
        running.1 = true;
        running.0.iter_mut().for_each(end);
    }

    fn is_over(&self) -> bool {
        self.0.lock().1
    }
}

fn end(child: &mut Child) {
    // The child may have ended already.
    let _ = child.kill();
    let _ = child.wait();
}

/// Forwards the output of a host, and restarts the launcher when it ends, until the receiver is gone.
pub fn watch(launcher: &Launcher, interval: Duration, events: &Sender<SourceEvent>, running: &Running) {
    let milliseconds = format!("{}ms", interval.as_millis());
    while !running.is_over() {
        let why = match follow(launcher, &["top", "--follow", "--interval", &milliseconds], events, running) {
            Ok(why) => why,
            Err(error) => format!("{error:#}"),
        };
        if events.send(SourceEvent::Update(Update::Unreachable(launcher.host.clone(), why))).is_err() {
            return;
        }
        thread::sleep(AGAIN);
    }
}

/// One response of each process on a host.
pub fn once(launcher: &Launcher, running: &Running) -> Vec<SourceEvent> {
    let (events, heard) = std::sync::mpsc::channel();
    let outcome = follow(launcher, &["top", "--json"], &events, running);
    drop(events);
    let mut heard: Vec<_> = heard.iter().collect();
    let why = match outcome {
        Ok(why) if why == "exit status: 0" => return heard,
        Ok(why) => why,
        Err(error) => format!("{error:#}"),
    };
    heard.push(SourceEvent::Update(Update::Unreachable(launcher.host.clone(), why)));
    heard
}

/// Runs the launcher to its end. Returns its exit status and the last line that it wrote to stderr.
fn follow(launcher: &Launcher, arguments: &[&str], events: &Sender<SourceEvent>, running: &Running) -> Result<String> {
    let mut command = launcher.command(arguments);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", command.get_program().display()))?;
    let (out, complaints) = (child.stdout.take(), child.stderr.take());
    let Some(index) = running.add(child) else { return Ok(String::new()) };
    let complaining = complaints.map(|complaints| thread::spawn(move || last_line(complaints)));
    let mut reader = out.map(BufReader::new);
    let mut foreign = 0_u64;
    let mut reached = false;
    while let Some(line) = reader.as_mut().and_then(|reader| line(reader).transpose()) {
        let Some(json) = line.ok().and_then(|line| serde_json::from_slice::<Value>(&line).ok()) else {
            foreign += 1;
            continue;
        };
        if !std::mem::replace(&mut reached, true) {
            let _ = events.send(SourceEvent::Update(Update::Reached(launcher.host.clone())));
        }
        if let Some(event) = event(&launcher.host, json)
            && events.send(event).is_err()
        {
            break;
        }
    }
    // If the receiver is gone, closing the pipe ends the launcher.
    drop(reader);
    let status = running.ended(index);
    let last = complaining.and_then(|thread| thread.join().ok()).unwrap_or_default();
    let foreign = if foreign > 0 { format!(", {foreign} lines that are no answers") } else { String::new() };
    Ok(if last.is_empty() { format!("{status}{foreign}") } else { format!("{status}{foreign}: {last}") })
}

/// Parses a line of `gpuwhy top --follow`; `None` for lines that need no action.
fn event(host: &str, json: Value) -> Option<SourceEvent> {
    let process = json["process"].as_str().map(sanitized).filter(|process| process.len() <= 40);
    let key = |process| ProcessKey { host: host.to_owned(), process };
    match (json["type"].as_str(), process) {
        (Some("ended"), Some(process)) => Some(SourceEvent::Update(Update::Ended(key(process)))),
        (Some("silent"), Some(process)) => {
            let why = json["message"].as_str().unwrap_or_default().to_owned();
            Some(SourceEvent::Update(Update::Silent(key(process), why)))
        }
        (Some("live" | "bottleneck" | "status"), Some(process)) => {
            Some(SourceEvent::Answer(key(process), Box::new(json)))
        }
        (Some("note"), _) => {
            let text = json["message"].as_str().unwrap_or_default();
            Some(SourceEvent::Update(Update::Note(format!("{host}: {text}"))))
        }
        _ => None,
    }
}

fn last_line(from: impl io::Read) -> String {
    let mut reader = BufReader::new(from);
    let mut last = String::new();
    while let Ok(Some(line)) = line(&mut reader) {
        let text = sanitized(String::from_utf8_lossy(&line).trim_end());
        if !text.is_empty() {
            last = text;
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::MAX_LINE;

    #[test]
    fn lines_from_elsewhere_are_bounded_and_believed_in_nothing() {
        let mut input = vec![b'x'; 3 * MAX_LINE];
        input.extend_from_slice(b"\n{\"type\":\"ended\"}\nlast");
        let mut reader = BufReader::new(&input[..]);
        let lines: Vec<_> = std::iter::from_fn(|| line(&mut reader).unwrap()).collect();
        assert_eq!(lines.iter().map(Vec::len).collect::<Vec<_>>(), [MAX_LINE, 17, 4]);
        for text in ["3", "{}", "{\"type\":\"ended\"}", "{\"type\":\"live\",\"process\":7}", "{\"type\":\"host\"}"] {
            assert!(event("h", serde_json::from_str(text).unwrap()).is_none(), "{text}");
        }
        let ended = event("h", serde_json::json!({"type": "ended", "process": "7\u{1b}"}));
        let Some(SourceEvent::Update(Update::Ended(key))) = ended else { panic!("{ended:?}") };
        assert_eq!(key, ProcessKey { host: "h".to_owned(), process: "7\\x1b".to_owned() });
    }
}
