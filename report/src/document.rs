//! Types of the report that are serialized by name, and forms that several of its documents share.

use std::collections::BTreeMap;

use profiler_core::counters::roofs::{Limit, LimitTimes};
use serde::{Serialize, Serializer};

/// Time by name of the limit, nanoseconds.
pub fn limits(times: &LimitTimes) -> BTreeMap<&'static str, u64> {
    Limit::ALL.map(|limit| (limit.name(), times[limit as usize])).into()
}

/// Function and file as a JSON object.
pub(crate) fn within<S: Serializer>(within: &Option<(String, String)>, serializer: S) -> Result<S::Ok, S::Error> {
    within
        .as_ref()
        .map(|(function, file)| BTreeMap::from([("file", file), ("function", function)]))
        .serialize(serializer)
}
