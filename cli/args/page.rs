//! Options of commands that write an HTML page.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use gpuwhy_inject::config;
use gpuwhy_page::{Detail, Options};

use crate::page::Target;

/// Where the page of a comparison goes.
#[derive(Args)]
#[command(next_help_heading = "HTML page")]
pub struct ComparisonPageArgs {
    /// Write an HTML page to this file (- for standard output)
    #[arg(long, value_name = "OUT", conflicts_with = "json")]
    html: Option<PathBuf>,
    /// Replace the page if it exists
    #[arg(long, requires = "html")]
    force: bool,
    /// Name the page
    #[arg(long, value_name = "TEXT", requires = "html")]
    title: Option<String>,
}

impl ComparisonPageArgs {
    /// Where the page goes and its title, if one is wanted.
    pub fn into_page(self) -> Option<(Target, Option<String>)> {
        let Self { html, force, title } = self;
        html.map(|path| (Target { path, force, is_shown: false }, title))
    }
}

#[derive(Args)]
#[command(next_help_heading = "HTML page")]
pub struct PageArgs {
    /// Write an HTML page to this file (- for standard output)
    #[arg(long, value_name = "OUT", conflicts_with_all = ["json", "full", "top", "ranges", "from", "to"])]
    html: Option<PathBuf>,
    /// Replace the page if it exists
    #[arg(long, requires = "html")]
    force: bool,
    /// Name the page [default: the command]
    #[arg(long, value_name = "TEXT", requires = "html")]
    title: Option<String>,
    /// Let single events take at most so many bytes
    #[arg(long, value_name = "BYTES", requires = "html", default_value = "64M", value_parser = size)]
    max_size: u64,
    /// Hold these events; sums of the whole run are always there
    #[arg(long, value_name = "WHICH", requires = "html", default_value = "auto")]
    detail: PageDetail,
    /// Put marks in place of command line, host, folders, and texts
    #[arg(long, requires = "html")]
    redact: bool,
    /// Show lines of source code around those that the report names
    #[arg(long, requires = "html", conflicts_with = "redact")]
    sources: bool,
}

#[derive(Clone, Copy, ValueEnum)]
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
    /// Where the page goes and what it holds, if one is wanted.
    pub fn into_page(self, capture: Option<u32>) -> Option<(Target, Options)> {
        let Self { html, force, title, max_size: max_bytes, detail, redact, sources } = self;
        let detail = match detail {
            PageDetail::Auto => Detail::Auto,
            PageDetail::All => Detail::All,
            PageDetail::Windows => Detail::Windows,
            PageDetail::None => Detail::None,
        };
        let options = Options { title, capture, max_bytes, detail, redact, sources };
        html.map(|path| (Target { path, force, is_shown: false }, options))
    }
}
