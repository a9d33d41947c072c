//! `gpuwhy doctor --calibrate`: measures the overhead of tracing on this machine and saves it for the
//! reports.
//!
//! A dedicated program ([`program`]) runs in child processes, alternately without and with `libprof.so`. The
//! difference in time is the overhead, measured separately for each kind of call and gap.

mod driver;
mod file;
mod prices;
pub mod program;

use std::env;
use std::fmt::Write as _;
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::{Context, Result, bail};
use gpuwhy_inject::config;
use gpuwhy_report::run::Report;
use gpuwhy_trace::cost::Prices;
use gpuwhy_trace::cost::calibration::{Entry, Machine, processor_in};
use gpuwhy_trace::cost::prices::NAMES;

use self::prices::{Round, Samples};
use crate::args::CALIBRATION_PROGRAM;
use crate::install_paths::{self, INJECTION, NVTX_INJECTION};

/// Number of pairs of an untraced and a traced run.
const ROUNDS: usize = 3;
/// Time limit for one run. Starting CUDA takes some seconds on a machine with many GPUs.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Descriptions of the overheads, in the order of [`NAMES`].
const MEANINGS: [&str; NAMES.len()] = [
    "launch of a kernel in a row",
    "launch of a kernel after other work",
    "launch of a CUDA graph",
    "each operation in a launched graph",
    "copy or memset",
    "other recorded call",
    "GPU, before a queued kernel",
    "GPU, between kernels of a graph",
    "GPU, at a memset of a graph",
    "GPU, before a queued copy",
];

/// Measures, saves and prints the overhead table. Fails when there is no GPU, when the calibration file is
/// invalid or cannot be written, or when a run fails.
pub fn run(cupti: Option<&Path>, json: bool) -> Result<u8> {
    let path = file::path()?;
    // Report an invalid file before spending time on measurements.
    file::read(&path)?;
    let library = install_paths::library()?;
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let trace = folder.path().join("calibration.gpuwhy");
    let bare = || child(&mut command()?, cupti);
    let traced = || {
        let mut command = command()?;
        command.env(INJECTION, &library).env(config::OUTPUT, &trace).env(config::REPORT, "off");
        child(&mut command, cupti)
    };
    let mut rounds = Vec::new();
    for round in 0..ROUNDS {
        // The order alternates, so that a machine that becomes slower does not bias the overhead.
        let first = if round % 2 == 0 { Some(bare()?) } else { None };
        let traced = traced()?;
        let bare = match first {
            Some(samples) => samples,
            None => bare()?,
        };
        rounds.push(Round { bare, traced });
    }
    let entry = entry(&trace, &rounds)?;
    let text = if json { as_json(&path, &entry)? } else { as_text(&path, &entry) };
    file::add(&path, entry)?;
    io::stdout().write_all(text.as_bytes())?;
    Ok(0)
}

/// Command for the program, without environment variables that would change the measurement.
fn command() -> Result<Command> {
    let mut command = Command::new(env::current_exe().context("cannot find this program")?);
    command.arg(CALIBRATION_PROGRAM).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    for name in [INJECTION, NVTX_INJECTION] {
        command.env_remove(name);
    }
    for variable in
        config::VARIABLES.iter().chain(config::FOR_TESTS).filter(|variable| variable.name != config::CUPTI_PATH)
    {
        command.env_remove(variable.name);
    }
    Ok(command)
}

/// Runs the program and parses its output.
fn child(command: &mut Command, cupti: Option<&Path>) -> Result<Samples> {
    if let Some(path) = cupti {
        command.env(config::CUPTI_PATH, std::path::absolute(path)?);
    }
    let mut child = command.spawn().context("cannot start the program that is measured")?;
    let deadline = Instant::now() + TIMEOUT;
    let status = loop {
        match child.try_wait().context("cannot wait for the program that is measured")? {
            Some(status) => break status,
            None if Instant::now() >= deadline => {
                child.kill().context("cannot end the program that is measured")?;
                child.wait()?;
                bail!("cannot calibrate: no result after {} s", TIMEOUT.as_secs());
            }
            None => thread::sleep(Duration::from_millis(5)),
        }
    };
    // The output is a few kilobytes and fits the pipe, so the child never blocked on it.
    let mut text = String::new();
    if let Some(mut stdout) = child.stdout.take() {
        stdout.read_to_string(&mut text).context("cannot read what was measured")?;
    }
    match samples(&text) {
        Ok(Some(samples)) if status.success() => Ok(samples),
        Err(error) => bail!("cannot calibrate: {error}"),
        _ => bail!("cannot calibrate: the program that is measured ended with {status}"),
    }
}

/// Samples from the program's output; `None` when it did not reach its end, and an error when it printed one.
fn samples(text: &str) -> Result<Option<Samples>, &str> {
    let (mut samples, mut done) = (Samples::new(), false);
    for line in text.lines() {
        match line.split_once(' ') {
            Some(("error", error)) => return Err(error),
            Some((program::GPU, _)) => {}
            Some((name, nanos)) => samples.entry(name.to_owned()).or_default().push(nanos.parse().unwrap_or(f64::NAN)),
            None => done |= line == program::DONE,
        }
    }
    Ok(Some(samples).filter(|_| done))
}

/// Calibration entry: the machine as the trace describes it, which later runs are compared with, and the
/// overhead table.
fn entry(trace: &Path, rounds: &[Round]) -> Result<Entry> {
    const NOTHING: &str = "cannot calibrate: tracing recorded no kernel; see gpuwhy doctor";
    // Without records no trace is written.
    if !trace.exists() {
        bail!(NOTHING);
    }
    let report = gpuwhy::open(trace).context("cannot calibrate: the trace cannot be read")?;
    if report.completeness.kernels == 0 {
        bail!(NOTHING);
    }
    let (prices, scatter) = prices::of(rounds);
    Ok(Entry { machine: machine(&report), prices, scatter })
}

fn machine(report: &Report) -> Machine {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    Machine {
        gpu: report.devices.first().map_or_else(String::new, |device| device.device.name.clone()),
        driver: report.process.driver_version.clone(),
        cupti: report.process.cupti_version,
        processor: processor_in(&cpuinfo),
    }
}

fn as_text(path: &Path, entry: &Entry) -> String {
    let Machine { gpu, driver, cupti, processor } = &entry.machine;
    let driver = if driver.is_empty() { "unknown" } else { driver };
    let mut text = format!("What tracing adds with {gpu}, driver {driver}, CUPTI {cupti}, {processor}:\n");
    for ((meaning, price), scatter) in MEANINGS.iter().zip(entry.prices.to_array()).zip(entry.scatter.to_array()) {
        // Writing to a string cannot fail.
        let _ = match price {
            0 => writeln!(text, "  {meaning:<36} less than its scatter of {scatter} ns, taken as 0"),
            price => writeln!(text, "  {meaning:<36} {price:>6} ns, scatter {scatter} ns"),
        };
    }
    text + &format!("\nKept in {}. Traces recorded on this machine from now on have these figures.\n", path.display())
}

fn as_json(path: &Path, entry: &Entry) -> Result<String> {
    let Machine { gpu, driver, cupti, processor } = &entry.machine;
    let named = |prices: &Prices| -> serde_json::Map<String, serde_json::Value> {
        NAMES.iter().zip(prices.to_array()).map(|(name, price)| ((*name).to_owned(), price.into())).collect()
    };
    let answer = serde_json::json!({
        "version": env!("GPUWHY_VERSION"),
        "file": path.display().to_string(),
        "gpu": gpu,
        "driver": driver,
        "cupti": cupti,
        "processor": processor,
        "prices_ns": named(&entry.prices),
        "scatter_ns": named(&entry.scatter),
    });
    Ok(serde_json::to_string_pretty(&answer)? + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_program_prints_is_understood() {
        let text = "gpu NVIDIA H200\nlaunch 2700.5\nlaunch 2600\ncopy x\ndone\n";
        let samples = samples(text).unwrap().unwrap();
        assert_eq!(samples["launch"], [2700.5, 2600.0]);
        assert!(samples["copy"][0].is_nan());
        assert_eq!(super::samples("launch 2\n"), Ok(None), "it crashed");
        assert_eq!(super::samples("error there is no GPU\n"), Err("there is no GPU"));
    }

    #[test]
    fn a_price_that_could_not_be_measured_is_said_to_be() {
        let prices = Prices { kernel_launch: 921, ..Prices::default() };
        let scatter = Prices { kernel_launch: 40, copy: 300, ..Prices::default() };
        let text = as_text(Path::new("/c/file.json"), &Entry { machine: Machine::default(), prices, scatter });
        assert!(text.contains("launch of a kernel in a row             921 ns, scatter 40 ns"), "{text}");
        assert!(text.contains("less than its scatter of 300 ns"), "{text}");
        assert!(text.ends_with("have these figures.\n") && text.contains("/c/file.json"), "{text}");
    }
}
