//! Time by cause as columns of letters: one column for each interval of about a second.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::appearance::{self, Appearance};
use crate::top::answer::{CAUSES, Window};
use crate::top::process::sums;

/// Maximum number of columns for one interval: those of a minute and a half.
const LONGEST: usize = 180;

/// Splits intervals into columns of equal time: two per second if they fit the width, else one. Every
/// interval gets at least one.
pub fn columns(windows: &[Window], width: u16) -> Vec<Window> {
    let micros = |window: &Window| window.causes.iter().fold(0_u64, |sum, &time| sum.saturating_add(time));
    let seconds = windows.iter().map(micros).fold(0, u64::saturating_add) as f64 / 1e6;
    let per_second = if 2.0 * seconds <= f64::from(width) { 2.0 } else { 1.0 };
    let (mut columns, mut until) = (Vec::new(), 0.0_f64);
    for window in windows {
        let from = until;
        until += micros(window) as f64 / 1e6 * per_second;
        let count = (until.round() - from.round()) as usize;
        columns.extend(std::iter::repeat_n(*window, count.clamp(1, LONGEST)));
    }
    columns
}

/// Draws the newest intervals on the right. If they do not fit, adjacent intervals are merged.
pub fn draw(buffer: &mut Buffer, area: Rect, windows: &[Window], appearance: Appearance) {
    let columns = usize::from(area.width);
    if columns == 0 || area.height == 0 || windows.is_empty() {
        return;
    }
    let joined = windows.len().div_ceil(columns);
    let intervals: Vec<_> = windows.rchunks(joined).map(sums).collect();
    for (x, interval) in (area.left()..area.right()).rev().zip(intervals) {
        let mut row = area.bottom();
        let cells = cells(&interval, area.height);
        for (cause, letter, _) in appearance::CAUSES {
            for _ in 0..cells[cause as usize] {
                row -= 1;
                if let Some(cell) = buffer.cell_mut((x, row)) {
                    cell.set_char(letter).set_style(appearance.cause(cause));
                }
            }
        }
    }
}

/// Divides `height` cells among the causes: integers that sum to `height`, where those with the largest
/// remainders are rounded up. All zero if there is no time.
fn cells(times: &[u64; CAUSES], height: u16) -> [u16; CAUSES] {
    let total: u64 = times.iter().sum();
    let mut cells = [0; CAUSES];
    if total == 0 {
        return cells;
    }
    let exact = times.map(|time| time as f64 / total as f64 * f64::from(height));
    for (cell, exact) in cells.iter_mut().zip(exact) {
        *cell = exact.floor() as u16;
    }
    let mut order: Vec<usize> = (0..CAUSES).collect();
    order.sort_by(|&a, &b| exact[b].fract().total_cmp(&exact[a].fract()));
    let missing = height.saturating_sub(cells.iter().sum());
    for &index in order.iter().take(usize::from(missing)) {
        cells[index] += 1;
    }
    cells
}

#[cfg(test)]
mod tests {
    use profiler_core::leaf::Cause;

    use super::*;

    fn times(pairs: &[(Cause, u64)]) -> [u64; CAUSES] {
        let mut times = [0; CAUSES];
        pairs.iter().for_each(|&(cause, time)| times[cause as usize] = time);
        times
    }

    #[test]
    fn cells_sum_to_the_height() {
        let of = |pairs: &[(Cause, u64)], height, cause: Cause| {
            let cells = cells(&times(pairs), height);
            assert_eq!(cells.iter().sum::<u16>(), if pairs.is_empty() { 0 } else { height });
            cells[cause as usize]
        };
        let mixed = [(Cause::Launch, 61), (Cause::GpuCompute, 27), (Cause::HostCpu, 12)];
        assert_eq!(of(&mixed, 10, Cause::Launch), 6);
        assert_eq!(of(&mixed, 1, Cause::Launch), 1, "the largest");
        assert_eq!(of(&mixed, 3, Cause::GpuCompute), 1);
        assert_eq!(of(&[(Cause::Sync, u64::MAX)], 7, Cause::Sync), 7);
        assert_eq!(of(&[], 7, Cause::Sync), 0);
    }

    #[test]
    fn a_column_is_a_second_or_half_of_one() {
        let lasting = |seconds: f64| Window { end_ns: 0, causes: times(&[(Cause::Sync, (seconds * 1e6) as u64)]) };
        let count = |seconds: &[f64], width| {
            let windows: Vec<_> = seconds.iter().map(|&seconds| lasting(seconds)).collect();
            columns(&windows, width).len()
        };
        assert_eq!(count(&[1.0, 1.2, 2.6], 80), 10);
        assert_eq!(count(&[1.0; 60], 80), 60);
        assert_eq!(count(&[1.0; 60], 120), 120);
        assert_eq!(count(&[1e9, 1.0], 80), LONGEST + 1, "however long an interval is");
        assert_eq!(count(&[], 80), 0);
    }

    #[test]
    fn the_newest_interval_is_to_the_right_and_old_ones_are_joined() {
        let appearance = Appearance { color: false, unicode: true };
        let window = |cause| Window { end_ns: 0, causes: times(&[(cause, 1_000)]) };
        let drawn = |windows: &[Window], width| {
            let area = Rect::new(0, 0, width, 1);
            let mut buffer = Buffer::empty(area);
            draw(&mut buffer, area, windows, appearance);
            (0..width).map(|x| buffer.cell((x, 0)).unwrap().symbol().to_owned()).collect::<String>()
        };
        let windows = [Cause::Launch, Cause::Launch, Cause::Sync, Cause::GpuCompute].map(window);
        assert_eq!(drawn(&windows, 6), "  LLSG");
        assert_eq!(drawn(&windows[..3], 2), "LL", "two of three in one");
        assert_eq!(drawn(&windows, 0), "");
        assert_eq!(drawn(&[], 2), "  ");
    }
}
