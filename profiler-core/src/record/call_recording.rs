//! When API calls are recorded, where that is not all the time.

use super::Timestamp;

/// From here on API calls are recorded, or are left out while device work goes on being recorded. A trace with such
/// marks begins with one that says that they are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallRecording {
    /// When. Calls that lie on both sides of it may have a record or none.
    pub at: Timestamp,
    /// Whether calls that begin behind it are recorded.
    pub on: bool,
}
