//! `gpuwhy start` and `stop`: commands for the control sockets of this user's processes.
//!
//! Each command uses one connection and one line of JSON each way ([`connection`]), see
//! docs/guide/control.md. Terminal control sequences are escaped.

mod all;
pub mod connection;

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail};
use gpuwhy_inject::control::address::ProcessName;
use gpuwhy_report::text_format::printable;
use serde_json::Value;

use self::connection::ask;
use crate::args::control::{Recipients, StartArgs, StopArgs};
use crate::message;

/// Exit code when there is no such process, or it does not respond.
pub const NO_ANSWER: u8 = 1;
/// Protocol command that starts a capture at a step; its numbers follow.
pub const AT_STEP: &str = "start-at-step";

/// Starts a capture and returns the exit code. Fails when a process does not respond, or stdout cannot be
/// written.
pub fn start(args: &StartArgs) -> Result<u8> {
    let Some(first) = args.at_step.map(|step| step.to_string()) else {
        return run(&args.recipients, "start", &["start"]);
    };
    let mut command = format!("{AT_STEP} {first}");
    let mut arguments = vec!["start", "--at-step", &first];
    let count = args.steps.map(|steps| steps.to_string());
    if let Some(count) = &count {
        command.push_str(&format!(" {count}"));
        arguments.extend(["--steps", count]);
    }
    run(&args.recipients, &command, &arguments)
}

/// Stops a capture and returns the exit code. Fails when a process does not respond, or stdout cannot be
/// written.
pub fn stop(args: &StopArgs) -> Result<u8> {
    match args.release {
        true => run(&args.recipients, "release", &["stop", "--release"]),
        false => run(&args.recipients, "stop", &["stop"]),
    }
}

/// Runs a protocol command; `arguments` is the same command on the command line.
fn run(recipients: &Recipients, command: &str, arguments: &[&str]) -> Result<u8> {
    match recipients.process {
        Some(process) => send(process, command),
        None => all::send(command, &[arguments, &["--all"]].concat(), &recipients.via, &recipients.hosts),
    }
}

/// This user's processes with their sockets. Reports the folders that are not used.
fn processes() -> Vec<(ProcessName, PathBuf)> {
    let (found, refused) = connection::processes();
    refused.iter().for_each(|why| message::say(why));
    found
}

/// Control socket of a process. Fails when there is no such process.
pub fn socket(process: ProcessName) -> Result<PathBuf> {
    match processes().into_iter().find(|(found, _)| *found == process) {
        Some((_, socket)) => Ok(socket),
        None => Err(no_such_process(process)),
    }
}

/// Error for a process that does not exist.
pub fn no_such_process(process: ProcessName) -> anyhow::Error {
    anyhow!("no process {process} of this user runs with gpuwhy; `gpuwhy top` lists those that do")
}

/// Sends a protocol command to a process and prints the response in words. Fails when the process does not
/// respond, or stdout cannot be written.
pub fn send(process: ProcessName, command: &str) -> Result<u8> {
    let answer = answered(process, &socket(process)?, command)?;
    writeln!(io::stdout(), "{}", answer.text)?;
    Ok(if answer.refused { NO_ANSWER } else { 0 })
}

/// Response of a process to a command.
struct CommandReply {
    text: String,
    /// True if the process cannot execute the command.
    refused: bool,
}

/// Sends a protocol command to a process and returns the response in words. Fails when the process does not
/// respond.
pub fn send_command(process: ProcessName, socket: &Path, command: &str) -> Result<String> {
    answered(process, socket, command).map(|answer| answer.text)
}

fn answered(process: ProcessName, socket: &Path, command: &str) -> Result<CommandReply> {
    let answer = ask(socket, command).with_context(|| format!("process {process} does not respond"))?;
    let Some((_, answer)) = answer else { return Err(no_such_process(process)) };
    if answer["type"] == "error" {
        bail!("process {process} does not know this command: its gpuwhy has another version");
    }
    let (word, numbers) = command.split_once(' ').unwrap_or((command, ""));
    if word == AT_STEP {
        return Ok(at_step(process, numbers, &answer));
    }
    match answer["refused"].as_str() {
        Some(why) => {
            let text = format!("nothing changed: process {process} refuses, because {}", printable(why));
            Ok(CommandReply { text, refused: true })
        }
        None => Ok(CommandReply { text: in_words(process, word, &answer), refused: false }),
    }
}

fn in_words(process: ProcessName, command: &str, answer: &Value) -> String {
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

/// Response to [`AT_STEP`]. `numbers` are those of the command.
fn at_step(process: ProcessName, numbers: &str, answer: &Value) -> CommandReply {
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
            return CommandReply { text, refused: false };
        }
        "past" => format!("process {process}{rank} is past step {first}: {seen} steps have begun"),
        "not_counted" => format!(
            "process {process}{rank} does not count steps: start it with `gpuwhy run -c command -p RANGE`, where RANGE is \
             its range around a step"
        ),
        _ => format!("process {process}{rank} is {state}: a capture at a step can only begin while none is active"),
    };
    CommandReply { text: format!("nothing changed: {why}"), refused: true }
}
