//! Names as people write them.

use crate::attribution::api::without_suffix;
use crate::demangle::without_parameters;
use crate::dictionary::Dictionary;
use crate::record::{ApiFunctionId, NameId};

/// A kernel without its parameters, which repeat the template arguments and are seldom what tells two apart.
pub(super) fn kernel(dictionary: &Dictionary, id: NameId) -> String {
    without_parameters(dictionary.name(id))
}

/// An API function without version suffix.
pub(super) fn function(dictionary: &Dictionary, id: ApiFunctionId) -> String {
    dictionary
        .api_function(id)
        .map_or_else(|| "?".to_owned(), |function| without_suffix(dictionary.name(function.name)).to_owned())
}
