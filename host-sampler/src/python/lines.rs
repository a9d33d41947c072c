//! Maps bytecode offsets to source lines: decodes the three encodings into one table.

use super::layout::LineFormat;

/// Maximum number of ranges stored per code object: generated functions can have a hundred thousand lines.
const MAX_RANGES: usize = 1 << 16;

/// Ranges of bytecode and their lines, in order.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct CodeLines {
    /// End of the range in bytes, exclusive, and its line; 0 if it has none.
    ranges: Vec<(u32, u32)>,
}

impl CodeLines {
    /// Decodes the table of a code object that starts at line `first`.
    pub fn decode(format: LineFormat, table: &[u8], first: u32) -> Self {
        let mut lines = Self::default();
        match format {
            LineFormat::Lnotab => lines.lnotab(table, first),
            LineFormat::Ranges => lines.pairs(table, first),
            LineFormat::Locations => lines.locations(table, first),
        }
        lines
    }

    /// Line at `offset` bytes, if any.
    pub fn at(&self, offset: u32) -> Option<u32> {
        let index = self.ranges.partition_point(|&(end, _)| end <= offset);
        self.ranges.get(index).map(|&(_, line)| line).filter(|&line| line != 0)
    }

    fn push(&mut self, end: u32, line: u32) {
        if self.ranges.len() < MAX_RANGES && self.ranges.last().is_none_or(|&(last, _)| last < end) {
            self.ranges.push((end, line));
        }
    }

    /// Pairs of bytes: the length of the code that still has the current line, and the increment of the line
    /// after it.
    fn lnotab(&mut self, table: &[u8], first: u32) {
        let (mut end, mut line) = (0_u32, first);
        for &[code, lines] in table.as_chunks().0 {
            if code > 0 {
                end = end.saturating_add(code.into());
                self.push(end, line);
            }
            line = line.saturating_add_signed(lines.cast_signed().into());
        }
        self.push(u32::MAX, line);
    }

    /// Pairs of bytes: the length of the code, and the difference to the previous line; -128 marks code
    /// without a line.
    fn pairs(&mut self, table: &[u8], first: u32) {
        let (mut end, mut line) = (0_u32, first);
        for &[code, lines] in table.as_chunks().0 {
            let lines = lines.cast_signed();
            if lines != i8::MIN {
                line = line.saturating_add_signed(lines.into());
            }
            end = end.saturating_add(code.into());
            self.push(end, if lines == i8::MIN { 0 } else { line });
        }
    }

    /// Entries that start with a byte whose top bit is set: kind and length in units of two bytes; then
    /// numbers of six bits per byte. Only the line difference matters here.
    fn locations(&mut self, table: &[u8], first: u32) {
        let (mut end, mut line) = (0_u32, first);
        let mut bytes = table.iter().copied().peekable();
        while let Some(byte) = bytes.next() {
            let kind = (byte >> 3) & 15;
            let added = match kind {
                10..=12 => i32::from(kind) - 10,
                13 | 14 => signed(&mut bytes),
                _ => 0,
            };
            line = line.saturating_add_signed(added);
            end = end.saturating_add((u32::from(byte & 7) + 1) * 2);
            self.push(end, if kind == 15 { 0 } else { line });
            while bytes.next_if(|byte| byte & 0x80 == 0).is_some() {}
        }
    }
}

/// A number in groups of six bits, lowest first; bit 6 is set if more follow; the lowest bit is the sign.
fn signed(bytes: &mut impl Iterator<Item = u8>) -> i32 {
    let mut value = 0_u32;
    for shift in (0..32).step_by(6) {
        let Some(byte) = bytes.next() else { break };
        value |= u32::from(byte & 0x3f) << shift;
        if byte & 0x40 == 0 {
            break;
        }
    }
    let magnitude = (value >> 1).cast_signed();
    if value & 1 == 1 { -magnitude } else { magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(lines: &CodeLines, offsets: &[u32]) -> Vec<Option<u32>> {
        offsets.iter().map(|&offset| lines.at(offset)).collect()
    }

    #[test]
    fn lnotab_goes_forward_and_back() {
        // From 3.9: six bytes of line 10, then 300 lines forward in three steps, then one line back.
        let lines = CodeLines::decode(LineFormat::Lnotab, &[6, 127, 0, 127, 0, 46, 8, 0xff], 10);
        assert_eq!(at(&lines, &[0, 5, 6, 13, 14, 99]), [10, 10, 310, 310, 309, 309].map(Some));
    }

    #[test]
    fn ranges_without_a_line_have_none() {
        let lines = CodeLines::decode(LineFormat::Ranges, &[4, 1, 2, 0x80, 6, 3], 10);
        assert_eq!(at(&lines, &[0, 3, 4, 6, 11, 12]), [Some(11), Some(11), None, Some(14), Some(14), None]);
    }

    #[test]
    fn locations_of_every_kind() {
        let table = [
            0x80 | 11 << 3,
            1,
            5, // one line further, one unit
            0x80 | 3 << 3 | 1,
            0x20,           // same line, two units
            0x80 | 15 << 3, // no line
            0x80 | 13 << 3,
            0x40 | 1,
            0x03, // minus 96
            0x80 | 14 << 3 | 7,
            0x08,
            0,
            1,
            1, // plus 4
        ];
        let lines = CodeLines::decode(LineFormat::Locations, &table, 200);
        assert_eq!(
            at(&lines, &[0, 2, 5, 6, 8, 10, 25, 26]),
            [Some(201), Some(201), Some(201), None, Some(105), Some(109), Some(109), None]
        );
    }

    #[test]
    fn arbitrary_bytes_are_no_reason_to_panic() {
        let mut state = 1_u32;
        let noise: Vec<u8> = (0..4096)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 24) as u8
            })
            .collect();
        for format in [LineFormat::Lnotab, LineFormat::Ranges, LineFormat::Locations] {
            for length in [0, 1, 2, 77, 4096] {
                let lines = CodeLines::decode(format, &noise[..length], u32::MAX - 5);
                assert!(lines.ranges.is_sorted());
            }
        }
    }
}
