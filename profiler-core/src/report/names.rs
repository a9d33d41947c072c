//! Names as people write them.

use crate::attribution::api::without_suffix;
use crate::dictionary::Dictionary;
use crate::record::ApiFunctionId;

/// Kernels go without their parameters, which repeat the template arguments and are seldom what tells two apart.
pub(super) use crate::demangle::without_parameters as demangled;

/// An API function without version suffix.
pub(super) fn function(dictionary: &Dictionary, id: ApiFunctionId) -> String {
    dictionary
        .api_function(id)
        .map_or_else(|| "?".to_owned(), |function| without_suffix(dictionary.name(function.name)).to_owned())
}
