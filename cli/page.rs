//! The HTML pages of `report`, `diff` and `merge`, for `--html` and `--open`.
//!
//! The contents of a page are library code; this module handles the order of files and the messages.

use std::env;
use std::fs::{self, DirBuilder};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use gpuwhy::Report;
use gpuwhy_compare::diff::Diff;
use gpuwhy_compare::ranks::RanksReport;
use gpuwhy_export::{Destination, Output, Shape};
use gpuwhy_import::{TraceFile, stem};
use gpuwhy_page::{Options, PageResult};
use gpuwhy_report::run::operators::OperatorsBy;

use crate::{inputs, interrupt, message, progress};

/// Destination of a page.
#[derive(Clone, Debug, Default)]
pub struct Target {
    pub path: PathBuf,
    /// True if an existing file is replaced.
    pub force: bool,
    /// True if the page is opened in a browser.
    pub open: bool,
}

impl Target {
    /// File in the cache for a page about these traces. Replaces that of an earlier call. Fails when no cache
    /// folder is known.
    pub fn cached(traces: &[PathBuf]) -> Result<Self> {
        let names: Vec<String> = traces.iter().map(|trace| stem(trace)).collect();
        Ok(Self { path: folder()?.join(format!("{}.html", names.join("-"))), force: true, open: true })
    }

    /// Prints the path of the page, unless it went to a stream, or opens it.
    fn tell(&self, is_named: bool) -> Result<()> {
        if self.open {
            return show(&self.path);
        }
        if is_named {
            message::note(&format!("the page is {}", self.path.display()));
        }
        Ok(())
    }
}

/// Writes the page of one trace. Fails when the trace cannot be read or the page may not or cannot be written.
pub fn report(
    trace: &Path,
    (pid, operators): (Option<u32>, OperatorsBy),
    options: &Options,
    target: &Target,
) -> Result<PageResult> {
    let to = Destination::new(&target.path, Shape::Stream, target.force, &[trace.to_owned()])?;
    let trace = inputs::open(trace, pid)?;
    let trace = progress::shown(|progress| trace.with_operators(Some(operators), progress))?;
    let is_named = to.is_named();
    if is_named {
        interrupt::watch()?;
    }
    let name = to.path().display().to_string();
    let mut output = Output::create(to)?;
    let outcome = progress::shown(|progress| gpuwhy_page::write_report(&trace, options, &mut output, progress))?;
    output.finish()?;
    for note in outcome.damage.iter().take(1) {
        message::say(&format!("{}: damaged: {note}; the page shows what can be read", trace.path().display()));
    }
    for note in &outcome.left_out {
        message::note(&format!("{name}: {note}"));
    }
    target.tell(is_named)?;
    Ok(outcome)
}

/// Writes the page of a comparison of the files `inputs`. Fails when the page may not or cannot be written.
pub fn diff(
    diff: &Diff,
    a: (&Report, &str),
    b: (&Report, &str),
    title: Option<&str>,
    (target, inputs): (&Target, &[PathBuf]),
) -> Result<()> {
    let to = Destination::new(&target.path, Shape::Stream, target.force, inputs)?;
    let is_named = to.is_named();
    let mut output = Output::create(to)?;
    gpuwhy_page::write_diff(diff, a, b, title, &mut output)?;
    output.finish()?;
    target.tell(is_named)
}

/// Writes the page of the ranks of a job. `files` are their traces, in the order of `compared`. Fails when a
/// trace cannot be read or the page may not or cannot be written.
pub fn ranks(
    compared: &RanksReport,
    files: &[&TraceFile],
    title: Option<&str>,
    (target, inputs): (&Target, &[PathBuf]),
) -> Result<()> {
    let to = Destination::new(&target.path, Shape::Stream, target.force, inputs)?;
    let is_named = to.is_named();
    if is_named {
        interrupt::watch()?;
    }
    let mut output = Output::create(to)?;
    progress::shown(|progress| gpuwhy_page::write_ranks(compared, files, title, &mut output, progress))?;
    output.finish()?;
    target.tell(is_named)
}

/// Cache folder of the pages.
fn folder() -> Result<PathBuf> {
    let home = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = home("XDG_CACHE_HOME").or_else(|| home("HOME").map(|home| home.join(".cache")));
    let Some(cache) = cache else {
        bail!("neither XDG_CACHE_HOME nor HOME is set, so there is no cache folder; use --html OUT");
    };
    let folder = cache.join("gpuwhy").join("pages");
    // Pages are as private as traces.
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&folder);
    made.with_context(|| format!("{}: cannot make this folder", folder.display()))?;
    Ok(folder)
}

/// Opens the page if there is a display, and prints its path.
fn show(path: &Path) -> Result<()> {
    let remote = env::var_os("SSH_CONNECTION").is_some();
    writeln!(io::stdout(), "{}", path.display())?;
    if !remote && has_display() {
        let opened = Command::new("xdg-open")
            .arg(path)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if opened.is_ok_and(|status| status.success()) {
            return Ok(());
        }
    }
    let host = fs::read_to_string("/etc/hostname").unwrap_or_default();
    let host = if host.trim().is_empty() { "HOST" } else { host.trim() };
    writeln!(io::stdout(), "copy it to where your browser is: scp {host}:{} .", path.display())?;
    Ok(())
}

/// True if this machine has a running display server: the variables may be left from one that has ended.
fn has_display() -> bool {
    let set = |name| env::var(name).ok().filter(|value| !value.is_empty());
    let x11 = set("DISPLAY").is_some_and(|display| match display.strip_prefix(':') {
        Some(number) => {
            let number = number.split('.').next().unwrap_or(number);
            Path::new("/tmp/.X11-unix").join(format!("X{number}")).exists()
        }
        None => true,
    });
    let wayland = set("WAYLAND_DISPLAY").is_some_and(|socket| {
        set("XDG_RUNTIME_DIR").map_or(Path::new(&socket).to_owned(), |folder| Path::new(&folder).join(&socket)).exists()
    });
    x11 || wayland
}
