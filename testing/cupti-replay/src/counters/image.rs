//! The bytes that clients pass between functions: configurations and counter data, in this library's own
//! format.
//!
//! The first word of counter data identifies their state. Any other word means that this library did not make
//! them, or that they were not initialized again after a decode, in which case CUPTI would add to them.

/// First bytes of a configuration.
pub const CONFIGURATION: &[u8; 8] = b"replaycf";
/// First word of sampling counter data that are ready for a decode.
pub const READY: u64 = 0x7265_6164_7930_3030;
/// First word once they contain samples.
pub const FILLED: u64 = 0x6669_6c6c_6564_3030;
/// Number of words before the samples: state, capacity, metrics, samples started, samples complete.
pub const HEADER: usize = 5;

/// Encodes a configuration of these metrics.
#[must_use]
pub fn configuration(passes: u8, metrics: &[String]) -> Vec<u8> {
    [CONFIGURATION.as_slice(), &[passes], metrics.join("\n").as_bytes()].concat()
}

/// Passes and metrics of a configuration; `None` for other bytes.
#[must_use]
pub fn parse_configuration(bytes: &[u8]) -> Option<(u8, Vec<String>)> {
    let (passes, names) = bytes.strip_prefix(CONFIGURATION)?.split_first()?;
    let names = std::str::from_utf8(names).ok()?;
    Some((*passes, names.split('\n').filter(|name| !name.is_empty()).map(str::to_owned).collect()))
}

/// Size in bytes of counter data for this many samples and metrics.
#[must_use]
pub const fn bytes(samples: usize, metrics: usize) -> usize {
    (HEADER + samples * (2 + metrics)) * 8
}

/// Counter data, read as words.
#[derive(Debug)]
pub struct Data {
    words: Vec<u64>,
}

impl Data {
    /// Reads them; a trailing partial word is ignored.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Self {
        let words = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default())).collect();
        Self { words }
    }

    /// New, initialized counter data.
    #[must_use]
    pub fn ready(samples: usize, metrics: usize) -> Self {
        let mut words = vec![0; bytes(samples, metrics) / 8];
        for (word, value) in words.iter_mut().zip([READY, samples as u64, metrics as u64]) {
            *word = value;
        }
        Self { words }
    }

    /// A word of the header.
    fn header(&self, place: usize) -> u64 {
        self.words.get(place).copied().unwrap_or_default()
    }

    /// True if they were initialized since the last decode.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.header(0) == READY
    }

    /// True if they are counter data of this library.
    #[must_use]
    pub fn is_known(&self) -> bool {
        matches!(self.header(0), READY | FILLED)
    }

    /// Capacity, samples started, and samples complete.
    #[must_use]
    pub fn counts(&self) -> [usize; 3] {
        [1, 3, 4].map(|place| usize::try_from(self.header(place)).unwrap_or_default())
    }

    /// Stores samples.
    pub fn fill(&mut self, populated: usize, samples: &[(u64, u64, Vec<f64>)]) {
        let values = samples.iter().flat_map(|(begin, end, values)| {
            [*begin, *end].into_iter().chain(values.iter().map(|value| value.to_bits()))
        });
        let header = [FILLED, self.header(1), self.header(2), populated as u64, samples.len() as u64];
        for (word, value) in self.words.iter_mut().zip(header.into_iter().chain(values)) {
            *word = value;
        }
    }

    /// Start, end and values of a complete sample.
    #[must_use]
    pub fn sample(&self, index: usize) -> Option<(u64, u64, Vec<f64>)> {
        let [_, _, complete] = self.counts();
        let metrics = usize::try_from(self.header(2)).ok()?;
        let start = HEADER + index.checked_mul(2 + metrics)?;
        let words = self.words.get(start..start + 2 + metrics).filter(|_| index < complete)?;
        let [begin, end, values @ ..] = words else { return None };
        Some((*begin, *end, values.iter().map(|&bits| f64::from_bits(bits)).collect()))
    }

    /// Encodes them as bytes.
    pub fn bytes(&self) -> impl Iterator<Item = u8> {
        self.words.iter().flat_map(|word| word.to_le_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_stored_is_read_again() {
        let names = vec!["a".to_owned(), "b".to_owned()];
        assert_eq!(parse_configuration(&configuration(1, &names)), Some((1, names)));
        assert_eq!(parse_configuration(b"something else"), None);
        let mut data = Data::ready(2, 2);
        assert!(data.is_ready());
        data.fill(2, &[(5, 9, vec![1.5, f64::NAN])]);
        let data = Data::read(&data.bytes().collect::<Vec<_>>());
        assert!(data.is_known() && !data.is_ready());
        assert_eq!(data.counts(), [2, 2, 1]);
        let (begin, end, values) = data.sample(0).unwrap();
        assert_eq!((begin, end, values[0], values[1].is_nan()), (5, 9, 1.5, true));
        assert_eq!(data.sample(1), None, "begun and not complete");
        assert!(!Data::read(&[0; 64]).is_known());
    }
}
