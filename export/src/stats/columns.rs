//! Cells that several tables have.

use profiler_core::dictionary::Dictionary;
use profiler_core::record::ApiFunctionId;

use super::distribution::Distribution;
use super::labels;
use super::table::{Cell, TimeUnit};

/// Share, total, count and the rest of a group of durations.
pub(super) fn times(group: &Distribution, all: f64, unit: TimeUnit) -> Vec<Cell> {
    let share = if all > 0.0 { group.total() as f64 / all * 100.0 } else { 0.0 };
    let mut cells = vec![Cell::Decimal(share, 1), unit.whole(group.total()), Cell::Number(group.count())];
    cells.extend(spread(group, unit));
    cells
}

/// Mean, median, extremes and deviation of a group of durations.
pub(super) fn spread(group: &Distribution, unit: TimeUnit) -> [Cell; 5] {
    [
        unit.fraction(group.mean()),
        unit.fraction(group.median()),
        unit.whole(group.min()),
        unit.whole(group.max()),
        unit.fraction(group.deviation()),
    ]
}

/// The name of a function as nsys shows it.
pub(super) fn call(function: ApiFunctionId, dictionary: &Dictionary) -> &str {
    dictionary.api_function(function).map_or("?", |function| labels::function(dictionary.name(function.name)))
}
