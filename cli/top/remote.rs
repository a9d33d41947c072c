//! Other hosts: a launcher runs `gpuwhy top --follow` there, and its output comes back through a pipe.
//!
//! No port is opened. The output is untrusted: lines have a bounded length, and lines that are not responses
//! are counted.

use std::io::{self, BufRead, BufReader, Read as _};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use parking_lot::Mutex;
use serde_json::Value;

use super::answer::harmless;
use super::dashboard::Update;
use super::process::ProcessKey;
use super::source::SourceEvent;
use crate::control::connection::MAX_LINE;

/// Placeholder for the host in the launcher's command.
const PLACE: &str = "{host}";
/// Delay before a launcher that ended is restarted.
const AGAIN: Duration = Duration::from_secs(10);

/// One host, and the command that runs `gpuwhy` there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launcher {
    /// Name of the host in the display.
    pub host: String,
    /// The command and its arguments, up to and including `gpuwhy`.
    words: Vec<String>,
}

impl Launcher {
    /// Launchers for `--via` and `--host`: one for each host, or for each command that names its host itself.
    /// Words are separated by spaces; no shell parses them. Fails when commands and hosts do not fit
    /// together.
    pub fn all(via: &[String], hosts: &[String]) -> Result<Vec<Self>> {
        let mut launchers = Vec::new();
        let ssh = [format!("ssh -o BatchMode=yes {PLACE}")];
        let via = if via.is_empty() && !hosts.is_empty() { &ssh[..] } else { via };
        for command in via {
            if !command.contains(PLACE) {
                // The last word is the host, as in `ssh node7`.
                let mut words = command.split_whitespace().filter(|word| !is_gpuwhy(word));
                launchers.push(Self::of(command, words.next_back().unwrap_or("?"))?);
                continue;
            }
            if hosts.is_empty() {
                bail!("--via '{command}' names {PLACE}: say which hosts with --host");
            }
            for host in hosts {
                let usual = |letter: char| letter.is_ascii_alphanumeric() || "._-@:[]".contains(letter);
                if host.is_empty() || host.starts_with('-') || !host.chars().all(usual) {
                    bail!("--host '{host}': expected the name of a host");
                }
                launchers.push(Self::of(&command.replace(PLACE, host), host)?);
            }
        }
        if !hosts.is_empty() && !via.iter().any(|command| command.contains(PLACE)) {
            bail!("--host needs {PLACE} in the command of --via, as in --via 'srun -w {PLACE}'");
        }
        Ok(launchers)
    }

    fn of(command: &str, host: &str) -> Result<Self> {
        let mut words: Vec<_> = command.split_whitespace().map(str::to_owned).collect();
        let Some(last) = words.last() else { bail!("--via is empty: expected a command such as 'ssh node7'") };
        // The command may end with the path of gpuwhy on that host.
        if !is_gpuwhy(last) {
            words.push("gpuwhy".to_owned());
        }
        Ok(Self { host: host.to_owned(), words })
    }

    /// Command that runs `gpuwhy` with these arguments on the host.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]).args(arguments).stdin(Stdio::null());
        // A password prompt would overwrite the display, so prompts are disabled; ssh with a key needs none.
        command.env("SSH_ASKPASS_REQUIRE", "force").env("SSH_ASKPASS", "/bin/false");
        command
    }
}

/// True if a word of a launcher's command is the program to run.
fn is_gpuwhy(word: &str) -> bool {
    word.rsplit('/').next() == Some("gpuwhy")
}

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
        .with_context(|| format!("cannot start {}", launcher.words[0]))?;
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
    let process = json["process"].as_str().map(harmless).filter(|process| process.len() <= 40);
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

/// Reads a line and truncates it to a bounded length; `None` at the end.
pub fn line(reader: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    if reader.by_ref().take(MAX_LINE as u64).read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    while line.len() >= MAX_LINE && !line.ends_with(b"\n") {
        let mut rest = Vec::new();
        if reader.by_ref().take(MAX_LINE as u64).read_until(b'\n', &mut rest)? == 0 || rest.ends_with(b"\n") {
            break;
        }
    }
    Ok(Some(line))
}

fn last_line(from: impl io::Read) -> String {
    let mut reader = BufReader::new(from);
    let mut last = String::new();
    while let Ok(Some(line)) = line(&mut reader) {
        let text = harmless(String::from_utf8_lossy(&line).trim_end());
        if !text.is_empty() {
            last = text;
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launchers(via: &[&str], hosts: &[&str]) -> Result<Vec<Launcher>> {
        let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        Launcher::all(&owned(via), &owned(hosts))
    }

    #[test]
    fn commands_and_hosts_give_launchers() {
        let all = launchers(&["srun --overlap -w {host}"], &["a", "b"]).unwrap();
        assert_eq!(all.iter().map(|launcher| launcher.host.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(all[1].words, ["srun", "--overlap", "-w", "b", "gpuwhy"]);
        let named = launchers(&["ssh node7 /opt/bin/gpuwhy", "ssh node8"], &[]).unwrap();
        assert_eq!(named[0].words.last().unwrap(), "/opt/bin/gpuwhy");
        assert_eq!([&named[0].host, &named[1].host], ["node7", "node8"]);
        assert_eq!(named[1].words, ["ssh", "node8", "gpuwhy"]);
        assert_eq!(launchers(&[], &["c"]).unwrap()[0].words, ["ssh", "-o", "BatchMode=yes", "c", "gpuwhy"]);
        assert_eq!(launchers(&[], &[]).unwrap(), []);
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        for (via, hosts) in [
            (&["ssh {host}"][..], &[][..]),
            (&["ssh node7"], &["a"]),
            (&[""], &[]),
            (&["ssh {host}"], &["-oProxyCommand=x"]),
            (&["ssh {host}"], &["a b"]),
        ] {
            assert!(launchers(via, hosts).is_err(), "{via:?} {hosts:?}");
        }
    }

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
