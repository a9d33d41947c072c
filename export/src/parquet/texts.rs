//! Deduplicates texts before they are written.

use parquet::data_type::ByteArray;
use rustc_hash::FxHashMap;

/// Texts to be written, each stored once: rows repeat the names in the trace's dictionary.
#[derive(Debug, Default)]
pub struct Texts(FxHashMap<Box<str>, ByteArray>);

impl Texts {
    /// Returns the single shared value of a text.
    pub fn shared(&mut self, text: &str) -> ByteArray {
        if let Some(shared) = self.0.get(text) {
            return shared.clone();
        }
        let shared = ByteArray::from(text.as_bytes().to_vec());
        self.0.insert(text.into(), shared.clone());
        shared
    }
}
