//! Kernels that were launched before: what a record says again and again, looked up once.
//!
//! Hashing a mangled name of a thousand characters for each launch costs more than everything else in decoding, and hashing
//! the launch comes next. So a name is found by its address and a launch by comparing it with the one before. An address can
//! come to mean another name when a module is unloaded, so the text is compared, which is cheap.

use std::collections::HashMap;
use std::ffi::{CStr, CString};

use profiler_core::dictionary::Dictionary;
use profiler_core::record::{LaunchConfig, LaunchConfigId, NameId};
use rustc_hash::FxBuildHasher;

/// Addresses of names that are remembered, each with a copy of the name.
const ADDRESS_LIMIT: usize = 16_384;

/// Kernels by the address at which CUPTI keeps their name.
#[derive(Debug, Default)]
pub(super) struct KernelNames {
    known: HashMap<u64, KnownKernel, FxBuildHasher>,
    /// What has no name.
    unnamed: Option<KnownKernel>,
}

/// A name, and how a kernel of that name was launched last: most are launched as the time before.
#[derive(Debug)]
pub(super) struct KnownKernel {
    name: CString,
    pub(super) id: NameId,
    last: Option<(LaunchConfig, LaunchConfigId)>,
}

impl KernelNames {
    /// The kernel of that name. Forgets all of them when there are more addresses than programs have kernels.
    #[inline]
    pub(super) fn find(&mut self, address: u64, name: Option<&CStr>, dictionary: &mut Dictionary) -> &mut KnownKernel {
        let Some(name) = name else {
            return self.unnamed.get_or_insert_with(|| KnownKernel::new(c"<unnamed kernel>", dictionary));
        };
        if self.known.len() >= ADDRESS_LIMIT && !self.known.contains_key(&address) {
            // A cache: what is still in use comes back at once.
            self.known.clear();
        }
        let known = self.known.entry(address).or_insert_with(|| KnownKernel::new(name, dictionary));
        if known.name.as_c_str() != name {
            *known = KnownKernel::new(name, dictionary);
        }
        known
    }
}

impl KnownKernel {
    fn new(name: &CStr, dictionary: &mut Dictionary) -> Self {
        Self { name: name.to_owned(), id: dictionary.intern_name(&name.to_string_lossy()), last: None }
    }

    /// The id of a launch of this kernel.
    #[inline]
    pub(super) fn launch(&mut self, config: LaunchConfig, dictionary: &mut Dictionary) -> LaunchConfigId {
        match self.last {
            Some((last, id)) if last == config => id,
            _ => {
                let beyond = dictionary.beyond();
                let id = dictionary.intern_launch_config(config);
                // What the table had no room for is counted each time.
                self.last = (dictionary.beyond() == beyond).then_some((config, id));
                id
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use profiler_core::dictionary::CONFIG_LIMIT;

    use super::*;

    fn launched(names: &mut KernelNames, dictionary: &mut Dictionary, name: &CStr, blocks: u32) -> (String, u32) {
        let known = names.find(64, Some(name), dictionary);
        let config = LaunchConfig { name: known.id, grid: [blocks, 1, 1], ..LaunchConfig::default() };
        let id = known.launch(config, dictionary);
        let config = dictionary.launch_config(id);
        (dictionary.name(config.name).to_owned(), config.grid[0])
    }

    #[test]
    fn a_launch_is_what_its_record_says_whatever_came_before_at_its_address() {
        let (mut names, mut dictionary) = (KernelNames::default(), Dictionary::new());
        for (name, blocks) in [(c"a", 1), (c"a", 1), (c"a", 2), (c"a", 1), (c"b", 1), (c"b", 2), (c"a", 2)] {
            let expected = (name.to_str().unwrap().to_owned(), blocks);
            assert_eq!(launched(&mut names, &mut dictionary, name, blocks), expected);
        }
        assert_eq!(dictionary.launch_configs().len(), 4, "each once");
    }

    #[test]
    fn launches_without_room_in_the_table_are_counted_each_time() {
        let (mut names, mut dictionary) = (KernelNames::default(), Dictionary::new());
        for blocks in 0..CONFIG_LIMIT as u32 {
            launched(&mut names, &mut dictionary, c"a", blocks);
        }
        assert_eq!(dictionary.beyond(), 0);
        for _ in 0..3 {
            launched(&mut names, &mut dictionary, c"a", u32::MAX);
        }
        assert_eq!(dictionary.beyond(), 3);
    }
}
