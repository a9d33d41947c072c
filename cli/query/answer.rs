//! Recipes and SQL, over traces or a lake.

use std::fs::Permissions;
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use anyhow::{Result, bail};
use gpuwhy_export::lake::{self, AddOptions, Lake, Tier};
use gpuwhy_export::named::duckdb;
use gpuwhy_export::query::{Answered, Query};
use gpuwhy_export::tables::{Label, Table, labels};
use gpuwhy_export::{OpenError, TraceFile};

use super::choice::is_lake;
use super::engine::Question;
use crate::args::query::{Engine, OfRecipes, QueryArgs};
use crate::{inputs, message, progress};

/// Prints the result of a query and returns true if no trace lacks data. `recipe` is the name of the query
/// unless it is SQL of the user. Fails when a trace or the lake cannot be read, the engine is missing or
/// fails, or stdout cannot be written.
pub fn run(args: &QueryArgs, recipe: Option<&str>, query: &Query, paths: &[PathBuf]) -> Result<bool> {
    let options = args.options();
    let OfRecipes { engine, program } = &args.of_recipes;
    let engine = engine.unwrap_or(Engine::Sqlite);
    let mut output = BufWriter::new(io::stdout().lock());
    if engine == Engine::Print {
        writeln!(output, "{}", query.sql())?;
        output.flush()?;
        return Ok(true);
    }
    let lake = match paths {
        [] => bail!("{}: name a lake, or traces", recipe.unwrap_or("SQL")),
        [path] if is_lake(path) => Some(Lake::open(path)?),
        _ => None,
    };
    let answered = match (engine, lake) {
        (Engine::Sqlite, Some(lake)) => {
            progress::shown(|progress| query.answer_lake(&lake, &options, &mut output, progress))?
        }
        (Engine::Sqlite, None) => {
            let traces = opened(args, paths)?;
            progress::shown(|progress| query.answer(&traces, &options, &mut output, progress))?
        }
        (_, lake) => {
            let tables = query.tables();
            let (lake, _temporary, notes) = match lake {
                Some(lake) => (lake, None, Vec::new()),
                None => {
                    let (folder, notes) = temporary(&opened(args, paths)?, &tables)?;
                    (Lake::new(folder.path()), Some(folder), notes)
                }
            };
            let rows = Question { sql: query.sql(), tables: &tables, program: program.as_deref() }.duckdb(&lake)?;
            duckdb::print(query.columns(), &rows, &options, &mut output)?;
            let mut answered = Answered { notes, is_empty: rows.is_empty(), empty_tables: Vec::new() };
            for table in tables {
                if answered.is_empty && !lake.has(table)? {
                    answered.empty_tables.push(table);
                }
            }
            answered
        }
    };
    output.flush()?;
    if answered.is_empty {
        say_why_empty(recipe, &answered.empty_tables);
    }
    answered.notes.iter().for_each(|note| message::say(note));
    Ok(answered.notes.is_empty())
}

/// Prints the reason for an empty result. `tables` are the tables of the query that have no rows.
fn say_why_empty(recipe: Option<&str>, tables: &[Table]) {
    let names: Vec<&str> = tables.iter().map(|table| table.name()).collect();
    match (tables, recipe) {
        ([], None) => {}
        ([], Some(recipe)) => message::say(&format!(
            "no rows: nothing meets the conditions of the recipe, see `gpuwhy query --list {recipe}` for its parameters"
        )),
        _ if tables.iter().any(|&table| !Tier::Summary.has(table)) => message::say(&format!(
            "no rows: there are no {} here; a lake has them with `lake add --tier full`",
            names.join(", ")
        )),
        _ => message::say(&format!("no rows: there are no {} here", names.join(", "))),
    }
}

fn opened(args: &QueryArgs, paths: &[PathBuf]) -> Result<Vec<(TraceFile, Label)>> {
    let files: Vec<TraceFile> =
        inputs::expanded(paths)?.iter().map(|path| inputs::open(path, args.pid)).collect::<Result<_, OpenError>>()?;
    let labels = labels(&files, args.run.as_deref());
    Ok(files.into_iter().zip(labels).collect())
}

/// Writes a temporary lake of these traces, for an engine that reads files. Also returns notes on missing
/// data.
fn temporary(traces: &[(TraceFile, Label)], tables: &[Table]) -> Result<(tempfile::TempDir, Vec<String>)> {
    let mode = Permissions::from_mode(0o700);
    let folder = tempfile::Builder::new().permissions(mode).tempdir()?;
    let tier = if tables.iter().all(|&table| Tier::Summary.has(table)) { Tier::Summary } else { Tier::Full };
    let options = AddOptions { tier, ..AddOptions::default() };
    let lake = Lake::new(folder.path());
    let added = progress::shown(|progress| lake::add(traces, &lake, options, progress))?;
    Ok((folder, added.notes))
}
