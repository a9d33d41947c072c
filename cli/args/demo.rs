//! Options of `gpuwhy demo`.

use std::path::PathBuf;

use clap::Args;

use crate::demo;

pub(super) const DEMO_HELP: &str = "\
The recordings were made on real GPUs. libprof.so receives them as it receives the records of a live program.

EXIT CODES:
  0  every chosen recording was played
  1  one could not be played
  2  there is no recording of such a name

EXAMPLES:
  gpuwhy demo
  gpuwhy demo --list
  gpuwhy demo --fast --all";

#[derive(Args)]
pub struct DemoArgs {
    /// Recordings to play [default: the first two]
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Play all recordings
    #[arg(long, conflicts_with = "names")]
    all: bool,
    /// List the recordings and play none
    #[arg(long)]
    list: bool,
    /// Play as fast as possible instead of at the recorded speed
    #[arg(long)]
    fast: bool,
    /// Play the recordings of this folder [default: those of gpuwhy]
    #[arg(long, value_name = "DIR")]
    from: Option<PathBuf>,
    /// Keep the traces in this folder, which is made if its parent exists
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
}

impl From<DemoArgs> for demo::Props {
    fn from(args: DemoArgs) -> Self {
        let choice = match (args.all, args.names.is_empty()) {
            (true, _) => demo::Choice::All,
            (false, true) => demo::Choice::Default,
            (false, false) => demo::Choice::Named(args.names),
        };
        Self { choice, from: args.from, list: args.list, fast: args.fast, output: args.output }
    }
}
