//! Tests a libcupti in a separate process.
//!
//! A broken installation may do anything. So `doctor` starts this hidden subcommand, which prints each
//! completed step on stdout immediately; the last line before a crash shows where it happened.

use std::env;
use std::io::{self, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use cupti_sys::counters::Counters;
use cupti_sys::counters::refusal::CounterError;
use cupti_sys::counters::sets::{self, Links};
use cupti_sys::library::Failure;
use cupti_sys::{Cupti, CuptiResult, FoundBy, ResourceHandler, Search};

use super::check;
use crate::args::PROBE_LIBCUPTI;

/// Time limit for the child. Without persistence mode the driver initializes at the first use, which takes
/// seconds for each GPU; a machine with eight GPUs stays well below this.
const PROBE_TIMEOUT: Duration = Duration::from_secs(60);

const LOADED: &str = "loaded";
const VERSION: &str = "version";
const SUBSCRIBED: &str = "subscribed";
const BUSY: &str = "busy";
const COUNTERS: &str = "counters";
const NO_COUNTERS: &str = "no-counters";
const ERROR: &str = "error";

/// No context is created, so context callbacks are ignored.
struct Ignore;

impl ResourceHandler for Ignore {
    fn context_created() {}
}

/// Child process: loads the library, queries its version, subscribes and unsubscribes. Fails when stdout is
/// closed.
pub fn run(libcupti: PathBuf) -> Result<u8> {
    let mut stdout = io::stdout();
    let mut say = |step: &str, value: &str| -> io::Result<()> {
        writeln!(stdout, "{step} {}", value.replace('\n', "; "))?;
        stdout.flush()
    };
    let cupti = match load(libcupti) {
        Ok(cupti) => cupti,
        Err((loaded, error)) => {
            if let Some(loaded) = loaded {
                say(LOADED, &loaded.display().to_string())?;
            }
            say(ERROR, &error)?;
            return Ok(check::FAILED);
        }
    };
    say(LOADED, &cupti.path().display().to_string())?;
    let outcome = cupti.version().and_then(|version| {
        // The write of the last line reports any failure.
        let _ = say(VERSION, &version.to_string());
        cupti.subscribe::<Ignore>()?.unsubscribe()
    });
    match outcome {
        Ok(()) => {
            say(SUBSCRIBED, "")?;
            // The counters come last: a problem there must not affect the other results.
            match counters(cupti) {
                Ok(found) => say(COUNTERS, &found)?,
                Err(why) => say(NO_COUNTERS, &why)?,
            }
        }
        Err(error) => {
            if error.code == CuptiResult::MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED {
                say(BUSY, "")?;
            }
            say(ERROR, &error.to_string())?;
            return Ok(check::FAILED);
        }
    }
    Ok(0)
}

/// Hardware counters of the first device that can be sampled, or the reason why none can. Takes no samples.
fn counters(cupti: &'static Cupti) -> Result<String, String> {
    const FIRST: u32 = 0;
    let counters = Counters::of(cupti);
    if !counters.can_sample() {
        return Err(CounterError::OldLibrary.to_string());
    }
    let refusal = |error: cupti_sys::Error| CounterError::of(&error).to_string();
    // Without this CUPTI returns UNKNOWN for all following calls (H100, CUPTI 13.0).
    if !cupti_sys::initialize_driver() {
        return Err("the driver does not initialize; see the other lines".to_owned());
    }
    counters.initialize().map_err(refusal)?;
    counters.sampling_availability(FIRST).map_err(refusal)?;
    let chip = counters.chip_name(FIRST).map_err(refusal)?;
    if let Some((library, problem)) = counters.missing_library() {
        return Err(format!("{}: {problem}; install the whole nvidia-cuda-cupti package", library.display()));
    }
    let links = Links { pcie: true, nvlink: true, engine: false };
    match sets::choose(counters, &chip, links) {
        Ok(Some(set)) => Ok(format!("of {chip}: {} quantities in one pass, free and permitted", set.quantities.len())),
        Ok(None) | Err(_) => Err(CounterError::NoMetrics.to_string()),
    }
}

/// Loads only this file: after an override fails, the usual search continues, and its success would be
/// meaningless here. An error comes with the file if that was loaded and only the driver is missing.
fn load(path: PathBuf) -> Result<&'static Cupti, (Option<PathBuf>, String)> {
    let search = Search { override_path: Some(path.clone()), ..Search::default() };
    match Cupti::load(&search) {
        Ok(cupti) if *cupti.found_by() == FoundBy::Override => Ok(cupti),
        Ok(cupti) => Err((None, format!("cannot be loaded, while {} can", cupti.path().display()))),
        Err(error) => {
            let named = error.tried.into_iter().find(|(candidate, _)| candidate.found_by == FoundBy::Override);
            let failure = named.map(|(_, failure)| failure);
            let loaded = matches!(failure, Some(Failure::NoDriver(_))).then_some(path);
            Err((loaded, failure.map_or_else(|| "cannot be loaded".to_owned(), |failure| failure.to_string())))
        }
    }
}

/// Steps that the child completed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ProbeResult {
    /// Path of the mapped file.
    pub loaded: Option<String>,
    /// CUPTI's API version.
    pub version: Option<String>,
    /// True if subscribing to CUPTI succeeded.
    pub subscribed: bool,
    /// True if another profiler is subscribed.
    pub busy: bool,
    /// Hardware counters that can be sampled, or the reason why none can; `None` when this was not tested.
    pub counters: Option<Result<String, String>>,
    /// Error message.
    pub error: Option<String>,
}

/// Parent process: probes `libcupti` in a child process. Fails when the child cannot be started.
pub fn probe(libcupti: &Path) -> Result<ProbeResult> {
    let program = env::current_exe().context("cannot find this program")?;
    let mut child = Command::new(&program)
        .arg(PROBE_LIBCUPTI)
        .arg(libcupti)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot start {}", program.display()))?;
    let deadline = Instant::now() + PROBE_TIMEOUT;
    let status = loop {
        match child.try_wait().context("cannot wait for the child")? {
            Some(status) => break Some(status),
            None if Instant::now() >= deadline => {
                child.kill().context("cannot end the child")?;
                child.wait().context("cannot wait for the child")?;
                break None;
            }
            None => thread::sleep(Duration::from_millis(5)),
        }
    };
    // The output is a few lines and fits the pipe, so the child never blocked on it.
    let mut text = String::new();
    if let Some(mut stdout) = child.stdout.take() {
        stdout.read_to_string(&mut text).context("cannot read from the child")?;
    }
    Ok(interpret(&text, status))
}

/// Derives the outcome from the child's output. `status` is `None` for a child that was killed after the time
/// limit.
fn interpret(text: &str, status: Option<ExitStatus>) -> ProbeResult {
    let mut outcome = ProbeResult::default();
    for line in text.lines() {
        let (step, value) = line.split_once(' ').unwrap_or((line, ""));
        match step {
            LOADED => outcome.loaded = Some(value.to_owned()),
            VERSION => outcome.version = Some(value.to_owned()),
            SUBSCRIBED => outcome.subscribed = true,
            BUSY => outcome.busy = true,
            COUNTERS => outcome.counters = Some(Ok(value.to_owned())),
            NO_COUNTERS => outcome.counters = Some(Err(value.to_owned())),
            ERROR => outcome.error = Some(value.to_owned()),
            _ => {}
        }
    }
    let last = text.lines().last().map_or("the first line", |line| line.split(' ').next().unwrap_or(line));
    match status {
        None => outcome.error = Some(format!("no answer for {} s after \"{last}\"", PROBE_TIMEOUT.as_secs())),
        Some(status) => {
            if let Some(signal) = status.signal().filter(|_| outcome.subscribed) {
                // All but the counters works.
                let other = gpuwhy_report::cupti::remedy(outcome.loaded.as_deref().unwrap_or_default());
                let why =
                    format!("CUPTI crashed with signal {signal} when asked for them; another one may not: {other}");
                outcome.counters = Some(Err(why));
            } else if let Some(signal) = status.signal() {
                outcome.error = Some(format!("crashed with signal {signal} after \"{last}\""));
            } else if !status.success() && outcome.error.is_none() {
                outcome.error = Some(format!("ended with {status} after \"{last}\""));
            }
        }
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn success_is_understood() {
        let outcome =
            interpret("loaded /x/libcupti.so.13\nversion 130001\nsubscribed \n", Some(ExitStatus::from_raw(0)));
        assert_eq!(outcome.loaded.as_deref(), Some("/x/libcupti.so.13"));
        assert_eq!(outcome.version.as_deref(), Some("130001"));
        assert!(outcome.subscribed);
        assert_eq!(outcome.error, None);
    }

    #[test]
    fn a_crash_names_the_signal_and_the_last_step() {
        let outcome = interpret("loaded /x/libcupti.so.13\n", Some(ExitStatus::from_raw(11)));
        let error = outcome.error.unwrap();
        assert!(error.contains("signal 11") && error.contains("loaded"), "{error}");
        assert!(!outcome.subscribed);
    }

    #[test]
    fn counters_are_free_or_refused_and_a_crash_over_them_spares_the_rest() {
        let rest = "loaded /x\nversion 1\nsubscribed \n";
        let of = |last: &str, status| interpret(&format!("{rest}{last}"), Some(ExitStatus::from_raw(status))).counters;
        assert_eq!(of("counters of GH100: 12\n", 0), Some(Ok("of GH100: 12".into())));
        assert_eq!(of("no-counters busy; end it\n", 0), Some(Err("busy; end it".into())));
        let crashed = interpret(rest, Some(ExitStatus::from_raw(11)));
        assert!(crashed.error.is_none() && crashed.counters.unwrap().unwrap_err().contains("signal 11"));
    }

    #[test]
    fn a_hanging_child_is_an_error() {
        assert!(interpret("", None).error.unwrap().contains("no answer"));
    }

    #[test]
    fn an_error_of_the_library_is_kept() {
        let outcome = interpret("busy \nerror cuptiSubscribe answered 39\n", Some(ExitStatus::from_raw(256)));
        assert!(outcome.busy);
        assert_eq!(outcome.error.as_deref(), Some("cuptiSubscribe answered 39"));
        // An exit without output, for example by the dynamic loader.
        assert!(interpret("", Some(ExitStatus::from_raw(127 << 8))).error.unwrap().contains("127"));
    }
}
