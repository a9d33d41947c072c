//! `gpuprof status`, `start`, `stop`, `snapshot`, `watch`: talks to the control sockets of this user's processes.
//!
//! One connection and one line of JSON each way, see docs/CONTROL.md. A socket that nobody listens on was left behind
//! by a process that was killed; it is removed. A process that does not answer is waited for a bounded time.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use prof::control::address;
use serde_json::Value;

use crate::complain;

/// Exit code when there is no such process, or it does not answer.
pub const NO_ANSWER: u8 = 1;
/// A process answers within milliseconds; one that is stopped, or starved of processors, may not.
const PATIENCE: Duration = Duration::from_secs(5);

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
        process: u32,
        /// The command of the protocol.
        command: &'static str,
    },
    /// Prints lines until the process ends.
    Watch {
        /// Which.
        process: u32,
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

fn folder() -> Result<PathBuf> {
    let user = std::fs::metadata("/proc/self").context("cannot tell which user this is")?.uid();
    Ok(address::folder(user))
}

/// A connection to the process, with the line sent; `None` when nobody listens.
fn connect(path: &PathBuf, line: &str) -> io::Result<Option<BufReader<UnixStream>>> {
    match UnixStream::connect(path) {
        Ok(mut stream) => {
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            stream.write_all(format!("{line}\n").as_bytes())?;
            Ok(Some(BufReader::new(stream)))
        }
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            // Left behind by a killed process. If it cannot be removed it is only found again.
            let _ = std::fs::remove_file(path);
            Ok(None)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn line_of(connection: &mut BufReader<UnixStream>) -> io::Result<String> {
    let mut line = String::new();
    connection.read_line(&mut line)?;
    if line.ends_with('\n') { Ok(line) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

fn status(json: bool) -> Result<u8> {
    let mut out = io::stdout().lock();
    let mut any = false;
    for (process, path) in address::sockets(&folder()?) {
        let answer = match connect(&path, "status") {
            Ok(None) => continue,
            Ok(Some(mut connection)) => line_of(&mut connection),
            Err(error) => Err(error),
        };
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                complain(&format!("process {process} does not answer: {error}"));
                continue;
            }
        };
        if json {
            out.write_all(answer.as_bytes())?;
        } else {
            let answer: Value = serde_json::from_str(&answer).context("an answer that is no JSON")?;
            if !any {
                writeln!(
                    out,
                    "{:>8}  {:<10} {:>8}  {:<13} {:>6}  {:>6}  COMMAND",
                    "PID", "STATE", "CAPTURES", "VERDICT", "SHARE", "LOST"
                )?;
            }
            let text = |name: &str| answer[name].as_str().unwrap_or("-").to_owned();
            let number = |name: &str| answer[name].as_u64().unwrap_or(0);
            let share = answer["share"].as_f64().unwrap_or(0.0) * 100.0;
            writeln!(
                out,
                "{process:>8}  {:<10} {:>8}  {:<13} {share:>4.0} %  {:>6}  {}",
                text("state"),
                number("captures"),
                text("verdict"),
                number("lost"),
                text("command")
            )?;
            if let Some(trace) = answer["trace"].as_str() {
                writeln!(out, "{:>8}  {trace}", "")?;
            }
        }
        any = true;
    }
    if !any && !json {
        writeln!(out, "no process of this user runs with gpuprof")?;
    }
    Ok(0)
}

fn open(process: u32, line: &str) -> Result<BufReader<UnixStream>> {
    let path = address::socket(&folder()?, process);
    match connect(&path, line).with_context(|| format!("process {process} ({})", path.display()))? {
        Some(connection) => Ok(connection),
        None => bail!("no process {process} of this user runs with gpuprof; `gpuprof status` lists those that do"),
    }
}

fn tell(process: u32, command: &str) -> Result<u8> {
    let mut connection = open(process, command)?;
    let line = line_of(&mut connection).with_context(|| format!("process {process} does not answer"))?;
    let answer: Value = serde_json::from_str(&line).context("an answer that is no JSON")?;
    let mut out = io::stdout().lock();
    if command == "snapshot" {
        write!(out, "{}", answer["text"].as_str().unwrap_or_default())?;
        if let Some(trace) = answer["trace"].as_str() {
            writeln!(out, "trace: {trace}")?;
        }
        return Ok(0);
    }
    let changed = answer["changed"].as_bool().unwrap_or(false);
    let state = answer["state"].as_str().unwrap_or("unknown");
    let capture = &answer["captures"];
    match (command, changed) {
        ("release", _) => {
            writeln!(out, "process {process} is {state}: it gives CUPTI back once what it has captured has come")?
        }
        ("start", true) => writeln!(out, "capture {capture} has begun")?,
        (_, true) => writeln!(out, "capture {capture} has ended")?,
        (_, false) => writeln!(out, "nothing changed: process {process} is {state}")?,
    }
    Ok(0)
}

fn watch(process: u32, interval: Duration) -> Result<u8> {
    let mut connection = open(process, &format!("watch {}", interval.as_millis()))?;
    // Lines come as seldom as was asked for.
    connection.get_ref().set_read_timeout(Some(PATIENCE + interval))?;
    let mut out = io::stdout().lock();
    loop {
        match line_of(&mut connection) {
            Ok(line) => {
                out.write_all(line.as_bytes())?;
                out.flush()?;
            }
            // The process has ended.
            Err(error) if matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset) => {
                return Ok(0);
            }
            Err(error) => return Err(error).with_context(|| format!("process {process} does not answer")),
        }
    }
}
