//! Options of `gpuwhy recipe`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::stats::FormArgs;
use crate::recipe::{Engine, Props};

pub(super) const RECIPE_HELP: &str = "\
Without a name, the recipes are listed with what each answers and its parameters. PATH is a lake (gpuwhy lake), in an
object store too for duckdb and spark (s3://bucket/lake), or traces and folders of traces.
The answer is the same from every engine. docs/guide/lake.md has more.

EXIT CODES:
  0  the recipe was answered
  1  answered, but a trace lacks something; stderr says what
  2  there is no such recipe, a file could not be read, or the engine is not there or failed

EXAMPLES:
  gpuwhy recipe
  gpuwhy recipe stragglers run1/
  gpuwhy recipe late_because lake/ --engine duckdb --set excess_us=100
  gpuwhy recipe heatmap lake/ --engine spark --server spark://head:7077 --set leaf=communication --format csv
  gpuwhy recipe waste --engine print | clickhouse-client";

#[derive(Args)]
pub struct RecipeArgs {
    /// The recipe; without one, all are listed
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// A lake, or traces and folders with traces
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Let this engine answer
    #[arg(short, long, value_name = "ENGINE", default_value = "sqlite")]
    engine: EngineArg,
    /// Set a parameter of the recipe; may be repeated
    #[arg(short = 's', long = "set", value_name = "NAME=VALUE", value_parser = pair)]
    values: Vec<(String, String)>,
    /// The command of the engine, or a Python that has its module
    /// [default: found on the PATH]
    #[arg(long = "with", value_name = "PROGRAM")]
    program: Option<PathBuf>,
    /// Spark: a master or sc://HOST:PORT
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    #[command(flatten)]
    form: FormArgs,
    /// Name the run of all traces [default: that of their folder]
    #[arg(long, value_name = "NAME")]
    run: Option<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum EngineArg {
    /// Built in
    Sqlite,
    /// DuckDB: its command, or Python with its module
    Duckdb,
    /// Apache Spark, or what speaks Spark Connect, through pyspark
    Spark,
    /// None: print the SQL
    Print,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("NAME=VALUE is expected")?;
    Ok((name.to_owned(), value.to_owned()))
}

impl From<RecipeArgs> for Props {
    fn from(args: RecipeArgs) -> Self {
        let Some(name) = args.name else { return Self::List };
        Self::Ask {
            name,
            paths: args.paths,
            engine: match args.engine {
                EngineArg::Sqlite => Engine::Sqlite,
                EngineArg::Duckdb => Engine::Duckdb,
                EngineArg::Spark => Engine::Spark,
                EngineArg::Print => Engine::Print,
            },
            values: args.values,
            program: args.program,
            server: args.server,
            options: args.form.into(),
            run: args.run,
        }
    }
}
