//! Options of `gpuwhy report`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use gpuwhy_inject::config;
use gpuwhy_report::run::operators::OperatorsBy;

use super::page::PageArgs;

pub(super) const REPORT_HELP: &str = "\
With --json each trace gives one JSON object on one line, in the order of the files. With --html the report of one trace
is written as a page that opens in a browser without network access; its result can be read and printed without scripts. With --open the
page goes to gpuwhy/pages in XDG_CACHE_HOME or ~/.cache, under the name of the trace, and replaces that of an earlier call.
Without a display the path is printed, and how to copy the page. No server is started.

--operators has the numbers of PyTorch's key_averages(): from a trace of torch.profiler, or of `gpuwhy run --pytorch
autograd-shapes-nvtx`. BY is operator, shapes, module or line. Without records of operators it guesses from the names of
kernels, and says so. FLOPs are those of torch.profiler (with_flops), of matrix products and convolutions, add and mul.

With --explain no trace is read. WORD is a term (\"kernel launches\") or a name in JSON, tables and SQL (launch, no_syncs).

EXIT CODES:
  0  every trace was read, or the word was explained
  1  every trace was reported, but at least one is truncated or damaged; the report says where
  2  at least one trace could not be read at all; the others were reported. Or the word is unknown; stderr names the
     nearest one

EXAMPLES:
  gpuwhy report gpuwhy-4711.gpuwhy
  gpuwhy report --top 30 *.gpuwhy | less
  gpuwhy report --json gpuwhy-4711.gpuwhy | jq .bottleneck
  gpuwhy report --operators=shapes gpuwhy-4711.gpuwhy
  gpuwhy report --price 2.5USD gpuwhy-4711.gpuwhy
  gpuwhy report --html report.html gpuwhy-4711.gpuwhy
  gpuwhy report --open gpuwhy-4711.gpuwhy
  gpuwhy report --explain dispatch";

#[derive(Args, Debug)]
pub struct ReportArgs {
    /// Traces of gpuwhy, PyTorch or Nsight Systems (SQLite), or folders
    #[arg(required_unless_present = "explain", value_name = "TRACE")]
    pub files: Vec<PathBuf>,
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
    /// Print all tables below the bottleneck
    #[arg(long, conflicts_with = "json")]
    pub full: bool,
    /// Print all tables, with the N longest kernels
    #[arg(long, value_name = "N", conflicts_with_all = ["json", "full"])]
    pub top: Option<usize>,
    /// Print the tables of NVTX ranges as well
    #[arg(long, conflicts_with = "json")]
    pub ranges: bool,
    /// Print PyTorch's operators: calls, times, memory, FLOPs
    #[arg(long, value_name = "BY", num_args = 0..=1, require_equals = true, default_missing_value = "operator", value_parser = by)]
    pub operators: Option<OperatorsBy>,
    /// Read this process of a file of Nsight Systems [default: the busiest] or torch.profiler [default: all]
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
    /// Report this capture [default: the newest]
    #[arg(long, value_name = "N")]
    pub capture: Option<u32>,
    /// Report the run from this time after the start of tracing: 500ms, 10s, 2m
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = time, conflicts_with_all = ["capture", "pid"])]
    pub from: Option<Duration>,
    /// Report the run up to this time after the start of tracing
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = time, conflicts_with_all = ["capture", "pid"])]
    pub to: Option<Duration>,
    /// Show what causes cost and fixes save, given the price of a GPU hour
    #[arg(long, value_name = "PRICE", value_parser = price)]
    pub price: Option<(f64, String)>,
    #[command(flatten)]
    pub page: PageArgs,
    /// Add a line about each run to the history, as `gpuwhy run` does
    #[arg(long, conflicts_with_all = ["page", "from", "to"])]
    pub history: bool,
    /// Compute the report again, even if the trace contains one
    #[arg(long)]
    pub recompute: bool,
    /// Explain a word and how it is measured; without WORD, list all words
    #[arg(long, value_name = "WORD", num_args = 0.., conflicts_with_all = ["json", "full", "top", "ranges", "operators", "pid", "capture", "from", "to", "price", "page", "history", "recompute"])]
    pub explain: Option<Vec<String>>,
}

/// Parses a number with a currency after it.
fn price(text: &str) -> Result<(f64, String), String> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit = unit.trim();
    let number = number.parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0);
    match number {
        Some(number) if unit.chars().count() <= 8 && !unit.chars().any(char::is_control) => {
            Ok((number, unit.to_owned()))
        }
        _ => Err("expected a price above 0, such as 2.5 or 2.5USD".to_owned()),
    }
}

fn by(text: &str) -> Result<OperatorsBy, String> {
    let found = OperatorsBy::ALL.into_iter().find(|by| by.name() == text);
    found.ok_or_else(|| "expected operator, shapes, module or line".to_owned())
}

fn time(text: &str) -> Result<Duration, String> {
    config::parse_duration(text).ok_or_else(|| "expected a time such as 500ms, 10s or 2m".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_have_a_number_and_perhaps_a_currency() {
        assert_eq!(price("2.5"), Ok((2.5, String::new())));
        assert_eq!(price("2.50 EUR"), Ok((2.5, "EUR".to_owned())));
        for wrong in ["", "EUR", "0", "-1", "1..2", "2a very long unit", "2\u{1b}[31m"] {
            assert!(price(wrong).is_err(), "{wrong:?}");
        }
    }
}
