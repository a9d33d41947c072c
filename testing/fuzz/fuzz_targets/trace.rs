//! See `trace` in `testing/fuzz/targets.rs`.
#![no_main]

#[allow(dead_code)]
#[path = "../../../tests/hostile/mutate.rs"]
mod mutate;
#[allow(dead_code)]
#[path = "../targets.rs"]
mod targets;

use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};

fuzz_target!(|bytes: &[u8]| targets::trace(bytes));

// Every block has checksums, which no fuzzer guesses: half of the inputs get correct ones, so that the code
// after the checks is reached.
fuzz_mutator!(|bytes: &mut [u8], size: usize, max_size: usize, seed: u32| {
    let size = fuzzer_mutate(bytes, size, max_size);
    if seed % 2 == 0 {
        mutate::seal(&mut bytes[..size]);
    }
    size
});
