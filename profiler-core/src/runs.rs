//! Sorting what comes in runs: each buffer is in order, the buffers are not.
//!
//! Merging runs that do not overlap costs as much as merging ones that do. So whole runs are put in the order in which they
//! begin, and only then what still overlaps is merged.

use std::cmp::Ordering;

/// Runs of a mean length below this are no buffers.
const SHORTEST_RUN: usize = 8;

/// Sorts `items`. The order of equal ones is not kept.
pub(crate) fn sort_by<T: Copy>(items: &mut Vec<T>, compare: impl Fn(&T, &T) -> Ordering) {
    let mut runs = Vec::new();
    let mut begin = 0;
    for index in 1..items.len() {
        if compare(&items[index - 1], &items[index]) == Ordering::Greater {
            runs.push(begin..index);
            begin = index;
        }
    }
    if runs.is_empty() {
        return; // In order already.
    }
    runs.push(begin..items.len());
    if items.len() / runs.len() >= SHORTEST_RUN {
        runs.sort_by(|a, b| compare(&items[a.start], &items[b.start]));
        let mut ordered = Vec::with_capacity(items.capacity());
        for run in runs {
            ordered.extend_from_slice(&items[run]);
        }
        *items = ordered;
    }
    items.sort_by(compare);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_in_any_order_and_what_is_no_buffer_are_sorted() {
        let buffers = |step: u32, overlap: u32| -> Vec<u32> {
            (0..20)
                .rev()
                .flat_map(|buffer| (0..50).map(move |index| buffer * (50 - overlap) * step + index * step))
                .collect()
        };
        let mut state = 7u32;
        let noise = (0..500).map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state >> 20
        });
        for mut items in [buffers(1, 0), buffers(3, 20), noise.collect(), vec![], vec![1], vec![2, 1]] {
            let mut expected = items.clone();
            expected.sort_unstable();
            sort_by(&mut items, u32::cmp);
            assert_eq!(items, expected);
        }
    }
}
