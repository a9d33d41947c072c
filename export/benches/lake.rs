//! Bytes per rank and step in the lake, and the time of a query with a join: `cargo bench -p gpuwhy-export
//! --features testing --bench lake [-- RANKS STEPS]`.
//!
//! The job is simulated (`lake::simulated`), with 52 collectives per step. SQLite joins each collective with
//! the last rank of its collective instance, by four indexed columns, and runs the recipe `late_because`.
//! Each is timed once, in wall time.

use std::time::Instant;

use gpuwhy_export::lake::simulated::Job;
use gpuwhy_export::lake::{CompactOptions, Lake, compact};
use gpuwhy_export::named::NamedQuery;
use gpuwhy_export::query::Query;
use gpuwhy_export::stats::StatsOptions;
use gpuwhy_export::unwatched;

fn main() {
    let numbers: Vec<u32> = std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    let (ranks, steps) = match numbers.as_slice() {
        [ranks, steps, ..] => (*ranks, *steps),
        _ => (64, 90),
    };
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let lake = Lake::new(folder.path());
    let job = Job { run: "job".to_owned(), ranks, steps, collectives: 52, culprit: ranks / 3, late_ns: 2_000_000 };
    let begin = Instant::now();
    let (truth, files) = job.write(&lake).expect("a lake");
    let bytes: u64 = files.iter().map(|file| file.metadata().expect("a file").len()).sum();
    let each = f64::from(ranks) * f64::from(steps);
    println!("{ranks} ranks, {steps} steps: {} rows, {bytes} bytes in {} files", truth.rows, files.len());
    println!("written in {:.2} s, {:.0} bytes a rank and step", begin.elapsed().as_secs_f64(), bytes as f64 / each);
    let begin = Instant::now();
    let done = compact(&lake, CompactOptions::default(), &mut unwatched).expect("a compact lake");
    println!(
        "compacted in {:.2} s: {} files, {:.0} bytes a rank and step",
        begin.elapsed().as_secs_f64(),
        done.after,
        done.bytes_after as f64 / each
    );
    let late = NamedQuery::named("late_because").expect("a recipe").sql();
    for (name, sql) in [("join of collectives", JOIN), ("late_because", late.as_str())] {
        let begin = Instant::now();
        let query = Query::new(sql).expect("SQL");
        query.answer_lake(&lake, &StatsOptions::default(), &mut std::io::sink(), &mut unwatched).expect("an answer");
        println!("{name} by SQLite: {:.2} s", begin.elapsed().as_secs_f64());
    }
}

/// Time that ranks waited for the last rank of each collective instance.
const JOIN: &str = "WITH latest AS (
    SELECT run, communicator, function, sequence, MAX(start_ns) AS latest_ns FROM collectives
    GROUP BY run, communicator, function, sequence)
  SELECT c.rank, SUM(o.latest_ns - c.start_ns) FROM collectives c
  JOIN latest o ON o.run = c.run AND o.communicator = c.communicator AND o.function = c.function
    AND o.sequence = c.sequence
  GROUP BY c.rank";
