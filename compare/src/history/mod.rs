//! Runs of a program by their lines ([`gpuwhy_report::history`]), and detection of a newest run that is slower than the
//! earlier ones.

mod compare;
mod text;

pub use compare::{EARLIER_RUNS, Judged, Like, StepTrend, Unlike, judged};
pub use text::text;
