//! Display forms of names.

use gpuwhy_trace::demangle::without_parameters;
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::{ApiFunctionId, NameId};
use profiler_core::api::without_suffix;

/// Name of a kernel without its parameters, which repeat the template arguments and seldom distinguish two
/// kernels.
pub(super) fn kernel(dictionary: &Dictionary, id: NameId) -> String {
    without_parameters(dictionary.name(id))
}

/// Name of an API function without its version suffix.
pub(super) fn function(dictionary: &Dictionary, id: ApiFunctionId) -> String {
    dictionary
        .api_function(id)
        .map_or_else(|| "?".to_owned(), |function| without_suffix(dictionary.name(function.name)).to_owned())
}
