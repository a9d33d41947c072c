//! Collective operations of one rank, and the same operation found on all ranks.
//!
//! CUPTI does not say which communicator a kernel belongs to, so operations are paired by what can be seen: the k-th
//! kernel of a name on one rank is the k-th of that name on every other, if all ranks ran as many. What groups of fewer
//! ranks do among themselves may look alike; their operations do not overlap in time, which the caller checks.

use rustc_hash::FxHashMap;

use crate::attribution::is_communication;
use crate::dictionary::Dictionary;
use crate::record::{Kernel, NameId};

/// Operations in which no rank can finish before all have begun: each needs something from everybody. Parts of kernel
/// names in lower case, without underscores.
const OF_EVERYBODY: [&str; 3] = ["allreduce", "allgather", "reducescatter"];
/// Operations of a name that are kept, the first ones: 16 bytes each.
const SPANS_LIMIT: usize = 1 << 17;
/// Names that are told apart; a program has a dozen.
const NAMES_LIMIT: usize = 32;

/// When an operation ran, nanoseconds on the clock of its trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Span {
    pub(super) start: i64,
    pub(super) end: i64,
}

/// Collective operations of one rank.
#[derive(Clone, Debug, Default)]
pub struct Collectives {
    places: FxHashMap<NameId, CollectiveClass>,
    sequences: Vec<Sequence>,
    others: u64,
}

#[derive(Clone, Copy, Debug)]
enum CollectiveClass {
    /// Does not communicate.
    Nowhere,
    /// Communicates, but not as a collective of everybody.
    Others,
    Sequence(usize),
}

/// Operations of one name in the order of the trace.
#[derive(Clone, Debug, Default)]
struct Sequence {
    name: String,
    spans: Vec<Span>,
    /// Those included that are not kept.
    count: u64,
}

impl Collectives {
    /// Takes a kernel; those that do not communicate are passed over.
    pub fn push(&mut self, kernel: &Kernel, dictionary: &Dictionary) {
        let name = dictionary.launch_config(kernel.config).name;
        let place = match self.places.get(&name) {
            Some(&place) => place,
            None => {
                let place = self.place(dictionary.name(name));
                self.places.insert(name, place);
                place
            }
        };
        match place {
            CollectiveClass::Nowhere => {}
            CollectiveClass::Others => self.others += 1,
            CollectiveClass::Sequence(index) => {
                let sequence = &mut self.sequences[index];
                sequence.count += 1;
                if sequence.spans.len() < SPANS_LIMIT {
                    let nanos = |nanos: u64| i64::try_from(nanos).unwrap_or(i64::MAX);
                    sequence.spans.push(Span { start: nanos(kernel.start.nanos()), end: nanos(kernel.end.nanos()) });
                }
            }
        }
    }

    fn place(&mut self, name: &str) -> CollectiveClass {
        let plain = name.to_ascii_lowercase().replace('_', "");
        let is_of_everybody = OF_EVERYBODY.iter().any(|part| plain.contains(part));
        match (is_communication(name), is_of_everybody && self.sequences.len() < NAMES_LIMIT) {
            (false, _) => CollectiveClass::Nowhere,
            (true, false) => CollectiveClass::Others,
            (true, true) => {
                self.sequences.push(Sequence { name: name.to_owned(), ..Sequence::default() });
                CollectiveClass::Sequence(self.sequences.len() - 1)
            }
        }
    }

    /// Kernels that communicate.
    fn total(&self) -> u64 {
        self.others + self.sequences.iter().map(|sequence| sequence.count).sum::<u64>()
    }
}

/// One operation as every rank saw it: a span for each.
pub(super) type Operation = Vec<Span>;

/// Operations of all ranks.
#[derive(Debug, Default)]
pub(super) struct Paired {
    /// Of each name, in the order of their begins.
    pub(super) names: Vec<Vec<Operation>>,
    /// Kernels that communicate, on any rank, that are no part of a pair.
    pub(super) unpaired: u64,
}

/// Pairs the operations of `ranks`.
pub(super) fn paired(ranks: &[&Collectives]) -> Paired {
    let mut paired = Paired { unpaired: ranks.iter().map(|rank| rank.total()).sum(), ..Paired::default() };
    let Some((first, rest)) = ranks.split_first() else { return paired };
    for sequence in &first.sequences {
        let mut of_ranks = vec![sequence];
        of_ranks.extend(rest.iter().filter_map(|rank| {
            let mut others = rank.sequences.iter();
            others.find(|other| other.name == sequence.name && other.count == sequence.count)
        }));
        if of_ranks.len() < ranks.len() {
            continue;
        }
        let sorted: Vec<Vec<Span>> = of_ranks
            .iter()
            .map(|sequence| {
                let mut spans = sequence.spans.clone();
                spans.sort_unstable();
                spans
            })
            .collect();
        let count = sequence.spans.len();
        paired.unpaired -= (count * ranks.len()) as u64;
        paired.names.push((0..count).map(|place| sorted.iter().map(|spans| spans[place]).collect()).collect());
    }
    paired
}
