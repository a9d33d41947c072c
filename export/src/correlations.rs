//! A set of correlation ids.
//!
//! Ids are dense and increasing, so the set is a bitmap in pages that are allocated on demand: an eighth of a
//! byte per launch, and at most 512 MiB for all possible ids.

use gpuwhy_trace::record::CorrelationId;
use rustc_hash::FxHashMap;

const PAGE_BITS: u32 = 1 << 16;
const PAGE_WORDS: usize = PAGE_BITS as usize / 64;

/// Set of correlation ids.
#[derive(Debug, Default)]
pub struct Correlations {
    pages: FxHashMap<u32, Box<[u64; PAGE_WORDS]>>,
}

impl Correlations {
    /// Adds `id`. Returns true if it was not in the set. Zero means "no correlation" and is never added.
    pub fn insert(&mut self, id: CorrelationId) -> bool {
        if id.0 == 0 {
            return false;
        }
        let page = self.pages.entry(id.0 / PAGE_BITS).or_insert_with(|| Box::new([0; PAGE_WORDS]));
        let (word, bit) = place(id);
        let is_new = page[word] & bit == 0;
        page[word] |= bit;
        is_new
    }

    /// True if `id` was added.
    pub fn contains(&self, id: CorrelationId) -> bool {
        let (word, bit) = place(id);
        self.pages.get(&(id.0 / PAGE_BITS)).is_some_and(|page| page[word] & bit != 0)
    }
}

fn place(id: CorrelationId) -> (usize, u64) {
    let within = id.0 % PAGE_BITS;
    ((within / 64) as usize, 1 << (within % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_members_once_they_were_added() {
        let mut set = Correlations::default();
        for id in [1, 63, 64, 65_535, 65_536, u32::MAX] {
            assert!(!set.contains(CorrelationId(id)));
            assert!(set.insert(CorrelationId(id)), "{id}");
            assert!(!set.insert(CorrelationId(id)), "{id}");
            assert!(set.contains(CorrelationId(id)));
        }
        assert!(!set.contains(CorrelationId(2)) && !set.contains(CorrelationId(131_072)));
    }

    #[test]
    fn no_correlation_is_no_member() {
        let mut set = Correlations::default();
        assert!(!set.insert(CorrelationId(0)) && !set.contains(CorrelationId(0)));
    }
}
