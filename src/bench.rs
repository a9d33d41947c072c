//! How long a piece of device work takes: launched again and again, timed on the device.
//!
//! In the spirit of `triton.testing.do_bench` and of nvbench. A repetition is one call of the closure; what it launched is
//! known by its launching calls, so nothing is inserted between kernels and no event is recorded. Its time is from the begin
//! of its first operation to the end of its last one: pauses between its kernels count, those before and after do not.
//! What is printed first is the median, and the spread is that of the middle half. Statistics of hosts (time to launch)
//! are not made here: a session's report has them.

pub mod l2;
mod peak;
mod repetitions;

use std::error::Error;
use std::fmt;
use std::time::Duration;

use profiler_core::record::Device;
use serde::Serialize;

pub use peak::{Bound, Precision, Roofline};

use self::l2::L2Flush;
use crate::session::{Session, SessionError};

/// Calls before the first that counts: clocks rise, code is loaded, caches of the driver fill.
const WARM_UP: u32 = 25;
/// Calls that count, unless told otherwise.
const REPETITIONS: u32 = 100;
/// Benchmarks in tests run side by side and take turns.
const SESSION_WAIT: Duration = Duration::from_secs(600);

/// What runs before each repetition.
type Before<'a> = Box<dyn FnMut() + 'a>;

/// A measurement to be made.
///
/// ```no_run
/// # fn launch() {}
/// let measured = gpuprof::Bench::new("saxpy")
///     .bytes(3 * 4 * (1 << 26))
///     .flops(2.0 * f64::from(1 << 26))
///     .flush_l2()
///     .run(|| launch())?;
/// println!("{measured}");
/// assert!(measured.gigabytes_per_second().unwrap() > 500.0);
/// # Ok::<(), gpuprof::BenchError>(())
/// ```
#[must_use = "nothing is measured before `run`"]
pub struct Bench<'a> {
    name: String,
    warm_up: u32,
    repetitions: u32,
    bytes: Option<u64>,
    flops: Option<f64>,
    precision: Option<Precision>,
    flops_per_second: Option<f64>,
    before: Option<Before<'a>>,
    flush_l2: bool,
}

impl fmt::Debug for Bench<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bench").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<'a> Bench<'a> {
    /// A measurement of this name: 25 calls to warm up, 100 that count.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            warm_up: WARM_UP,
            repetitions: REPETITIONS,
            bytes: None,
            flops: None,
            precision: None,
            flops_per_second: None,
            before: None,
            flush_l2: false,
        }
    }

    /// Calls before the first that counts.
    pub fn warm_up(mut self, calls: u32) -> Self {
        self.warm_up = calls;
        self
    }

    /// Calls that count; at least one.
    pub fn repetitions(mut self, calls: u32) -> Self {
        self.repetitions = calls.max(1);
        self
    }

    /// Bytes of device memory that a repetition reads and writes at least, by the author's count.
    pub fn bytes(mut self, bytes: u64) -> Self {
        self.bytes = Some(bytes);
        self
    }

    /// Floating-point operations of a repetition, by the author's count; a fused multiply-add is two.
    pub fn flops(mut self, flops: f64) -> Self {
        self.flops = Some(flops);
        self
    }

    /// What they are counted against: the peak of this precision on CUDA cores, where it is known.
    pub fn precision(mut self, precision: Precision) -> Self {
        self.precision = Some(precision);
        self
    }

    /// What they are counted against, operations per second: for tensor cores, from the data sheet.
    pub fn peak_flops_per_second(mut self, peak: f64) -> Self {
        self.flops_per_second = Some(peak);
        self
    }

    /// Runs before each repetition, and counts for none: to restore inputs, or to flush caches in a way of one's own.
    pub fn before_each(mut self, before: impl FnMut() + 'a) -> Self {
        self.before = Some(Box::new(before));
        self
    }

    /// Overwrites the L2 cache before each repetition, on the default stream of the current context. Kernels on streams
    /// that do not wait for the default stream (`CU_STREAM_NON_BLOCKING`) would run beside it: for those give an
    /// [`L2Flush`] to [`before_each`](Self::before_each).
    pub fn flush_l2(mut self) -> Self {
        self.flush_l2 = true;
        self
    }

    /// Measures `launch`, which launches one repetition and need not wait for it. Nothing else may be launched by the
    /// process meanwhile: it would count.
    ///
    /// # Errors
    /// When no session can be had, when nothing was launched, or when the L2 cache is to be flushed and there is no
    /// current context.
    pub fn run(mut self, mut launch: impl FnMut()) -> Result<Measurement, BenchError> {
        // Before any CUDA call of ours: CUPTI comes first.
        let session = Session::builder().wait(SESSION_WAIT).start().map_err(BenchError::Session)?;
        let flush = if self.flush_l2 { Some(L2Flush::of_current_context()?) } else { None };
        let mut calls = Vec::new();
        for _ in 0..u64::from(self.warm_up) + u64::from(self.repetitions) {
            if let Some(before) = &mut self.before {
                before();
            }
            if let Some(flush) = &flush {
                flush.on_default_stream();
            }
            let begin = session.now();
            launch();
            calls.push((begin, session.now()));
        }
        calls.drain(..self.warm_up as usize);
        let trace = session.finish_trace().map_err(BenchError::Session)?;
        let found = repetitions::find(trace, &calls).map_err(BenchError::Trace)?;
        if found.times_ns.is_empty() {
            return Err(BenchError::NothingRan);
        }
        let missing = self.repetitions.saturating_sub(u32::try_from(found.times_ns.len()).unwrap_or(u32::MAX));
        let device = found.device.unwrap_or_default();
        let flops_peak = self.flops_per_second.or_else(|| peak::flops_per_second(&device, self.precision?));
        Ok(Measurement {
            name: self.name,
            operations: found.operations,
            missing,
            bytes: self.bytes,
            flops: self.flops,
            flops_peak,
            bytes_peak: peak::bytes_per_second(&device),
            device,
            times_ns: found.times_ns,
        })
    }
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct Measurement {
    name: String,
    device: Device,
    /// Of each repetition, ascending.
    times_ns: Vec<u64>,
    operations: u64,
    missing: u32,
    bytes: Option<u64>,
    flops: Option<f64>,
    flops_peak: Option<f64>,
    bytes_peak: Option<f64>,
}

impl Measurement {
    /// Time of each repetition, nanoseconds, ascending.
    #[must_use]
    pub fn times_ns(&self) -> &[u64] {
        &self.times_ns
    }

    /// The time that this part of the repetitions needed at most (nearest rank), nanoseconds; `part` is 0 to 1.
    #[must_use]
    pub fn quantile_ns(&self, part: f64) -> u64 {
        let rank = (part.clamp(0.0, 1.0) * self.times_ns.len() as f64).ceil() as usize;
        self.times_ns[rank.clamp(1, self.times_ns.len()) - 1]
    }

    /// The median, nanoseconds.
    #[must_use]
    pub fn median_ns(&self) -> u64 {
        self.quantile_ns(0.5)
    }

    /// Half the width of the middle half of the repetitions, as a part of the median: the spread.
    #[must_use]
    pub fn spread(&self) -> f64 {
        (self.quantile_ns(0.75) - self.quantile_ns(0.25)) as f64 / 2.0 / self.median_ns().max(1) as f64
    }

    /// Kernels, copies and memsets of all repetitions.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.operations
    }

    /// Repetitions of which no operation was seen; they are in no statistic.
    #[must_use]
    pub fn missing(&self) -> u32 {
        self.missing
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The author's bytes over the median, 10^9 bytes per second.
    #[must_use]
    pub fn gigabytes_per_second(&self) -> Option<f64> {
        Some(self.bytes? as f64 / self.median_ns().max(1) as f64)
    }

    /// The author's operations over the median, 10^12 per second.
    #[must_use]
    pub fn teraflops(&self) -> Option<f64> {
        Some(self.flops? / self.median_ns().max(1) as f64 / 1e3)
    }

    /// Where the work stands under the roof of its device; `None` unless bytes and operations were given.
    #[must_use]
    pub fn roofline(&self) -> Option<Roofline> {
        Some(Roofline::new(self.bytes?, self.flops?, self.median_ns(), self.bytes_peak, self.flops_peak))
    }

    /// Rate of memory over the device's peak, 0 to 1, where both are known.
    #[must_use]
    pub fn memory_share(&self) -> Option<f64> {
        Some(self.gigabytes_per_second()? * 1e9 / self.bytes_peak?)
    }

    /// Rate of computation over the peak that was chosen or given, 0 to 1, where both are known.
    #[must_use]
    pub fn compute_share(&self) -> Option<f64> {
        Some(self.teraflops()? * 1e12 / self.flops_peak?)
    }
}

impl fmt::Display for Measurement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = |nanos: u64| nanos as f64 / 1e3;
        write!(
            f,
            "{}: median {:.2} us (p25 {:.2} .. p75 {:.2}, least {:.2}, {} repetitions)",
            self.name,
            micros(self.median_ns()),
            micros(self.quantile_ns(0.25)),
            micros(self.quantile_ns(0.75)),
            micros(self.quantile_ns(0.0)),
            self.times_ns.len(),
        )?;
        let share =
            |share: Option<f64>| share.map_or_else(String::new, |share| format!(" ({:.1} % of peak)", share * 1e2));
        if let Some(rate) = self.gigabytes_per_second() {
            write!(f, ", {rate:.1} GB/s{}", share(self.memory_share()))?;
        }
        if let Some(rate) = self.teraflops() {
            write!(f, ", {rate:.2} TFLOP/s{}", share(self.compute_share()))?;
        }
        if let Some(roofline) = self.roofline() {
            write!(f, ", {roofline}")?;
        }
        if self.missing > 0 {
            write!(f, "; {} repetitions ran nothing", self.missing)?;
        }
        Ok(())
    }
}

/// As JSON: times in nanoseconds, rates and shares where they are known.
impl Serialize for Measurement {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Document<'a> {
            name: &'a str,
            device: &'a str,
            repetitions: usize,
            missing: u32,
            operations: u64,
            median_ns: u64,
            p25_ns: u64,
            p75_ns: u64,
            min_ns: u64,
            max_ns: u64,
            gigabytes_per_second: Option<f64>,
            memory_share: Option<f64>,
            teraflops: Option<f64>,
            compute_share: Option<f64>,
            roofline: Option<Roofline>,
        }
        Document {
            name: &self.name,
            device: &self.device.name,
            repetitions: self.times_ns.len(),
            missing: self.missing,
            operations: self.operations,
            median_ns: self.median_ns(),
            p25_ns: self.quantile_ns(0.25),
            p75_ns: self.quantile_ns(0.75),
            min_ns: self.quantile_ns(0.0),
            max_ns: self.quantile_ns(1.0),
            gigabytes_per_second: self.gigabytes_per_second(),
            memory_share: self.memory_share(),
            teraflops: self.teraflops(),
            compute_share: self.compute_share(),
            roofline: self.roofline(),
        }
        .serialize(serializer)
    }
}

/// Why there is no measurement.
#[derive(Debug)]
#[non_exhaustive]
pub enum BenchError {
    /// No session could be had.
    Session(SessionError),
    /// The trace cannot be read.
    Trace(profiler_core::trace::TraceError),
    /// No repetition launched anything that was recorded.
    NothingRan,
    /// The L2 cache cannot be flushed.
    Flush(String),
}

impl fmt::Display for BenchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Session(error) => error.fmt(f),
            Self::Trace(error) => write!(f, "the trace of the measurement: {error}"),
            Self::NothingRan => f.write_str(
                "nothing was measured: the closure launched no device work, or CUDA was in use before the first session of \
                 this process",
            ),
            Self::Flush(why) => write!(f, "the L2 cache cannot be flushed: {why}"),
        }
    }
}

impl Error for BenchError {}
