//! Samples the activity of a thread from outside.
//!
//! All data is only read: memory through `/proc/PID/mem`, the rest through other files of `/proc`. No signal,
//! no ptrace, no interpreter lock, no call into the interpreter; the sampled thread keeps running
//! undisturbed. The cost is that data may change while it is read. Such a torn sample is detected, dropped
//! and counted: a wrong address is an error of the read, never a fault, and a stack is only returned if each
//! of its parts has the expected type. If a thread loses its core while the interpreter links a frame, a
//! wrong caller is still possible: 2 in 61,500 samples of a program that only makes calls, on a machine with
//! more busy threads than cores.
//!
//! | module | question |
//! |---|---|
//! | [`memory`], [`maps`], [`image`] | contents of an address; loaded files and their addresses; address of a symbol |
//! | [`python`] | the thread's Python functions, the holder of the interpreter lock, garbage collection |
//! | [`native`] | the thread's functions in C and C++ |
//! | [`thread`] | time on a core, time runnable; what it sleeps in |
//! | [`own`] | whether the files kept open still belong to this library |
//! | [`children`] | state of the process's direct children |
//!
//! Linux on 64-bit little-endian machines; native stacks on x86-64. Other processes are only sampled if the
//! kernel allows it (children, in tests).
#![forbid(unsafe_code)]

pub mod children;
pub mod image;
pub mod maps;
pub mod memory;
pub mod native;
pub mod own;
pub mod process;
pub mod python;
pub mod thread;
