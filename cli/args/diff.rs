//! Options of `gpuwhy diff`.

use std::path::PathBuf;

use clap::Args;

use super::page::ComparisonPageArgs;
use crate::diff;

pub(super) const DIFF_HELP: &str = "\
A is the run before a change, B the run after it. The typical step of each run (the mean of the steps between the
quartiles) is divided by cause. The changes of the causes sum to the change of the step. One run each cannot show a
difference below 30 % of the longer step: it is inconclusive, and --fail-if-slower says so and does not fail.

EXIT CODES:
  0  the traces were compared
  1  they are not comparable: different programs, or a run without work
  2  one of them could not be read
  3  compared, and B is slower by more than --fail-if-slower allows

EXAMPLES:
  gpuwhy diff before.gpuwhy after.gpuwhy
  gpuwhy diff --html diff.html before.gpuwhy after.gpuwhy
  gpuwhy diff --open before.gpuwhy after.gpuwhy
  gpuwhy diff --fail-if-slower 5 main.gpuwhy branch.gpuwhy
  gpuwhy diff --json before.gpuwhy after.gpuwhy | jq '.devices[0].leaf_changes'";

#[derive(Args)]
pub struct DiffArgs {
    /// Trace of the first run
    #[arg(value_name = "A")]
    a: PathBuf,
    /// Trace of the second run
    #[arg(value_name = "B")]
    b: PathBuf,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    /// Show at most N kernels in the table of changes
    #[arg(long, value_name = "N", default_value_t = 10, conflicts_with = "json")]
    top: usize,
    /// Exit with 3 if B is slower by more than this, unless inconclusive
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    fail_if_slower: Option<f64>,
    #[command(flatten)]
    page: ComparisonPageArgs,
}

/// A finite number that is not negative.
pub(super) fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).parse::<f64>();
    number
        .ok()
        .filter(|number| number.is_finite() && *number >= 0.0)
        .ok_or_else(|| "expected a number, such as 5".to_owned())
}

impl From<DiffArgs> for diff::Props {
    fn from(args: DiffArgs) -> Self {
        Self {
            a: args.a,
            b: args.b,
            json: args.json,
            kernels: args.top,
            fail_if_slower: args.fail_if_slower,
            page: args.page,
        }
    }
}
