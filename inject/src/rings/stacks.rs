//! Depth of a thread in each domain, and the ranges that are not recorded.
//!
//! Once a push was dropped, everything inside that range is dropped with it, up to and including its pop: a
//! pop without its push would end the wrong range.

/// Maximum number of distinct domains; see [`index`].
pub const DOMAINS: u32 = 1023;

/// Stacks of one thread.
#[derive(Debug, Default)]
pub struct RangeStacks(Vec<Stack>);

#[derive(Clone, Copy, Debug)]
struct Stack {
    depth: u32,
    /// Ranges at this depth and deeper are dropped.
    suppressed_from: u32,
}

const EMPTY: Stack = Stack { depth: 0, suppressed_from: u32::MAX };

/// Maps the number of a domain to an index of the tables: domains beyond the first [`DOMAINS`], and handles
/// that were never assigned, share the last one.
pub fn index(domain: u32) -> u32 {
    domain.min(DOMAINS)
}

impl RangeStacks {
    /// Starts a range; `record` returns true if its push could be recorded. Returns its depth.
    pub fn push(&mut self, domain: u32, record: impl FnOnce() -> bool) -> u32 {
        let stack = self.stack(domain);
        let level = stack.depth;
        stack.depth = level.saturating_add(1);
        if level < stack.suppressed_from && !record() {
            stack.suppressed_from = level;
        }
        level
    }

    /// Ends a range. Returns its depth, and true if its push was recorded; `None` if there is no range.
    pub fn pop(&mut self, domain: u32) -> Option<(u32, bool)> {
        let stack = self.stack(domain);
        let level = stack.depth.checked_sub(1)?;
        stack.depth = level;
        let recorded = level < stack.suppressed_from;
        if level == stack.suppressed_from {
            stack.suppressed_from = u32::MAX;
        }
        Some((level, recorded))
    }

    /// True if the next push would be dropped.
    pub fn is_suppressed(&mut self, domain: u32) -> bool {
        let stack = self.stack(domain);
        stack.depth >= stack.suppressed_from
    }

    fn stack(&mut self, domain: u32) -> &mut Stack {
        let at = index(domain) as usize;
        if at >= self.0.len() {
            self.0.resize(at + 1, EMPTY);
        }
        &mut self.0[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depths_are_those_of_each_domain() {
        let mut stacks = RangeStacks::default();
        assert_eq!([0, 1, 0, 0].map(|domain| stacks.push(domain, || true)), [0, 0, 1, 2]);
        assert_eq!(
            [0, 1, 1, 0, 0, 0].map(|domain| stacks.pop(domain).map(|(level, _)| level)),
            [Some(2), Some(0), None, Some(1), Some(0), None]
        );
    }

    #[test]
    fn what_is_inside_a_dropped_range_is_left_out_with_it() {
        let mut stacks = RangeStacks::default();
        stacks.push(0, || true);
        stacks.push(0, || false);
        assert!(stacks.is_suppressed(0) && !stacks.is_suppressed(1));
        assert_eq!(stacks.push(0, || unreachable!("inside a dropped range")), 2);
        assert_eq!([(); 3].map(|()| stacks.pop(0)), [Some((2, false)), Some((1, false)), Some((0, true))]);
        stacks.push(0, || true);
        assert_eq!(stacks.pop(0), Some((0, true)));
    }
}
