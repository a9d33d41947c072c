//! Time to compact a lake, and of queries with a join: `cargo bench -p gpuwhy-export --bench lake -- LAKE`, with a lake
//! that the example `simulated_lake` wrote. The lake stays compact.
//!
//! SQLite joins each collective with the last rank of its collective instance, by four indexed columns, and runs the
//! recipe `late_because`. Each is timed once, in wall time.

use std::time::Instant;

use gpuwhy_export::lake::{CompactOptions, Lake, compact};
use gpuwhy_export::named::NamedQuery;
use gpuwhy_export::query::Query;
use gpuwhy_export::stats::StatsOptions;
use gpuwhy_export::unwatched;

fn main() {
    let Some(folder) = std::env::args().skip(1).find(|argument| !argument.starts_with("--")) else {
        println!("name a lake, such as one of the example simulated_lake");
        return;
    };
    let lake = Lake::new(folder.as_ref());
    let begin = Instant::now();
    let done = compact(&lake, CompactOptions::default(), &mut unwatched).expect("a compact lake");
    println!(
        "compacted in {:.2} s: {} files with {} bytes instead of {} with {}",
        begin.elapsed().as_secs_f64(),
        done.after,
        done.bytes_after,
        done.before,
        done.bytes_before
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
