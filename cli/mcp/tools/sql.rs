//! The tool `query`: SQL over the records of traces.

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::{Context as _, Result, anyhow, bail};
use gpuwhy_export::TraceFile;
use gpuwhy_export::query::{Query, described};
use gpuwhy_export::stats::{StatsOptions, TableFormat};
use gpuwhy_export::tables::labels;
use gpuwhy_import::unwatched;
use serde_json::Value;

use crate::mcp::answer::{Answer, Page, Total};
use crate::mcp::arguments::Arguments;
use crate::mcp::context::Context;

/// Most bytes of the result, before rows and texts are cut.
const MOST_BYTES: usize = 8 << 20;
/// Most traces of a query.
const MOST_TRACES: usize = 64;

pub fn query(context: &mut Context, arguments: &Arguments) -> Result<Answer> {
    let Some(sql) = arguments.text("sql") else { return tables(arguments) };
    // Errors are about the query as it was written.
    Query::new(sql)?;
    let page = Page { offset: arguments.count("offset", 0), limit: arguments.count("limit", 50) };
    let inner = sql.trim_end().trim_end_matches(';');
    // One more row shows that there are more.
    let limited = format!("SELECT * FROM ({inner}\n) LIMIT {} OFFSET {}", page.limit + 1, page.offset);
    let limited = Query::new(&limited)?;
    let Opened { paths, files, left_out } = opened(context, arguments)?;
    let labels = labels(&files, None);
    let traces: Vec<_> = files.into_iter().zip(labels).collect();
    let options = StatsOptions { format: TableFormat::Json, ..StatsOptions::default() };
    let mut output = Bounded(Vec::new());
    let answered = limited.answer(&traces, &options, &mut output, &mut unwatched).map_err(|error| {
        if output.0.len() >= MOST_BYTES {
            return anyhow!("query: the result is larger than {MOST_BYTES} bytes: select fewer columns or rows");
        }
        error.into()
    })?;
    let rows: Vec<Value> = serde_json::from_slice(&output.0).context("query: the result is no JSON")?;
    let mut answer = Answer::default();
    answer.fact("traces", paths.iter().map(|path| context.folder.shown(path)).collect::<Vec<_>>());
    if rows.is_empty() && page.offset == 0 {
        let empty: Vec<_> = answered.empty_tables.iter().map(|table| table.name()).collect();
        answer.note(match &empty[..] {
            [] => "no row meets the conditions".to_owned(),
            empty => format!("no rows: the traces have no {}", empty.join(", ")),
        });
    }
    left_out.into_iter().chain(answered.notes).for_each(|note| answer.note(note));
    let all = page.offset + rows.len();
    answer.rows("rows", rows, Total::AtLeast(all), page);
    Ok(answer)
}

/// The traces of a query, and sentences about files that are left out.
struct Opened {
    paths: Vec<PathBuf>,
    files: Vec<TraceFile>,
    left_out: Vec<String>,
}

/// Opens the traces that the arguments name, and those in folders. Only in a folder, files that are no traces are left
/// out.
fn opened(context: &Context, arguments: &Arguments) -> Result<Opened> {
    let (mut found, mut left_out) = (Vec::new(), Vec::new());
    let one = arguments.text("trace");
    let several = arguments.texts("traces").unwrap_or_default();
    let named: Vec<_> = one.into_iter().chain(several).collect();
    for name in if named.is_empty() { vec!["."] } else { named } {
        let path = context.folder.resolved(name)?;
        if path.is_dir() {
            let (traces, skipped) =
                context.folder.traces(&path).with_context(|| format!("{name}: cannot read this folder"))?;
            left_out.extend(skipped);
            found.extend(traces.into_iter().map(|trace| (trace, false)));
        } else {
            found.push((path, true));
        }
    }
    if found.len() > MOST_TRACES {
        bail!("{} traces: at most {MOST_TRACES} can be asked at once; name them in `traces`", found.len());
    }
    let (mut paths, mut files) = (Vec::new(), Vec::new());
    for (path, is_named) in found {
        match TraceFile::open(&path) {
            Ok(file) => {
                paths.push(path);
                files.push(file);
            }
            Err(error) if is_named => return Err(error.into()),
            Err(error) => left_out.push(format!("left out: {error}")),
        }
    }
    if files.is_empty() {
        bail!(
            "query: there is no trace to ask; `list_traces` lists those below {}\n{}",
            context.folder,
            left_out.join("\n")
        );
    }
    // An answer has room for few sentences.
    if left_out.len() > 2 {
        let more = left_out.len() - 1;
        left_out.truncate(1);
        left_out.push(format!("{more} more files or kinds of files are left out"));
    }
    Ok(Opened { paths, files, left_out })
}

/// The tables and their columns, or those of one table.
fn tables(arguments: &Arguments) -> Result<Answer> {
    let all = described();
    let offset = arguments.count("offset", 0);
    let of = |table: &str| all.split("\n\n").find(|text| text.trim_start().split(':').next() == Some(table));
    match arguments.text("table") {
        Some(table) => {
            let names: Vec<_> =
                all.split("\n\n").skip(1).filter_map(|text| text.trim_start().split(':').next()).collect();
            let text =
                of(table).with_context(|| format!("there is no table {table:?}; there are: {}", names.join(", ")))?;
            Ok(Answer::only_text(text, offset))
        }
        None => Ok(Answer::only_text(&all, offset)),
    }
}

/// Bytes up to a limit; beyond it, writing fails.
struct Bounded(Vec<u8>);

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = MOST_BYTES - self.0.len();
        let written = room.min(bytes.len());
        self.0.extend_from_slice(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
