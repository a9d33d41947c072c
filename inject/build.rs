//! NCCL finds the loaded library by its name without a path (its soname), if it has one.
//!
//! CUPTI calls into libprof.so from its own threads until the process ends, so the library must never be
//! unmapped, not even if the program closes it.
#![allow(clippy::disallowed_macros, reason = "prints what cargo reads")]

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // Unlike `rustc-cdylib-link-arg`, this argument is not passed on to libraries that contain this package.
    println!("cargo::rustc-link-arg=-Wl,-soname,libprof.so");
}
