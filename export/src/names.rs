//! Names of kernels as other tools show them, converted once for each name.
//!
//! gpuwhy's reports leave parameters out; the PyTorch profiler and nsys show them, and their users search for
//! them.

pub use gpuwhy_trace::demangle::demangled;
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::NameId;
use rustc_hash::FxHashMap;

/// Readable names by id. `make` applies the differences between formats (escaping, shortening).
#[derive(Debug)]
pub struct ReadableNames {
    made: FxHashMap<NameId, String>,
    make: fn(&str) -> String,
}

impl ReadableNames {
    /// Creates a table whose names are converted by `make` from the dictionary's form to the output form.
    pub fn new(make: fn(&str) -> String) -> Self {
        Self { made: FxHashMap::default(), make }
    }

    /// Name of `id`.
    pub fn get(&mut self, id: NameId, dictionary: &Dictionary) -> &str {
        let make = self.make;
        self.made.entry(id).or_insert_with(|| make(dictionary.name(id)))
    }
}

/// Bare name of a function: without return type, scope, template arguments and parameters.
pub fn base(demangled: &str) -> &str {
    let mut depth = 0u32;
    let mut start = 0;
    let mut end = demangled.len();
    let bytes = demangled.as_bytes();
    for (at, &byte) in bytes.iter().enumerate() {
        match byte {
            // `(anonymous namespace)::` is a scope, not a parameter list.
            b'(' if depth == 0 && demangled[at..].starts_with("(anonymous namespace)") => depth += 1,
            b'<' | b'(' => {
                if depth == 0 && end == demangled.len() {
                    end = at;
                }
                if byte == b'(' && depth == 0 {
                    break;
                }
                depth += 1;
            }
            b'>' | b')' => depth = depth.saturating_sub(1),
            b':' | b' ' if depth == 0 => {
                start = at + 1;
                end = demangled.len();
            }
            _ => {}
        }
    }
    demangled.get(start..end).filter(|name| !name.is_empty()).unwrap_or(demangled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_names_have_neither_scope_nor_arguments() {
        for (name, wanted) in [
            ("gemm(float*, float*, int)", "gemm"),
            ("void at::native::vector<4, at::F<float> >(int, at::F<float>)", "vector"),
            ("void at::native::(anonymous namespace)::cat<float, (int)4>(float*)", "cat"),
            ("triton_poi_fused_0", "triton_poi_fused_0"),
            ("nvjet_tst_256x128_64x4", "nvjet_tst_256x128_64x4"),
            ("void cub::Kernel<cub::Policy<int>::Max>(int)", "Kernel"),
            ("", ""),
        ] {
            assert_eq!(base(name), wanted, "{name}");
        }
    }
}
