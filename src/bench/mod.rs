//! How long a piece of device work takes: launched again and again, timed on the device.
//!
//! What a repetition launched is known by its launching calls, so nothing is inserted between kernels and no event is
//! recorded. Statistics of hosts (time to launch) are not made here: a session's report has them.

pub mod driver;
mod error;
mod measurement;
mod peak;
mod repetitions;

use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::time::Duration;

pub use error::BenchError;
pub use measurement::Measurement;
pub use peak::{Bound, Precision, Roofline};

use self::driver::L2Flush;
use crate::expectations::lost;
use crate::session::Session;

/// Calls before the first that counts: clocks rise, code is loaded, caches of the driver fill.
const WARM_UP: u32 = 25;
/// Calls that count, unless told otherwise.
const REPETITIONS: u32 = 100;
/// Benchmarks in tests run side by side and take turns.
const SESSION_WAIT: Duration = Duration::from_secs(600);

/// What runs before each repetition.
type Before<'a> = Box<dyn FnMut() + 'a>;

/// How long a piece of device work takes, in the spirit of `triton.testing.do_bench` and of nvbench: launched again and
/// again, timed by the device's own records.
///
/// A repetition is one call of the closure. Its time is from the begin of its first operation on the device to the end
/// of its last one: pauses between its kernels count, those before and after it and the time to launch do not. Bytes
/// and operations are the author's count, for rates, shares of the device's peak and the roofline. A benchmark is a
/// session: none may be open on this thread, and those of other threads are waited for, ten minutes at most.
/// `docs/reference/report.md` defines every number.
///
/// `tests/gpu/run.sh --only lessons` holds medians of a GEMM and of a copy against CUDA events and `do_bench`, within 2
/// %.
///
/// ```no_run
/// # fn launch() {}
/// let measured = gpuwhy::Bench::new("saxpy")
///     .bytes(3 * 4 * (1 << 26))
///     .flops(2.0 * f64::from(1 << 26))
///     .flush_l2()
///     .run(|| launch())?;
/// println!("{measured}");
/// measured.assert_within(1.05, &gpuwhy::Baseline::new("tests/baseline.json"));
/// # Ok::<(), gpuwhy::BenchError>(())
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

    /// Measures `launch`, which launches one repetition and need not wait for it: the context that is current on this
    /// thread is waited for at the end. Nothing else may be launched by the process meanwhile: it would count.
    ///
    /// # Errors
    /// When no session can be had, when nothing was launched, when the device failed or records were lost, or when the
    /// L2 cache is to be flushed and there is no current context.
    pub fn run(self, mut launch: impl FnMut()) -> Result<Measurement, BenchError> {
        self.try_run(|| {
            launch();
            Ok::<_, Infallible>(())
        })
    }

    /// As [`run`](Self::run), for launches that can fail; the first that does ends the measurement.
    ///
    /// ```no_run
    /// # fn launch() -> Result<(), std::io::Error> { Ok(()) }
    /// let measured = gpuwhy::Bench::new("saxpy").try_run(|| launch())?;
    /// # Ok::<(), gpuwhy::BenchError>(())
    /// ```
    ///
    /// # Errors
    /// As [`run`](Self::run), and [`BenchError::Launch`] with the error of `launch`.
    pub fn try_run<T, E: Into<Box<dyn Error + Send + Sync>>>(
        mut self,
        mut launch: impl FnMut() -> Result<T, E>,
    ) -> Result<Measurement, BenchError> {
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
            launch().map_err(|error| BenchError::Launch(error.into()))?;
            calls.push((begin, session.now()));
        }
        calls.drain(..self.warm_up as usize);
        // A session waits two seconds for its device, which a hundred slow repetitions outlast.
        driver::synchronize().map_err(BenchError::Device)?;
        let trace = session.finish_trace().map_err(BenchError::Session)?;
        let found = repetitions::find(trace, &calls).map_err(BenchError::Trace)?;
        let lost: Vec<_> = lost(&found.loss).collect();
        if !lost.is_empty() {
            return Err(BenchError::Lost(lost.join(", ")));
        }
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
