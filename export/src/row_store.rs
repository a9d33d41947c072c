//! Rows of many ranks: in memory up to a limit, otherwise in a temporary file.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;

use gpuwhy_compare::ranks::{RankRows, RowSource};
use gpuwhy_import::{OpenError, scratch};

/// Maximum bytes in memory, about the size of 1,000 ranks with 2,000 collectives each.
const MEMORY: usize = 256 << 20;

/// Encoded rows by rank; see the [module](self).
#[derive(Debug)]
pub(crate) struct RowStore {
    limit: usize,
    memory: Vec<u8>,
    file: Option<File>,
    /// End of each rank's rows, bytes.
    ends: Vec<u64>,
}

impl RowStore {
    pub(crate) fn new() -> Self {
        Self::within(MEMORY)
    }

    fn within(limit: usize) -> Self {
        Self { limit, memory: Vec::new(), file: None, ends: Vec::new() }
    }

    /// Adds the rows of the next rank.
    pub(crate) fn push(&mut self, rows: &RankRows) -> Result<(), OpenError> {
        let before = self.ends.last().copied().unwrap_or(0);
        let mut bytes = Vec::new();
        rows.encode(&mut bytes);
        match &mut self.file {
            Some(file) => file.write_all(&bytes).map_err(scratch::failed)?,
            None if self.memory.len() + bytes.len() > self.limit => {
                let mut file = scratch::create()?;
                file.write_all(&self.memory).and_then(|()| file.write_all(&bytes)).map_err(scratch::failed)?;
                (self.file, self.memory) = (Some(file), Vec::new());
            }
            None => self.memory.extend_from_slice(&bytes),
        }
        self.ends.push(before + bytes.len() as u64);
        Ok(())
    }
}

impl RowSource for RowStore {
    type Error = OpenError;

    fn rows(&mut self, place: usize, visit: &mut dyn FnMut(&RankRows)) -> Result<(), OpenError> {
        let begin = place.checked_sub(1).map_or(0, |before| self.ends[before]);
        let length = (self.ends[place] - begin) as usize;
        let rows = match &self.file {
            Some(file) => {
                let mut bytes = vec![0; length];
                file.read_exact_at(&mut bytes, begin).map_err(scratch::failed)?;
                RankRows::decode(&bytes)
            }
            None => RankRows::decode(&self.memory[begin as usize..][..length]),
        };
        visit(&rows.ok_or_else(|| scratch::failed(io::Error::new(io::ErrorKind::InvalidData, "it was changed")))?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuwhy_compare::ranks::{CollectiveRow, RowGroup};

    #[test]
    fn rows_come_back_from_memory_and_from_a_file() {
        let group = RowGroup { communicator: 7, size: 2, ..RowGroup::default() };
        let of_rank = |rank: i64| {
            let rows = (0..50).map(|at| CollectiveRow {
                group: 0,
                sequence: at,
                start: rank + at as i64 * 10,
                end: 500 + rank,
            });
            RankRows::new(vec![group], rows.collect(), &[])
        };
        for limit in [1 << 20, 6_000, 0] {
            let mut store = RowStore::within(limit);
            (0..9).for_each(|rank| store.push(&of_rank(rank)).unwrap());
            assert_eq!(store.file.is_some(), limit < 1 << 20);
            for rank in [8, 0, 3] {
                let mut seen = None;
                store.rows(rank, &mut |rows| seen = Some(rows.clone())).unwrap();
                assert_eq!(seen, Some(of_rank(rank as i64)), "{rank} with {limit}");
            }
        }
    }
}
