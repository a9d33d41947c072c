//! Types of the report that are written by their name, and forms that several of its documents share.

use std::collections::BTreeMap;

use profiler_core::counters::roofs::{Limit, LimitTimes};
use serde::{Serialize, Serializer};

/// Nanoseconds by name of limit.
pub(crate) fn limits(times: &LimitTimes) -> BTreeMap<&'static str, u64> {
    Limit::ALL.map(|limit| (limit.name(), times[limit as usize])).into()
}

/// Function and file as an object.
pub(crate) fn within<S: Serializer>(within: &Option<(String, String)>, serializer: S) -> Result<S::Ok, S::Error> {
    within
        .as_ref()
        .map(|(function, file)| BTreeMap::from([("file", file), ("function", function)]))
        .serialize(serializer)
}
