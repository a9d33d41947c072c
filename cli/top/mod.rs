//! `gpuwhy top`: what this user's programs do now, and why they are not faster.
//!
//! Reading order: `answer` (what a process says), `process` (one of them over time), `board` (what is shown, and what
//! keys do), `view` (how it looks), `screen` (the terminal); `source`, `remote` and `playback` (where answers come
//! from); `lines` (the same without a terminal).

mod answer;
mod board;
mod lines;
mod playback;
mod process;
pub mod remote;
mod screen;
mod source;
mod view;

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use gpuwhy_inject::control::address::Process as ProcessName;

use self::board::{Action, Board, REPORT, Update};
use self::playback::Steering;
use self::process::Key;
use self::remote::{Launcher, Running};
use self::source::Event;
use crate::{control, interrupt, terminal};

/// Exit code when a trace cannot be read, or the terminal not be used.
pub const FAILED: u8 = 1;
/// Width of the table where standard output is no terminal.
const WIDTH: usize = 120;

/// What to look at.
#[derive(Debug)]
pub struct Props {
    /// Processes of this host; all where none is named.
    pub processes: Vec<ProcessName>,
    /// A trace that is played back instead.
    pub trace: Option<PathBuf>,
    /// How many times as fast as it ran.
    pub speed: f64,
    /// Time between two answers.
    pub interval: Duration,
    /// Commands that run `gpuwhy` elsewhere, and hosts for them.
    pub via: Vec<String>,
    pub hosts: Vec<String>,
    /// How it is shown.
    pub show: Show,
}

/// How it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    /// On the terminal, or once where there is none.
    Terminal,
    /// As a table, once.
    Once,
    /// As lines of JSON, once.
    Json,
    /// As lines of JSON, again and again.
    Follow,
    /// As the report of each process so far.
    Report,
}

/// Shows it, and answers with the exit code.
///
/// # Errors
///
/// When a trace cannot be read, options do not fit together, or the output cannot be written.
pub fn run(props: &Props) -> Result<u8> {
    let launchers = Launcher::all(&props.via, &props.hosts)?;
    let show = match props.show {
        Show::Terminal if !screen::is_there() => Show::Once,
        show => show,
    };
    let running = Running::default();
    let outcome = match show {
        Show::Once | Show::Json => once(props, &launchers, &running).and_then(|events| match show {
            Show::Json => lines::json(events),
            _ => lines::table(events, terminal::columns().map_or(WIDTH, usize::from)),
        }),
        Show::Follow => follow(props, launchers, &running),
        Show::Report => props.processes.iter().try_for_each(|process| control::tell(*process, REPORT).map(drop)),
        Show::Terminal => display(props, launchers, &running),
    };
    running.end();
    outcome.map(|()| interrupt::exit_code().unwrap_or(0))
}

/// One answer of each process; of a trace its last one.
fn once(props: &Props, launchers: &[Launcher], running: &Running) -> Result<Vec<Event>> {
    if let Some(trace) = &props.trace {
        return Ok(vec![playback::end(trace)?]);
    }
    let mut events = if is_local(props, launchers) { source::once(&props.processes) } else { Vec::new() };
    thread::scope(|scope| {
        let hosts: Vec<_> = launchers.iter().map(|launcher| scope.spawn(|| remote::once(launcher, running))).collect();
        events.extend(hosts.into_iter().filter_map(|host| host.join().ok()).flatten());
    });
    let is_there = |event: &Event| matches!(event, Event::Answer(..) | Event::Update(Update::Silent(..)));
    if let [first, ..] = props.processes[..]
        && !events.iter().any(is_there)
    {
        return Err(control::nobody(first));
    }
    Ok(events)
}

fn follow(props: &Props, launchers: Vec<Launcher>, running: &Running) -> Result<()> {
    interrupt::watch()?;
    let (sender, events) = channel();
    let steering = Steering::default();
    if let Some(trace) = &props.trace {
        let play = {
            let (trace, speed, interval, steering) = (trace.clone(), props.speed, props.interval, steering.clone());
            thread::spawn(move || playback::play(&trace, speed, interval, sender, &steering))
        };
        let printed = lines::follow(&events);
        steering.stopped.store(true, Ordering::Relaxed);
        let played = play.join().map_err(|_| anyhow!("the playback has panicked"))?;
        return printed.and(played);
    }
    if let [first, ..] = props.processes[..]
        && launchers.is_empty()
        && props.processes.iter().all(|process| source::socket(*process).is_none())
    {
        return Err(control::nobody(first));
    }
    begin(props, launchers, running, sender);
    lines::follow(&events)
}

fn display(props: &Props, launchers: Vec<Launcher>, running: &Running) -> Result<()> {
    let (sender, events) = channel();
    let steering = Steering::default();
    let mut board = match &props.trace {
        Some(trace) => {
            // Before the screen is taken: an error is a line on an ordinary terminal.
            drop(gpuwhy_import::TraceFile::open(trace)?);
            let name = trace.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let speed = if props.speed == 1.0 { String::new() } else { format!(" at {}x", props.speed) };
            Board::new(answer::harmless(&format!("playing {name}{speed}")), true)
        }
        None => {
            let mut hosts: Vec<_> = launchers.iter().map(|launcher| launcher.host.clone()).collect();
            if is_local(props, &launchers) {
                hosts.insert(0, "this host".to_owned());
            }
            Board::new(answer::harmless(&hosts.join(", ")), false)
        }
    };
    let known = launchers.clone();
    match &props.trace {
        Some(trace) => {
            let (trace, speed, interval, steering) = (trace.clone(), props.speed, props.interval, steering.clone());
            let sender = sender.clone();
            thread::spawn(move || {
                if let Err(error) = playback::play(&trace, speed, interval, sender.clone(), &steering) {
                    let _ = sender.send(Event::Update(Update::Note(format!("{error:#}"))));
                }
            });
        }
        None => begin(props, launchers, running, sender.clone()),
    }
    let pause = steering.clone();
    let shown = screen::show(&mut board, &events, move |action| match action {
        Action::Pause(paused) => pause.paused.store(paused, Ordering::Relaxed),
        action => act(action, &known, &sender),
    });
    steering.stopped.store(true, Ordering::Relaxed);
    shown
}

/// Whether processes of this host are shown: always, unless other hosts alone are asked for.
fn is_local(props: &Props, launchers: &[Launcher]) -> bool {
    launchers.is_empty() || !props.processes.is_empty()
}

/// Starts the sources.
fn begin(props: &Props, launchers: Vec<Launcher>, running: &Running, events: Sender<Event>) {
    let interval = props.interval;
    if is_local(props, &launchers) {
        let (events, only) = (events.clone(), props.processes.clone());
        thread::spawn(move || source::watch(events, interval, only));
    }
    for launcher in launchers {
        let (events, running) = (events.clone(), running.clone());
        thread::spawn(move || remote::watch(&launcher, interval, &events, &running));
    }
}

/// Does what a key asked for, on a thread of its own; what comes of it is an update.
fn act(action: Action, launchers: &[Launcher], events: &Sender<Event>) {
    let (key, arguments) = match action {
        Action::Tell(key, command) => {
            let process = key.process.clone();
            (key, vec![command.to_owned(), process])
        }
        Action::Page(key, trace) => (key, vec!["report".to_owned(), "--open".to_owned(), trace]),
        Action::Quit | Action::Pause(_) => return,
    };
    let launcher = launchers.iter().find(|launcher| launcher.host == key.host).cloned();
    let events = events.clone();
    thread::spawn(move || {
        let told = match launcher {
            Some(launcher) => {
                let mut words: Vec<_> = arguments.iter().map(String::as_str).collect();
                if words[0] == REPORT {
                    words.splice(..1, ["top", "--report"]);
                }
                output(launcher.command(&words))
            }
            None => here(&key, &arguments),
        };
        let update = match told {
            Ok(text) if arguments[0] == REPORT => Update::Page(format!("report of {key}"), text),
            Ok(text) => Update::Done(text.lines().last().unwrap_or_default().to_owned()),
            Err(error) => Update::Done(format!("{error:#}")),
        };
        let _ = events.send(Event::Update(update));
    });
}

/// A command for a process of this host, or the page of its trace.
fn here(key: &Key, arguments: &[String]) -> Result<String> {
    if let [_, _, trace] = arguments {
        return page(Path::new(trace));
    }
    let process: ProcessName = key.process.parse().map_err(|why: &str| anyhow!(why))?;
    let socket = source::socket(process).with_context(|| format!("process {process} has ended"))?;
    control::told(process, &socket, &arguments[0])
}

/// Writes the page of a trace, and opens it where there is a display: what `gpuwhy report --open` does.
fn page(trace: &Path) -> Result<String> {
    let mut command = Command::new(env::current_exe().context("cannot find this program")?);
    command.args(["report", "--open"]).arg(trace).stdin(Stdio::null());
    output(command).map(|path| format!("page: {}", path.lines().next().unwrap_or_default()))
}

/// What a command prints; its complaint where that is nothing.
fn output(mut command: Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("cannot start {name}"))?;
    let (text, complaint) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if text.trim().is_empty() {
        let last = complaint.lines().last().unwrap_or_default();
        return Err(anyhow!("{name}: {}: {last}", output.status));
    }
    Ok(text.into_owned())
}
