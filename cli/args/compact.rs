//! Options of `gpuwhy compact`.

use std::path::PathBuf;

use clap::Args;

use crate::compact;

pub(super) const COMPACT_HELP: &str = "\
The copy holds the same records, so its reports and exports are those of the original. A trace is written in small blocks
to survive a crash of the program; the larger blocks of the copy compress better. A damaged trace is refused.

EXIT CODES:
  0  the copy was written, or the sizes were printed
  2  the trace could not be read, is damaged, or the copy could not be written
  130, 143  interrupted by Ctrl-C or SIGTERM

EXAMPLES:
  gpuwhy compact gpuwhy-4711.gpuwhy -o kept.gpuwhy
  gpuwhy compact --sizes gpuwhy-4711.gpuwhy    what each kind of record takes, before and after";

#[derive(Args)]
pub struct CompactArgs {
    /// Trace to recompress
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// Write the copy to this file (- for standard output)
    #[arg(short, long, value_name = "OUT", required_unless_present = "sizes")]
    output: Option<PathBuf>,
    /// Replace the file if it exists
    #[arg(long, requires = "output")]
    force: bool,
    /// Print the bytes that each kind of record takes
    #[arg(long)]
    sizes: bool,
}

impl From<CompactArgs> for compact::Props {
    fn from(args: CompactArgs) -> Self {
        Self { trace: args.trace, output: args.output, force: args.force, sizes: args.sizes }
    }
}
