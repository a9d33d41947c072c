//! `gpuwhy status`, `start`, `stop`, `snapshot`, `watch`: talks to the control sockets of this user's processes.
//!
//! One connection and one line of JSON each way, see docs/guide/control.md. Which folders and sockets are
//! trusted is [`address`], which libprof.so uses too. A process that does not answer is waited for a bounded
//! time, an answer has a bounded length, and what a terminal would obey is escaped.

use std::borrow::Cow;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use gpuwhy_inject::control::address::{self, Process};
use profiler_core::text_format::printable;
use serde_json::Value;
use tracing::{debug, info};

use crate::{interrupt, message};

/// Exit code when there is no such process, or it does not answer.
pub const NO_ANSWER: u8 = 1;
/// A process answers within milliseconds; one that is stopped, or starved of processors, may not. From the
/// first attempt to connect to the last byte of the answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest answer, bytes; libprof.so never has more than a quarter of this to send.
const MAX_LINE: usize = 1 << 20;
/// How soon Ctrl-C is noticed while a line is waited for.
const SIGNAL_POLL: Duration = Duration::from_millis(100);

/// What to do.
#[derive(Debug)]
pub enum Props {
    /// Lists the processes.
    Status {
        /// The answers as they come, one line each.
        json: bool,
    },
    /// Sends a command to one process.
    Tell {
        /// Which.
        process: Process,
        /// The command of the protocol.
        command: &'static str,
    },
    /// Prints lines until the process ends.
    Watch {
        /// Which.
        process: Process,
        /// Time between two lines.
        interval: Duration,
    },
}

/// Does it and answers with the exit code.
///
/// # Errors
///
/// When a process does not answer, or stdout cannot be written.
pub fn run(props: &Props) -> Result<u8> {
    match *props {
        Props::Status { json } => status(json),
        Props::Tell { process, command } => tell(process, command),
        Props::Watch { process, interval } => watch(process, interval),
    }
}

/// This user's processes with their sockets, of all folders: a process may have been started without the
/// variable of this terminal. A folder that somebody else could have put there is not looked into.
fn processes() -> Vec<(Process, PathBuf)> {
    let user = address::user();
    let mut found = Vec::new();
    for folder in address::folders(user) {
        match address::check(&folder, user) {
            Ok(()) => found.extend(address::sockets(&folder, user)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => debug!(?folder, "this folder does not exist"),
            Err(error) => message::say(&format!("{}; the folder is not used", printable(&error.to_string()))),
        }
    }
    found
}

/// A conversation with one process.
struct Connection {
    stream: UnixStream,
    /// What has come behind the last line.
    input: Vec<u8>,
}

impl Connection {
    /// Connects and sends a line; `None` when nobody listens.
    fn open(socket: &Path, line: &str, deadline: Instant) -> io::Result<Option<Self>> {
        let left = deadline.saturating_duration_since(Instant::now());
        let Some(mut stream) = address::connect(socket, address::user(), left)? else {
            info!(?socket, removed = !socket.exists(), "nobody listens on this socket: its process was killed");
            return Ok(None);
        };
        stream.set_nonblocking(false)?;
        // A few bytes, for which a new connection has room.
        stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
        stream.write_all(format!("{line}\n").as_bytes())?;
        Ok(Some(Self { stream, input: Vec::new() }))
    }

    /// The next line, without its end. However slowly it comes, `deadline` holds for all of it.
    fn line(&mut self, deadline: Instant) -> io::Result<String> {
        let mut seen = 0;
        loop {
            if let Some(end) = self.input[seen..].iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.input.drain(..=seen + end).collect();
                let line = String::from_utf8(line).map_err(|_| invalid("the answer is not UTF-8"))?;
                return Ok(line.trim_end().to_owned());
            }
            seen = self.input.len();
            if seen > MAX_LINE {
                return Err(invalid("the answer has no end"));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "timed out waiting for the answer"));
            }
            self.read(left.min(SIGNAL_POLL))?;
            if interrupt::state().is_break() {
                return Err(io::ErrorKind::Interrupted.into());
            }
        }
    }

    fn read(&mut self, timeout: Duration) -> io::Result<()> {
        self.stream.set_read_timeout(Some(timeout))?;
        let mut piece = [0; 16 << 10];
        match self.stream.read(&mut piece) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(bytes) => {
                self.input.extend_from_slice(&piece[..bytes]);
                Ok(())
            }
            // The time is up, which the caller notices.
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

fn parsed(line: &str) -> io::Result<Value> {
    serde_json::from_str(line).map_err(|_| invalid("the answer is not JSON"))
}

/// A line of JSON as a terminal may show it. JSON has no control characters of ASCII but DEL; those beyond
/// ASCII are written as JSON's own escapes, so that a reader gets what was sent.
fn plain_json(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    for character in line.chars() {
        match printable(character.encode_utf8(&mut [0; 4])) {
            Cow::Borrowed(shown) => plain.push_str(shown),
            Cow::Owned(_) => {
                plain.extend(character.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")));
            }
        }
    }
    plain
}

/// One question and its answer; `None` when nobody listens.
fn ask(socket: &Path, line: &str) -> io::Result<Option<(String, Value)>> {
    let deadline = Instant::now() + ANSWER_TIMEOUT;
    let Some(mut connection) = Connection::open(socket, line, deadline)? else { return Ok(None) };
    let line = connection.line(deadline)?;
    let answer = parsed(&line)?;
    Ok(Some((line, answer)))
}

fn status(json: bool) -> Result<u8> {
    let mut out = io::stdout().lock();
    let mut any = false;
    for (process, socket) in processes() {
        match ask(&socket, "status") {
            Ok(None) => continue,
            Ok(Some((line, _))) if json => writeln!(out, "{}", plain_json(&line))?,
            Ok(Some((_, answer))) => {
                if !any {
                    let columns = "     PID  STATE      CAPTURES  VERDICT         SHARE    LOST  COMMAND";
                    writeln!(out, "{columns}")?;
                }
                out.write_all(row(process, &answer).as_bytes())?;
            }
            Err(error) => {
                message::say(&format!("process {process} does not answer: {error}"));
                continue;
            }
        }
        any = true;
    }
    if !any && !json {
        writeln!(out, "no process of this user runs with gpuwhy")?;
    }
    Ok(0)
}

/// A process in the table of `status`, and its trace below it.
fn row(process: Process, answer: &Value) -> String {
    let text = |name: &str| printable(answer[name].as_str().unwrap_or("-"));
    let number = |name: &str| answer[name].as_u64().unwrap_or(0);
    let share = answer["share"].as_f64().unwrap_or(0.0) * 100.0;
    let mut row = format!(
        "{:>8}  {:<10} {:>8}  {:<13} {share:>4.0} %  {:>6}  {}\n",
        process.to_string(),
        text("state"),
        number("captures"),
        text("verdict"),
        number("lost"),
        text("command")
    );
    if answer["trace"].is_string() {
        row.push_str(&format!("{:>8}  {}\n", "", text("trace")));
    }
    row
}

/// The socket of a process.
fn socket(process: Process) -> Result<PathBuf> {
    match processes().into_iter().find(|(found, _)| *found == process) {
        Some((_, socket)) => Ok(socket),
        None => Err(nobody(process)),
    }
}

fn nobody(process: Process) -> anyhow::Error {
    anyhow!("no process {process} of this user runs with gpuwhy; `gpuwhy status` lists those that do")
}

fn tell(process: Process, command: &str) -> Result<u8> {
    let answer = ask(&socket(process)?, command).with_context(|| format!("process {process} does not answer"))?;
    let Some((_, answer)) = answer else { return Err(nobody(process)) };
    let mut out = io::stdout().lock();
    if command == "snapshot" {
        for line in answer["text"].as_str().unwrap_or_default().lines() {
            writeln!(out, "{}", printable(line))?;
        }
        if let Some(trace) = answer["trace"].as_str() {
            writeln!(out, "trace: {}", printable(trace))?;
        }
        return Ok(0);
    }
    let changed = answer["changed"].as_bool().unwrap_or(false);
    let state = printable(answer["state"].as_str().unwrap_or("unknown"));
    let capture = answer["captures"].as_u64().unwrap_or(0);
    match (command, changed) {
        ("release", _) => {
            writeln!(out, "process {process} is {state}: CUPTI is released once the captured records have arrived")?
        }
        ("start", true) => writeln!(out, "capture {capture} has begun")?,
        (_, true) => writeln!(out, "capture {capture} has ended")?,
        (_, false) => writeln!(out, "nothing changed: process {process} is {state}")?,
    }
    Ok(0)
}

fn watch(process: Process, interval: Duration) -> Result<u8> {
    let silent = || format!("process {process} does not answer");
    let mut deadline = Instant::now() + ANSWER_TIMEOUT;
    let command = format!("watch {}", interval.as_millis());
    let connection = Connection::open(&socket(process)?, &command, deadline).with_context(silent)?;
    let Some(mut connection) = connection else { return Err(nobody(process)) };
    interrupt::watch()?;
    let mut out = io::stdout().lock();
    loop {
        match connection.line(deadline) {
            Ok(line) => {
                parsed(&line).with_context(silent)?;
                writeln!(out, "{}", plain_json(&line))?;
                out.flush()?;
            }
            // The process has ended.
            Err(error) if matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset) => {
                return Ok(0);
            }
            // The usual way to end this. Every line that was begun is whole.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(0),
            Err(error) => return Err(error).with_context(silent),
        }
        // Lines come as seldom as was asked for.
        deadline = Instant::now() + ANSWER_TIMEOUT + interval;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_cannot_control_the_terminal() {
        let line = "{\"command\":\"\\u001b]0;x\\u0007 \u{9b}31m\u{7f}\u{202e}é\"}";
        assert_eq!(plain_json(line), "{\"command\":\"\\u001b]0;x\\u0007 \\u009b31m\\u007f\\u202eé\"}");
        assert_eq!(parsed(line).unwrap(), parsed(&plain_json(line)).unwrap(), "it still says the same");
        let row = row("7".parse().unwrap(), &parsed(line).unwrap());
        assert!(!row.contains(|character: char| character.is_control() && character != '\n'), "{row:?}");
    }
}
