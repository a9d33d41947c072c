// A comparison of ranks whose rows are in memory; also for the tests of pages.

use std::convert::Infallible;

use gpuwhy_compare::ranks::{Collectives, RankRows, RanksReport, RowSource};
use gpuwhy_report::run::Report;

struct KeptRows(Vec<RankRows>);

impl RowSource for KeptRows {
    type Error = Infallible;

    fn rows(&mut self, place: usize, visit: &mut dyn FnMut(&RankRows)) -> Result<(), Infallible> {
        self.0.get(place).into_iter().for_each(visit);
        Ok(())
    }
}

/// Compares these ranks, from rank 0 on.
pub fn compared<'a>(ranks: impl Iterator<Item = (&'a Report, &'a Collectives)>) -> RanksReport {
    let (summaries, rows): (Vec<_>, _) = (0..)
        .zip(ranks)
        .map(|(rank, (report, collectives))| {
            let rows = collectives.rows();
            (collectives.summary(rank, report, &rows), rows)
        })
        .unzip();
    let Ok(compared) = RanksReport::compare(&summaries, &mut KeptRows(rows));
    compared
}
