//! Options of commands that write an HTML page.

use std::path::PathBuf;

use clap::Args;
use gpuwhy_page::Options;

use crate::page::Target;

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
}

impl PageArgs {
    /// Where the page goes and what it holds, if one is wanted.
    pub fn into_page(self, capture: Option<u32>) -> Option<(Target, Options)> {
        let Self { html, force, title } = self;
        html.map(|path| (Target { path, force }, Options { title, capture }))
    }
}
