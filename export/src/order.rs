//! Rows in the order of their times.
//!
//! A trace has its records in the order in which they were delivered, which is nearly that of their ends. Rows wait
//! here until so many later ones have come that an earlier one is not to be expected; one that comes all the same is
//! handed out late, and counted.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use gpuwhy_trace::record::Timestamp;

/// Rows that wait at once.
const WAITING_LIMIT: usize = 1 << 20;

/// Puts rows in order.
#[derive(Debug)]
pub struct Order<T> {
    waiting: BinaryHeap<Reverse<Waiting<T>>>,
    limit: usize,
    arrived: u64,
    last: Timestamp,
    late: u64,
}

#[derive(Debug)]
struct Waiting<T> {
    at: Timestamp,
    /// Keeps rows of one time in the order of the trace.
    arrived: u64,
    row: T,
}

impl<T> Default for Order<T> {
    fn default() -> Self {
        Self { waiting: BinaryHeap::new(), limit: WAITING_LIMIT, arrived: 0, last: Timestamp::ZERO, late: 0 }
    }
}

impl<T> Order<T> {
    /// Takes a row; the earliest of those that wait, when there are too many.
    pub fn push(&mut self, at: Timestamp, row: T) -> Option<T> {
        self.arrived += 1;
        self.waiting.push(Reverse(Waiting { at, arrived: self.arrived, row }));
        if self.waiting.len() > self.limit { self.pop() } else { None }
    }

    /// The earliest row that still waits.
    pub fn pop(&mut self) -> Option<T> {
        let Reverse(Waiting { at, row, .. }) = self.waiting.pop()?;
        self.late += u64::from(at < self.last);
        self.last = self.last.max(at);
        Some(row)
    }

    /// Rows that were handed out behind later ones.
    pub fn late(&self) -> u64 {
        self.late
    }
}

impl<T> Ord for Waiting<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.arrived).cmp(&(other.at, other.arrived))
    }
}

impl<T> PartialOrd for Waiting<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Waiting<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for Waiting<T> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_out_by_time_and_late_ones_are_counted() {
        let mut order = Order { limit: 2, ..Order::default() };
        let mut out = Vec::new();
        for (at, row) in [(30, 'c'), (10, 'a'), (20, 'b'), (40, 'd'), (5, 'x')] {
            out.extend(order.push(Timestamp::from_nanos(at), row));
        }
        while let Some(row) = order.pop() {
            out.push(row);
        }
        assert_eq!(out, ['a', 'b', 'x', 'c', 'd']);
        assert_eq!(order.late(), 1);
    }
}
