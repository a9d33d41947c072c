//! Options of `gpuwhy lake`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use gpuwhy_export::lake::Tier;

pub(super) const LAKE_HELP: &str = "\
A lake is a folder: TABLE/date=YYYY-MM-DD/run=NAME/part-HOST-N.parquet. DuckDB, Spark, Trino, Polars and Iceberg read a
folder of a table at once, and `gpuwhy query` queries it. The date is the day on which the run began (UTC); the rank is a
column. A run appears when all of its files are complete. docs/guide/lake.md describes it.

EXIT CODES:
  0  done
  1  done, but a trace lacks something; stderr says what
  2  a trace or a file could not be read or written; nothing of that run was added
  130, 143  interrupted by Ctrl-C or SIGTERM

EXAMPLES:
  gpuwhy lake add run1/ --to lake/
  gpuwhy lake add --tier full --run nightly rank3.gpuwhy --to lake/
  gpuwhy lake compact lake/
  gpuwhy query stragglers lake/ --engine duckdb";

#[derive(Args)]
pub struct LakeArgs {
    #[command(subcommand)]
    pub verb: Verb,
}

#[derive(Subcommand)]
pub enum Verb {
    /// Add traces: the processes of a node, or of a job
    Add(AddArgs),
    /// Make few large files of many small ones
    Compact(CompactArgs),
}

#[derive(Args)]
pub struct AddArgs {
    /// Traces of gpuwhy, PyTorch or Nsight Systems (SQLite), or folders
    #[arg(required = true, value_name = "TRACE")]
    pub traces: Vec<PathBuf>,
    /// The folder of the lake, made if it does not exist
    #[arg(long, value_name = "LAKE")]
    pub to: PathBuf,
    /// Add these tables
    #[arg(long, value_name = "TIER", default_value = "summary")]
    pub tier: TierArg,
    /// Name the run of all traces [default: GPUWHY_RUN or the launcher's job, else their folder]
    #[arg(long, value_name = "NAME")]
    pub run: Option<String>,
    /// Keep command lines, which may hold secrets, not only program names
    #[arg(long)]
    pub with_command: bool,
}

#[derive(Clone, Copy, ValueEnum)]
pub enum TierArg {
    /// Processes, causes, steps, collectives and what is missing
    Summary,
    /// Also every kernel, copy, call and range
    Full,
}

#[derive(Args)]
pub struct CompactArgs {
    /// The folder of the lake
    pub lake: PathBuf,
    /// Join files below this many megabytes into files of about this size
    #[arg(long, value_name = "MB", default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=4096))]
    pub megabytes: u64,
}

impl From<TierArg> for Tier {
    fn from(tier: TierArg) -> Self {
        match tier {
            TierArg::Summary => Self::Summary,
            TierArg::Full => Self::Full,
        }
    }
}
