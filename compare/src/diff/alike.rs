//! Conditions for several traces to be runs of one program.

use std::error::Error;
use std::fmt;

use super::compared::SAME_PROGRAM;
use super::rows;
use gpuwhy_report::run::Report;

/// Largest number of runs of a side.
pub const MOST_RUNS: usize = 50;

/// Reason why traces are not runs of one program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NotAlike {
    /// There are none, or more than [`MOST_RUNS`].
    Number(usize),
    /// They are processes of one job.
    Ranks,
    /// Those with these indices are of one run.
    SameRun(usize, usize),
    /// The one with this index recorded no kernels, as in mode monitor.
    NoKernels(usize),
    /// The one with this index executes different kernels than the first. Contains the similarity, 0 to 1.
    OtherProgram(usize, f64),
}

impl fmt::Display for NotAlike {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(count) => write!(f, "{count} runs: 1 to {MOST_RUNS} can be compared"),
            Self::Ranks => f.write_str(
                "these are ranks of one job, not repetitions of it: `gpuwhy merge` compares ranks; here name the trace of \
                 one rank, or a folder with that rank's trace of each run",
            ),
            Self::SameRun(first, second) => write!(
                f,
                "traces {} and {} are of one run, which would count twice: remove one of them",
                first + 1,
                second + 1
            ),
            Self::NoKernels(run) => {
                write!(f, "trace {} has no kernels to compare; if it was recorded in mode monitor, use --mode light", run + 1)
            }
            Self::OtherProgram(run, similarity) => write!(
                f,
                "trace {} is of another program than the first: {:.0} % of their kernel executions agree by name, {:.0} % \
                 must",
                run + 1,
                similarity * 100.0,
                SAME_PROGRAM * 100.0
            ),
        }
    }
}

impl Error for NotAlike {}

/// Smallest similarity of a run to the first one, 0 to 1.
///
/// # Errors
/// The reason if they are not runs of one program.
pub fn alike(runs: &[&Report]) -> Result<f64, NotAlike> {
    let (Some(first), true) = (runs.first(), runs.len() <= MOST_RUNS) else {
        return Err(NotAlike::Number(runs.len()));
    };
    let mut smallest = 1.0_f64;
    for (at, run) in runs.iter().enumerate() {
        let process = &run.process;
        for (before, other) in runs[..at].iter().enumerate() {
            let of = &other.process;
            let is_same = (&of.host, of.process_id, of.start) == (&process.host, process.process_id, process.start);
            // Imported files may have no start.
            if is_same && process.start.nanos() > 0 {
                return Err(NotAlike::SameRun(before, at));
            }
            if process.world_size().is_some_and(|size| size > 1) && process.rank() != of.rank() {
                return Err(NotAlike::Ranks);
            }
        }
        if run.devices.iter().all(|device| device.kernels.is_empty()) {
            return Err(NotAlike::NoKernels(at));
        }
        let similarity = rows::similarity(&first.devices, &run.devices);
        if similarity < SAME_PROGRAM {
            return Err(NotAlike::OtherProgram(at, similarity));
        }
        smallest = smallest.min(similarity);
    }
    Ok(smallest)
}
