//! Writes simulated jobs with a known culprit to a lake, and prints the ground truth as JSON: `cargo run -p
//! gpuwhy-export --features testing --example simulated_lake -- LAKE RANKS STEPS [RUNS]`.

use std::path::Path;

use gpuwhy_export::lake::Lake;
use gpuwhy_export::lake::simulated::Job;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [lake, ranks, steps, rest @ ..] = arguments.as_slice() else { panic!("LAKE RANKS STEPS [RUNS] are expected") };
    let number = |text: &String| text.parse::<u32>().expect("a number");
    let (ranks, runs) = (number(ranks), rest.first().map_or(1, number));
    for run in 0..runs {
        let job = Job {
            run: format!("simulated-{run}"),
            ranks,
            steps: number(steps),
            collectives: 52,
            culprit: (ranks / 3 + run) % ranks,
            late_ns: 2_000_000,
        };
        let (truth, files) = job.write(&Lake::new(Path::new(lake))).expect("a lake");
        let bytes: u64 = files.iter().map(|file| file.metadata().expect("a file").len()).sum();
        println!(
            r#"{{"run": "{}", "culprit": {}, "waited_ns": {}, "awaited_ns": {}, "rows": {}, "files": {}, "bytes": {bytes}}}"#,
            job.run,
            job.culprit,
            truth.waited_ns,
            truth.awaited_ns,
            truth.rows,
            files.len()
        );
    }
}
