//! Names as people write them. Demangling happens here and nowhere else.

use crate::attribution::api::without_suffix;
use crate::dictionary::Dictionary;
use crate::record::ApiFunctionId;

/// A mangled name demangled, without its parameters; what is no C++ name is returned as it is.
///
/// Parameters are left out because they repeat the template arguments and are seldom what tells two kernels apart.
pub(super) fn demangled(name: &str) -> String {
    let options = cpp_demangle::DemangleOptions::new().no_params().no_return_type();
    // The demangler also takes a bare type, so that a kernel `f` of C linkage would become `float`.
    name.starts_with("_Z")
        .then(|| cpp_demangle::Symbol::new(name).ok())
        .flatten()
        .and_then(|symbol| symbol.demangle_with_options(&options).ok())
        .filter(|readable| !readable.is_empty())
        .unwrap_or_else(|| name.to_owned())
}

/// An API function without version suffix.
pub(super) fn function(dictionary: &Dictionary, id: ApiFunctionId) -> String {
    dictionary
        .api_function(id)
        .map_or_else(|| "?".to_owned(), |function| without_suffix(dictionary.name(function.name)).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mangled_names_become_readable_and_others_stay() {
        assert_eq!(demangled("_Z4gemmPfS_i"), "gemm");
        assert_eq!(demangled("_ZN2at6native6vectorILi4EEEvPf"), "at::native::vector<4>");
        assert_eq!(demangled("triton_poi_fused_0"), "triton_poi_fused_0");
        assert_eq!(demangled("_Z"), "_Z");
        for code_of_a_type in ["f", "d", "Pf", "v"] {
            assert_eq!(demangled(code_of_a_type), code_of_a_type);
        }
    }
}
