//! Options of commands that write an HTML page.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Args, ValueEnum};
use gpuwhy_inject::config;
use gpuwhy_page::{Detail, Options};

use crate::page::Target;

/// Where the page of a comparison goes.
#[derive(Args, Debug)]
#[command(next_help_heading = "HTML page")]
pub struct ComparisonPageArgs {
    /// Write an HTML page to this file (- for standard output)
    #[arg(long, value_name = "OUT", conflicts_with = "json", group = "page")]
    html: Option<PathBuf>,
    /// Write an HTML page to the cache, and open it in a browser
    #[arg(long, conflicts_with = "json", group = "page")]
    open: bool,
    /// Replace the file if it exists
    #[arg(long)]
    pub force: bool,
    /// Name the page
    #[arg(long, value_name = "TEXT", requires = "page")]
    pub title: Option<String>,
}

impl ComparisonPageArgs {
    /// Destination of a page about these traces, if one is requested. Fails when no cache folder is known.
    pub fn target(&self, traces: &[PathBuf]) -> Result<Option<Target>> {
        target(self.html.as_deref(), self.open, self.force, traces)
    }
}

fn target(html: Option<&Path>, open: bool, force: bool, traces: &[PathBuf]) -> Result<Option<Target>> {
    if open {
        return Target::cached(traces).map(Some);
    }
    Ok(html.map(|path| Target { path: path.to_owned(), force, open }))
}

#[derive(Args, Debug)]
#[command(next_help_heading = "HTML page")]
pub struct PageArgs {
    /// Write an HTML page to this file (- for standard output)
    #[arg(long, value_name = "OUT", group = "page", conflicts_with_all = ["json", "full", "top", "ranges", "from", "to"])]
    html: Option<PathBuf>,
    /// Write the HTML page to the cache, and open it in a browser
    #[arg(long, group = "page", conflicts_with_all = ["json", "full", "top", "ranges", "from", "to"])]
    open: bool,
    /// Replace the page if it exists
    #[arg(long, requires = "html")]
    force: bool,
    /// Name the page [default: the command]
    #[arg(long, value_name = "TEXT", requires = "page")]
    title: Option<String>,
    /// Maximum total size of individual events in bytes
    #[arg(long, value_name = "BYTES", requires = "page", default_value = "64M", value_parser = size)]
    max_size: u64,
    /// Include these events; sums of the whole run are always included
    #[arg(long, value_name = "WHICH", requires = "page", default_value = "auto")]
    detail: PageDetail,
    /// Replace command line, host, folders and texts with placeholders
    #[arg(long, requires = "page")]
    redact: bool,
    /// Show lines of source code around those that the report names
    #[arg(long, requires = "page", conflicts_with = "redact")]
    sources: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PageDetail {
    /// All if they fit, else those of windows
    Auto,
    /// All in order of time until the page is full
    All,
    /// Those of typical and slow steps and of the longest gaps
    Windows,
    /// None
    None,
}

fn size(text: &str) -> Result<u64, String> {
    config::parse_bytes(text).ok_or_else(|| "expected a size such as 5M or 200M".to_owned())
}

impl PageArgs {
    /// Destination of a page about these traces, if one is requested. Fails when no cache folder is known.
    pub fn target(&self, traces: &[PathBuf]) -> Result<Option<Target>> {
        target(self.html.as_deref(), self.open, self.force, traces)
    }

    /// Contents of the page.
    pub fn options(&self, capture: Option<u32>) -> Options {
        let detail = match self.detail {
            PageDetail::Auto => Detail::Auto,
            PageDetail::All => Detail::All,
            PageDetail::Windows => Detail::Windows,
            PageDetail::None => Detail::None,
        };
        let Self { title, max_size: max_bytes, redact, sources, .. } = self;
        let (title, max_bytes, redact, sources) = (title.clone(), *max_bytes, *redact, *sources);
        Options { title, capture, max_bytes, detail, redact, sources, ..Options::default() }
    }
}
