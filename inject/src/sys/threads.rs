//! Threads: their ids and their clocks.
#![expect(unsafe_code, reason = "calls of the C library")]

use std::mem::MaybeUninit;
use std::time::Duration;

use host_sampler::native::Registers;

/// Kernel's id of the calling thread, which is the one in CUPTI's records. By system call number: glibc has a
/// function for it only since 2.30, and libprof.so is loaded into containers with an older one.
pub fn thread_id() -> u32 {
    // SAFETY: takes no argument and cannot fail.
    let id = unsafe { libc::syscall(libc::SYS_gettid) };
    u32::try_from(id).unwrap_or_default()
}

/// Registers of the calling function, as the rules of its code need them to find its caller: by DWARF number.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn registers() -> Option<Registers> {
    let mut words = [0_u64; 8];
    // SAFETY: writes the registers into the array, 64 bytes, and changes only the register that is its output.
    unsafe {
        std::arch::asm!(
            "mov [{to}], rbx",
            "mov [{to} + 8], rbp",
            "mov [{to} + 16], r12",
            "mov [{to} + 24], r13",
            "mov [{to} + 32], r14",
            "mov [{to} + 40], r15",
            "mov [{to} + 48], rsp",
            "lea {place}, [rip]",
            "mov [{to} + 56], {place}",
            to = in(reg) words.as_mut_ptr(),
            place = out(reg) _,
            options(nostack, preserves_flags),
        );
    }
    let mut registers = Registers::default();
    for (number, word) in [3, 6, 12, 13, 14, 15, 7, 16].into_iter().zip(words) {
        registers.set(number, Some(word));
    }
    Some(registers)
}

/// Those of other processors are not read.
#[cfg(not(target_arch = "x86_64"))]
pub fn registers() -> Option<Registers> {
    None
}

/// CPU time of a thread of this process; `None` if there is no such thread.
pub fn thread_cpu_time(thread: u32) -> Option<Duration> {
    /// `CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED`: how the kernel, and `pthread_getcpuclockid`, derive a
    /// clock from a thread id.
    const CLOCK_OF_THREAD: libc::clockid_t = 4 | 2;
    // To the kernel, 0 is the calling thread; in a record, no thread.
    let thread = i32::try_from(thread).ok().filter(|&thread| thread != 0)?;
    let clock = (!thread << 3) | CLOCK_OF_THREAD;
    let mut time = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: writes the time, which is live, or returns an error, also for an id that is not a clock.
    if unsafe { libc::clock_gettime(clock, time.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: written by the successful call above.
    let time = unsafe { time.assume_init() };
    Some(Duration::new(u64::try_from(time.tv_sec).ok()?, u32::try_from(time.tv_nsec).ok()?))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn clocks_of_this_process_run_and_others_are_not_shown() {
        let before = thread_cpu_time(thread_id()).unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while thread_cpu_time(thread_id()).unwrap() == before {
            assert!(Instant::now() < deadline);
        }
        let parent = std::os::unix::process::parent_id();
        assert_eq!([parent, u32::MAX, 0].map(thread_cpu_time), [None; 3]);
    }
}
