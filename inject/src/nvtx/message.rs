//! The name of a text in the trace.
//!
//! Distinct names are limited, because programs generate them: `step 1`, `step 2`, ...

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::NameId;

/// Maximum number of distinct names of ranges, marks and categories in one trace.
pub const MAX_NAMES: usize = 1 << 16;

/// Name for all texts beyond the first [`MAX_NAMES`].
pub const FURTHER: &str = "<one of more than 65536 names>";

/// Adds names to the dictionary, up to the limit.
#[derive(Debug, Default)]
pub struct Names {
    added: usize,
}

impl Names {
    /// Id of `name`, or that of [`FURTHER`].
    pub fn intern(&mut self, name: &str, dictionary: &mut Dictionary) -> NameId {
        if let Some(known) = dictionary.find_name(name) {
            return known;
        }
        if self.added == MAX_NAMES {
            return dictionary.intern_name(FURTHER);
        }
        self.added += 1;
        dictionary.intern_name(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_bounded() {
        let (mut names, mut dictionary) = (Names::default(), Dictionary::new());
        let first = names.intern("step 0", &mut dictionary);
        for step in 1..MAX_NAMES {
            names.intern(&format!("step {step}"), &mut dictionary);
        }
        let further = names.intern("one more", &mut dictionary);
        assert_eq!(dictionary.name(further), FURTHER);
        assert_eq!(names.intern("and another", &mut dictionary), further);
        assert_eq!(names.intern("step 0", &mut dictionary), first);
        assert_eq!(dictionary.names().len(), MAX_NAMES + 1);
    }
}
