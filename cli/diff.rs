//! `gpuwhy diff`: compares two programs, or two versions of one, by traces of one or more runs of each.
//!
//! Comparing and wording are library code ([`gpuwhy_compare::diff`]); this module only sets the order of files,
//! streams and exit codes. Damage has no separate exit code: the comparison lists the limitations of its
//! inputs.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::slice;

use anyhow::Result;
use gpuwhy::Report;
use gpuwhy_compare::diff::compare_runs;
use gpuwhy_compare::diff::json::DiffJson;
use gpuwhy_import::Request;
use gpuwhy_report::text_format::printable;

use crate::args::diff::{DiffArgs, Format};
use crate::{inputs, message, page, progress, terminal};

/// Exit code when the traces are not comparable.
const REFUSED: u8 = 1;
/// Exit code when a trace could not be read.
pub const UNREADABLE: u8 = 2;

/// Prints the comparison and returns the exit code. Reports unreadable traces on stderr. Fails when a folder has no
/// traces, or stdout cannot be written.
pub fn run(args: &DiffArgs) -> Result<u8> {
    let files = [inputs::expanded(slice::from_ref(&args.a))?, inputs::expanded(slice::from_ref(&args.b))?];
    let (mut sides, mut unreadable) = ([Vec::new(), Vec::new()], false);
    for (files, reports) in files.iter().zip(&mut sides) {
        for file in files {
            match progress::opened(file, Request::default()) {
                Ok(report) => reports.push(report),
                Err(error) => {
                    message::say(&error.to_string());
                    unreadable = true;
                }
            }
        }
    }
    if unreadable {
        return Ok(UNREADABLE);
    }
    let [a, b] = sides.each_ref().map(|reports| reports.iter().collect::<Vec<&Report>>());
    let outcome = compare_runs(&a, &b);
    if args.format() == Format::Json {
        io::stdout().write_all(terminal::json(&DiffJson(&outcome))?.as_bytes())?;
    }
    let diff = match outcome {
        Ok(diff) => diff,
        Err(refusal) => {
            message::say(&refusal.to_string());
            return Ok(REFUSED);
        }
    };
    let named = [args.a.clone(), args.b.clone()];
    let names = named.each_ref().map(|path| path.display().to_string());
    let (first, second) = diff.medians;
    if let Some(to) = args.page.target(&named)? {
        let inputs: Vec<PathBuf> = files.concat();
        if diff.runs != (1, 1) {
            message::note("the page shows the runs with the median step");
        }
        let [a_file, b_file] = [&files[0][first], &files[1][second]].map(|path| path.display().to_string());
        page::diff(&diff, (a[first], &a_file), (b[second], &b_file), args.page.title.as_deref(), (&to, &inputs))?;
        return Ok(0);
    }
    match args.format() {
        Format::Json => {}
        Format::Markdown => io::stdout().write_all(diff.markdown(args.top, (&names[0], &names[1])).as_bytes())?,
        Format::Text => {
            let text = diff.text_within(args.top, terminal::style());
            let [a, b] = [(0, first), (1, second)].map(|(side, median): (usize, usize)| {
                let name = printable(&names[side]).into_owned();
                match &files[side][..] {
                    [_] => name,
                    files => {
                        let median = files[median].display().to_string();
                        format!("{name}: {} runs; the median run is {}", files.len(), printable(&median))
                    }
                }
            });
            write!(io::stdout(), "{text}A is {a}\nB is {b}\n")?;
        }
    }
    Ok(0)
}
