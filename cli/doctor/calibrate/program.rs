//! The program that a calibration measures, with tracing and without: loops of calls, each printed as nanoseconds a
//! call or a gap.
//!
//! Times on the launching thread are those of the calls alone, on a device that has nothing to do, and fewer calls than
//! its queue holds. Times on the device are those of many operations in a row, queued behind a long kernel so that the
//! host is never late, less the time of one kernel that spins for as long as all of them: what is left is gaps. Both
//! are measured one right after the other, so the clock of the device has no time to change.

use std::io::{self, Write as _};
use std::time::Instant;

use anyhow::Result;

use super::driver::{Driver, Graph};
use crate::doctor::check;

/// Name of the hidden subcommand.
pub const SUBCOMMAND: &str = "calibration-program";

/// Before each name of the GPU.
pub const GPU: &str = "gpu";
/// The last line.
pub const DONE: &str = "done";

/// What is measured, in the order in which it is printed: nanoseconds each.
pub const LOOPS: [&str; 9] =
    ["launch", "launch_cold", "copy", "call", "graph_short", "graph_long", "kernel_gap", "node_gap", "memset_node_gap"];
/// As above, of pairs of a kernel and a copy: the gap before the copy with what the copy takes, and one before a
/// kernel.
pub const COPY_PAIR: &str = "copy_pair";

/// How often each loop runs, after one time that does not count.
const REPETITIONS: usize = 7;
/// Calls in a row: below the 1,024 launches that a stream takes before the host has to wait.
const CALLS: u64 = 500;
/// Walked through between two launches that do not follow each other at once, bytes: several times the first cache of a
/// core, and some 10 us.
const WALKED: usize = 256 << 10;
/// A line of a processor's cache, bytes.
const CACHE_LINE: usize = 64;
/// Operations in a row on the device.
const QUEUED: u64 = 200;
/// Nodes of the short and of the long graph.
pub const SHORT: u64 = 20;
/// See [`SHORT`].
pub const LONG: u64 = 200;
/// A kernel, as long as those of eager programs, nanoseconds.
const KERNEL: u64 = 20_000;
/// A node of a graph, nanoseconds.
const NODE: u64 = 5_000;
/// The kernel behind which operations are queued, nanoseconds: 10 us for each launch.
const HEAD: u64 = 4_000_000;

/// The child: prints the GPU, a line for each repetition of each loop, and a last line. Fails when there is no driver
/// or GPU, when a call fails, or when stdout is gone.
pub fn run() -> Result<u8> {
    let driver = match Driver::open() {
        Ok(driver) => driver,
        Err(error) => {
            writeln!(io::stdout(), "error {error:#}")?;
            return Ok(check::FAILED);
        }
    };
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{GPU} {}", driver.name.replace('\n', " "))?;
    let kernels = |count: u64| driver.graph(|driver| (0..count).try_for_each(|_| driver.spin(NODE)));
    let (short, long) = (kernels(SHORT)?, kernels(LONG)?);
    let memsets = driver.graph(|driver| {
        (0..LONG / 2).try_for_each(|_| {
            driver.spin(NODE)?;
            driver.memset()
        })
    })?;
    for repetition in 0..=REPETITIONS {
        let measured = [
            host(&driver, CALLS, Driver::empty)?,
            cold(&driver)?,
            host(&driver, CALLS / 2, |driver| {
                driver.copy()?;
                driver.memset()
            })? / 2.0,
            host(&driver, CALLS, Driver::wait)?,
            launch(&driver, &short)?,
            launch(&driver, &long)?,
            gap(&driver, QUEUED, QUEUED * KERNEL, |driver| (0..QUEUED).try_for_each(|_| driver.spin(KERNEL)))?,
            gap(&driver, LONG, LONG * NODE, |driver| driver.launch(&long))?,
            gap(&driver, LONG, LONG / 2 * NODE, |driver| driver.launch(&memsets))?,
        ];
        let pair = gap(&driver, QUEUED, QUEUED * KERNEL, |driver| {
            (0..QUEUED).try_for_each(|_| {
                driver.spin(KERNEL)?;
                driver.copy()
            })
        })?;
        if repetition > 0 {
            for (name, nanos) in LOOPS.iter().zip(measured).chain([(&COPY_PAIR, pair)]) {
                writeln!(stdout, "{name} {nanos:.1}")?;
            }
        }
    }
    writeln!(stdout, "{DONE}")?;
    Ok(0)
}

/// Nanoseconds of one of so many calls, on the host.
fn host(driver: &Driver, count: u64, call: impl Fn(&Driver) -> Result<()>) -> Result<f64> {
    driver.wait()?;
    let begun = Instant::now();
    for _ in 0..count {
        call(driver)?;
    }
    let nanos = begun.elapsed().as_nanos() as f64;
    driver.wait()?;
    Ok(nanos / count as f64)
}

/// Nanoseconds of a launch after other work: the calls alone, with so much memory walked through before each of them
/// that the nearest caches of the processor hold nothing else.
fn cold(driver: &Driver) -> Result<f64> {
    let mut memory = vec![1_u8; WALKED];
    driver.wait()?;
    let mut nanos = 0;
    for _ in 0..CALLS {
        memory.iter_mut().step_by(CACHE_LINE).for_each(|byte| *byte = byte.wrapping_add(1));
        std::hint::black_box(&mut memory);
        let begun = Instant::now();
        driver.empty()?;
        nanos += begun.elapsed().as_nanos();
    }
    driver.wait()?;
    Ok(nanos as f64 / CALLS as f64)
}

/// Nanoseconds of the call that launches `graph`.
fn launch(driver: &Driver, graph: &Graph) -> Result<f64> {
    const TIMES: u32 = 20;
    let mut sum = 0.0;
    for _ in 0..TIMES {
        sum += host(driver, 1, |driver| driver.launch(graph))?;
    }
    Ok(sum / f64::from(TIMES))
}

/// What each of `count` operations takes beside the `nanos` that the kernels among them spin for, nanoseconds.
fn gap(driver: &Driver, count: u64, nanos: u64, work: impl Fn(&Driver) -> Result<()>) -> Result<f64> {
    let behind_head = |work: &dyn Fn(&Driver) -> Result<()>| -> Result<f64> {
        driver.wait()?;
        let begun = Instant::now();
        driver.spin(HEAD)?;
        work(driver)?;
        driver.wait()?;
        Ok(begun.elapsed().as_nanos() as f64)
    };
    let one = behind_head(&|driver| driver.spin(nanos))?;
    let many = behind_head(&work)?;
    Ok((many - one) / count as f64)
}
