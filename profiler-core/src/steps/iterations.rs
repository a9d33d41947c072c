//! Iterations of an LLM server, from the copies between host and device in the order of their launches.
//!
//! A server has no fixed sequence of launches: each iteration processes other prompts and another number of
//! sequences. But each ends with one copy of the sampled tokens to the host, 4 or 8 bytes for each sequence, and
//! copies ids and positions of its input tokens to the device, so two copies of one size. An iteration lasts from
//! one copy of sampled tokens to the next. If it has as many input tokens as sequences, it is a *decode* iteration.
//! `generate` of transformers keeps the ids on the device; for each token it only reads a flag of one byte.
//!
//! Programs that are not servers also read something small in each step. So no optimizer's kernel may run, half of
//! the iterations must decode, or a quarter if the kernels look up or select tokens. Two have prompts that are sent
//! and looked up, or two have prompts and there are several numbers of sequences: a recommender sends as many ids
//! as it reads scores, but its batches are of one size. Ids and a mask, or embeddings of a batch, differ in size
//! from the results.
//! Iterations are cut from the first candidate on, so that those before the decision are not lost.

use super::{Iteration, IterationCut, IterationKind};

/// Longest copy of sampled tokens, bytes: 8,192 sequences of 8 bytes.
pub const LONGEST_READ: u64 = 65_536;
/// Longest copy of input ids, bytes: 131,072 tokens of 8 bytes. What is longer before the first iteration is a part
/// of loading.
pub const LONGEST_INPUT: u64 = 1 << 20;
/// Minimum kernels in an iteration without a CUDA graph. A decoder of two layers launches as many, and a loop that
/// reads a result after fewer is no model.
const KERNELS: u32 = 50;
/// Minimum number of iterations of a server.
const FEWEST: u32 = 20;
/// Sizes of input copies that are compared per iteration (the first ones); servers make about ten.
const INPUTS: usize = 32;
/// Largest second dimension of a block of `ArgMaxOps`.
const HIGHEST: u16 = 16;
/// Iterations with prompts that a server has at least: a warm-up may look like one.
const PROMPTS: u32 = 2;
/// Different numbers of sequences that a server has at least, unless the prompts are looked up.
const FEWEST_SIZES: usize = 3;
/// Weight of kernels that show the size of a token, against the sizes of inputs.
const SHOWN: i64 = 8;
/// Different sizes of copies of tokens that tell the size of a token.
const SIZES: usize = 6;
/// A value that any program reads, bytes. Tokens of one sequence are not longer.
const VALUE: u64 = 8;
/// Input copies of `generate` while it decodes have at most this size, bytes.
const SMALL_INPUT: u64 = 64;

/// A launch, as the iterations see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IterationLaunch {
    /// A kernel.
    Kernel(TokenKernel),
    /// A CUDA graph.
    Graph,
    /// A copy of so many bytes to the host.
    ToHost(u64),
    /// A copy of so many bytes from the host.
    FromHost(u64),
    /// An optimizer's kernel.
    Optimizer,
    /// Any other operation.
    Other,
}

/// What the name and the grid of a kernel tell about tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TokenKernel {
    /// It looks up the embeddings of so many tokens; 0 if the grid does not tell.
    Lookup(u16),
    /// It selects the likeliest token for so many sequences; 0 if the grid does not tell.
    Select(u16),
    /// Nothing.
    #[default]
    None,
}

impl TokenKernel {
    /// What a kernel of this name (mangled or not) tells, by the first dimension of its grid and the second of its
    /// blocks. PyTorch 2.11 has a block for each index in `vectorized_gather_kernel`, and in `indexSelectSmallIndex`,
    /// for up to 16 indices, one for each part of the row. Its `ArgMaxOps` have a block for each row of a large
    /// vocabulary, and as many rows in a block as it is high for a small one (`setReduceConfig` in `Reduce.cuh`).
    pub(crate) fn of(name: &str, blocks: u32, height: u32) -> Self {
        let [blocks, height] = [blocks, height].map(|n| u16::try_from(n).unwrap_or(u16::MAX));
        match name {
            name if name.contains("vectorized_gather_kernel") => Self::Lookup(blocks),
            name if name.contains("indexSelect") => Self::Lookup(0),
            name if name.contains("ArgMaxOps") => Self::Select(match blocks {
                0 => 0,
                // The largest power of two that is not above the number of rows.
                _ if height == (1 << blocks.ilog2()).min(HIGHEST) => blocks,
                1 => height,
                _ => 0,
            }),
            _ => Self::None,
        }
    }
}

/// Iterations of one device.
#[derive(Debug)]
pub struct Iterations {
    open: OpenIteration,
    /// True if the next launch starts the first iteration.
    starts: bool,
    counts: Counts,
}

impl Default for Iterations {
    fn default() -> Self {
        Self { open: OpenIteration::default(), starts: true, counts: Counts::default() }
    }
}

/// Iterations that ended.
#[derive(Debug, Default)]
struct Counts {
    all: u32,
    decodes: u32,
    /// Those with prompts, and those of them whose tokens are sent and looked up.
    prompts: u32,
    texts: u32,
    /// Those that end with a flag.
    flags: u32,
    /// Those with kernels that look up or select tokens.
    language: u32,
    /// Those that launched one graph.
    graphed: u32,
    /// Sizes of the copies of tokens, the first different ones.
    sizes: Vec<u64>,
    /// Evidence for tokens of 8 bytes; below zero, of 4.
    width: i64,
    trains: bool,
}

/// Work since the newest copy of sampled tokens.
#[derive(Debug, Default)]
struct OpenIteration {
    kernels: u32,
    graphs: u32,
    /// Sizes of the copies from the host.
    inputs: Vec<u64>,
    /// Tokens that the first lookup found, 0 if the grid does not tell; and the number of lookups. Servers also look up
    /// the last token of each sequence.
    lookup: Option<u32>,
    last_lookup: u32,
    lookups: u32,
    /// Sequences for which tokens were selected.
    selected: u32,
}

impl Iterations {
    /// Processes the next launch in host order. Returns the cut if an iteration starts with it.
    #[inline]
    pub fn push(&mut self, launch: IterationLaunch) -> Option<IterationCut> {
        let starts = std::mem::take(&mut self.starts);
        let open = &mut self.open;
        match launch {
            IterationLaunch::Kernel(tokens) => {
                open.kernels = open.kernels.saturating_add(1);
                match tokens {
                    TokenKernel::None => {}
                    TokenKernel::Lookup(tokens) => {
                        (open.lookups, open.last_lookup) = (open.lookups.saturating_add(1), tokens.into());
                        open.lookup.get_or_insert(tokens.into());
                    }
                    TokenKernel::Select(sequences) => open.selected = open.selected.max(sequences.into()),
                }
            }
            IterationLaunch::Graph => open.graphs = open.graphs.saturating_add(1),
            IterationLaunch::FromHost(bytes) => return self.sent(bytes).or_else(|| starts.then(|| self.cut(None))),
            IterationLaunch::ToHost(bytes) => {
                if let Some(cut) = self.read(bytes) {
                    return Some(cut);
                }
            }
            IterationLaunch::Optimizer => self.counts.trains = true,
            IterationLaunch::Other => {}
        }
        starts.then(|| self.cut(None))
    }

    fn cut(&self, ended: Option<Iteration>) -> IterationCut {
        IterationCut { ended, serves: self.counts.serves(), wide: self.counts.are_wide() }
    }

    /// The host sends `bytes`. Before the first iteration, work that the host did not read is loading or warming up.
    fn sent(&mut self, bytes: u64) -> Option<IterationCut> {
        let loads = self.counts.all == 0 && (bytes > LONGEST_INPUT || self.open.works());
        if loads {
            self.open = OpenIteration::default();
        }
        if self.open.inputs.len() < INPUTS && bytes <= LONGEST_INPUT {
            self.open.inputs.push(bytes);
        }
        loads.then(|| self.cut(None))
    }

    /// The host reads `bytes`. In a server, what tells nothing about tokens is a part of the iteration.
    #[inline(never)]
    fn read(&mut self, bytes: u64) -> Option<IterationCut> {
        let found = match bytes {
            1 => self.open.of_flag(),
            4..=LONGEST_READ if bytes.is_multiple_of(4) => self.open.of_tokens(bytes, &self.counts),
            _ => None,
        };
        // Without any kernel, kernels are not recorded, and the copies of one size show that there was work.
        let found = found.filter(|_| self.open.works() || self.open.kernels == 0)?;
        let open = std::mem::take(&mut self.open);
        self.counts.add(&open, found, bytes);
        Some(self.cut(Some(found)))
    }
}

impl Counts {
    fn add(&mut self, open: &OpenIteration, found: Iteration, bytes: u64) {
        self.all = self.all.saturating_add(1);
        let is_decode = found.kind == IterationKind::Decode;
        *if is_decode { &mut self.decodes } else { &mut self.prompts } += 1;
        self.texts += u32::from(!is_decode && open.sent_width().is_some());
        self.flags += u32::from(bytes == 1);
        self.language += u32::from(open.lookup.is_some() || open.selected > 0);
        self.graphed += u32::from(open.graphs == 1);
        if self.sizes.len() < SIZES && !self.sizes.contains(&bytes) {
            self.sizes.push(bytes);
        }
        // Offsets of the sequences have one element more. The ids of two sequences are as long as offsets would be.
        let has = |size: u64| i64::from(bytes > VALUE && open.inputs.contains(&size));
        let offsets = has(bytes + 8).max(has(bytes / 2 + 4)) - has(bytes + 4);
        let weak = open.sent_width().map_or(offsets, |wide| if wide { 1 } else { -1 });
        self.width += open.shown_width(bytes).map_or(weak, |wide| if wide { SHOWN } else { -SHOWN });
    }

    /// True if these are the iterations of a server.
    fn serves(&self) -> bool {
        let all = u64::from(self.all);
        let is_part = |count: u32, divisor: u64| divisor * u64::from(count) >= all;
        let speaks = is_part(self.language, 2);
        let prompts = self.prompts >= PROMPTS && (self.sizes.len() >= FEWEST_SIZES || self.texts >= PROMPTS);
        // A server with too many requests decodes less often.
        let decodes = is_part(self.decodes, if speaks { 4 } else { 2 });
        !self.trains && self.all >= FEWEST && decodes && (prompts || speaks && is_part(self.flags, 2))
    }

    /// True if a token id has 8 bytes, as far as known, and not 4. Of several numbers of sequences one is odd.
    fn are_wide(&self) -> bool {
        let are_even = self.sizes.iter().all(|size| size.is_multiple_of(8));
        are_even && (self.width > 0 || self.width > -SHOWN && self.sizes.len() == SIZES || self.width == 0)
    }
}

impl OpenIteration {
    fn works(&self) -> bool {
        self.graphs > 0 || self.kernels >= KERNELS
    }

    /// The iteration that ends with the stop check of `generate`. All sequences get their prompt at once.
    fn of_flag(&self) -> Option<Iteration> {
        let (lookup, sequences) = (self.lookup?, self.selected);
        let kind = if lookup > sequences { IterationKind::Prefill } else { IterationKind::Decode };
        let fits = kind == IterationKind::Prefill || self.inputs.iter().all(|&bytes| bytes <= SMALL_INPUT);
        (fits && sequences > 0).then_some(Iteration { kind, sequences, tokens: lookup.max(sequences) })
    }

    /// The iteration that ends with a copy of so many bytes of tokens; the numbers are of ids of 4 bytes.
    fn of_tokens(&self, bytes: u64, counts: &Counts) -> Option<Iteration> {
        let in_fours = |bytes: u64| u32::try_from(bytes / 4).unwrap_or(u32::MAX);
        let sequences = in_fours(bytes);
        // What is looked up is a number of tokens; the numbers here are of ids of 4 bytes.
        let sent = self.sent_width().filter(|_| counts.width == 0);
        let wide = self.shown_width(bytes).or(sent).unwrap_or_else(|| counts.are_wide());
        let is_each = |lookup: u32| [4, 8].map(|width| width * u64::from(lookup)).contains(&bytes);
        // Copies of one size that are shorter than the tokens are something else: then the ids stay on the device.
        let pair = self.pair(bytes).filter(|&pair| pair >= bytes);
        let tokens = match (self.lookup.filter(|&tokens| tokens > 0), pair) {
            (Some(lookup), _) if !is_each(lookup) => lookup.saturating_mul(1 + u32::from(wide)),
            (Some(_), _) if pair == Some(bytes) || self.lookups > 1 => sequences,
            (None, Some(pair)) => in_fours(pair),
            // Without kernels, a server that decodes by a graph sends inputs for prompts.
            (None, None) if self.graphs == 0 && !(self.kernels == 0 && counts.graphed > 0 && self.inputs.len() > 2) => {
                return None;
            }
            // A server that decodes by one graph does something else without it, or with several.
            _ if counts.graphed > 0 && self.graphs != 1 => {
                return Some(Iteration { kind: IterationKind::PrefillOrMixed, sequences, tokens: 0 });
            }
            _ => sequences,
        };
        // Results that are longer than the ids are no tokens.
        if tokens < sequences {
            return None;
        }
        let kind = if tokens == sequences { IterationKind::Decode } else { IterationKind::PrefillOrMixed };
        Some(Iteration { kind, sequences, tokens })
    }

    /// True if kernels show that the tokens in so many bytes have 8 each, false if 4.
    fn shown_width(&self, bytes: u64) -> Option<bool> {
        let is = |width: u64| [self.selected, self.last_lookup].iter().any(|&count| width * u64::from(count) == bytes);
        if is(8) { Some(true) } else { is(4).then_some(false) }
    }

    /// True if the ids that are looked up were sent with 8 bytes each, false if with 4.
    fn sent_width(&self) -> Option<bool> {
        let tokens = u64::from(self.lookup.filter(|&tokens| tokens > 0)?);
        let is_sent = |width| self.inputs.contains(&(width * tokens));
        if is_sent(4) { Some(false) } else { is_sent(8).then_some(true) }
    }

    /// Size of the ids among the inputs: two copies of one size, or positions of 8 bytes beside ids of 4. The offsets
    /// of the sequences, one more than there are sequences, are not among them.
    fn pair(&self, read: u64) -> Option<u64> {
        let is_offsets = |size: u64| [read + 4, read + 8, read / 2 + 4].contains(&size);
        let count = |size: u64| self.inputs.iter().filter(|&&input| input == size).count();
        let is_pair = |size: u64| count(size) > 1 || count(2 * size) > 0;
        let ids = self.inputs.iter().copied().filter(|&size| size >= 4 && size.is_multiple_of(4));
        let mut found = ids.filter(|&size| !is_offsets(size) && is_pair(size)).max()?;
        // The ids are the shortest of copies that double in size.
        while found.is_multiple_of(8) && found / 2 >= read && count(found / 2) > 0 {
            found /= 2;
        }
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use IterationLaunch::{FromHost, Graph, Kernel, ToHost};

    const KIND: [IterationKind; 2] = [IterationKind::Decode, IterationKind::PrefillOrMixed];

    /// Iterations that end, with the decision after them.
    fn ended(launches: impl IntoIterator<Item = IterationLaunch>) -> (Vec<Iteration>, bool) {
        let mut iterations = Iterations::default();
        let mut serves = false;
        let mut all = Vec::new();
        for launch in launches {
            if let Some(cut) = iterations.push(launch) {
                serves = cut.serves;
                all.extend(cut.ended);
            }
        }
        (all, serves)
    }

    /// A model of 60 kernels.
    fn model() -> impl Iterator<Item = IterationLaunch> {
        std::iter::repeat_n(Kernel(TokenKernel::None), 60)
    }

    /// An iteration of transformers' continuous batching: ids and positions, offsets, a model, the sampled tokens.
    fn iteration(sequences: u64, tokens: u64, width: u64) -> Vec<IterationLaunch> {
        let inputs = [tokens * width, tokens * width, (sequences + 1) * 4, (sequences + 1) * 4].map(FromHost);
        inputs.into_iter().chain(model()).chain([ToHost(sequences * width)]).collect()
    }

    #[test]
    fn prompts_and_tokens_of_a_server() {
        let all = |width| {
            let prompts = (1..4).flat_map(move |n| iteration(8 * n, 512, width));
            prompts.chain((0..40).flat_map(move |n| iteration(24 - n / 4, 24 - n / 4, width)))
        };
        for width in [4, 8] {
            let (found, serves) = ended(all(width));
            assert!(serves, "{width}");
            let in_fours = |n: u64| (n * width / 4) as u32;
            let expected =
                |kind, sequences, tokens| Iteration { kind, sequences: in_fours(sequences), tokens: in_fours(tokens) };
            assert_eq!(found[..3], [8, 16, 24].map(|sequences| expected(KIND[1], sequences, 512)));
            assert_eq!(found[3], expected(KIND[0], 24, 24));
            assert_eq!(found.len(), 43);
        }
        let wide = |width| {
            let mut iterations = Iterations::default();
            all(width).filter_map(|launch| iterations.push(launch)).last().unwrap().wide
        };
        assert_eq!([4, 8].map(wide), [false, true]);
    }

    #[test]
    fn ids_of_4_bytes_have_positions_of_8() {
        let one = |sequences: u64, tokens: u64| {
            let inputs = [tokens * 4, tokens * 8, tokens * 8, (sequences + 1) * 4].map(FromHost);
            inputs.into_iter().chain([Graph, ToHost(sequences * 4)])
        };
        let decodes = (0..30).flat_map(|n| one(3 + n / 10, 3 + n / 10));
        let (found, serves) = ended(one(3, 700).chain(one(3, 700)).chain(decodes));
        assert_eq!((found[0].tokens, found[2].tokens, found[2].kind, serves), (700, 3, KIND[0], true));
        // Transformers sends more that doubles.
        let more = [400, 400, 800, 1_600].map(FromHost).into_iter().chain([Graph, ToHost(12)]);
        assert_eq!(ended(more).0[0].tokens, 100);
    }

    /// An iteration of the example server: ids, positions, slots, page tables, and the indices of sampled tokens.
    fn paged(sequences: u16, tokens: u16) -> Vec<IterationLaunch> {
        let (rows, ids) = (u64::from(sequences), u64::from(tokens));
        let inputs = [4 * ids, 4 * ids, 8 * ids, 128 * rows, 4 * rows].map(FromHost);
        let prompt = [Kernel(TokenKernel::Lookup(tokens))].into_iter().chain(model());
        let work: Vec<_> = if tokens > sequences { prompt.collect() } else { vec![Graph] };
        inputs.into_iter().chain(work).chain([ToHost(4 * rows)]).collect()
    }

    #[test]
    fn inputs_of_half_the_size_of_the_ids_are_no_ids() {
        let (found, _) = ended([(64, 128), (64, 256), (1, 64), (6, 512)].into_iter().flat_map(|(n, m)| paged(n, m)));
        let tokens: Vec<_> = found.iter().map(|iteration| (iteration.kind, iteration.tokens)).collect();
        assert_eq!(tokens, [128, 256, 64, 512].map(|tokens| (KIND[1], tokens)));
    }

    #[test]
    fn two_sequences_do_not_show_that_ids_have_8_bytes() {
        let mut iterations = Iterations::default();
        let launches = [3, 2, 2, 2, 2].into_iter().flat_map(|sequences| paged(sequences, sequences));
        assert_eq!(launches.filter_map(|launch| iterations.push(launch)).last().map(|cut| cut.wide), Some(false));
    }

    #[test]
    fn ids_that_stay_on_the_device() {
        let prompt =
            || [FromHost(4_000), Kernel(TokenKernel::Lookup(1_000))].into_iter().chain(model()).chain([ToHost(16)]);
        let decode = |sequences: u64| [Graph, ToHost(4 * sequences)];
        let (found, serves) = ended(prompt().chain(prompt()).chain((0..30).flat_map(|n| decode(4 + n / 10))));
        assert_eq!((found[0].kind, found[2].kind, found[2].sequences, serves), (KIND[1], KIND[0], 4, true));
    }

    /// vLLM 0.24: its inputs, the sampled tokens of 8 bytes, and their numbers. `work` looks up the ids, if it does not
    /// by a graph or a compiled kernel; the last token of each sequence is looked up after it.
    fn vllm(sequences: u16, work: impl IntoIterator<Item = IterationLaunch>) -> Vec<IterationLaunch> {
        let rows = u64::from(sequences);
        let inputs = [24, 7_000, 24, 4 * rows, 260].map(FromHost);
        let results = [Kernel(TokenKernel::Lookup(sequences)), ToHost(8 * rows), ToHost(4 * rows)];
        inputs.into_iter().chain(work).chain(results).collect()
    }

    #[test]
    fn what_a_server_with_ids_on_the_device_does_without_its_graph_has_prompts() {
        let decode = |sequences| vllm(sequences, [Graph]);
        let eager = || [Kernel(TokenKernel::Lookup(2_000))].into_iter().chain(model());
        let launches = vllm(8, eager()).into_iter().chain((1..30).flat_map(decode));
        let compiled = vllm(9, model()).into_iter().chain(vllm(9, std::iter::repeat_n(Graph, 17)));
        let mut iterations = Iterations::default();
        let cuts: Vec<_> = launches.chain(compiled).filter_map(|launch| iterations.push(launch)).collect();
        let found: Vec<_> = cuts.iter().filter_map(|cut| cut.ended).collect();
        assert!(cuts.last().is_some_and(|cut| cut.serves && cut.wide));
        assert_eq!(found.len(), 32);
        assert_eq!((found[0].kind, found[0].tokens), (KIND[1], 2 * 2_000));
        assert_eq!((found[9].kind, found[9].tokens), (KIND[0], 2 * 9));
        assert_eq!([found[30], found[31]].map(|of| (of.kind, of.tokens)), [(KIND[1], 0); 2]);
    }

    #[test]
    fn generate_reads_a_flag_for_each_token() {
        let token = |lookup, batch| {
            let work = [Kernel(TokenKernel::Lookup(lookup))].into_iter().chain(model());
            work.chain([Kernel(TokenKernel::Select(batch)), ToHost(1), ToHost(1)])
        };
        for batch in [1, 8] {
            let loading = [FromHost(4 << 20), FromHost(4_096), FromHost(4_096), FromHost(2 << 20), FromHost(160)];
            let launches =
                loading.into_iter().chain(token(20 * batch, batch)).chain((0..30).flat_map(|_| token(0, batch)));
            let (found, serves) = ended(launches);
            assert_eq!((found.len(), serves), (31, true));
            let sequences = batch.into();
            assert_eq!(found[0], Iteration { kind: IterationKind::Prefill, sequences, tokens: 20 * sequences });
            assert_eq!(found[1], Iteration { kind: KIND[0], sequences, tokens: sequences });
        }
    }

    #[test]
    fn without_kernels_the_inputs_show_the_work() {
        let one = |sequences: u64, tokens: u64| [FromHost(tokens * 4), FromHost(tokens * 4), ToHost(sequences * 4)];
        let decodes = (0..30).flat_map(|n| one(5 + n / 10, 5 + n / 10));
        let (found, serves) = ended(one(5, 90).into_iter().chain(one(5, 80)).chain(decodes));
        assert_eq!((found.len(), serves), (32, true));
    }

    #[test]
    fn a_server_with_too_many_requests_decodes_less_often() {
        let one = |n: u64| {
            if n.is_multiple_of(5) {
                paged(6, 6)
            } else if n.is_multiple_of(2) {
                paged(6, 128)
            } else {
                paged(6, 90)
            }
        };
        assert!(!ended((1..60).flat_map(one)).1, "a fifth");
        let one = |n: u64| paged(6, if n.is_multiple_of(3) { 6 } else { 128 });
        assert!(ended((1..60).flat_map(one)).1);
    }

    /// Programs that are not servers: what a step sends, launches and reads.
    #[test]
    fn what_else_reads_in_each_step_is_not_a_server() {
        let steps = |inputs: &[u64], kernel: TokenKernel, outputs: &[u64]| {
            let step: Vec<_> =
                inputs.iter().map(|&bytes| FromHost(bytes)).chain(model()).chain([Kernel(kernel)]).collect();
            let step = step.into_iter().chain(outputs.iter().map(|&bytes| ToHost(bytes))).collect::<Vec<_>>();
            ended(std::iter::repeat_n(step, 100).flatten()).1
        };
        let (none, select) = (TokenKernel::None, TokenKernel::Select);
        for (what, serves) in [
            ("losses of a batch", steps(&[64 * 784 * 4, 64 * 8], none, &[64 * 4])),
            ("predictions", steps(&[64 * 784 * 4, 64 * 8], select(64), &[64 * 8])),
            ("classes of texts", steps(&[32 * 128 * 8, 32 * 128 * 8], TokenKernel::Lookup(4_096), &[32 * 8])),
            ("embeddings", steps(&[32 * 128 * 8, 32 * 128 * 8], TokenKernel::Lookup(4_096), &[32 * 384 * 4])),
            ("users and items", steps(&[256 * 4, 256 * 4], none, &[256 * 4])),
            ("two numbers for one", steps(&[4, 4], none, &[4])),
            ("a value of 4 bytes", steps(&[], none, &[4])),
            ("a value of 8 bytes", steps(&[8], none, &[8])),
            ("a flag", steps(&[], none, &[1])),
            ("a flag for images", steps(&[64 * 784 * 4], select(64), &[1])),
        ] {
            assert!(!serves, "{what}");
        }
        let rollouts = (0..50).flat_map(|_| iteration(24, 24, 4));
        assert!(!ended(iteration(24, 900, 4).into_iter().chain([IterationLaunch::Optimizer]).chain(rollouts)).1);
    }
}
