//! What a thread is doing, seen from the side.
//!
//! Everything here is read: memory through `/proc/PID/mem`, the rest through other files of `/proc`. No signal, no
//! ptrace, no lock of the interpreter, no call into it; the thread that is looked at runs on and notices nothing. The
//! price is that what is read may change while it is read. Such a torn sample is recognized, dropped and counted: a
//! wrong address is an error of the read, never a fault, and a stack is only given out when each of its parts has
//! been recognized as what it should be. A thread that loses its core while the interpreter links a frame can still be
//! shown with a wrong caller: 2 in 61,500 samples of a program that only calls, on a machine with more busy threads
//! than cores.
//!
//! | module | question |
//! |---|---|
//! | [`memory`], [`maps`], [`image`] | what is at this address; what is loaded where; where is this symbol |
//! | [`python`] | which Python functions is the thread in, who holds the interpreter lock, is garbage collected |
//! | [`native`] | which functions of C and C++ is the thread in |
//! | [`thread`] | how long has it run, waited for a core; what does it sleep in |
//! | [`own`] | are the files that stay open still ours |
//! | [`children`] | what are the direct children of the process doing |
//!
//! Linux on 64-bit little-endian machines; native stacks on x86-64. Other people's processes are only looked at where
//! the kernel allows it (children, in tests).
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
