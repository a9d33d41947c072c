//! Adds source lines to a trace that was recorded without them: `attach TRACE SOURCES OUT`.
//!
//! SOURCES is a folder with the files of the program, or one file that stands for all of its files. As in a recording,
//! the lines are those that the report of the trace names.

use std::error::Error;
use std::fs::{self, File};
use std::path::Path;
use std::{env, io};

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::format::compact::with_source_lines;
use gpuwhy_trace::source_line::{SourceLine, collect};
use profiler_core::attribution::is_library;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [trace, sources, out] = &arguments[..] else { return Err("attach TRACE SOURCES OUT".into()) };
    let report = gpuwhy_import::open(trace)?;
    let text = |file: &str| {
        let name = Path::new(file).file_name()?;
        let path = if Path::new(sources).is_dir() { Path::new(sources).join(name) } else { sources.into() };
        fs::read_to_string(path).ok().filter(|_| !is_library(file))
    };
    let add = |dictionary: &mut Dictionary| {
        let places = report.places();
        let lines = collect(&places, text, |_, row| row.to_owned());
        println!("{} lines", lines.len());
        for (place, line, text) in lines {
            let file = dictionary.intern_name(places[place].0);
            dictionary.add_source_line(SourceLine { file, line, text });
        }
    };
    with_source_lines(io::BufReader::new(File::open(trace)?), File::create_new(out)?, add)
        .map_err(|error| error.to_string())?;
    Ok(())
}
