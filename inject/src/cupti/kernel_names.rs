//! Kernels that were launched before: what a record says again and again, looked up once.
//!
//! Hashing a mangled name of a thousand characters for each launch costs more than everything else in decoding, and
//! hashing the launch comes next. So a name is found by its address and a launch by comparing it with the one before.
//! An address can come to mean another name when a module is unloaded, but not within a buffer, whose names CUPTI keeps
//! until it is given back: so the text is compared once a buffer.

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
    /// Places in `known`; what has no name is at address 0.
    places: HashMap<u64, usize, FxBuildHasher>,
    known: Vec<KnownKernel>,
    /// Counts the buffers.
    buffer: u64,
}

/// A name, and how a kernel of that name was launched last: most are launched as the time before.
#[derive(Debug)]
pub(super) struct KnownKernel {
    name: CString,
    /// The buffer in which the text was last compared.
    compared: u64,
    pub(super) id: NameId,
    last: Option<(LaunchConfig, LaunchConfigId)>,
}

impl KernelNames {
    /// The next buffer begins: addresses may mean other names.
    pub(super) fn next_buffer(&mut self) {
        self.buffer += 1;
    }

    /// The kernel whose `name` is at `address`.
    #[inline]
    pub(super) fn find<'a>(
        &mut self,
        address: u64,
        name: impl FnOnce() -> Option<&'a CStr>,
        dictionary: &mut Dictionary,
    ) -> &mut KnownKernel {
        let place = match self.places.get(&address) {
            Some(&place) if self.known[place].compared == self.buffer => place,
            _ => self.compare(address, name(), dictionary),
        };
        &mut self.known[place]
    }

    /// Forgets all kernels when there are more addresses than programs have kernels.
    #[inline(never)]
    fn compare(&mut self, address: u64, name: Option<&CStr>, dictionary: &mut Dictionary) -> usize {
        let (address, name) = name.map_or((0, c"<unnamed kernel>"), |name| (address, name));
        if self.known.len() >= ADDRESS_LIMIT && !self.places.contains_key(&address) {
            // A cache: what is still in use comes back at once.
            self.places.clear();
            self.known.clear();
        }
        let place = *self.places.entry(address).or_insert(self.known.len());
        match self.known.get_mut(place) {
            Some(known) if known.name.as_c_str() == name => known.compared = self.buffer,
            Some(known) => *known = KnownKernel::new(name, self.buffer, dictionary),
            None => self.known.push(KnownKernel::new(name, self.buffer, dictionary)),
        }
        place
    }
}

impl KnownKernel {
    fn new(name: &CStr, buffer: u64, dictionary: &mut Dictionary) -> Self {
        let id = dictionary.intern_name(&name.to_string_lossy());
        Self { name: name.to_owned(), compared: buffer, id, last: None }
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
        names.next_buffer();
        let known = names.find(64, || Some(name), dictionary);
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
    fn the_text_is_compared_once_a_buffer() {
        let (mut names, mut dictionary) = (KernelNames::default(), Dictionary::new());
        for _ in 0..2 {
            names.next_buffer();
            let mut checks = 0;
            for _ in 0..3 {
                names.find(
                    64,
                    || {
                        checks += 1;
                        Some(c"a")
                    },
                    &mut dictionary,
                );
            }
            assert_eq!(checks, 1);
        }
        // Without a name there is nothing to remember.
        let ids = [0, 8].map(|address| names.find(address, || None, &mut dictionary).id);
        assert_eq!((ids[0], dictionary.name(ids[0])), (ids[1], "<unnamed kernel>"));
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
