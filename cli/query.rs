//! `gpuwhy query`: SQL over traces.
//!
//! Answering is library code (`gpuwhy-export`); here are the order of files, streams and exit codes.

use std::io::{self, BufWriter, Write as _};
use std::path::PathBuf;

use anyhow::Result;
use gpuwhy_export::query::{self, Query};
use gpuwhy_export::stats::StatsOptions;
use gpuwhy_export::tables::labels;
use gpuwhy_export::{OpenError, TraceFile};

use crate::{inputs, message, progress};

/// Exit code when a trace lacks something.
const INCOMPLETE: u8 = 1;
/// Exit code when there is no answer.
pub const FAILED: u8 = 2;

/// What to answer.
#[derive(Debug)]
pub enum Props {
    /// Which tables there are.
    Tables,
    /// A query.
    Ask {
        /// Traces and folders of traces.
        traces: Vec<PathBuf>,
        /// The query.
        sql: String,
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
/// When the query is wrong, a trace cannot be read, or stdout cannot be written.
pub fn run(props: &Props) -> Result<u8> {
    let mut output = BufWriter::new(io::stdout().lock());
    let Props::Ask { traces, sql, options, run } = props else {
        output.write_all(query::described().as_bytes())?;
        output.flush()?;
        return Ok(0);
    };
    let query = Query::new(sql)?;
    let files: Vec<TraceFile> =
        inputs::expanded(traces)?.iter().map(|path| inputs::open(path, None)).collect::<Result<_, OpenError>>()?;
    let labels = labels(&files, run.as_deref());
    let labeled: Vec<_> = files.into_iter().zip(labels).collect();
    let answered = match progress::shown(|progress| query.answer(&labeled, options, &mut output, progress)) {
        Err(error) if error.is_broken_pipe() => return Ok(0),
        answered => answered?,
    };
    output.flush()?;
    for note in &answered.notes {
        message::say(note);
    }
    Ok(if answered.notes.is_empty() { 0 } else { INCOMPLETE })
}
