//! Lines of source code around those that the report names, if requested.
//!
//! A trace may come from another person, and a page may be shared with one: so only files that look like source code
//! are read, and a few lines of each. The lines in a trace say what a line does, with gaps, and older traces and those
//! of other profilers have none: so this reads the files.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;
use std::time::{Duration, SystemTime};

use gpuwhy_report::run::Report;
use gpuwhy_trace::record::Timestamp;
use gpuwhy_trace::source_line::is_source;
use serde::Serialize;

use crate::escape::shown;

/// Maximum number of lines of the report that are shown with their surroundings.
const MOST: usize = 32;
/// Number of lines before and after each.
const AROUND: u32 = 3;
/// Maximum size of a file, bytes.
const LARGEST: u64 = 4 << 20;
/// Maximum number of letters shown per line.
const WIDEST: usize = 200;

/// A line of the report with its surroundings.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Excerpt {
    pub(crate) file: String,
    pub(crate) line: u32,
    /// Number of the first line of `text`.
    pub(crate) first: u32,
    pub(crate) text: Vec<String>,
}

#[derive(Debug, Default)]
pub(crate) struct Sources {
    pub(crate) excerpts: Vec<Excerpt>,
    /// Sources that could not be shown, one sentence each.
    pub(crate) notes: Vec<String>,
}

/// Reason why a file is not shown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Refused {
    /// It does not exist, cannot be read, is too large, or has no such line.
    Unreadable,
    /// It was written after the start of the run, so its lines may differ.
    Changed,
    /// It does not look like source code.
    Other,
}

impl Sources {
    /// Surroundings of the lines that a report names: lines of idle time first, then lines of launches.
    pub(crate) fn of(report: &Report) -> Self {
        let idle = report.host.iter().flat_map(|host| &host.lines).map(|row| (row.file.as_str(), row.line));
        let launches = report.kernel_lines.iter().flat_map(|known| &known.lines);
        let launches = launches.map(|row| (row.place.file.as_str(), row.place.line));
        let mut places: Vec<(&str, u32)> = Vec::new();
        // Line 0 means code without lines, such as native functions.
        for place in idle.chain(launches).filter(|&(file, line)| line > 0 && !file.starts_with('<')) {
            if places.len() < MOST && !places.contains(&place) {
                places.push(place);
            }
        }
        let mut sources = Self::default();
        let mut refused = Vec::new();
        for (file, line) in places {
            match excerpt(file, line, report.process.start) {
                Ok(excerpt) => sources.excerpts.push(excerpt),
                Err(why) => refused.push((file, why)),
            }
        }
        for (why, what) in [
            (Refused::Unreadable, "cannot be read here"),
            (Refused::Changed, "were written after the run began"),
            (Refused::Other, "do not end as files of source code do"),
        ] {
            let mut files: Vec<&str> = refused.iter().filter(|(_, of)| *of == why).map(|(file, _)| *file).collect();
            files.sort_unstable();
            files.dedup();
            if let Some(first) = files.first() {
                let count = files.len();
                sources.notes.push(format!("Source code is not shown of {count} files that {what}, such as {first}."));
            }
        }
        sources
    }
}

fn excerpt(file: &str, line: u32, began: Timestamp) -> Result<Excerpt, Refused> {
    let path = Path::new(file);
    if !path.is_absolute() || !is_source(file) {
        return Err(Refused::Other);
    }
    let text = read(path, began).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidData => Refused::Changed,
        _ => Refused::Unreadable,
    })?;
    let first = line.saturating_sub(AROUND).max(1);
    let rows = text.lines().skip(first as usize - 1).take((line - first + 1 + AROUND) as usize);
    let rows = rows.map(|row| row.replace('\t', "    "));
    let text: Vec<String> = rows.map(|row| shown(&row.chars().take(WIDEST).collect::<String>()).into_owned()).collect();
    if first as usize + text.len() <= line as usize {
        return Err(Refused::Unreadable);
    }
    Ok(Excerpt { file: shown(file).into_owned(), line, first, text })
}

/// Reads the text of a file; `InvalidData` means that it was written after `began`.
fn read(path: &Path, began: Timestamp) -> io::Result<String> {
    // Checked before opening: opening a pipe would wait for a writer.
    let known = fs::metadata(path)?;
    if !known.is_file() || known.len() > LARGEST {
        return Err(io::ErrorKind::Unsupported.into());
    }
    if known.modified()? > SystemTime::UNIX_EPOCH + Duration::from_nanos(began.nanos()) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(LARGEST).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_its_surroundings_and_only_source_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let rows: Vec<String> = (1..=9).map(|number| format!("line {number}\u{202e}")).collect();
        for name in ["train.py", "secret.pem"] {
            fs::write(path(name), rows.join("\n")).unwrap();
        }
        let later = Timestamp::from_nanos(u64::MAX);
        let at = |name: &str, line| excerpt(&path(name), line, later).map_err(|why| why as u8);
        let found = at("train.py", 2).unwrap();
        assert_eq!((found.first, found.text.len(), found.text[1].starts_with("line 2")), (1, 5, true));
        assert!(!found.text[1].contains('\u{202e}'), "nothing moves text about");
        assert_eq!(at("train.py", 9).unwrap().text.len(), 4);
        let reported = |why: Refused| Err(why as u8);
        assert_eq!(at("train.py", 10), reported(Refused::Unreadable));
        assert_eq!(at("train.py", u32::MAX), reported(Refused::Unreadable));
        assert_eq!(at("none.py", 1), reported(Refused::Unreadable));
        assert_eq!(at("secret.pem", 1), reported(Refused::Other));
        fs::create_dir(path("folder.py")).unwrap();
        assert_eq!(at("folder.py", 1), reported(Refused::Unreadable));
        let before = excerpt(&path("train.py"), 1, Timestamp::from_nanos(1)).map_err(|why| why as u8);
        assert_eq!(before, reported(Refused::Changed));
        let relative = excerpt("train.py", 1, later).map_err(|why| why as u8);
        assert_eq!(relative, reported(Refused::Other));
    }
}
