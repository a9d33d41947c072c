//! What all lessons share: options, a device, two kernels, a clock that says when to stop.
//!
//! The kernels are PTX text, which every driver compiles for its own device, so that neither building nor running
//! the lessons needs a CUDA toolkit.

use std::cell::Cell;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE;
use cudarc::driver::{CudaContext, CudaFunction, CudaStream, DriverError, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;

/// `empty` does nothing; `spin` keeps its multiprocessor busy for a number of cycles.
const KERNELS: &str = "
.version 6.0
.target sm_50
.address_size 64
.visible .entry empty()
{
    ret;
}
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

/// Exit code without a usable driver, and for wrong options.
const CANNOT_RUN: u8 = 2;

/// A device to work on until the time is up.
pub struct Lesson {
    /// The device.
    pub context: Arc<CudaContext>,
    /// A stream of our own: the null stream would wait for all others.
    pub stream: Arc<CudaStream>,
    empty: CudaFunction,
    spin: CudaFunction,
    cycles_per_micro: f64,
    options: Vec<(&'static str, f64)>,
    seconds: f64,
    /// Set when the lesson begins to work, so that start-up does not count.
    begun: Cell<Option<Instant>>,
}

/// Runs a lesson, prints one line, and ends the program.
///
/// `options` are the knobs of the lesson and their defaults. The lesson answers how many steps it made.
pub fn run(
    name: &str,
    options: &[(&'static str, f64)],
    lesson: impl FnOnce(&Lesson) -> Result<u64, DriverError>,
) -> ExitCode {
    match try_run(options, lesson) {
        Ok((steps, took)) => {
            let micros = took.as_secs_f64() * 1e6 / steps.max(1) as f64;
            println!("{name}: {steps} steps in {:.2} s, {micros:.2} us a step", took.as_secs_f64());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{name}: {error}");
            ExitCode::from(CANNOT_RUN)
        }
    }
}

fn try_run(
    options: &[(&'static str, f64)],
    lesson: impl FnOnce(&Lesson) -> Result<u64, DriverError>,
) -> Result<(u64, Duration), String> {
    let mut all = vec![("--seconds", 3.0)];
    all.extend_from_slice(options);
    parse(&mut all, std::env::args().skip(1))?;
    // SAFETY: loads the driver's library, whose initialisers any CUDA program runs.
    if !unsafe { cudarc::driver::sys::is_culib_present() } {
        return Err("no CUDA driver: libcuda.so.1 was not found. Run this on a machine with an NVIDIA GPU".to_owned());
    }
    let lesson_on = Lesson::new(all).map_err(|error| format!("the CUDA driver cannot be used: {error}"))?;
    let steps = lesson(&lesson_on).and_then(|steps| lesson_on.context.synchronize().map(|()| steps));
    let steps = steps.map_err(|error| format!("CUDA failed: {error}"))?;
    Ok((steps, lesson_on.begun.get().map_or(Duration::ZERO, |begun| begun.elapsed())))
}

fn parse(options: &mut [(&'static str, f64)], mut given: impl Iterator<Item = String>) -> Result<(), String> {
    while let Some(name) = given.next() {
        let known: Vec<String> = options.iter().map(|(name, default)| format!("{name} (default {default})")).collect();
        let Some((_, value)) = options.iter_mut().find(|(option, _)| *option == name) else {
            return Err(format!("unknown option {name}; there are {}", known.join(", ")));
        };
        let text = given.next().ok_or_else(|| format!("{name} needs a number"))?;
        *value = text
            .parse()
            .ok()
            .filter(|&number: &f64| number.is_finite() && number >= 0.0)
            .ok_or_else(|| format!("{name} {text}: not a number of 0 or more"))?;
    }
    Ok(())
}

impl Lesson {
    fn new(options: Vec<(&'static str, f64)>) -> Result<Self, DriverError> {
        let context = CudaContext::new(0)?;
        let module = context.load_module(Ptx::from_src(KERNELS))?;
        let kilohertz = context.attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE)?;
        let seconds = options.first().map_or(0.0, |&(_, seconds)| seconds);
        Ok(Self {
            stream: context.new_stream()?,
            empty: module.load_function("empty")?,
            spin: module.load_function("spin")?,
            cycles_per_micro: f64::from(kilohertz) / 1000.0,
            context,
            options,
            seconds,
            begun: Cell::new(None),
        })
    }

    /// The value of an option.
    pub fn option(&self, name: &str) -> f64 {
        self.options.iter().find(|(option, _)| *option == name).map_or(0.0, |&(_, value)| value)
    }

    /// Whether there is time for another step. The clock starts at the first call.
    pub fn goes_on(&self) -> bool {
        let begun = self.begun.get().unwrap_or_else(Instant::now);
        self.begun.set(Some(begun));
        begun.elapsed().as_secs_f64() < self.seconds
    }

    /// Launches a kernel on one thread: an empty one for 0 `micros`, otherwise one that lasts about so long.
    pub fn launch(&self, stream: &Arc<CudaStream>, micros: f64) -> Result<(), DriverError> {
        let one = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (1, 1, 1), shared_mem_bytes: 0 };
        if micros == 0.0 {
            // SAFETY: `empty` takes no arguments and touches no memory.
            unsafe { stream.launch_builder(&self.empty).launch(one) }?;
        } else {
            let cycles = (micros * self.cycles_per_micro) as u64;
            // SAFETY: `spin` takes one 64-bit number and touches no memory.
            unsafe { stream.launch_builder(&self.spin).arg(&cycles).launch(one) }?;
        }
        Ok(())
    }
}
