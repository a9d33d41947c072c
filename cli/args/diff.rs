//! Options of `gpuwhy diff`.

use std::path::PathBuf;

use clap::Args;

use super::page::ComparisonPageArgs;

pub(super) const DIFF_HELP: &str = "\
A is the run before a change, B the run after it. The typical step of each run (the mean of the steps between the
quartiles) is divided by cause. The changes of the causes sum to the change of the step. One run each cannot show a
difference below 30 % of the longer step: it is inconclusive. `gpuwhy check` fails a build by a slower run.

EXIT CODES:
  0  the traces were compared
  1  they are not comparable: different programs, or a run without work
  2  one of them could not be read

EXAMPLES:
  gpuwhy diff before.gpuwhy after.gpuwhy
  gpuwhy diff --html diff.html before.gpuwhy after.gpuwhy
  gpuwhy diff --open before.gpuwhy after.gpuwhy
  gpuwhy diff --json before.gpuwhy after.gpuwhy | jq '.devices[0].leaf_changes'";

#[derive(Args, Debug)]
pub struct DiffArgs {
    /// Trace of the first run
    #[arg(value_name = "A")]
    pub a: PathBuf,
    /// Trace of the second run
    #[arg(value_name = "B")]
    pub b: PathBuf,
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
    /// Show at most N kernels in the table of changes
    #[arg(long, value_name = "N", default_value_t = 10, conflicts_with = "json")]
    pub top: usize,
    #[command(flatten)]
    pub page: ComparisonPageArgs,
}
