//! `gpuwhy lake follow`: adds running programs to a lake, from the traces that they write on this node.
//!
//! The programs are not asked and not disturbed: only their files are read. A thread follows each trace; this one looks
//! for new traces, and names what they handed over once an interval.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result, bail};
use gpuwhy_export::lake::{Followed, Lake, LiveLake};
use gpuwhy_export::{ExportError, TraceFile};
use parking_lot::Mutex;

use super::INCOMPLETE;
use crate::{interrupt, message};

/// Traces that are followed at a time: a node has one for each GPU, and some more.
const MAX_TRACES: usize = 64;
/// How soon Ctrl-C and the end of a trace are noticed.
const TICK: Duration = Duration::from_millis(100);
/// Between two looks for new traces, and between the begin of an interval and its part: traces that grow hand over
/// what is final within that time.
const LOOK: Duration = Duration::from_secs(1);
/// A process that is gone may have written until now; what its file does not get for so long will not come.
const SILENCE: Duration = Duration::from_secs(10);
/// A file that is no trace after so long is told.
const BEGINNING: Duration = Duration::from_secs(60);

/// What to follow.
#[derive(Debug)]
pub struct Props {
    /// Folders with traces, or traces.
    pub traces: Vec<PathBuf>,
    /// The folder of the lake.
    pub to: PathBuf,
    /// Time between two parts.
    pub every: Duration,
    /// Add what there is, and end.
    pub once: bool,
    /// The run that all traces belong to.
    pub run: Option<String>,
    /// Whether command lines are kept.
    pub with_command: bool,
}

/// Follows until it is interrupted, and answers with the exit code.
///
/// # Errors
///
/// When a folder cannot be read, the lake cannot be written, or another process follows into it.
pub fn run(props: &Props) -> Result<u8> {
    for path in &props.traces {
        fs::metadata(path).with_context(|| format!("{}: cannot be read", path.display()))?;
    }
    if props.to.exists() && !props.to.is_dir() {
        bail!("{}: this is no folder, and a lake is one", props.to.display());
    }
    let host = host();
    let _lock = Lock::take(&props.to, &host)?;
    interrupt::watch()?;
    let live = LiveLake::new(Lake::new(&props.to), props.run.clone(), props.with_command, &host);
    let stops = AtomicBool::new(false);
    let node = thread::scope(|scope| {
        let mut node = Node::new(scope, props, &live, &host, &stops);
        let ran = node.run();
        // Whatever went wrong, the threads end.
        stops.store(true, Ordering::Relaxed);
        ran.map(|()| (node.files, node.steps, node.processes.len(), node.faults))
    });
    let (files, steps, processes, faults) = node?;
    message::note(&format!("{}: {steps} steps of {processes} processes in {files} files", props.to.display()));
    Ok(if faults > 0 { INCOMPLETE } else { 0 })
}

/// A trace whose thread has ended before the trace has.
#[derive(Clone, Copy, PartialEq)]
struct Parked {
    /// Its size then: it is followed again when it grows.
    bytes: u64,
}

type Following<'scope> = ScopedJoinHandle<'scope, Result<Followed, ExportError>>;

/// The traces of this node.
struct Node<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    props: &'env Props,
    live: &'env LiveLake,
    host: &'env str,
    stops: &'env AtomicBool,
    followed: BTreeMap<PathBuf, Following<'scope>>,
    /// Files that need no thread; `None`: for good.
    done: BTreeMap<PathBuf, Option<Parked>>,
    /// Ended traces whose files still have the names of running ones.
    ended: Vec<Followed>,
    processes: BTreeSet<(String, u32)>,
    files: usize,
    steps: u64,
    faults: u64,
}

impl<'scope, 'env> Node<'scope, 'env> {
    fn new(
        scope: &'scope Scope<'scope, 'env>,
        props: &'env Props,
        live: &'env LiveLake,
        host: &'env str,
        stops: &'env AtomicBool,
    ) -> Self {
        let (followed, done, ended, processes) = Default::default();
        Self { scope, props, live, host, stops, followed, done, ended, processes, files: 0, steps: 0, faults: 0 }
    }

    /// Until it is interrupted, or all is read and it is to happen once.
    fn run(&mut self) -> Result<()> {
        let mut due = Instant::now() + self.props.every;
        let (mut named, mut looked): (Option<Instant>, Option<Instant>) = (None, None);
        while interrupt::state().is_continue() {
            if looked.is_none_or(|at| at.elapsed() >= LOOK) {
                looked = Some(Instant::now());
                let waiting = self.look()?;
                if self.props.once && self.followed.is_empty() && waiting == 0 {
                    break;
                }
            }
            self.collect()?;
            if Instant::now() >= due {
                due += self.props.every;
                self.live.next_interval();
                named = Some(Instant::now() + LOOK);
            }
            if named.is_some_and(|at| Instant::now() >= at) {
                named = None;
                self.publish()?;
            }
            thread::sleep(TICK);
        }
        self.stops.store(true, Ordering::Relaxed);
        while !self.followed.is_empty() {
            thread::sleep(TICK);
            self.collect()?;
        }
        self.publish()
    }

    /// Begins to follow new traces; answers how many have to wait.
    fn look(&mut self) -> Result<usize> {
        let mut waiting = 0;
        for path in traces(&self.props.traces)? {
            let Ok(metadata) = fs::metadata(&path) else { continue };
            let known = self.done.get(&path).is_some_and(|parked| parked.is_none_or(|at| at.bytes == metadata.len()));
            if known || self.followed.contains_key(&path) {
                continue;
            }
            if self.followed.len() >= MAX_TRACES {
                waiting += 1;
                continue;
            }
            match TraceFile::open(&path) {
                Ok(trace) => self.follow(path, trace.session().process_id, trace.session().host == self.host),
                Err(error) => {
                    let age = metadata.modified().ok().and_then(|at| SystemTime::now().duration_since(at).ok());
                    if age.is_some_and(|age| age > BEGINNING) || self.props.once {
                        message::say(&error.to_string());
                        self.faults += 1;
                        self.done.insert(path, None);
                    }
                }
            }
        }
        Ok(waiting)
    }

    fn follow(&mut self, path: PathBuf, process: u32, is_here: bool) {
        let (live, stops, once) = (self.live, self.stops, self.props.once);
        let place = path.clone();
        let thread = self.scope.spawn(move || {
            let silent = Mutex::new((0, Instant::now()));
            // Of processes of other hosts nobody knows here.
            let is_gone = || is_here && !Path::new(&format!("/proc/{process}")).exists();
            let is_over = || {
                let bytes = fs::metadata(&place).map_or(0, |metadata| metadata.len());
                let mut silent = silent.lock();
                if silent.0 != bytes {
                    *silent = (bytes, Instant::now());
                }
                is_gone() && (once || silent.1.elapsed() >= SILENCE)
            };
            let more = || match once || stops.load(Ordering::Relaxed) || is_over() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            };
            live.follow(&place, more, is_over)
        });
        tracing::info!(file = %path.display(), process, "followed");
        self.followed.insert(path, thread);
    }

    /// Takes what threads that have ended have done.
    fn collect(&mut self) -> Result<()> {
        let over = |(path, thread): (&PathBuf, &Following<'_>)| thread.is_finished().then(|| path.clone());
        let over: Vec<PathBuf> = self.followed.iter().filter_map(over).collect();
        for path in over {
            let Some(thread) = self.followed.remove(&path) else { continue };
            let outcome = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            let followed = match outcome {
                Ok(followed) => followed,
                Err(error) if error.is_of_trace() => {
                    message::say(&error.to_string());
                    self.faults += 1;
                    self.done.insert(path, None);
                    continue;
                }
                // The lake: what was handed over may be lost, and is there again when somebody follows anew.
                Err(error) => return Err(error.into()),
            };
            for note in &followed.notes {
                message::say(&format!("{}: {note}", path.display()));
                self.faults += 1;
            }
            let bytes = fs::metadata(&path).map_or(0, |metadata| metadata.len());
            self.done.insert(path, if followed.complete { None } else { Some(Parked { bytes }) });
            if followed.known {
                continue;
            }
            self.steps += followed.steps;
            self.processes.insert((followed.label.run.clone(), followed.label.rank));
            if followed.complete {
                self.ended.push(followed);
            }
        }
        Ok(())
    }

    /// Names what was handed over, and then the files of those that have ended.
    fn publish(&mut self) -> Result<()> {
        let ended = std::mem::take(&mut self.ended);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.files += self.live.publish(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX))?.len();
        for followed in ended {
            self.live.complete(&followed)?;
        }
        Ok(())
    }
}

/// The traces of gpuwhy in these folders, in the order of their names. Folders within a folder are not entered.
fn traces(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let failed = || format!("{}: cannot read this folder", path.display());
        for entry in fs::read_dir(path).with_context(failed)? {
            let entry = entry.with_context(failed)?;
            let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
            if is_file && entry.file_name().to_string_lossy().ends_with(".gpuwhy") {
                files.push(entry.path());
            }
        }
    }
    files.sort();
    Ok(files)
}

fn host() -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    host.trim().to_owned()
}

/// Keeps a second process of this host from writing the same rows.
struct Lock {
    path: PathBuf,
}

impl Lock {
    fn take(lake: &Path, host: &str) -> Result<Self> {
        fs::create_dir_all(lake).with_context(|| lake.display().to_string())?;
        let path = lake.join(format!(".gpuwhy-follow-{}", host.replace('/', "_")));
        let failed = || path.display().to_string();
        if let Ok(text) = fs::read_to_string(&path) {
            let running = text.trim().parse::<u32>().ok().filter(|id| Path::new(&format!("/proc/{id}")).exists());
            if let Some(running) = running {
                bail!(
                    "{}: process {running} of this host writes to this lake already; end it first, or remove this file if \
                     it is no gpuwhy lake follow",
                    path.display()
                );
            }
            // Of one that was killed.
            fs::remove_file(&path).with_context(failed)?;
        }
        let mut file = fs::OpenOptions::new().write(true).create_new(true).open(&path).with_context(failed)?;
        writeln!(file, "{}", process::id()).with_context(failed)?;
        Ok(Self { path })
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Somebody may have removed it; a stale one is recognized.
        let _ = fs::remove_file(&self.path);
    }
}
