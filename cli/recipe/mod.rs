//! `gpuwhy recipe`: questions about runs, answered by an SQL engine.
//!
//! Recipes and views are library code (`gpuwhy-export`); here are files, child processes, streams and exit codes.

mod engine;

use std::fs::Permissions;
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use anyhow::{Result, bail};
use gpuwhy_export::lake::{self, AddOptions, Lake, Tier};
use gpuwhy_export::query::Query;
use gpuwhy_export::recipe::{self, Recipe};
use gpuwhy_export::stats::StatsOptions;
use gpuwhy_export::tables::{Label, Table, labels};
use gpuwhy_export::{OpenError, TraceFile};
use serde_json::{Map, Value};

pub use self::engine::Engine;
use self::engine::Question;
use crate::{inputs, message, progress};

/// Exit code when a trace lacks something.
const INCOMPLETE: u8 = 1;
/// Exit code when there is no answer.
pub const FAILED: u8 = 2;

/// What to answer.
#[derive(Debug)]
pub enum Props {
    /// Which recipes there are.
    List,
    /// A recipe.
    Ask {
        /// Its name.
        name: String,
        /// A lake; or traces and folders of traces.
        paths: Vec<PathBuf>,
        /// Who answers.
        engine: Engine,
        /// Parameters: name and value.
        values: Vec<(String, String)>,
        /// The engine's program, unless it is to be found.
        program: Option<PathBuf>,
        /// The engine's server or master.
        server: Option<String>,
        /// How to print the answer.
        options: StatsOptions,
        /// The run that all traces belong to.
        run: Option<String>,
    },
}

/// Prints the answer; gives the exit code.
///
/// # Errors
///
/// When there is no such recipe or parameter, a trace or the lake cannot be read, the engine is not there or fails, or
/// stdout cannot be written.
pub fn run(props: &Props) -> Result<u8> {
    let mut output = BufWriter::new(io::stdout().lock());
    let Props::Ask { name, paths, engine, values, program, server, options, run } = props else {
        output.write_all(listed().as_bytes())?;
        output.flush()?;
        return Ok(0);
    };
    let recipe = Recipe::named(name)?;
    let sql = recipe.sql(values)?;
    let (tables, columns) = recipe.shape(values)?;
    let question = Question { sql: &sql, tables: &tables, program: program.as_deref(), server: server.as_deref() };
    let rows = match (engine, paths.as_slice()) {
        (Engine::Print, _) => {
            writeln!(output, "{sql}")?;
            output.flush()?;
            return Ok(0);
        }
        (_, []) => bail!("{name}: name a lake, or traces"),
        (engine, [lake]) if Lake::new(lake).is_remote() || Lake::new(lake).is_there() => match engine {
            Engine::Duckdb | Engine::Spark => {
                let lake = Lake::open(lake)?;
                let rows = if *engine == Engine::Duckdb { question.duckdb(&lake)? } else { question.spark(&lake)? };
                say_if_empty(&rows, &lake, &tables)?;
                rows
            }
            _ => {
                let query = Query::new(&sql)?;
                let lake = Lake::open(lake)?;
                let answered = progress::shown(|progress| query.answer_lake(&lake, options, &mut output, progress))?;
                output.flush()?;
                if answered.is_empty {
                    say_why_empty(&answered.empty_tables);
                }
                return Ok(0);
            }
        },
        (engine, paths) => {
            let traces = opened(paths, run.as_deref())?;
            let (rows, notes) = match engine {
                Engine::Sqlite => {
                    let query = Query::new(&sql)?;
                    let answered = progress::shown(|progress| query.answer(&traces, options, &mut output, progress))?;
                    output.flush()?;
                    if answered.is_empty {
                        say_why_empty(&answered.empty_tables);
                    }
                    (None, answered.notes)
                }
                engine => {
                    let (folder, notes) = temporary(&traces, &tables)?;
                    let lake = Lake::new(folder.path());
                    let rows = if *engine == Engine::Duckdb { question.duckdb(&lake) } else { question.spark(&lake) };
                    let rows = rows?;
                    say_if_empty(&rows, &lake, &tables)?;
                    (Some(rows), notes)
                }
            };
            if let Some(rows) = rows {
                recipe::print(&columns, &rows, options, &mut output)?;
            }
            output.flush()?;
            notes.iter().for_each(|note| message::say(note));
            return Ok(if notes.is_empty() { 0 } else { INCOMPLETE });
        }
    };
    recipe::print(&columns, &rows, options, &mut output)?;
    output.flush()?;
    Ok(0)
}

fn say_if_empty(rows: &[Map<String, Value>], lake: &Lake, tables: &[Table]) -> Result<()> {
    if rows.is_empty() {
        let mut empty = tables.to_vec();
        for &table in tables {
            if lake.has(table)? {
                empty.retain(|&of| of != table);
            }
        }
        say_why_empty(&empty);
    }
    Ok(())
}

/// Says why an answer has no row. `tables` are those without rows that it reads.
fn say_why_empty(tables: &[Table]) {
    let names: Vec<&str> = tables.iter().map(|table| table.name()).collect();
    match tables {
        [] => {
            message::say("no rows: nothing meets the conditions of the recipe, see `gpuwhy recipe` for its parameters")
        }
        _ if tables.iter().any(|&table| !Tier::Summary.has(table)) => message::say(&format!(
            "no rows: there are no {} here; a lake has them with `lake add --tier full`",
            names.join(", ")
        )),
        _ => message::say(&format!("no rows: there are no {} here", names.join(", "))),
    }
}

fn opened(paths: &[PathBuf], run: Option<&str>) -> Result<Vec<(TraceFile, Label)>> {
    let files: Vec<TraceFile> =
        inputs::expanded(paths)?.iter().map(|path| inputs::open(path, None)).collect::<Result<_, OpenError>>()?;
    let labels = labels(&files, run);
    Ok(files.into_iter().zip(labels).collect())
}

/// A lake of these traces, for an engine that reads files; and what the traces lack.
fn temporary(traces: &[(TraceFile, Label)], tables: &[Table]) -> Result<(tempfile::TempDir, Vec<String>)> {
    let mode = Permissions::from_mode(0o700);
    let folder = tempfile::Builder::new().permissions(mode).tempdir()?;
    let tier = if tables.iter().all(|&table| Tier::Summary.has(table)) { Tier::Summary } else { Tier::Full };
    let options = AddOptions { tier, ..AddOptions::default() };
    let lake = Lake::new(folder.path());
    let added = progress::shown(|progress| lake::add(traces, &lake, options, progress))?;
    Ok((folder, added.notes))
}

/// The recipes, for people.
fn listed() -> String {
    let mut text = String::new();
    for recipe in Recipe::all() {
        text.push_str(&format!("{:<16} {}\n", recipe.name, recipe.about));
        for note in &recipe.notes {
            text.push_str(&format!("{:<16} {note}\n", ""));
        }
        for parameter in &recipe.parameters {
            let range = match parameter.range {
                Some((least, most)) => format!("{least} to {most}"),
                None => "a word".to_owned(),
            };
            let (name, default, about) = (parameter.name, parameter.default, parameter.about);
            text.push_str(&format!("{:<16}   --set {name}={default}  {about} ({range})\n", ""));
        }
    }
    text
}
