//! `gpuwhy status`, `start`, `stop`, `snapshot`, `watch`: talks to the control sockets of this user's processes.
//!
//! One connection and one line of JSON each way ([`connection`]), see docs/guide/control.md. What a terminal would obey
//! is escaped.

mod all;
pub mod connection;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use gpuwhy_inject::control::address::Process;
use profiler_core::report::STARTING_UP;
use profiler_core::text_format::{printable, printable_json};
use serde_json::Value;

use self::connection::{ANSWER_TIMEOUT, Connection, ask, parsed};
use crate::terminal::cut;
use crate::{interrupt, message};

/// Exit code when there is no such process, or it does not answer.
pub const NO_ANSWER: u8 = 1;
/// The command of the protocol that begins a capture at a step, before its numbers.
pub const AT_STEP: &str = "start-at-step";

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
        command: String,
    },
    /// Sends a command to all processes, here or on hosts that a launcher reaches.
    TellAll {
        /// The command of the protocol.
        command: String,
        /// What `gpuwhy` is told on other hosts.
        arguments: Vec<String>,
        /// Hosts for the commands of `via`.
        hosts: Vec<String>,
        /// Commands that run `gpuwhy` elsewhere.
        via: Vec<String>,
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
    match props {
        Props::Status { json } => status(*json),
        Props::Tell { process, command } => tell(*process, command),
        Props::TellAll { command, arguments, hosts, via } => all::tell(command, arguments, via, hosts),
        Props::Watch { process, interval } => watch(*process, *interval),
    }
}

/// This user's processes with their sockets; folders that are not used are told.
fn processes() -> Vec<(Process, PathBuf)> {
    let (found, refused) = connection::processes();
    refused.iter().for_each(|why| message::say(why));
    found
}

fn status(json: bool) -> Result<u8> {
    let mut rows = Vec::new();
    for (process, answer) in connection::ask_all(processes(), "status") {
        match answer {
            Ok(None) => {}
            Ok(Some(answer)) => rows.push((process, answer)),
            Err(error) => message::say(&format!("process {process} does not answer: {error}")),
        }
    }
    let mut out = io::stdout().lock();
    if json {
        rows.iter().try_for_each(|(_, (line, _))| writeln!(out, "{}", printable_json(line)))?;
        return Ok(0);
    }
    if rows.is_empty() {
        writeln!(out, "no process of this user runs with gpuwhy")?;
        return Ok(0);
    }
    let rows: Vec<_> = rows.into_iter().map(|(process, (_, answer))| (process, answer)).collect();
    out.write_all(table(&rows).as_bytes())?;
    Ok(0)
}

/// Widest name of a run or a host that is shown whole.
const NAME: usize = 24;

/// The processes, with what tells them apart where that is known: run and rank, and hosts where there are several.
fn table(rows: &[(Process, Value)]) -> String {
    let name = |answer: &Value, field: &str| cut(&printable(answer[field].as_str().unwrap_or_default()), NAME);
    let names = |field: &'static str| -> Vec<String> { rows.iter().map(|(_, answer)| name(answer, field)).collect() };
    let ranks = rows.iter().map(|(_, answer)| answer["rank"].as_u64().map_or(String::new(), |rank| rank.to_string()));
    let (runs, ranks, hosts) = (names("run"), ranks.collect::<Vec<_>>(), names("host"));
    let mut columns = Vec::new();
    for (title, cells) in [("RUN", &runs), ("RANK", &ranks), ("HOST", &hosts)] {
        let is_known = cells.iter().any(|cell| !cell.is_empty());
        if is_known && (title != "HOST" || cells.iter().any(|cell| *cell != cells[0])) {
            columns.push((title, cells));
        }
    }
    let width = |title: &str, cells: &[String]| {
        cells.iter().map(|cell| cell.chars().count()).chain([title.len()]).max().unwrap_or(0)
    };
    let mut text = format!("{:>8}", "PID");
    for (title, cells) in &columns {
        text.push_str(&format!("  {title:<0$}", width(title, cells)));
    }
    text.push_str("  STATE      CAPTURES  VERDICT         SHARE    LOST  COMMAND\n");
    for (place, (process, answer)) in rows.iter().enumerate() {
        text.push_str(&format!("{:>8}", process.to_string()));
        for (title, cells) in &columns {
            text.push_str(&format!("  {:<1$}", cells[place], width(title, cells)));
        }
        text.push_str(&row(answer));
    }
    text
}

/// A process in the table of `status` behind its name, and its trace below it.
fn row(answer: &Value) -> String {
    let text = |name: &str| printable(answer[name].as_str().unwrap_or("-"));
    let number = |name: &str| answer[name].as_u64().unwrap_or(0);
    let share = match answer["verdict"].as_str() {
        Some(STARTING_UP) => "-".to_owned(),
        _ => format!("{:.0} %", answer["share"].as_f64().unwrap_or(0.0) * 100.0),
    };
    let mut row = format!(
        "  {:<10} {:>8}  {:<13} {share:>6}  {:>6}  {}\n",
        text("state"),
        number("captures"),
        text("verdict"),
        number("lost"),
        text("command")
    );
    if let Some(first) = answer["starts_at_step"].as_u64() {
        let steps = number("steps");
        row.push_str(&format!("{:>8}  a capture begins at step {first}; {steps} steps have begun\n", ""));
    }
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
    let answer = answered(process, &socket(process)?, command)?;
    writeln!(io::stdout(), "{}", answer.text)?;
    Ok(if answer.refused { NO_ANSWER } else { 0 })
}

/// What a process makes of a command.
struct Answer {
    text: String,
    /// It cannot do it.
    refused: bool,
}

/// Sends a command of the protocol to a process, and gives its answer in words.
///
/// # Errors
///
/// When the process does not answer.
pub fn told(process: Process, socket: &Path, command: &str) -> Result<String> {
    answered(process, socket, command).map(|answer| answer.text)
}

fn answered(process: Process, socket: &Path, command: &str) -> Result<Answer> {
    let answer = ask(socket, command).with_context(|| format!("process {process} does not answer"))?;
    let Some((_, answer)) = answer else { return Err(nobody(process)) };
    if answer["type"] == "error" {
        bail!("process {process} does not know this command: its gpuwhy has another version");
    }
    let (word, numbers) = command.split_once(' ').unwrap_or((command, ""));
    if word == AT_STEP {
        return Ok(at_step(process, numbers, &answer));
    }
    Ok(Answer { text: in_words(process, word, &answer), refused: false })
}

fn in_words(process: Process, command: &str, answer: &Value) -> String {
    if command == "snapshot" {
        let text = answer["text"].as_str().unwrap_or_default().lines().map(printable);
        let trace = answer["trace"].as_str().map(|trace| format!("trace: {}", printable(trace)).into());
        return text.chain(trace).collect::<Vec<_>>().join("\n");
    }
    let flag = |name: &str| answer[name].as_bool().unwrap_or(false);
    let state = printable(answer["state"].as_str().unwrap_or("unknown"));
    let capture = answer["captures"].as_u64().unwrap_or(0);
    match (command, flag("changed")) {
        ("release", _) => {
            format!("process {process} is {state}: CUPTI is released once the captured records have arrived")
        }
        ("start", true) => format!("capture {capture} has begun"),
        (_, true) if flag("canceled") => "the capture that waited for its step is canceled".to_owned(),
        (_, true) => format!("capture {capture} has ended"),
        (_, false) => format!("nothing changed: process {process} is {state}"),
    }
}

/// The answer to [`AT_STEP`]. `numbers` are those of the command.
fn at_step(process: Process, numbers: &str, answer: &Value) -> Answer {
    let rank = answer["rank"].as_u64().map_or(String::new(), |rank| format!(" (rank {rank})"));
    let (first, count) = numbers.split_once(' ').map_or((numbers, None), |(first, count)| (first, Some(count)));
    let seen = answer["steps"].as_u64().unwrap_or(0);
    let capture = answer["captures"].as_u64().unwrap_or(0) + 1;
    let state = printable(answer["state"].as_str().unwrap_or("unknown"));
    let why = match answer["answer"].as_str().unwrap_or_default() {
        "waits" => {
            let steps = match count {
                None => "until `gpuwhy stop`".to_owned(),
                Some("1") => "for 1 step".to_owned(),
                Some(count) => format!("for {count} steps"),
            };
            let text = format!("capture {capture} begins at step {first}{rank}, {steps}; {seen} steps have begun");
            return Answer { text, refused: false };
        }
        "past" => format!("process {process}{rank} is past step {first}: {seen} steps have begun"),
        "not_counted" => format!(
            "process {process}{rank} does not count steps: start it with `gpuwhy run -c command -p RANGE`, where RANGE is \
             its range around a step"
        ),
        _ => format!("process {process}{rank} is {state}: a capture at a step can only begin while none is active"),
    };
    Answer { text: format!("nothing changed: {why}"), refused: true }
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
                writeln!(out, "{}", printable_json(&line))?;
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
    fn a_row_cannot_control_the_terminal() {
        let line = "{\"command\":\"\\u001b]0;x\\u0007 \u{9b}31m\u{7f}\u{202e}é\", \"run\": \"\u{9b}31m\"}";
        let text = table(&[("7".parse().unwrap(), parsed(line).unwrap())]);
        assert!(!text.contains(|character: char| character.is_control() && character != '\n'), "{text:?}");
    }

    #[test]
    fn ranks_are_told_apart_where_they_are_known() {
        let rows = |fields: [&str; 2]| {
            let row = |(process, fields): (u32, &str)| {
                (Process { id: process, number: 1 }, parsed(&format!("{{\"command\":\"x\"{fields}}}")).unwrap())
            };
            table(&[(71, fields[0]), (8, fields[1])].map(row))
        };
        let text = rows(["", ", \"host\": \"\""]);
        assert!(text.starts_with("     PID  STATE      CAPTURES  VERDICT"), "{text}");
        let text = rows([", \"run\": \"job-7\", \"rank\": 10, \"host\": \"a\"", ", \"rank\": 3, \"host\": \"a\""]);
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[0].starts_with("     PID  RUN    RANK  STATE"), "{text}");
        assert!(lines[1].starts_with("      71  job-7  10    -  "), "{text}");
        assert!(lines[2].starts_with("       8         3     -  "), "{text}");
        let text = rows([", \"host\": \"a\"", ", \"host\": \"b\""]);
        assert!(text.starts_with("     PID  HOST  STATE"), "{text}");
    }
}
