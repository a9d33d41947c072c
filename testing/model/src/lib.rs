//! The parts of libprof.so in which threads interact without a lock, compiled with loom's atomics in place of
//! the standard ones: `tests` tries every interleaving of two threads, and every value that a load may
//! return. The files are those of `inject`, which access their atomics as `crate::sync`.
#![expect(clippy::new_without_default, reason = "the types are private in libprof.so, where nobody needs a default")]

pub mod sync;

#[path = "../../../inject/src/rings/ring.rs"]
pub mod ring;
#[path = "../../../inject/src/cupti/toggle.rs"]
pub mod toggle;
