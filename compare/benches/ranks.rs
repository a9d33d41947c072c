//! Time and memory of comparing ranks: `cargo bench -p gpuwhy-compare --bench ranks [-- RANKS...]`.
//!
//! Jobs are synthetic as in `tests/ranks_simulated.rs`: 52 collectives per step, 16 steps, drifting clocks,
//! one late rank. Rows are in a temporary file, as `gpuwhy merge` does for many ranks, and the file is in the
//! page cache. The time covers the comparison on one core. Memory is the process's peak resident size as
//! reported by Linux (`VmHWM`), so list sizes in ascending order.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::disallowed_macros,
    reason = "measures time, reads and writes files, prints"
)]

use std::env;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::os::unix::fs::FileExt as _;
use std::time::Instant;

use gpuwhy_compare::ranks::{RankRows, RanksReport, RowSource};
use profiler_core::leaf::Leaf;

use self::job::Job;

#[allow(dead_code, reason = "tests use the other parts")]
mod job {
    include!("../tests/job.rs");
}

/// Numbers of ranks used without arguments.
const SIZES: [u32; 3] = [64, 1_000, 10_000];

/// Rows stored on disk.
struct OnDisk {
    file: File,
    ends: Vec<u64>,
}

impl OnDisk {
    fn of(job: &mut Job) -> Self {
        let path = env::temp_dir().join(format!("gpuwhy-ranks-{}", std::process::id()));
        let mut file = BufWriter::new(File::create_new(&path).expect("a new file"));
        let (mut ends, mut end) = (Vec::new(), 0);
        for place in 0..job.ranks as usize {
            let mut bytes = Vec::new();
            let Ok(()) = job.rows(place, &mut |rows| rows.encode(&mut bytes));
            file.write_all(&bytes).expect("room for the rows");
            end += bytes.len() as u64;
            ends.push(end);
        }
        file.flush().expect("room for the rows");
        drop(file);
        let file = File::open(&path).expect("the file");
        std::fs::remove_file(&path).expect("its folder takes changes");
        Self { file, ends }
    }
}

impl RowSource for OnDisk {
    type Error = std::io::Error;

    fn rows(&mut self, place: usize, visit: &mut dyn FnMut(&RankRows)) -> Result<(), Self::Error> {
        let begin = place.checked_sub(1).map_or(0, |before| self.ends[before]);
        let mut bytes = vec![0; (self.ends[place] - begin) as usize];
        self.file.read_exact_at(&mut bytes, begin)?;
        visit(&RankRows::decode(&bytes).expect("what was written"));
        Ok(())
    }
}

fn main() {
    let named: Vec<u32> = env::args().filter_map(|argument| argument.parse().ok()).collect();
    println!("| ranks | rows | rows on disk, MB | time, s | memory before, MB | memory, MB | rank found |");
    println!("|---|---|---|---|---|---|---|");
    for &ranks in if named.is_empty() { &SIZES[..] } else { &named } {
        let ranks = ranks / job::GROUP * job::GROUP;
        let (compute, excess, late) = (400_000, 2_000_000, ranks / 3);
        let mut job = Job { ranks, steps: 16, layers: 51, compute, late, leaf: Leaf::Compute, excess, clocks: true };
        let summaries = job.summaries();
        let mut rows = OnDisk::of(&mut job);
        let before = peak();
        let begin = Instant::now();
        let report = RanksReport::compare(&summaries, &mut rows).expect("rows that can be read");
        let seconds = begin.elapsed().as_secs_f64();
        let found = report.straggler.map(|straggler| report.rows[straggler.row].rank);
        println!(
            "| {ranks} | {} | {} | {seconds:.2} | {before} | {} | {} |",
            u64::from(ranks) * 16 * 52,
            rows.ends.last().map_or(0, |end| end / 1_000_000),
            peak(),
            if found == Some(late) { "yes" } else { "NO" },
        );
    }
}

/// Peak resident memory, MB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) / 1_000
}
