//! What a report is asked for.

use std::time::Duration;

use gpuwhy_report::run::operators::OperatorsBy;

/// Options of a report.
#[derive(Clone, Copy, Debug, Default)]
pub struct Request {
    /// Process, for a file with several; `None` is the one with the most device work.
    pub pid: Option<u32>,
    /// Capture of a run with several captures; `None` is the newest.
    pub capture: Option<u32>,
    /// Part of the run, as times after its start; see [`open_window`](crate::open_window).
    pub window: Option<(Duration, Duration)>,
    /// What rows of operators are about; `None` leaves them out.
    pub operators: Option<OperatorsBy>,
}
