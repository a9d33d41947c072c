//! The `gpuprof` command.
fn main() {}
