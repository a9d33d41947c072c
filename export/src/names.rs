//! Names of kernels as other tools show them, made once for each name.
//!
//! Reports of gpuprof leave parameters out; the PyTorch profiler and nsys show them, and their users search for them.

use profiler_core::dictionary::Dictionary;
use profiler_core::record::NameId;
use rustc_hash::FxHashMap;

/// Readable names by id. What differs between formats (escaping, shortening) is put on by `make`.
#[derive(Debug)]
pub struct Names {
    made: FxHashMap<NameId, String>,
    make: fn(&str) -> String,
}

impl Names {
    /// Names that `make` turns from what the dictionary holds into what is written.
    pub fn new(make: fn(&str) -> String) -> Self {
        Self { made: FxHashMap::default(), make }
    }

    /// The name behind `id`.
    pub fn get(&mut self, id: NameId, dictionary: &Dictionary) -> &str {
        let make = self.make;
        self.made.entry(id).or_insert_with(|| make(dictionary.name(id)))
    }
}

/// A mangled name demangled with its parameters; what is no C++ name is returned as it is.
pub fn demangled(name: &str) -> String {
    cpp_demangle::Symbol::new(name)
        .ok()
        .and_then(|symbol| symbol.demangle().ok())
        .filter(|readable| !readable.is_empty())
        .unwrap_or_else(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_demangled_with_parameters_and_others_stay() {
        assert_eq!(demangled("_Z4gemmPfS_i"), "gemm(float*, float*, int)");
        assert_eq!(demangled("triton_poi_fused_0"), "triton_poi_fused_0");
        assert_eq!(demangled("_Z"), "_Z");
    }
}
