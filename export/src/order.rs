//! Sorts rows by time.
//!
//! The records of a trace are in order of delivery, which is nearly the order of their ends. A row is
//! buffered until so many later rows have arrived that a row before it is unlikely to follow; one that follows
//! nevertheless is returned late and counted.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use gpuwhy_trace::record::Timestamp;

/// Maximum number of buffered rows.
const WAITING_LIMIT: usize = 1 << 20;

/// Sorts rows with a bounded buffer.
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
    /// Keeps rows with equal times in the order of the trace.
    arrived: u64,
    row: T,
}

impl<T> Default for Order<T> {
    fn default() -> Self {
        Self { waiting: BinaryHeap::new(), limit: WAITING_LIMIT, arrived: 0, last: Timestamp::ZERO, late: 0 }
    }
}

impl<T> Order<T> {
    /// Adds a row. Returns the earliest buffered row if there are too many.
    pub fn push(&mut self, at: Timestamp, row: T) -> Option<T> {
        self.arrived += 1;
        self.waiting.push(Reverse(Waiting { at, arrived: self.arrived, row }));
        if self.waiting.len() > self.limit { self.pop() } else { None }
    }

    /// Removes the earliest buffered row.
    pub fn pop(&mut self) -> Option<T> {
        let Reverse(Waiting { at, row, .. }) = self.waiting.pop()?;
        self.late += u64::from(at < self.last);
        self.last = self.last.max(at);
        Some(row)
    }

    /// Number of rows returned after later ones.
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
