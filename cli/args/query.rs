//! Options of `gpuwhy query`.

use std::ffi::OsString;
use std::io::{self, IsTerminal as _};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use gpuwhy_export::stats::{RangeFilter, StatsOptions, TableFormat, TableWidth, TimeFilter, TimeUnit};

use crate::terminal;

pub(super) const QUERY_HELP: &str = "\
QUERY is a name that --list lists, or SQL, which has a space in it:
  reports  the tables of nsys stats; `stats` prints the four that nsys prints by default
  rules    the checks of nsys analyze; `analyze` makes all of them
  recipes  questions about runs; PATH may be a lake (gpuwhy lake), for duckdb also one in an
           object store (s3://bucket/lake)
  SQL      a query of the tables that --tables lists; PATH may be a lake

Names, columns, units and thresholds of reports and rules are those of nsys 2024 and later. docs/guide/export.md lists
where numbers may differ. Separate several by commas. Parameters are set by --set, or after colons as with nsys.

SQL is that of SQLite, over all traces at once; `run` and `rank` name the trace of a row. It may also follow the
traces. A query is checked before a trace is read, and only the columns that it uses are made. Times (start_ns, end_ns,
at_ns) are nanoseconds since the Unix epoch. For times since the start of tracing, as in --filter-time, use start_ns -
(SELECT start_ns FROM processes). Quote columns with \", texts with '.

EXIT CODES:
  0  the query ran, whether or not rules found anything
  1  answered, but a trace lacks something, or has no rows for a report; stderr says what
  2  there is no such query, an option is not for it, a file could not be read, or the engine is
     not there or failed

EXAMPLES:
  gpuwhy query --list
  gpuwhy query --list gpu_gaps,gpu_time_util
  gpuwhy query stats gpuwhy-4711.gpuwhy
  gpuwhy query cuda_gpu_kern_sum,cuda_api_sum --format csv gpuwhy-4711.gpuwhy
  gpuwhy query cuda_gpu_trace --filter-time 1s/1.5s --timeunit usec gpuwhy-4711.gpuwhy
  gpuwhy query gpu_gaps:gap=10:rows=5,gpu_idle_causes gpuwhy-4711.gpuwhy
  gpuwhy query late_because lake/ --engine duckdb --set excess_us=100
  gpuwhy query heatmap lake/ --engine duckdb --format csv
  gpuwhy query waste --engine print | clickhouse-client
  gpuwhy query 'SELECT rank, sum(duration_ns) FROM kernels WHERE communication GROUP BY rank' run1/
  gpuwhy query 'SELECT run, leaf, sum(duration_ns) FROM leaves GROUP BY 1, 2' run1/ run2/ --json";

const REPORTS: &str = "Reports and rules";
const RECIPES: &str = "Recipes";

#[derive(Args)]
pub struct QueryArgs {
    /// Names of queries, separated by commas, or SQL
    #[arg(value_name = "QUERY", required_unless_present_any = ["list", "tables"])]
    pub query: Option<OsString>,
    /// Traces or folders with traces; for recipes and SQL also a lake
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// List all named queries, or describe QUERY with its parameters
    #[arg(long, conflicts_with_all = ["paths", "FormArgs", "run", "pid", "values", "OfReports", "OfRecipes"])]
    pub list: bool,
    /// List the tables for SQL and their columns
    #[arg(long, exclusive = true)]
    pub tables: bool,
    #[command(flatten)]
    pub form: FormArgs,
    /// Set a parameter of a rule or recipe; may be repeated
    #[arg(short = 's', long = "set", value_name = "NAME=VALUE", value_parser = pair)]
    pub values: Vec<(String, String)>,
    /// Name the run of all traces [default: GPUWHY_RUN, the job, a rank's folder, or the file]
    #[arg(long, value_name = "NAME")]
    pub run: Option<String>,
    /// Read this process of a file of Nsight Systems [default: the busiest] or torch.profiler [default: all]
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
    #[command(flatten)]
    pub of_reports: OfReports,
    #[command(flatten)]
    pub of_recipes: OfRecipes,
}

/// What tables look like.
#[derive(Args)]
pub struct FormArgs {
    /// Print in this form
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    format: FormatArg,
    /// Print JSON, as --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Cut the middle of names to fit this many columns; nolimit cuts none
    /// [default: the terminal; elsewhere names of 100 characters]
    #[arg(long, value_name = "COLUMNS|nolimit")]
    width: Option<TableWidth>,
}

/// What only reports and rules have.
#[derive(Args)]
pub struct OfReports {
    /// Print times in nsec, usec, msec or sec [default: nsec]
    #[arg(long, value_name = "UNIT", help_heading = REPORTS)]
    pub timeunit: Option<TimeUnit>,
    /// Keep only this time since the start of tracing: 1.5s/2s, 200ms/
    #[arg(long, value_name = "START/END", help_heading = REPORTS)]
    pub filter_time: Option<TimeFilter>,
    /// Keep only this NVTX range, of several the first or INDEX
    #[arg(long, value_name = "RANGE[@DOMAIN][/INDEX]", conflicts_with = "filter_time", help_heading = REPORTS)]
    pub filter_nvtx: Option<RangeFilter>,
}

/// What only recipes have.
#[derive(Args)]
pub struct OfRecipes {
    /// SQL engine [default: sqlite]
    #[arg(short, long, value_name = "ENGINE", help_heading = RECIPES)]
    pub engine: Option<Engine>,
    /// The command of the engine, or a Python that has its module
    /// [default: found on the PATH]
    #[arg(long = "with", value_name = "PROGRAM", help_heading = RECIPES)]
    pub program: Option<PathBuf>,
}

/// What runs a recipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Engine {
    /// Built in
    Sqlite,
    /// DuckDB: its command, or Python with its module
    Duckdb,
    /// None: print the SQL, for Spark, Trino and others
    Print,
}

#[derive(Clone, Copy, ValueEnum)]
enum FormatArg {
    /// Columns aligned for people
    Table,
    /// Comma-separated
    Csv,
    /// An array of objects; of several reports an object with an array for each
    Json,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("NAME=VALUE is expected")?;
    Ok((name.to_owned(), value.to_owned()))
}

impl QueryArgs {
    /// Output options.
    pub fn options(&self) -> StatsOptions {
        let FormArgs { format, json, width } = self.form;
        let format = match if json { FormatArg::Json } else { format } {
            FormatArg::Table => TableFormat::Table,
            FormatArg::Csv => TableFormat::Csv,
            FormatArg::Json => TableFormat::Json,
        };
        let width = width.or_else(|| terminal::columns().map(TableWidth::Line)).unwrap_or_default();
        let unit = self.of_reports.timeunit.unwrap_or_default();
        StatsOptions { format, unit, width, is_shown: io::stdout().is_terminal() }
    }
}
