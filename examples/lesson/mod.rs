//! Shared code of all lessons: a device, kernels of a chosen duration, and checks of the expected result.
//!
//! The kernels are PTX text, which every driver compiles for its device, so neither building nor running the
//! lessons needs a CUDA toolkit. A lesson exits with 0 if it shows the expected result, with 1 if not, and
//! with 2 if it cannot run.
#![allow(dead_code, reason = "each lesson uses its part")]

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::sys::CUdevice_attribute::{
    CU_DEVICE_ATTRIBUTE_CLOCK_RATE, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
};
use cudarc::driver::{CudaContext, CudaFunction, CudaStream, DriverError, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;
use gpuwhy::Report;

/// `spin` keeps a multiprocessor busy for a number of cycles.
const KERNELS: &str = "
.version 6.0
.target sm_50
.address_size 64
.visible .entry spin(.param .u64 cycles)
{
    .reg .pred %goes_on;
    .reg .u64 %limit, %begin, %now;
    ld.param.u64 %limit, [cycles];
    mov.u64 %begin, %clock64;
AGAIN:
    mov.u64 %now, %clock64;
    sub.u64 %now, %now, %begin;
    setp.lt.u64 %goes_on, %now, %limit;
    @%goes_on bra AGAIN;
    ret;
}
";

/// Result of a lesson.
pub type Outcome = Result<(), Box<dyn Error>>;

/// Error: the lesson did not show the expected result.
#[derive(Debug)]
struct NotShown(String);

impl std::fmt::Display for NotShown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "not as promised: {}", self.0)
    }
}

impl Error for NotShown {}

/// Runs a lesson and ends the program.
pub fn run(lesson: impl FnOnce() -> Outcome) -> ExitCode {
    match lesson() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(if error.is::<NotShown>() { 1 } else { 2 })
        }
    }
}

/// Checks an expected result of the lesson.
pub fn promise(what: &str, holds: bool) -> Outcome {
    if !holds {
        return Err(NotShown(what.to_owned()).into());
    }
    println!("as promised: {what}");
    Ok(())
}

/// Checks the expected bottleneck of the lesson.
pub fn promise_bottleneck(report: &Report, cause: &str) -> Outcome {
    println!("{report}");
    promise(&format!("the bottleneck is {cause}"), report.bottleneck.cause.name() == cause)
}

/// Calls `work` until the time is over; returns the rate per second.
pub fn repeat(seconds: f64, mut work: impl FnMut() -> Outcome) -> Result<f64, Box<dyn Error>> {
    let (begun, mut times) = (Instant::now(), 0_u32);
    while begun.elapsed().as_secs_f64() < seconds {
        work()?;
        times += 1;
    }
    Ok(f64::from(times) / begun.elapsed().as_secs_f64())
}

/// Keeps the host busy for this time.
pub fn think(time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// A device to work on.
pub struct Gpu {
    /// The device.
    pub context: Arc<CudaContext>,
    /// A separate stream: the null stream would wait for all others.
    pub stream: Arc<CudaStream>,
    /// Number of multiprocessors.
    pub multiprocessors: u32,
    spin: CudaFunction,
    cycles_per_micro: f64,
}

impl Gpu {
    /// Opens the first device. This is the first CUDA call of a lesson: start its session before.
    pub fn new() -> Result<Self, Box<dyn Error>> {
        // SAFETY: loads the driver's library, whose initializers any CUDA program runs.
        if !unsafe { cudarc::driver::sys::is_culib_present() } {
            return Err("no CUDA driver: libcuda.so.1 was not found. Run this on a machine with an NVIDIA GPU".into());
        }
        let context = CudaContext::new(0)?;
        let module = context.load_module(Ptx::from_src(KERNELS))?;
        let kilohertz = context.attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE)?;
        let multiprocessors = context.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        Ok(Self {
            stream: context.new_stream()?,
            multiprocessors: u32::try_from(multiprocessors)?,
            spin: module.load_function("spin")?,
            cycles_per_micro: f64::from(kilohertz) / 1000.0,
            context,
        })
    }

    /// Launches a kernel on one thread that lasts about `micros` microseconds.
    pub fn launch(&self, stream: &Arc<CudaStream>, micros: f64) -> Result<(), DriverError> {
        self.launch_grid(stream, micros, 1, 1)
    }

    /// Launches a kernel whose blocks each last about `micros` microseconds.
    pub fn launch_grid(
        &self,
        stream: &Arc<CudaStream>,
        micros: f64,
        blocks: u32,
        threads: u32,
    ) -> Result<(), DriverError> {
        let shape = LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (threads, 1, 1), shared_mem_bytes: 0 };
        let cycles = (micros * self.cycles_per_micro) as u64;
        // SAFETY: `spin` takes one 64-bit number and touches no memory.
        unsafe { stream.launch_builder(&self.spin).arg(&cycles).launch(shape) }?;
        Ok(())
    }
}
