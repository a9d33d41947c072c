//! Lesson 9: how far a kernel is from what its device can do. Adding vectors is **bound by memory**, multiplying and
//! adding in registers **by computation**; each reaches **at least 60 % of its roof**. Vectors that fit into the L2
//! cache look faster than memory until the cache is flushed.
//!
//! The author states bytes and operations of a repetition; the times are those of the device's own records.
#![expect(unsafe_code, reason = "launches kernels, flushes the cache on a stream of its own")]

mod lesson;

use std::process::ExitCode;

use cudarc::driver::{LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;
use gpuwhy::{Bench, Bound, L2Flush, Measurement, Precision};
use lesson::{Gpu, Outcome, promise, run};

/// `vector_add`: y += x, four floats a thread. `multiply`: 32 multiply-adds in eight different chains, `rounds` times.
const KERNELS: &str = "
.version 6.0
.target sm_50
.address_size 64
.visible .entry vector_add(.param .u64 x, .param .u64 y)
{
    .reg .b32 %block, %size, %thread, %index;
    .reg .b64 %from, %to, %offset;
    .reg .f32 %a<4>, %b<4>;
    mov.u32 %block, %ctaid.x;
    mov.u32 %size, %ntid.x;
    mov.u32 %thread, %tid.x;
    mad.lo.u32 %index, %block, %size, %thread;
    mul.wide.u32 %offset, %index, 16;
    ld.param.u64 %from, [x];
    ld.param.u64 %to, [y];
    cvta.to.global.u64 %from, %from;
    cvta.to.global.u64 %to, %to;
    add.u64 %from, %from, %offset;
    add.u64 %to, %to, %offset;
    ld.global.v4.f32 {%a0, %a1, %a2, %a3}, [%from];
    ld.global.v4.f32 {%b0, %b1, %b2, %b3}, [%to];
    add.f32 %b0, %b0, %a0;
    add.f32 %b1, %b1, %a1;
    add.f32 %b2, %b2, %a2;
    add.f32 %b3, %b3, %a3;
    st.global.v4.f32 [%to], {%b0, %b1, %b2, %b3};
    ret;
}
.visible .entry multiply(.param .u64 y, .param .u32 rounds)
{
    .reg .pred %more;
    .reg .b32 %block, %size, %thread, %index, %left;
    .reg .b64 %to, %offset;
    .reg .f32 %m, %v<8>;
    mov.u32 %block, %ctaid.x;
    mov.u32 %size, %ntid.x;
    mov.u32 %thread, %tid.x;
    mad.lo.u32 %index, %block, %size, %thread;
    ld.param.u32 %left, [rounds];
    cvt.rn.f32.u32 %m, %thread;
    mov.f32 %v0, %m;
    add.f32 %v1, %v0, 0f3F800000;
    add.f32 %v2, %v1, 0f3F800000;
    add.f32 %v3, %v2, 0f3F800000;
    add.f32 %v4, %v3, 0f3F800000;
    add.f32 %v5, %v4, 0f3F800000;
    add.f32 %v6, %v5, 0f3F800000;
    add.f32 %v7, %v6, 0f3F800000;
AGAIN:
    MULTIPLY_ADDS
    sub.u32 %left, %left, 1;
    setp.ne.u32 %more, %left, 0;
    @%more bra AGAIN;
    add.f32 %v0, %v0, %v1; add.f32 %v2, %v2, %v3; add.f32 %v4, %v4, %v5; add.f32 %v6, %v6, %v7;
    add.f32 %v0, %v0, %v2; add.f32 %v4, %v4, %v6; add.f32 %v0, %v0, %v4;
    mul.wide.u32 %offset, %index, 4;
    ld.param.u64 %to, [y];
    cvta.to.global.u64 %to, %to;
    add.u64 %to, %to, %offset;
    st.global.f32 [%to], %v0;
    ret;
}
";
/// Of `multiply` in one round.
const MULTIPLY_ADDS: u32 = 32;
const ROUNDS: u32 = 512;
const THREADS: u32 = 256;
/// Floats of a vector that no cache holds, and of one that fits into any L2 cache.
const LARGE: u32 = 1 << 26;
const SMALL: u32 = 1 << 18;

fn main() -> ExitCode {
    run(|| {
        gpuwhy::prepare()?;
        let gpu = Gpu::new()?;
        let adds: String = (0..MULTIPLY_ADDS).map(|n| format!("fma.rn.f32 %v{0}, %v{0}, %m, %m;\n", n % 8)).collect();
        let module = gpu.context.load_module(Ptx::from_src(KERNELS.replace("MULTIPLY_ADDS", &adds)))?;
        let (add, multiply) = (module.load_function("vector_add")?, module.load_function("multiply")?);
        let x = gpu.stream.alloc_zeros::<f32>(LARGE as usize)?;
        let mut y = gpu.stream.alloc_zeros::<f32>(LARGE as usize)?;
        let shape = |threads: u32| LaunchConfig {
            grid_dim: (threads / THREADS, 1, 1),
            block_dim: (THREADS, 1, 1),
            shared_mem_bytes: 0,
        };

        let mut adding = |floats: u32, cold: bool| -> Result<Measurement, Box<dyn std::error::Error>> {
            let flush = L2Flush::of_current_context()?;
            let measured =
                Bench::new(format!("add of {floats} floats, {}", if cold { "L2 flushed" } else { "as it comes" }))
                    .bytes(12 * u64::from(floats))
                    .flops(f64::from(floats))
                    .precision(Precision::Single)
                    .before_each(|| {
                        if cold {
                            // SAFETY: a stream of the context that is current on this thread.
                            unsafe { flush.on(gpu.stream.cu_stream().cast()) };
                        }
                    })
                    .try_run(|| {
                        // SAFETY: four floats a thread, and as many threads as both vectors have at least.
                        unsafe { gpu.stream.launch_builder(&add).arg(&x).arg(&mut y).launch(shape(floats / 4)) }
                    })?;
            println!("{measured}");
            Ok(measured)
        };
        stands(&adding(LARGE, false)?, Bound::Memory)?;
        let (warm, cold) = (adding(SMALL, false)?, adding(SMALL, true)?);
        promise("a flushed cache is slower", cold.median_ns() > warm.median_ns())?;

        let threads = gpu.multiprocessors * 2048 * 4;
        let measured = Bench::new("multiply-adds in registers")
            .bytes(4 * u64::from(threads))
            .flops(2.0 * f64::from(threads) * f64::from(MULTIPLY_ADDS) * f64::from(ROUNDS))
            .precision(Precision::Single)
            .try_run(|| {
                // SAFETY: a float a thread, and fewer threads than the vector has floats.
                unsafe { gpu.stream.launch_builder(&multiply).arg(&mut y).arg(&ROUNDS).launch(shape(threads)) }
            })?;
        println!("{measured}");
        stands(&measured, Bound::Compute)
    })
}

/// Under which roof a measurement is, and how near. A device whose peak is not known has none.
fn stands(measured: &Measurement, bound: Bound) -> Outcome {
    let Some((found, roof)) = measured.roofline().and_then(|at| Some((at, at.roof_flops_per_second?))) else {
        return Err(format!("the peak of {} is not known, so there is no roof", measured.device().name).into());
    };
    promise(&format!("the roof is {bound:?}"), found.bound == Some(bound))?;
    let share = found.flops_per_second / roof;
    promise("between 60 and 102 % of the roof are reached", (0.6..1.02).contains(&share))
}
