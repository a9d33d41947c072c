//! JSON form of a hang report.

use gpuwhy_trace::document::document;

use super::HangReport;

document! {
    from: HangReport {
        ranks: from.runs.iter().map(|of| of.ranks).sum::<u32>(),
        runs, findings, silent, doubts,
    }
}
