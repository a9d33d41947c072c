//! CUPTI calls into this library from its own threads until the process ends, so it must never be unmapped.
fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
