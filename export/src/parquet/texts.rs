//! Texts that are about to be written.

use parquet::data_type::ByteArray;
use rustc_hash::FxHashMap;

/// Texts that wait to be written, each once: rows repeat the names of the trace's dictionary.
#[derive(Debug, Default)]
pub struct Texts(FxHashMap<Box<str>, ByteArray>);

impl Texts {
    /// The text as a value, of which there is one.
    pub fn shared(&mut self, text: &str) -> ByteArray {
        if let Some(shared) = self.0.get(text) {
            return shared.clone();
        }
        let shared = ByteArray::from(text.as_bytes().to_vec());
        self.0.insert(text.into(), shared.clone());
        shared
    }
}
