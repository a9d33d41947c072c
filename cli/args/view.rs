//! Options of `gpuwhy view`.

use std::path::PathBuf;

use clap::Args;

use crate::view;

pub(super) const VIEW_HELP: &str = "\
The page is written to gpuwhy/pages in XDG_CACHE_HOME or ~/.cache, under the name of the trace, and replaces that of an
earlier call. One trace gives its report, two of one program a comparison, a folder with the traces of ranks the
comparison of these. Without a display the path is printed, and how to copy the page. No server is started.

EXIT CODES:
  0  the page was written
  1  it was written, but a trace is truncated or damaged
  2  a trace could not be read, or the page not be written

EXAMPLES:
  gpuwhy view gpuwhy-4711.gpuwhy
  gpuwhy view before.gpuwhy after.gpuwhy
  gpuwhy view run1/";

#[derive(Args)]
pub struct ViewArgs {
    /// A trace, two traces, or a folder with the traces of ranks
    #[arg(required = true, num_args = 1..=2, value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// Write the page and print its path, without a browser
    #[arg(long)]
    no_browser: bool,
}

impl From<ViewArgs> for view::Props {
    fn from(args: ViewArgs) -> Self {
        Self { traces: args.traces, browser: !args.no_browser }
    }
}
