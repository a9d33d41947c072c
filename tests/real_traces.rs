//! Every reader and every output over recorded traces of real programs (`testing/fixtures/traces`): each
//! exits as its help documents, and its output can be read.
//!
//! To do the same for all traces of a folder, with the time of each command: `GPUWHY_TRACES=FOLDER cargo test
//! --test main real_traces -- --ignored --nocapture`.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use flate2::read::GzDecoder;
use gpuwhy_export::named::{NamedQuery, QueryKind};
use gpuwhy_export::tables::Table;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::format::{TraceReader, TraceWriter};
use rusqlite::Connection;
use serde::de::IgnoredAny;

use crate::support::{GPUWHY, stderr};

/// Number of commands in parallel.
const WORKERS: usize = 2;
/// Only quick commands run on traces with more bytes: others take a debug build up to minutes.
const WHOLE: u64 = 170_000;
/// Statistics that exist for the kinds of records in large traces.
const FEW_STATISTICS: &str = "cuda_gpu_kern_sum,nvtx_sum,osrt_sum,cuda_memory_usage_sum,cuda_kern_line_sum";

/// Output of a command.
#[derive(Clone, Copy)]
enum Wrote {
    /// Text on stdout.
    Text,
    /// A JSON document on stdout.
    Json,
    /// JSON on stdout, one document per line.
    JsonLines,
    /// An HTML page in the file.
    Page,
    /// A compressed JSON document in the file.
    PackedJson,
    /// Compressed JSON in the file, one document per line.
    PackedJsonLines,
    /// A database in the file.
    Database,
    /// A trace in the file, which another command reads.
    Trace,
    /// Tables below the folder.
    Tables,
    /// Any bytes in the file.
    Bytes,
}

/// A command and its output.
struct Job {
    arguments: Vec<OsString>,
    wrote: Wrote,
    place: PathBuf,
}

impl Job {
    fn new(verb: &str, arguments: &[&dyn AsRef<OsStr>], wrote: Wrote) -> Self {
        let arguments = [OsString::from(verb)].into_iter().chain(arguments.iter().map(|a| a.as_ref().to_owned()));
        Self { arguments: arguments.collect(), wrote, place: PathBuf::new() }
    }

    /// Sets the place of the output.
    fn at(mut self, place: &Path) -> Self {
        self.place = place.to_owned();
        self
    }

    /// Runs the command; the error describes a wrong result.
    fn run(&self, cache: &Path) -> Result<(), String> {
        let mut command = Command::new(GPUWHY);
        command.args(&self.arguments).env("XDG_CACHE_HOME", cache).env_remove("DISPLAY").env_remove("WAYLAND_DISPLAY");
        let output = command.output().map_err(|error| error.to_string())?;
        let said = stderr(&output);
        // 1 means an incomplete result, which stderr explains, or a limit that does not hold: in monitor mode
        // shares are not always known.
        let code = output.status.code();
        let is_lacking = code == Some(1) && (!said.is_empty() || self.arguments[0] == "check");
        if said.contains("panicked") || !(code == Some(0) || is_lacking) {
            return Err(format!("{}: {said}", output.status));
        }
        self.judge(&output)
    }

    fn judge(&self, output: &Output) -> Result<(), String> {
        let failed = |error: &dyn ToString| error.to_string();
        let json = |text: &[u8]| serde_json::from_slice::<IgnoredAny>(text).map(drop).map_err(|error| failed(&error));
        let lines = |text: &[u8]| text.split_inclusive(|&byte| byte == b'\n').try_for_each(json);
        let read = || fs::read(&self.place).map_err(|error| failed(&error));
        let unpacked = || {
            let mut text = Vec::new();
            GzDecoder::new(read()?.as_slice()).read_to_end(&mut text).map_err(|error| failed(&error))?;
            Ok::<_, String>(text)
        };
        let holds = |right: bool, what: &str| if right { Ok(()) } else { Err(what.to_owned()) };
        match self.wrote {
            Wrote::Text => holds(!output.stdout.is_empty(), "nothing on stdout"),
            Wrote::Json => json(&output.stdout),
            Wrote::JsonLines => lines(&output.stdout),
            Wrote::Page => holds(read()?.starts_with(b"<!doctype html>"), "no page"),
            Wrote::PackedJson => json(&unpacked()?),
            Wrote::PackedJsonLines => lines(&unpacked()?),
            Wrote::Bytes => holds(read()?.len() > 100, "nothing in the file"),
            Wrote::Trace => Job::new("top", &[&"--once", &self.place], Wrote::Text).run(Path::new("/nonexistent")),
            Wrote::Database => {
                let database = Connection::open(&self.place).map_err(|error| failed(&error))?;
                let checked = database.query_row("PRAGMA integrity_check", [], |row| row.get::<_, String>(0));
                holds(checked.map_err(|error| failed(&error))? == "ok", "a damaged database")
            }
            Wrote::Tables => {
                let files = parquet_files(&self.place);
                let whole = files.iter().all(|file| {
                    let bytes = fs::read(file).unwrap_or_default();
                    bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1")
                });
                holds(whole && files.len() > 8, "tables are missing or not whole")
            }
        }
    }
}

fn parquet_files(folder: &Path) -> Vec<PathBuf> {
    let entries: Vec<_> = fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path()).collect();
    let of = |path: PathBuf| if path.is_dir() { parquet_files(&path) } else { vec![path] };
    entries.into_iter().flat_map(of).collect()
}

/// A query that reads every column of every table.
fn everything() -> String {
    let counted = Table::ALL.iter().map(|table| {
        let columns: Vec<_> = table.columns().iter().map(|column| format!("count({})", column.name)).collect();
        format!("SELECT '{}' AS name, {} AS cells FROM {}", table.name(), columns.join(" + "), table.name())
    });
    counted.collect::<Vec<_>>().join(" UNION ALL ")
}

/// Copies the records as rank 0 of a job, which `merge` requires.
fn ranked(trace: &Path, out: &Path) {
    let mut reader = TraceReader::new(BufReader::new(File::open(trace).unwrap())).unwrap();
    let mut session = reader.session().clone();
    session.rank_variables = vec![("RANK".to_owned(), "0".to_owned())];
    let mut writer = TraceWriter::new(File::create(out).unwrap(), &session).unwrap();
    while let Some(item) = reader.next_event().unwrap() {
        if matches!(item, Event::Record(_) | Event::Flush(_) | Event::Loss(_) | Event::End(..)) {
            writer.event(&item, reader.dictionary()).unwrap();
        }
    }
    writer.close(reader.dictionary()).unwrap();
}

/// Every command on one trace; without `is_complete` only those that take at most seconds in a debug build.
fn jobs(trace: &Path, folder: &Path, is_complete: bool) -> Vec<Job> {
    let path = |name: &str| folder.join(name);
    let page = path("page.html");
    let mut jobs = vec![
        Job::new("report", &[&trace], Wrote::Text),
        Job::new("report", &[&"--full", &"--recompute", &trace], Wrote::Text),
        Job::new("report", &[&"--json", &trace], Wrote::Json),
        Job::new("report", &[&"--html", &page, &trace], Wrote::Page).at(&page),
        Job::new("diff", &[&"--json", &trace, &trace], Wrote::Json),
        Job::new("check", &[&"--json", &"--share-at-most", &"data_loading=100", &trace], Wrote::JsonLines),
        Job::new("kernels", &[&"--json", &trace], Wrote::JsonLines),
        Job::new("top", &[&"--once", &trace], Wrote::Text),
        Job::new("query", &[&"--json", &"waste", &trace], Wrote::Json),
        Job::new("query", &[&"--json", &FEW_STATISTICS, &trace], Wrote::Json),
    ];
    let mut formats = vec![
        ("perfetto", "perfetto-trace", Wrote::Bytes),
        ("sqlite", "sqlite", Wrote::Database),
        ("parquet", "tables", Wrote::Tables),
    ];
    let copy = path("compact.gpuwhy");
    jobs.push(Job::new("export", &[&"--to", &"gpuwhy", &"-o", &copy, &trace], Wrote::Trace).at(&copy));
    if is_complete {
        let statistics: Vec<_> = NamedQuery::all(QueryKind::Report).iter().map(|report| report.name).collect();
        let (ranks, merged) = (path("rank0.gpuwhy"), path("merged.perfetto-trace"));
        ranked(trace, &ranks);
        jobs.extend([
            Job::new("query", &[&"--json", &statistics.join(","), &trace], Wrote::Json),
            Job::new("query", &[&"--json", &"analyze", &trace], Wrote::Json),
            Job::new("query", &[&"--json", &trace, &everything()], Wrote::Json),
            Job::new("kernels", &[&trace], Wrote::Text),
            Job::new("kernels", &[&"--csv", &trace], Wrote::Text),
            Job::new("top", &[&"--json", &trace], Wrote::JsonLines),
            Job::new("merge", &[&"--json", &"-o", &merged, &ranks], Wrote::Json),
            Job::new("export", &[&"--sizes", &trace], Wrote::Text),
            Job::new("report", &[&"--open", &trace], Wrote::Text),
        ]);
        formats.push(("chrome", "pt.trace.json.gz", Wrote::PackedJson));
        formats.push(("json", "jsonl.gz", Wrote::PackedJsonLines));
    }
    for (format, ending, wrote) in formats {
        let place = path(&format!("out.{ending}"));
        jobs.push(Job::new("export", &[&"--to", &format, &"-o", &place, &trace], wrote).at(&place));
    }
    jobs
}

/// Runs all jobs, some in parallel. Returns the errors, and passes the time of each to the callback.
fn run(jobs: Vec<Job>, cache: &Path, reported: &(dyn Fn(f64, &str) + Sync)) -> Vec<String> {
    let (jobs, wrong) = (Mutex::new(jobs.into_iter()), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                loop {
                    let Some(job) = jobs.lock().unwrap().next() else { break };
                    let arguments: Vec<_> = job.arguments.iter().map(|text| text.to_string_lossy()).collect();
                    let begun = Instant::now();
                    if let Err(why) = job.run(cache) {
                        wrong.lock().unwrap().push(format!("gpuwhy {}\n  {why}", arguments.join(" ")));
                    }
                    reported(begun.elapsed().as_secs_f64(), &arguments.join(" "));
                }
            });
        }
    });
    wrong.into_inner().unwrap()
}

/// Runs every command on the traces of a folder; on those of more than `whole` bytes only the quick ones.
fn over(traces: &Path, whole: u64, reported: &(dyn Fn(f64, &str) + Sync)) {
    let entries = fs::read_dir(traces).unwrap().map(|entry| entry.unwrap().path());
    let traces = entries.filter(|path| path.extension() == Some("gpuwhy".as_ref()));
    let mut traces: Vec<_> = traces.map(|trace| (fs::metadata(&trace).unwrap().len(), trace)).collect();
    // Largest first.
    traces.sort_by(|a, b| b.cmp(a));
    assert!(!traces.is_empty());
    let place = tempfile::tempdir().unwrap();
    let lake = place.path().join("lake");
    let mut added = ["summary", "full"]
        .map(|tier| Job::new("lake", &[&"add", &"--to", &lake, &"--tier", &tier], Wrote::Tables).at(&lake));
    let mut all = Vec::new();
    for (bytes, trace) in &traces {
        let folder = place.path().join(trace.file_stem().unwrap());
        fs::create_dir(&folder).unwrap();
        added[usize::from(*bytes <= whole)].arguments.push(trace.into());
        all.extend(jobs(trace, &folder, *bytes <= whole));
    }
    let added: Vec<_> = added.into_iter().filter(|add| add.arguments.len() > 6).collect();
    let recipes = NamedQuery::all(QueryKind::Recipe).into_iter();
    let recipes = recipes.map(|recipe| Job::new("query", &[&"--json", &recipe.name, &lake], Wrote::Json));
    let compact = Job::new("lake", &[&"compact", &lake], Wrote::Tables).at(&lake);
    // One after the other: each looks at all files of the lake.
    let added = added.into_iter().map(|add| vec![add]);
    let rounds = std::iter::once(all).chain(added).chain([recipes.collect(), vec![compact]]);
    let wrong: Vec<_> = rounds.into_iter().flat_map(|jobs| run(jobs, place.path(), reported)).collect();
    assert!(wrong.is_empty(), "{} commands failed:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn every_reader_and_output_works_on_traces_of_real_programs() {
    over(&Path::new(env!("CARGO_MANIFEST_DIR")).join("testing/fixtures/traces"), WHOLE, &|_, _| ());
}

#[test]
#[ignore = "takes a folder of traces, GPUWHY_TRACES, and some seconds for each"]
fn every_reader_and_output_works_on_all_traces_of_a_folder() {
    let folder = std::env::var_os("GPUWHY_TRACES").expect("GPUWHY_TRACES names the folder");
    over(Path::new(&folder), u64::MAX, &|seconds, command| println!("{seconds:6.2} s  gpuwhy {command:.150}"));
}
