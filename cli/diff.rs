//! `gpuwhy diff`: compares two traces of one program.
//!
//! Comparing and wording are library code ([`gpuwhy::compare`]); this module only sets the order of files,
//! streams and exit codes. Damage has no separate exit code: the comparison lists the limitations of its
//! inputs.

use std::io::{self, Write as _};

use anyhow::Result;
use gpuwhy_import::Request;
use gpuwhy_report::diff::json::DiffJson;
use gpuwhy_report::text_format::printable;

use crate::args::diff::DiffArgs;
use crate::{message, page, progress, terminal};

/// Exit code when the traces are not comparable.
const REFUSED: u8 = 1;
/// Exit code when a trace could not be read.
pub const UNREADABLE: u8 = 2;

/// Prints the comparison and returns the exit code. Reports unreadable traces on stderr. Fails when stdout
/// cannot be written.
pub fn run(args: &DiffArgs) -> Result<u8> {
    let opened = |file| progress::opened(file, Request::default());
    let (a, b) = match (opened(&args.a), opened(&args.b)) {
        (Ok(a), Ok(b)) => (a, b),
        (a, b) => {
            for error in [a.err(), b.err()].into_iter().flatten() {
                message::say(&error.to_string());
            }
            return Ok(UNREADABLE);
        }
    };
    let outcome = gpuwhy::compare(&a, &b);
    if args.json {
        io::stdout().write_all(terminal::json(&DiffJson(&outcome))?.as_bytes())?;
    }
    let diff = match outcome {
        Ok(diff) => diff,
        Err(refusal) => {
            message::say(&refusal.to_string());
            return Ok(REFUSED);
        }
    };
    let inputs = [args.a.clone(), args.b.clone()];
    if let Some(to) = args.page.target(&inputs)? {
        let [name_a, name_b] = [&args.a, &args.b].map(|path| path.display().to_string());
        page::diff(&diff, (&a, &name_a), (&b, &name_b), args.page.title.as_deref(), (&to, &inputs))?;
    } else if !args.json {
        let [a, b] = [&args.a, &args.b].map(|path| path.display().to_string());
        let text = diff.text_within(args.top, terminal::style());
        write!(io::stdout(), "{text}A is {}\nB is {}\n", printable(&a), printable(&b))?;
    }
    Ok(0)
}
