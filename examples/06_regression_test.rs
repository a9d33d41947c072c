//! Lesson 6: a test that fails when kernels get slower or the host gets in the way. A region without waits passes; one
//! with a wait, a copy from pageable memory and an allocation **fails by three rules, with evidence**; and a benchmark
//! gives what CUDA events give **within 2 %**.
//!
//! In a test of your own: `Expectations::new(). ... .assert(&report)`, and `kernel_within` or
//! `Measurement::assert_within` with a [`gpuwhy::Baseline`], which `GPUWHY_BLESS=1 cargo test` renews.
#![expect(unsafe_code, reason = "launches kernels")]

mod lesson;

use std::process::ExitCode;
use std::time::Duration;

use cudarc::driver::DriverError;
use cudarc::driver::sys::CUevent_flags;
use gpuwhy::{Bench, Expectations, Session};
use lesson::{Gpu, promise, run};

/// Bytes that the benchmark copies within the device: far beyond any cache.
const BYTES: usize = 2 << 30;
/// Copies before the first that counts.
const WARM_UP: u32 = 25;

fn main() -> ExitCode {
    run(|| {
        gpuwhy::prepare()?;
        let gpu = Gpu::new()?;
        let expected = Expectations::new()
            .launches_at_most(10)
            .no_sync()
            .no_pageable_copy()
            .no_allocation()
            .kernel_at_most("spin", Duration::from_micros(200));

        let (launched, report) = gpuwhy::measure(|_| (0..10).try_for_each(|_| gpu.launch(&gpu.stream, 100.0)))?;
        launched?;
        expected.assert(&report);

        let session = Session::start()?;
        let mut slow = gpu.stream.alloc_zeros::<u8>(1 << 20)?;
        gpu.stream.memcpy_htod(&vec![1_u8; 1 << 20], &mut slow)?;
        gpu.launch(&gpu.stream, 100.0)?;
        gpu.stream.synchronize()?;
        let failures = expected.check(&session.finish()?).err().map_or_else(Vec::new, |all| all.texts().to_vec());
        println!("{}", failures.join("\n"));
        promise("a wait, a pageable copy and an allocation are told", failures.len() == 3)?;

        let from = gpu.stream.alloc_zeros::<u8>(BYTES)?;
        let mut to = gpu.stream.alloc_zeros::<u8>(BYTES)?;
        gpu.stream.synchronize()?;
        // Around the very same launches, so that nothing but the two instruments can differ.
        let event = || gpu.context.new_event(Some(CUevent_flags::CU_EVENT_DEFAULT));
        let mut events = Vec::new();
        let bench = Bench::new("copy of 2 GiB within the device").bytes(2 * BYTES as u64);
        let measured = bench.warm_up(WARM_UP).try_run(|| {
            let (begin, end) = (event()?, event()?);
            begin.record(&gpu.stream)?;
            gpu.stream.memcpy_dtod(&from, &mut to)?;
            end.record(&gpu.stream)?;
            events.push((begin, end));
            Ok::<_, DriverError>(())
        })?;
        println!("{measured}");
        let between = events[WARM_UP as usize..].iter().map(|(begin, end)| begin.elapsed_ms(end));
        let mut between = between.collect::<Result<Vec<_>, _>>()?;
        between.sort_by(f32::total_cmp);
        let events_ns = f64::from(between[(between.len() - 1) / 2]) * 1e6;
        let ratio = measured.median_ns() as f64 / events_ns;
        promise(&format!("the median is that of CUDA events within 2 %: {ratio:.4}"), (0.98..1.02).contains(&ratio))?;
        let share = measured.memory_share().unwrap_or(0.0);
        promise("a copy reaches between half and all of the memory's peak", (0.5..=1.0).contains(&share))
    })
}
