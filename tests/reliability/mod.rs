//! Behavior inside another program: after any fault in or around libprof.so, the program's output, exit code
//! and time to exit are unaffected, and losses are reported.
//!
//! All tests use the real libprof.so and the replay library, in separate processes. The outcome of each fault
//! is printed, and kept as tables in tests/reliability/faults.md, which these tests compare (GPUWHY_BLESS=1
//! updates them). Cases that need a GPU are in `tests/gpu/checks/endings.py` and `neighbors.py`.

mod cupti;
mod disk;
mod host;
mod life;
mod program;
mod soak;
mod table;
