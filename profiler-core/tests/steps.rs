//! Step detection on known launch sequences, passed as symbols.

use proptest::prelude::*;

use profiler_core::steps::{Cut, LaunchKind, StepDetector, StepSource};

/// A fixed sequence of numbers for a seed (xorshift), so that noise is the same on every machine.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// True with probability `per_mille` / 1000.
    fn chance(&mut self, per_mille: u64) -> bool {
        self.next() % 1_000 < per_mille
    }
}

/// A decoder: `layers` times `per_layer` kernels between `extra` others, with randomly replaced and inserted
/// kernels.
fn decoder(steps: u32, layers: u32, per_layer: u32, extra: u32, replaced: u64, inserted: u64) -> Vec<u32> {
    let mut noise = Noise(0x9E37_79B9_7F4A_7C15);
    let mut symbols = Vec::new();
    for _ in 0..steps {
        symbols.extend((0..extra / 2).map(|kernel| 1_000 + kernel));
        for _ in 0..layers {
            for kernel in 0..per_layer {
                symbols.push(if noise.chance(replaced) { 5_000 + (noise.next() % 50) as u32 } else { kernel });
                if noise.chance(inserted) {
                    symbols.push(7_000 + (noise.next() % 5) as u32);
                }
            }
        }
        symbols.extend((0..extra - extra / 2).map(|kernel| 2_000 + kernel));
    }
    symbols
}

/// Final published result, and the starts of steps found since it was published.
fn detect(symbols: &[u32]) -> (Option<(StepSource, u32)>, Vec<usize>) {
    detect_with(symbols, |_| LaunchKind::Other)
}

/// The same, with the kind of each symbol from `kind`.
fn detect_with(symbols: &[u32], kind: impl Fn(u32) -> LaunchKind) -> (Option<(StepSource, u32)>, Vec<usize>) {
    let mut detector = StepDetector::default();
    let mut begins = Vec::new();
    let mut published = None;
    for (index, &symbol) in symbols.iter().enumerate() {
        let kind = kind(symbol);
        let pause = if kind == LaunchKind::HostCopy { 90_000 } else { 1_000 };
        let cut = detector.push(symbol, pause, kind);
        if detector.published() != published {
            published = detector.published();
            begins.clear();
        }
        if matches!(cut, Some(Cut::Begin(_))) {
            begins.push(index);
        }
    }
    (published, begins)
}

#[track_caller]
fn assert_period(symbols: &[u32], period: u32, fewest_steps: usize) {
    let (published, begins) = detect(symbols);
    assert_eq!(published, Some((StepSource::Period, period)));
    assert!(begins.len() >= fewest_steps, "{} steps", begins.len());
    assert!(begins.windows(2).all(|pair| pair[1] - pair[0] == period as usize), "{begins:?}");
}

#[test]
fn a_decoder_repeats_by_token_and_not_by_layer() {
    assert_period(&decoder(60, 32, 12, 10, 0, 0), 394, 45);
    assert_period(&decoder(60, 80, 15, 6, 0, 0), 1_206, 45);
}

#[test]
fn replaced_kernels_do_not_hide_the_period_and_hardly_a_step() {
    // Two percent of all kernels are replaced: a step may start with one.
    assert_period(&decoder(60, 32, 12, 10, 20, 0), 394, 45);
    // The only launch that occurs once per step is sometimes replaced: the adjacent ones confirm it.
    let mut symbols = decoder(200, 32, 12, 1, 0, 0);
    let mut noise = Noise(3);
    for symbol in symbols.iter_mut().filter(|symbol| **symbol >= 1_000) {
        if noise.chance(100) {
            *symbol = 9_999;
        }
    }
    assert_period(&symbols, 385, 180);
}

#[test]
fn gradient_accumulation_steps_with_the_optimizer() {
    let mut symbols = Vec::new();
    for _ in 0..24 {
        for _ in 0..4 {
            (0..24).for_each(|_| symbols.extend(100..120));
            symbols.extend(200..204);
        }
        symbols.extend(300..340);
    }
    assert_period(&symbols, 4 * 484 + 40, 10);
}

#[test]
fn graphs_make_short_periods() {
    let decode: Vec<u32> = (0..600).flat_map(|_| 1..=7).collect();
    assert_period(&decode, 7, 400);
    assert_period(&[1; 3_000], 1, 1_500);
}

#[test]
fn what_comes_before_the_first_step_does_not_hide_a_short_one() {
    // A loop of copy, gemm, relu after the program's first launches: known after two times 128 launches.
    let start: Vec<u32> = (100..110).collect();
    let copies: Vec<u32> = (0..150).flat_map(|_| 1..=3).collect();
    assert_period(&[start, copies.clone()].concat(), 3, (460 - 256) / 3 - 1);
    // More than a quarter of the first 128 launches are different ones: after 256 and 128.
    let long_start: Vec<u32> = (100..150).collect();
    assert_period(&[long_start, copies].concat(), 3, (500 - 384) / 3 - 1);
    // 28 layers of eight launches and 32 others: of each 256 launches most are layers, not a step.
    let layers = |steps| decoder(steps, 28, 8, 32, 0, 0);
    assert_eq!(detect(&layers(4)).0, None);
    assert_period(&layers(60), 256, 40);
}

/// Starts of steps, where `graph` is the symbol of a graph.
fn graph_steps(symbols: &[u32], graph: u32) -> (Option<(StepSource, u32)>, Vec<usize>) {
    let mut detector = StepDetector::default();
    let mut begins = Vec::new();
    for (index, &symbol) in symbols.iter().enumerate() {
        let kind = if symbol == graph { LaunchKind::Graph } else { LaunchKind::Other };
        if matches!(detector.push(symbol, 1_000, kind), Some(Cut::Begin(_))) {
            begins.push(index);
        }
    }
    (detector.published(), begins)
}

#[test]
fn a_graph_that_repeats_eight_times_is_a_step() {
    let (published, begins) = graph_steps(&[1; 30], 1);
    assert_eq!((published, &begins[..2]), (Some((StepSource::Period, 1)), &[9, 10][..]));
    assert_eq!(graph_steps(&[1; 8], 1).0, None, "seven distances");
    assert_eq!(graph_steps(&[1; 400], 9).0, None, "equal kernels are no steps");

    // A decoder: the graph, a copy of the token to the host, two small kernels.
    let decode: Vec<u32> = (0..20).flat_map(|_| [7, 1, 2, 3]).collect();
    let (published, begins) = graph_steps(&decode, 7);
    assert_eq!(published, Some((StepSource::Period, 4)));
    assert!(begins.len() >= 10 && begins.windows(2).all(|pair| pair[1] - pair[0] == 4), "{begins:?}");

    let irregular: Vec<u32> = (0..40).flat_map(|step| [vec![7], vec![1; step % 3]].concat()).collect();
    assert_eq!(graph_steps(&irregular, 7).0, None, "not at equal distances");
    let different: Vec<u32> = (0..40).flat_map(|step| [7, 100 + step]).collect();
    assert_eq!(graph_steps(&different, 7).0, None, "not the same in between");
}

/// A copy between host and device.
const COPY: u32 = 90_000;

fn copies(symbol: u32) -> LaunchKind {
    if symbol == COPY { LaunchKind::HostCopy } else { LaunchKind::Other }
}

/// `count` steps: a batch, kernels numbered from `first`.
fn batches(count: usize, kernels: u32, first: u32) -> Vec<u32> {
    let step: Vec<u32> = std::iter::once(COPY).chain(first..first + kernels).collect();
    step.repeat(count)
}

#[test]
fn a_batch_that_comes_five_times_begins_a_step() {
    // Weights, kernels of a first step that chooses its algorithms, sixteen steps of 47 launches, over.
    let weights = [COPY; 300];
    let choosing: Vec<u32> = (2_000..2_070).collect();
    let symbols = [&weights[..], &choosing, &batches(16, 46, 100)].concat();
    let (published, begins) = detect_with(&symbols, copies);
    assert_eq!(published, Some((StepSource::Period, 47)));
    let truth: Vec<usize> = (5..16).map(|step| 370 + 47 * step).collect();
    assert_eq!(begins, truth);
    // Two copies a step (inputs, labels), and a loss that is fetched.
    let step: Vec<u32> = [vec![COPY; 2], (100..140).collect(), vec![COPY]].concat();
    let (published, begins) = detect_with(&step.repeat(12), copies);
    assert_eq!(published, Some((StepSource::Period, 43)));
    assert!(begins.len() >= 6 && begins.windows(2).all(|pair| pair[1] - pair[0] == 43), "{begins:?}");
    // A loop as short as a weight conversion is left to the epochs, and none of its multiples is a step.
    assert_eq!(detect_with(&batches(60, 2, 100), copies).0, None);
    assert_eq!(detect_with(&batches(150, 2, 100), copies).0, Some((StepSource::Period, 3)));
    // The same without copies, or with only weights, has no result.
    assert_eq!(detect(&symbols[300..]).0, None);
    assert_eq!(detect_with(&weights, copies).0, None);
    assert_eq!(detect_with(&batches(4, 46, 100), copies).0, None);
}

#[test]
fn copies_in_each_layer_or_micro_batch_do_not_hide_the_step() {
    // Weights kept on the host: a copy for each of 32 layers.
    let step = [batches(32, 15, 100), (1..11).collect()].concat();
    assert_eq!(detect_with(&step.repeat(60), copies).0, Some((StepSource::Period, 522)));
    // Eight micro-batches, then the optimizer.
    let step = [batches(8, 120, 100), (1..101).collect()].concat();
    let (published, begins) = detect_with(&step.repeat(40), copies);
    assert_eq!(published, Some((StepSource::Period, 1_068)));
    assert!(begins.len() >= 20 && begins.windows(2).all(|pair| pair[1] - pair[0] == 1_068), "{begins:?}");
}

proptest! {
    #[test]
    fn a_period_is_never_a_part_of_the_step(
        kernels in prop::collection::vec(0..40u32, 12..200),
        places in prop::collection::btree_set(0..200usize, 1..6),
        start in prop::collection::vec(prop_oneof![Just(COPY), 500..520u32], 0..300),
        count in 6..30usize,
    ) {
        let mut step = kernels.clone();
        for &place in places.iter().filter(|&&place| place < kernels.len()) {
            step[place] = COPY;
        }
        // One kernel that occurs once: no part of the step repeats throughout it.
        step.push(77);
        let symbols = [start.clone(), step.repeat(count)].concat();
        let mut detector = StepDetector::default();
        for (number, &symbol) in symbols.iter().enumerate() {
            let cut = detector.push(symbol, 1_000, copies(symbol));
            if number >= start.len() && let Some((StepSource::Period, period)) = detector.published() {
                prop_assert_eq!(period as usize % step.len(), 0);
                prop_assert!(!matches!(cut, Some(Cut::Begin(boundary)) if boundary.launches as usize > step.len()));
            }
        }
        if step.contains(&COPY) && count * step.len() >= 6 * step.len() + 128 {
            prop_assert!(detector.published().is_some());
        }
    }
}

#[test]
fn graphs_take_over_from_a_loop_that_is_over() {
    let symbols = [vec![5; 1_500], vec![7; 100]].concat();
    let (_, begins) = graph_steps(&symbols, 7);
    let of_graph = begins.iter().filter(|&&begin| begin >= 1_510).count();
    assert!(of_graph >= 80, "{of_graph}");
}

#[test]
fn steps_of_one_launch_more_are_not_cut_by_the_period_before_them() {
    // A launch inserted before the second epoch ends leaves none that begins a step: they are counted.
    let mut tuning: Vec<u32> = (0..200).flat_map(|_| 1..13).collect();
    tuning.insert(1_011, 99);
    let training: Vec<u32> = (0..200).flat_map(|_| 20..33).collect();
    let mut detector = StepDetector::default();
    let mut cuts = |symbols: &[u32]| -> Vec<Cut> {
        symbols.iter().filter_map(|&symbol| detector.push(symbol, 1_000, LaunchKind::Other)).collect()
    };
    let is_step = |cut: &Cut| matches!(cut, Cut::Begin(boundary) if boundary.period == 12);
    let counted = cuts(&tuning);
    assert!(counted.iter().filter(|cut| is_step(cut)).count() > 100, "{counted:?}");
    let after = cuts(&training);
    assert_eq!(after.first(), Some(&Cut::Lost));
    assert!(!after.iter().any(is_step), "a launch does not repeat the one twelve before: {after:?}");
}

#[test]
fn inserted_launches_leave_an_anchor() {
    for per_mille in [10, 50] {
        let symbols = decoder(120, 32, 12, 10, 0, per_mille);
        let truth: Vec<usize> = (0..symbols.len()).filter(|&index| symbols[index] == 1_000).collect();
        let (published, begins) = detect(&symbols);
        let (source, distance) = published.expect("an anchor");
        assert_eq!(source, StepSource::Anchor, "{per_mille} per mille");
        assert!(distance.abs_diff(394 + 384 * per_mille as u32 / 1_000) < 12, "{distance}");
        // Any launch that was chosen occurs once in each step.
        assert!(begins.len() >= 60, "{} steps at {per_mille} per mille", begins.len());
        for pair in begins.windows(2) {
            assert_eq!(truth.iter().filter(|&&begin| pair[0] < begin && begin <= pair[1]).count(), 1);
        }
    }
}

#[test]
fn a_few_inserted_launches_do_not_shift_the_boundaries() {
    // An insertion in one of ten steps: the period holds, and each step still starts with the same launch.
    let (mut symbols, mut noise) = (Vec::new(), Noise(7));
    for _ in 0..400 {
        symbols.extend(0..50u32);
        if noise.chance(100) {
            symbols.push(777);
        }
        symbols.extend(50..100u32);
    }
    let (published, begins) = detect(&symbols);
    assert_eq!(published, Some((StepSource::Period, 100)));
    assert!(begins.len() > 350);
    assert!(begins.iter().all(|&begin| symbols[begin] == symbols[begins[0]]));
    assert!(begins.windows(2).all(|pair| matches!(pair[1] - pair[0], 100 | 101)));
}

#[test]
fn a_server_that_mixes_prompts_and_tokens_has_no_steps() {
    let mut noise = Noise(11);
    let mut symbols = Vec::new();
    while symbols.len() < 40_000 {
        if noise.chance(20) {
            // The grid of a prompt's kernels depends on its length.
            let prompt = (noise.next() % 60) as u32;
            (0..32).for_each(|_| symbols.extend((0..9).map(|kernel| 100 * prompt + 50 + kernel)));
        }
        symbols.extend([9, 1, 2, 3].into_iter().chain((0..noise.next() % 7).map(|kernel| 20 + kernel as u32)));
    }
    assert_eq!(detect(&symbols).0, None);
}

#[test]
fn another_phase_takes_over_and_a_stopped_one_is_given_up() {
    let train = decoder(60, 12, 20, 10, 0, 0);
    let evaluate = decoder(80, 12, 7, 4, 0, 0);
    let mut noise = Noise(5);
    let (published, _) = detect(&[train.clone(), evaluate.clone()].concat());
    assert_eq!(published, Some((StepSource::Period, 88)));
    let chaos: Vec<u32> = (0..20_000).map(|_| (noise.next() % 4_096) as u32).collect();
    assert_eq!(detect(&[train, chaos].concat()).0, None);
}

#[test]
fn the_pause_says_where_a_step_begins() {
    let mut detector = StepDetector::default();
    let mut begins = Vec::new();
    for index in 0..20_000u32 {
        let kernel = index % 100;
        let pause = if kernel == 37 { 2_000_000 } else { 5_000 };
        if let Some(Cut::Begin(boundary)) = detector.push(kernel, pause, LaunchKind::Other) {
            begins.push((kernel, boundary.launches, boundary.matched));
        }
    }
    assert_eq!(begins[0], (37, 0, 0));
    assert!(begins.len() > 150 && begins[1..].iter().all(|&begin| begin == (37, 100, 100)));
}
