//! `gpuwhy kernels`: measures kernels of a program, and shows the results.
//!
//! `libprof.so` selects and measures the kernels inside the program; interpretation and wording are library
//! code. This module only sets the order of processes, files, streams and exit codes.

mod metrics;

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, IsTerminal as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use gpuwhy::Report;
use gpuwhy_import::Request;
use gpuwhy_inject::config;
use gpuwhy_report::kernels::{CsvPage, csv, svg, text};
use gpuwhy_report::text_format::printable;
use tempfile::TempDir;

use crate::args::kernels::{CsvTable, KernelsArgs};
use crate::args::run::RunArgs;
use crate::{inputs, interrupt, message, progress, run, terminal};

/// Exit code when the command wrote no trace.
const NO_TRACE: u8 = 1;
/// Exit code when a trace is damaged, has no end, or lacks a chosen metric.
const INCOMPLETE: u8 = 1;
/// Exit code when a trace could not be read.
const UNREADABLE: u8 = 2;

/// Runs the command if there is one, shows the kernels, and returns the exit code. Reports unreadable traces
/// on stderr. Fails when the command cannot be started, or stdout or the picture cannot be written.
pub fn run(args: &KernelsArgs) -> Result<u8> {
    if args.query_metrics.is_some() {
        return metrics::query(args);
    }
    if args.command.is_empty() {
        return show(args, &inputs::expanded(&args.files)?);
    }
    if let Some(refused) = metrics::checked(args)? {
        return Ok(refused);
    }
    let made = TempDir::new().context("cannot make a folder for traces")?;
    let folder = args.output.as_deref().unwrap_or(made.path());
    fs::create_dir_all(folder).with_context(|| format!("--output {}: cannot make this folder", folder.display()))?;
    let folder = folder.canonicalize().with_context(|| format!("--output {}", folder.display()))?;
    let before = traces(&folder)?;
    let code = match start(args, &folder)? {
        Ok(code) => code,
        Err(refused) => return Ok(refused),
    };
    let new: Vec<_> = traces(&folder)?.difference(&before).cloned().collect();
    if new.is_empty() {
        message::say("no kernel was measured: the command and what it started did not use CUDA, or were killed early");
        return Ok(if code == 0 { NO_TRACE } else { code });
    }
    let shown = show(args, &new)?;
    Ok(if code == 0 { shown } else { code })
}

/// Environment variables of the library for the options.
fn variables(args: &KernelsArgs) -> Vec<(&'static str, String)> {
    let chosen = match &args.kernel {
        Some(names) => format!("{}:{names}", args.top),
        None => args.top.to_string(),
    };
    let mut all = vec![(config::KERNELS, chosen)];
    all.extend(Some(metrics::list(args)).filter(|list| !list.is_empty()).map(|list| (config::KERNEL_METRICS, list)));
    all
}

/// Runs the command to its end. Returns `Ok` with its exit code, or `Err` with ours if it did not start.
fn start(args: &KernelsArgs, folder: &Path) -> Result<Result<u8, u8>> {
    let plain = RunArgs {
        output: Some(folder.join("%p.gpuwhy").to_string_lossy().into_owned()),
        report: Some("off".to_owned()),
        history: Some("off".into()),
        command: args.command.clone(),
        ..RunArgs::default()
    };
    let mut command = match run::prepare(&plain, &variables(args))? {
        Ok(command) => command,
        Err(refused) => return Ok(Err(refused)),
    };
    // Ctrl-C is meant for the command, which shares the terminal with us; its measurements are still shown.
    interrupt::watch()?;
    match command.status() {
        Err(error) => Ok(Err(run::cannot_start(&args.command[0], &error))),
        Ok(status) => {
            let by_signal = || status.signal().map(|signal| 128 + signal);
            let code = status.code().or_else(by_signal).and_then(|code| u8::try_from(code).ok());
            Ok(Ok(code.unwrap_or(run::OWN_FAILURE)))
        }
    }
}

fn traces(folder: &Path) -> Result<BTreeSet<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("{}: cannot read this folder", folder.display()))?;
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    Ok(paths.filter(|path| path.extension().is_some_and(|ending| ending == "gpuwhy")).collect())
}

fn show(args: &KernelsArgs, files: &[PathBuf]) -> Result<u8> {
    let mut worst = 0;
    for (number, file) in files.iter().enumerate() {
        let report = match progress::opened(file, Request::default()) {
            Ok(report) => report,
            Err(error) => {
                message::say(&error.to_string());
                worst = UNREADABLE;
                continue;
            }
        };
        let damage =
            report.completeness.damage.first().map(|first| format!("damaged: {first}; showing what can be read"));
        if let Some(missing) = damage.or_else(|| report.missing_end()) {
            message::say(&format!("{}: {missing}", file.display()));
            worst = worst.max(INCOMPLETE);
        }
        for sentence in metrics::absent(args, &report.kernels) {
            message::say(&format!("{}: {sentence}", file.display()));
            worst = worst.max(INCOMPLETE);
        }
        let mut shown = shown(args, &report)?;
        if files.len() > 1 && !args.json && !args.csv {
            shown.insert_str(0, &format!("== {}\n", file.display()));
        }
        io::stdout().write_all(shown.as_bytes())?;
        if let Some(path) = args.svg.as_deref().filter(|_| number == 0) {
            match svg(&report.kernels) {
                Some(picture) => fs::write(path, picture).with_context(|| format!("--svg {}", path.display()))?,
                None => message::say(&format!(
                    "{}: no roofline was written: no kernel was measured with operations and bytes",
                    path.display()
                )),
            }
        }
    }
    Ok(worst)
}

fn shown(args: &KernelsArgs, report: &Report) -> Result<String> {
    let wanted = metrics::wanted(args);
    let chosen = |metric: &str| wanted.iter().any(|item| item.accepts(metric));
    let is_chosen: Option<&dyn Fn(&str) -> bool> = if wanted.is_empty() { None } else { Some(&chosen) };
    if args.csv {
        let page = match args.page {
            CsvTable::Raw => CsvPage::Raw,
            CsvTable::Details => CsvPage::Details,
        };
        let process = &report.process;
        let program = process.command.first().map_or("", String::as_str);
        let table = csv(&report.kernels, page, (process.process_id, program, &process.host), is_chosen);
        let is_terminal = io::stdout().is_terminal();
        return Ok(if is_terminal { table.lines().map(|line| printable(line) + "\n").collect() } else { table });
    }
    if args.json {
        return terminal::json(&report.kernels);
    }
    Ok(text(&report.kernels, terminal::style(), is_chosen))
}
