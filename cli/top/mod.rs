//! `gpuwhy top`: current state and bottlenecks of this user's programs.
//!
//! Reading order: `answer` (the response of a process), `process` (a process over time), `dashboard` (the state
//! of the display and the actions of keys), `view` (drawing), `screen` (the terminal); `source`, `remote` and
//! `playback` (the sources of responses); `lines` (the same without a terminal).

mod answer;
mod dashboard;
mod lines;
mod playback;
mod process;
pub mod remote;
mod screen;
mod source;
mod view;

use std::env;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use anyhow::{Context as _, Result, anyhow, bail};
use gpuwhy_inject::control::address::ProcessName;
use gpuwhy_report::state::sanitized;
use serde_json::Value;

use self::dashboard::{Action, Dashboard, REPORT, Update};
use self::playback::Steering;
use self::process::ProcessKey;
use self::remote::Running;
use self::source::SourceEvent;
use crate::args::top::TopArgs;
use crate::remote::Launcher;
use crate::{control, interrupt, terminal};

/// Exit code when a trace cannot be read, or the terminal cannot be used.
pub const FAILED: u8 = 1;
/// Width of the table when standard output is not a terminal.
const WIDTH: usize = 120;

/// Runs the display, and returns the exit code. Fails when a trace cannot be read, options do not fit
/// together, or the output cannot be written.
pub fn run(args: &TopArgs) -> Result<u8> {
    let launchers = Launcher::all(&args.via, &args.hosts)?;
    if let Some(trace) = args.trace() {
        if args.targets.len() > 1 || args.report {
            bail!("expected process ids, or one trace; `gpuwhy report` prints the report of a trace");
        }
        if trace.is_dir() {
            bail!("{}: this is a folder; name one trace in it", trace.display());
        }
        if !launchers.is_empty() {
            bail!("a trace is played back here: leave --host and --via out");
        }
    }
    let running = Running::default();
    let outcome = match () {
        () if args.report => args.processes().into_iter().try_for_each(|id| control::send(id, REPORT).map(drop)),
        () if args.follow => follow(args, launchers, &running),
        () if args.json => once(args, &launchers, &running).and_then(lines::json),
        () if args.once || !screen::is_there() => once(args, &launchers, &running)
            .and_then(|events| lines::table(events, terminal::columns().map_or(WIDTH, usize::from))),
        () => display(args, launchers, &running),
    };
    running.end();
    outcome.map(|()| interrupt::exit_code().unwrap_or(0))
}

/// One response of each of this host's processes, or of those in `only`, as `gpuwhy top --json` prints it; and
/// errors and notes in sentences.
pub fn responses(only: &[ProcessName]) -> (Vec<Value>, Vec<String>) {
    lines::responses(source::once(only))
}

/// One response of each process; for a trace, its last state.
fn once(args: &TopArgs, launchers: &[Launcher], running: &Running) -> Result<Vec<SourceEvent>> {
    if let Some(trace) = args.trace() {
        return Ok(vec![playback::end(trace)?]);
    }
    let mut events = if is_local(args, launchers) { source::once(&args.processes()) } else { Vec::new() };
    thread::scope(|scope| {
        let hosts: Vec<_> = launchers.iter().map(|launcher| scope.spawn(|| remote::once(launcher, running))).collect();
        events.extend(hosts.into_iter().filter_map(|host| host.join().ok()).flatten());
    });
    let is_there =
        |event: &SourceEvent| matches!(event, SourceEvent::Answer(..) | SourceEvent::Update(Update::Silent(..)));
    if let [first, ..] = args.processes()[..]
        && !events.iter().any(is_there)
    {
        return Err(control::no_such_process(first));
    }
    Ok(events)
}

fn follow(args: &TopArgs, launchers: Vec<Launcher>, running: &Running) -> Result<()> {
    interrupt::watch()?;
    let (sender, events) = channel();
    let steering = Steering::default();
    if let Some(trace) = args.trace() {
        let play = {
            let (trace, speed, interval, steering) = (trace.to_owned(), args.speed, args.interval, steering.clone());
            thread::spawn(move || playback::play(&trace, speed, interval, sender, &steering))
        };
        let printed = lines::follow(&events);
        steering.stopped.store(true, Ordering::Relaxed);
        let played = play.join().map_err(|_| anyhow!("the playback has panicked"))?;
        return printed.and(played);
    }
    if let [first, ..] = args.processes()[..]
        && launchers.is_empty()
        && args.processes().into_iter().all(|process| source::socket(process).is_none())
    {
        return Err(control::no_such_process(first));
    }
    begin(args, launchers, running, sender);
    lines::follow(&events)
}

fn display(args: &TopArgs, launchers: Vec<Launcher>, running: &Running) -> Result<()> {
    let (sender, events) = channel();
    let steering = Steering::default();
    let mut dashboard = match args.trace() {
        Some(trace) => {
            // Before the display takes over the screen, so that an error is a line on an ordinary terminal.
            drop(gpuwhy_import::TraceFile::open(trace)?);
            let name = trace.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let speed = if args.speed == 1.0 { String::new() } else { format!(" at {}x", args.speed) };
            Dashboard::new(sanitized(&format!("playing {name}{speed}")), true)
        }
        None => {
            let mut hosts: Vec<_> = launchers.iter().map(|launcher| launcher.host.clone()).collect();
            if is_local(args, &launchers) {
                hosts.insert(0, "this host".to_owned());
            }
            Dashboard::new(sanitized(&hosts.join(", ")), false)
        }
    };
    let known = launchers.clone();
    match args.trace() {
        Some(trace) => {
            let (trace, speed, interval, steering) = (trace.to_owned(), args.speed, args.interval, steering.clone());
            let sender = sender.clone();
            thread::spawn(move || {
                if let Err(error) = playback::play(&trace, speed, interval, sender.clone(), &steering) {
                    let _ = sender.send(SourceEvent::Update(Update::Note(format!("{error:#}"))));
                }
            });
        }
        None => begin(args, launchers, running, sender.clone()),
    }
    let pause = steering.clone();
    let shown = screen::show(&mut dashboard, &events, move |action| match action {
        Action::Pause(paused) => pause.paused.store(paused, Ordering::Relaxed),
        action => act(action, &known, &sender),
    });
    steering.stopped.store(true, Ordering::Relaxed);
    shown
}

/// True if processes of this host are shown: always, unless only other hosts are requested.
fn is_local(args: &TopArgs, launchers: &[Launcher]) -> bool {
    launchers.is_empty() || !args.processes().is_empty()
}

/// Starts the sources.
fn begin(args: &TopArgs, launchers: Vec<Launcher>, running: &Running, events: Sender<SourceEvent>) {
    let interval = args.interval;
    if is_local(args, &launchers) {
        let (events, only) = (events.clone(), args.processes());
        thread::spawn(move || source::watch(events, interval, only));
    }
    for launcher in launchers {
        let (events, running) = (events.clone(), running.clone());
        thread::spawn(move || remote::watch(&launcher, interval, &events, &running));
    }
}

/// Performs the action of a key on a separate thread. The result is an update.
fn act(action: Action, launchers: &[Launcher], events: &Sender<SourceEvent>) {
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
        let reported = match launcher {
            Some(launcher) => {
                let mut words: Vec<_> = arguments.iter().map(String::as_str).collect();
                if words[0] == REPORT {
                    words.splice(..1, ["top", "--report"]);
                }
                output(launcher.command(&words))
            }
            None => here(&key, &arguments),
        };
        let update = match reported {
            Ok(text) if arguments[0] == REPORT => Update::Page(format!("report of {key}"), text),
            Ok(text) => Update::Done(text.lines().last().unwrap_or_default().to_owned()),
            Err(error) => Update::Done(format!("{error:#}")),
        };
        let _ = events.send(SourceEvent::Update(update));
    });
}

/// Runs a command for a process of this host, or writes the page of its trace.
fn here(key: &ProcessKey, arguments: &[String]) -> Result<String> {
    if let [_, _, trace] = arguments {
        return page(Path::new(trace));
    }
    let process: ProcessName = key.process.parse().map_err(|why: &str| anyhow!(why))?;
    let socket = source::socket(process).with_context(|| format!("process {process} has ended"))?;
    control::send_command(process, &socket, &arguments[0])
}

/// Writes the page of a trace, and opens it if there is a display, like `gpuwhy report --open`.
fn page(trace: &Path) -> Result<String> {
    let mut command = Command::new(env::current_exe().context("cannot find this program")?);
    command.args(["report", "--open"]).arg(trace).stdin(Stdio::null());
    output(command).map(|path| format!("page: {}", path.lines().next().unwrap_or_default()))
}

/// Output of a command, or its stderr if the output is empty.
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
