//! `gpuwhy query`: named queries and SQL over traces and lakes.
//!
//! Running queries is library code (`gpuwhy-export`); this module handles names, options, files, child
//! processes, streams and exit codes. [`choice`] selects the query, [`reports`] prints reports and rules,
//! [`answer`] SQL and recipes, which may run on another [`engine`].

mod answer;
mod choice;
mod engine;
mod reports;

use std::io::{self, Write as _};

use anyhow::Result;
use gpuwhy_export::{ExportError, query};

use self::choice::Choice;
use crate::args::query::QueryArgs;

/// Exit code when a trace is incomplete.
const INCOMPLETE: u8 = 1;
/// Exit code when there is no result.
pub const FAILED: u8 = 2;

/// Prints the result; returns the exit code. Fails when there is no such query or parameter, an option does
/// not apply, a trace or lake cannot be read, the engine is missing or fails, or stdout cannot be written.
pub fn run(args: &QueryArgs) -> Result<u8> {
    if args.tables || args.list {
        let text = if args.tables { query::described() } else { choice::listed(args)? };
        io::stdout().write_all(text.as_bytes())?;
        return Ok(0);
    }
    let (choice, paths) = Choice::of(args)?;
    let is_complete = match &choice {
        Choice::Reports(reports) => reports::run(args, reports, &paths),
        Choice::Recipe(recipe) => answer::run(args, Some(recipe.name), &recipe.query()?, &paths),
        Choice::Sql(sql) => answer::run(args, None, &query::Query::new(sql)?, &paths),
    };
    match is_complete {
        Err(error) if error.downcast_ref().is_some_and(ExportError::is_broken_pipe) => Ok(0),
        is_complete => Ok(if is_complete? { 0 } else { INCOMPLETE }),
    }
}
