//! Times in messages.

use std::time::Duration;

/// A time with the unit that suits it.
pub(crate) fn time(nanos: u64) -> String {
    format!("{:?}", Duration::from_nanos(nanos))
}
