//! Idle time of the devices by cause: what gpuwhy knows beyond nsys's rules.
//!
//! The engine makes the sums; here they become rows. A filter by time does not apply, since the engine keeps sums and
//! not stretches.

use profiler_core::attribution::leaf::Leaf;

use super::largest::Largest;
use super::rule::{Found, Request};
use crate::attributed::attributed;
use crate::error::ExportError;
use crate::stats::filter::TimeFilter;
use crate::stats::input::{Input, Notes};
use crate::stats::table::Cell;

/// Causes of idle time, the largest first.
pub(super) fn rows(request: &Request, input: &mut Input<'_, '_>, notes: &mut Notes) -> Result<Found, ExportError> {
    let unit = input.unit;
    let (report, passed) = attributed(input.trace, input.progress)?;
    notes.0.extend(passed.notes());
    if input.filter != TimeFilter::default() {
        notes.0.push(format!("{}: the whole trace is meant, filters do not apply", request.rule));
    }
    let mut largest = Largest::new(request.rows);
    for device in &report.devices {
        for leaf in Leaf::ALL.into_iter().filter(|leaf| leaf.work().is_none()) {
            let nanos = device.leaves[leaf as usize];
            if nanos > 0 {
                let share = nanos as f64 / device.window_ns.max(1) as f64 * 100.0;
                largest.push(nanos, (device.device.id, leaf, nanos, share));
            }
        }
    }
    let (rows, left_out) = largest.finish();
    let rows = rows.into_iter().map(|(device, leaf, nanos, share)| {
        vec![
            Cell::Decimal(share, 1),
            unit.whole(nanos),
            Cell::Number(passed.session.process_id.into()),
            Cell::Number(device.0.into()),
            Cell::Text(leaf.group().name().to_owned()),
            Cell::Text(leaf.name().to_owned()),
        ]
    });
    Ok((rows.collect(), left_out))
}
