//! Lesson 6: a test that fails when kernels get slower or the host delays the device. A region without
//! synchronization passes; one with a synchronization, a copy from pageable memory and an allocation **fails
//! by three rules, with evidence**.
//!
//! In your own test, use `Expectations::new(). ... .assert(&report)`, and `kernel_within` with a
//! [`gpuwhy::Baseline`], which `GPUWHY_BLESS=1 cargo test` updates.
#![expect(unsafe_code, reason = "launches kernels")]

mod lesson;

use std::process::ExitCode;
use std::time::Duration;

use gpuwhy::{Expectations, Session};
use lesson::{Gpu, promise, run};

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
        promise("a wait, a pageable copy and an allocation are reported", failures.len() == 3)
    })
}
