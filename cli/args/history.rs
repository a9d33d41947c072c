//! Options of `gpuwhy check` for the history of programs.

use clap::Args;

use super::values::percent;

#[derive(Args, Debug)]
#[command(next_help_heading = "History")]
pub struct HistoryArgs {
    /// List runs of PROGRAM (a part of its name) instead of checking traces
    #[arg(long, value_name = "PROGRAM", num_args = 0..=1, conflicts_with_all = ["files", "LimitArgs", "capture", "format"])]
    pub history: Option<Option<String>>,
    /// Fail if the newest run is slower than earlier runs by more than PERCENT
    #[arg(long, value_name = "PERCENT", value_parser = percent, requires = "history")]
    pub fail_if_slower: Option<f64>,
    /// Show the N newest runs of each program
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20, requires = "history")]
    pub last: usize,
    /// Compare runs on different hosts as well
    #[arg(long, requires = "history")]
    pub any_host: bool,
    /// Compare runs with different arguments as well
    #[arg(long, requires = "history")]
    pub any_arguments: bool,
}
