//! `gpuwhy view`: writes the HTML page of a trace, of two, or of ranks to the cache, and opens it.

use std::env;
use std::fs::{self, DirBuilder};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use gpuwhy_import::{Request, stem};
use gpuwhy_page::Options;

use crate::page::{self, Target};
use crate::{diff, merge, report};

/// What to look at.
#[derive(Debug)]
pub struct Props {
    /// One trace, two, or a folder.
    pub traces: Vec<PathBuf>,
    /// Whether a browser is opened where there is a display.
    pub browser: bool,
}

/// Exit code when a trace could not be read or the page not be written.
pub const FAILED: u8 = report::UNREADABLE;

/// Writes the page and opens it; gives the exit code.
///
/// # Errors
///
/// When a trace cannot be read, or the page not be written.
pub fn run(props: &Props) -> Result<u8> {
    let names: Vec<String> = props.traces.iter().map(|trace| stem(trace)).collect();
    let path = folder()?.join(format!("{}.html", names.join("-")));
    let to = Target { path: path.clone(), force: true, is_shown: true };
    let code = match &props.traces[..] {
        [folder] if folder.is_dir() => {
            let traces = vec![folder.clone()];
            merge::run(&merge::Props { traces, output: None, force: false, json: false, html: Some((to, None)) })?
        }
        [a, b] => {
            let (a, b) = (a.clone(), b.clone());
            let (json, fail_if_slower, html) = (false, None, Some((to, None)));
            diff::run(&diff::Props { a, b, json, kernels: 0, fail_if_slower, html })?
        }
        [trace] => {
            let outcome = page::report(trace, Request::default().pid, &Options::default(), &to)?;
            u8::from(!outcome.damage.is_empty())
        }
        _ => bail!("a page is about one trace, two, or a folder"),
    };
    if path.is_file() {
        show(&path, props.browser)?;
    }
    Ok(code)
}

/// Where pages go.
fn folder() -> Result<PathBuf> {
    let home = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = home("XDG_CACHE_HOME").or_else(|| home("HOME").map(|home| home.join(".cache")));
    let Some(cache) = cache else {
        bail!("neither XDG_CACHE_HOME nor HOME is set, so there is no cache folder; use report --html OUT");
    };
    let folder = cache.join("gpuwhy").join("pages");
    // Pages have what traces have.
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&folder);
    made.with_context(|| format!("{}: cannot make this folder", folder.display()))?;
    Ok(folder)
}

/// Opens the page where somebody can see it, and says where it is.
fn show(path: &Path, browser: bool) -> Result<()> {
    let remote = env::var_os("SSH_CONNECTION").is_some();
    writeln!(io::stdout(), "{}", path.display())?;
    if browser && !remote && has_display() {
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
    if browser || remote {
        let host = fs::read_to_string("/etc/hostname").unwrap_or_default();
        let host = if host.trim().is_empty() { "HOST" } else { host.trim() };
        writeln!(io::stdout(), "copy it to where your browser is: scp {host}:{} .", path.display())?;
    }
    Ok(())
}

/// Whether a display server of this machine is there: a variable may be left of one that has ended.
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
