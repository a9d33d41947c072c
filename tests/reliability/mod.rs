//! Manners in a stranger's process: whatever goes wrong in or around libprof.so, the program's output, exit code and
//! time to end are its own, and what was lost is said.
//!
//! Everything runs through the real libprof.so and the replay library, in processes of their own. What each fault
//! comes to is printed, and kept as tables in docs/design/reliability.md, which these tests compare (GPUWHY_BLESS=1
//! renews them). What only a GPU can show is in `tests/gpu/checks/endings.py` and `neighbors.py`.

mod cupti;
mod disk;
mod host;
mod life;
mod program;
mod soak;
mod table;
