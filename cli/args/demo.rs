//! Options of `gpuwhy demo`.

use std::path::PathBuf;

use clap::Args;

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

#[derive(Args, Debug, Default)]
pub struct DemoArgs {
    /// Recordings to play [default: the first two]
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// Play all recordings
    #[arg(long, conflicts_with = "names")]
    pub all: bool,
    /// List the recordings and play none
    #[arg(long)]
    pub list: bool,
    /// Play as fast as possible instead of at the recorded speed
    #[arg(long)]
    pub fast: bool,
    /// Play the recordings of this folder [default: those of gpuwhy]
    #[arg(long, value_name = "DIR")]
    pub from: Option<PathBuf>,
    /// Keep the traces in this folder, which is made if its parent exists
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
}
