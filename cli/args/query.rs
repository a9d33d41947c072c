//! Options of `gpuwhy query`.

use std::path::PathBuf;

use clap::Args;

use super::stats::FormArgs;
use crate::query;

pub(super) const QUERY_HELP: &str = "\
The tables are those of `gpuwhy export --to parquet`, over all traces at once; `run` and `rank` name the trace of a row.
A folder means the traces in it. The dialect is that of SQLite. A query is checked before a trace is read, and only
the columns that it uses are made.

Times (start_ns, end_ns, at_ns) are nanoseconds since the Unix epoch. For times since the start of tracing, as in
--filter-time, use start_ns - (SELECT start_ns FROM processes). Quote columns with \", texts with '.

EXIT CODES:
  0  the query was answered
  1  answered, but a trace lacks something; stderr says what
  2  the query is wrong, or a trace could not be read

EXAMPLES:
  gpuwhy query --tables
  gpuwhy query gpuwhy-4711.gpuwhy \\
    'SELECT name, count(*), sum(duration_ns) FROM kernels GROUP BY name ORDER BY 3 DESC LIMIT 5'
  gpuwhy query run1/ 'SELECT rank, sum(duration_ns) FROM kernels WHERE communication GROUP BY rank'
  gpuwhy query --format csv run1/ run2/ 'SELECT run, leaf, sum(duration_ns) FROM leaves GROUP BY 1, 2' > leaves.csv";

#[derive(Args)]
pub struct QueryArgs {
    /// Traces or folders with traces, then the query
    #[arg(required_unless_present = "tables", num_args = 2.., value_names = ["TRACE", "SQL"])]
    traces_and_sql: Vec<String>,
    #[command(flatten)]
    form: FormArgs,
    /// Name the run of all traces [default: that of their folder]
    #[arg(long, value_name = "NAME")]
    run: Option<String>,
    /// List the tables and their columns
    #[arg(long, exclusive = true)]
    tables: bool,
}

impl From<QueryArgs> for query::Props {
    fn from(args: QueryArgs) -> Self {
        let mut traces = args.traces_and_sql;
        match traces.pop() {
            Some(sql) if !args.tables => Self::Ask {
                traces: traces.into_iter().map(PathBuf::from).collect(),
                sql,
                options: args.form.into(),
                run: args.run,
            },
            _ => Self::Tables,
        }
    }
}
