//! `gpuwhy hang`: for whom the ranks of a job wait, while they do.
//!
//! What is found is library code; here are sockets, launchers, files and exit codes.

use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use gpuwhy_import::witness::Witnesses;
use profiler_core::hang::json::HangDocument;
use profiler_core::hang::judge;
use profiler_core::text_format::{printable, printable_json};

use crate::control::connection::{ask, processes};
use crate::top::remote::Launcher;
use crate::{message, terminal};

/// Exit code when ranks wait.
const WAITS: u8 = 1;
/// Exit code when nobody answered or a file could not be read.
pub const FAILED: u8 = 2;
/// The command of the protocol.
const QUESTION: &str = "hang";
/// A launcher that has not ended after this time is ended: nodes of a job that hangs may not answer either.
const PATIENCE: Duration = Duration::from_secs(60);
/// A launcher that has closed its output ends within this time, else it is ended and counts as failed.
const GRACE: Duration = Duration::from_secs(5);
/// Bytes that a launcher may answer.
const LARGEST: u64 = 64 << 20;

/// Whom to ask.
#[derive(Debug)]
pub struct Props {
    /// Answers and dumps; processes of this host where nothing is named.
    pub files: Vec<PathBuf>,
    /// Print answers instead of judging them.
    pub answers: bool,
    /// JSON instead of text.
    pub json: bool,
    /// Hosts for the commands of `via`.
    pub hosts: Vec<String>,
    /// Commands that run `gpuwhy` elsewhere.
    pub via: Vec<String>,
}

/// Asks and prints; gives the exit code.
///
/// # Errors
///
/// When a file or a folder of sockets cannot be read, or standard output not be written.
pub fn run(props: &Props) -> Result<u8> {
    if props.answers {
        return print_answers();
    }
    let launchers = Launcher::all(&props.via, &props.hosts)?;
    let mut found = Witnesses::default();
    for path in expanded(&props.files)? {
        let of_file = if path == Path::new("-") { from_stdin()? } else { Witnesses::open(&path)? };
        found.witnesses.extend(of_file.witnesses);
        found.notes.extend(of_file.notes);
    }
    if props.files.is_empty() && launchers.is_empty() {
        let mut silent = Vec::new();
        local(|line, place| found.line(line, place), &mut silent);
        found.notes.extend(silent);
    }
    remote(launchers, &mut found);
    for note in &found.notes {
        message::say(&printable(note));
    }
    if found.witnesses.is_empty() {
        bail!(
            "no rank answers: no process of this user runs with gpuwhy here, or none has a rank. Ask where the ranks run \
             (--host, --via), or name files with their answers."
        );
    }
    let report = judge(&found.witnesses);
    let text = match props.json {
        true => terminal::json(&HangDocument::new(&report))?,
        false => report.text_within(terminal::style()),
    };
    io::stdout().write_all(text.as_bytes())?;
    Ok(if report.findings.is_empty() { 0 } else { WAITS })
}

/// Prints what processes of this host answer, a line each.
fn print_answers() -> Result<u8> {
    let (mut lines, mut silent) = (Vec::new(), Vec::new());
    local(|line, _| lines.push(printable_json(line).into_owned()), &mut silent);
    silent.iter().for_each(|why| message::say(why));
    let mut out = io::stdout().lock();
    lines.iter().try_for_each(|line| writeln!(out, "{line}"))?;
    Ok(if lines.is_empty() { FAILED } else { 0 })
}

/// Hands the answers of this host's processes to `take`, with where each is from.
fn local(mut take: impl FnMut(&str, &str), silent: &mut Vec<String>) {
    let (processes, refused) = processes();
    silent.extend(refused);
    for (process, socket) in processes {
        match ask(&socket, QUESTION) {
            Ok(Some((line, _))) => take(&line, &format!("process {process}")),
            Ok(None) => {}
            Err(error) => silent.push(format!("process {process} does not answer: {error}")),
        }
    }
}

/// Asks other hosts at once.
fn remote(launchers: Vec<Launcher>, found: &mut Witnesses) {
    let (sender, receiver) = channel();
    for launcher in launchers {
        let sender = sender.clone();
        thread::spawn(move || {
            let output = output_of(&launcher, &["hang", "--answers"]);
            // Nobody listens any more when the program ends.
            let _ = sender.send((launcher.host, output));
        });
    }
    drop(sender);
    for (host, output) in receiver {
        match output {
            Ok(text) => {
                for (number, line) in (1..).zip(text.lines()) {
                    found.line(line, &format!("{host}: line {number}"));
                }
            }
            Err(error) => found.notes.push(format!("{host}: {error:#}")),
        }
    }
}

/// What `gpuwhy` with these arguments prints on a host.
///
/// # Errors
///
/// When the launcher cannot be started, or prints nothing and does not end in time.
fn output_of(launcher: &Launcher, arguments: &[&str]) -> Result<String> {
    output_and_status_of(launcher, arguments).map(|(text, _)| text)
}

/// What `gpuwhy` with these arguments prints on a host, and whether it says that it succeeded.
///
/// # Errors
///
/// When the launcher cannot be started, or prints nothing and does not end in time.
pub fn output_and_status_of(launcher: &Launcher, arguments: &[&str]) -> Result<(String, bool)> {
    let mut command = launcher.command(arguments);
    let mut child = command.stdout(Stdio::piped()).spawn().with_context(|| format!("{command:?}"))?;
    let out = child.stdout.take().context("its output")?;
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut text = String::new();
        let read = out.take(LARGEST).read_to_string(&mut text);
        // As above.
        let _ = sender.send(read.map(|_| text));
    });
    let read = receiver.recv_timeout(PATIENCE);
    // Its output is closed, so it is about to end; one that closes it and goes on is not waited for.
    let ended = read.is_ok() && ends_within(&mut child, GRACE);
    let _ = child.kill();
    let status = child.wait();
    match read {
        Ok(text) => Ok((text?, ended && status.is_ok_and(|status| status.success()))),
        Err(_) => bail!("no answer within {} s", PATIENCE.as_secs()),
    }
}

fn ends_within(child: &mut Child, time: Duration) -> bool {
    let deadline = Instant::now() + time;
    while Instant::now() < deadline {
        if !matches!(child.try_wait(), Ok(None)) {
            return true;
        }
        thread::sleep(Duration::from_millis(10));
    }
    false
}

fn from_stdin() -> Result<Witnesses> {
    let mut bytes = Vec::new();
    io::stdin().take(LARGEST).read_to_end(&mut bytes).context("standard input")?;
    Ok(Witnesses::read(&bytes, "standard input", None)?)
}

/// Files, and those in folders, sorted.
fn expanded(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let entries = path.read_dir().with_context(|| path.display().to_string())?;
        let mut inside: Vec<PathBuf> =
            entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file()).collect();
        if inside.is_empty() {
            bail!("{}: the folder has no files", path.display());
        }
        inside.sort();
        files.append(&mut inside);
    }
    Ok(files)
}
