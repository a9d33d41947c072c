//! The program that a calibration measures, with and without tracing: loops of calls, printed as nanoseconds
//! per call or gap.
//!
//! Times on the launching thread cover only the calls, on an idle device, with fewer calls than its queue
//! holds. Times on the device cover many operations in a row, queued after a long kernel so that the host is
//! never late. Subtracting the time of one kernel that spins as long as all of them together leaves the gaps.
//! Both are measured in immediate succession, so the device clock has no time to change.

use std::io::{self, Write as _};
use std::time::Instant;

use anyhow::Result;

use super::driver::{Driver, Graph};
use crate::doctor::check;

/// Prefix of the line with the GPU name.
pub const GPU: &str = "gpu";
/// The last line.
pub const DONE: &str = "done";

/// Names of the loops, in output order; each value is in nanoseconds.
pub const LOOPS: [&str; 9] =
    ["launch", "launch_cold", "copy", "call", "graph_short", "graph_long", "kernel_gap", "node_gap", "memset_node_gap"];
/// Loop of kernel and copy pairs: the gap before the copy plus the copy itself, and the gap before the
/// kernel.
pub const COPY_PAIR: &str = "copy_pair";

/// Number of times that each loop runs, after one start-up run that is discarded.
const REPETITIONS: usize = 7;
/// Calls in a row: less than the 1,024 launches that a stream queues before the host has to wait.
const CALLS: u64 = 500;
/// Memory that is touched between two cold launches, bytes: several times the L1 cache of a core, which takes
/// about 10 us.
const WALKED: usize = 256 << 10;
/// CPU cache line, bytes.
const CACHE_LINE: usize = 64;
/// Operations in a row on the device.
const QUEUED: u64 = 200;
/// Nodes of the short and of the long graph.
pub const SHORT: u64 = 20;
/// See [`SHORT`].
pub const LONG: u64 = 200;
/// Duration of a kernel, typical for eager programs, nanoseconds.
const KERNEL: u64 = 20_000;
/// Duration of a graph node, nanoseconds.
const NODE: u64 = 5_000;
/// Duration of the kernel that operations are queued after, nanoseconds: 10 us for each launch.
const HEAD: u64 = 4_000_000;

/// Child process: prints the GPU, a line for each repetition of each loop, and a last line. Fails when there
/// is no driver or GPU, when a call fails, or when stdout is closed.
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

/// Host time per call of `count` calls, nanoseconds.
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

/// Host time of a launch after other work, nanoseconds. Only the calls count; before each of them, enough
/// memory is touched to evict everything else from the CPU's L1 cache.
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

/// Host time of the call that launches `graph`, nanoseconds.
fn launch(driver: &Driver, graph: &Graph) -> Result<f64> {
    const TIMES: u32 = 20;
    let mut sum = 0.0;
    for _ in 0..TIMES {
        sum += host(driver, 1, |driver| driver.launch(graph))?;
    }
    Ok(sum / f64::from(TIMES))
}

/// Device time per operation in addition to the `nanos` that the kernels among the `count` operations spin,
/// nanoseconds.
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
