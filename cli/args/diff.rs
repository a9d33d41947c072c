//! Options of `gpuwhy diff`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::page::ComparisonPageArgs;

pub(super) const DIFF_HELP: &str = "\
A is the program before a change, B after it: a trace, or a folder with the traces of several runs. The typical step of
each run (the mean of the steps between the quartiles) is one value of the sample. With 4 runs of each or more, an exact
rank test gives an interval of the ratio; fewer are inconclusive below 30 % of the longer step. The runs with the median
step are divided by cause; the changes of the causes sum to the change of the step. Counts of a step do not vary with
the host. `gpuwhy check` fails a build by a slower run.

EXIT CODES:
  0  the traces were compared
  1  they are not comparable: different programs, ranks of a job, or a run without work
  2  one of them could not be read

EXAMPLES:
  gpuwhy diff before.gpuwhy after.gpuwhy
  gpuwhy diff before/ after/                       # several runs of each
  gpuwhy diff --format markdown before/ after/     # a comment on a pull request
  gpuwhy diff --html diff.html before.gpuwhy after.gpuwhy
  gpuwhy diff --open before.gpuwhy after.gpuwhy
  gpuwhy diff --json before.gpuwhy after.gpuwhy | jq '.devices[0].leaf_changes'";

#[derive(Args, Debug)]
pub struct DiffArgs {
    /// Trace of the program before, or a folder with traces of its runs
    #[arg(value_name = "A")]
    pub a: PathBuf,
    /// Trace of the program after, or a folder with traces of its runs
    #[arg(value_name = "B")]
    pub b: PathBuf,
    /// Print in this form
    #[arg(long, value_name = "FORMAT", default_value = "text", conflicts_with = "page")]
    format: Format,
    /// Print JSON, as --format json
    #[arg(long, conflicts_with = "format")]
    pub json: bool,
    /// Show at most N kernels in the table of changes
    #[arg(long, value_name = "N", default_value_t = 10, conflicts_with = "json")]
    pub top: usize,
    #[command(flatten)]
    pub page: ComparisonPageArgs,
}

/// The form of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Text with tables
    Text,
    /// One document of JSON
    Json,
    /// Tables, such as for a comment on a pull request
    Markdown,
}

impl DiffArgs {
    /// Output format.
    pub const fn format(&self) -> Format {
        if self.json { Format::Json } else { self.format }
    }
}
