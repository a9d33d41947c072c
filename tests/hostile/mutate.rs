//! Mutations of bytes: flip, cut, repeat, move, mix, and insert edge-case numbers.

/// splitmix64 (Steele, Lea and Flood, 2014).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

/// Edge cases for lengths, counts and times.
const EDGES: &[u64] =
    &[0, 1, 7, 8, 127, 128, 255, 65_535, i32::MAX as u64, u32::MAX as u64, 1 << 40, i64::MAX as u64, u64::MAX];

/// Changes `bytes` in one to eight ways.
pub fn mutate(bytes: &mut Vec<u8>, corpus: &[Vec<u8>], random: &mut Random) {
    for _ in 0..=random.below(8) {
        if bytes.is_empty() {
            return;
        }
        let at = random.below(bytes.len());
        let length = 1 + random.below(64.min(bytes.len() - at));
        match random.below(9) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.next() as u8,
            2 => bytes.truncate(at),
            3 => drop(bytes.drain(at..at + length)),
            4 => {
                let part = bytes[at..at + length].to_vec();
                let to = random.below(bytes.len());
                bytes.splice(to..to, part);
            }
            5 => {
                let other = &corpus[random.below(corpus.len())];
                let from = random.below(other.len());
                let part = other[from..(from + length).min(other.len())].to_vec();
                bytes.splice(at..at + length, part);
            }
            6 => bytes[at..at + length].reverse(),
            7 => bytes[at..at + length].fill(random.next() as u8),
            _ => {
                let edge = EDGES[random.below(EDGES.len())].to_le_bytes();
                let width = [1, 2, 4, 8][random.below(4)].min(bytes.len() - at);
                bytes[at..at + width].copy_from_slice(&edge[..width]);
            }
        }
    }
}

/// Writes correct checksums into every block of a trace that can still be found: a header of 40 bytes
/// (docs/reference/trace-format.md) after its mark, with the length of the body at byte 8, the body's
/// checksum at 32 and the header's at 36.
pub fn seal(bytes: &mut [u8]) {
    const MARK: [u8; 4] = [0xf5, b'G', 0xb6, 0xc3];
    let mut at = 0;
    while let Some(found) = bytes[at..].windows(4).position(|window| window == MARK) {
        at += found;
        let Some(header) = bytes.get(at..at + 40) else { return };
        let length = u32::from_le_bytes([header[8], header[9], header[10], header[11]]) as usize;
        if let Some(body) = bytes.get(at + 40..at.saturating_add(40).saturating_add(length)) {
            let checksum = crc32fast::hash(body).to_le_bytes();
            bytes[at + 32..at + 36].copy_from_slice(&checksum);
        }
        let checksum = crc32fast::hash(&bytes[at..at + 36]).to_le_bytes();
        bytes[at + 36..at + 40].copy_from_slice(&checksum);
        at += 4;
    }
}
