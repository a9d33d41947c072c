//! Steps whose launches have a different order each time: no period fits, and a launch that occurs once per
//! step shows where a step starts.

use profiler_core::steps::{Cut, LaunchKind, StepDetector, StepSource};

/// Occurs once per step.
const ANCHOR: u32 = 1_000;
/// Also occurs once per step.
const SECOND: u32 = 2_000;

/// Launches in an order that no two steps share, the same on every machine.
struct Program {
    noise: u64,
    launches: Vec<u32>,
}

impl Program {
    fn new() -> Self {
        Self { noise: 0x9E37_79B9_7F4A_7C15, launches: Vec::new() }
    }

    fn random(&mut self, below: usize) -> usize {
        self.noise ^= self.noise << 13;
        self.noise ^= self.noise >> 7;
        self.noise ^= self.noise << 17;
        (self.noise % below as u64) as usize
    }

    /// `count` launches of five kinds from `first` on, an equal number of each.
    fn mixed(&mut self, first: u32, count: usize) -> Vec<u32> {
        let mut kinds: Vec<u32> = (0..count as u32).map(|launch| first + launch % 5).collect();
        for place in (1..count).rev() {
            let other = self.random(place + 1);
            kinds.swap(place, other);
        }
        kinds
    }

    /// A step of `length` launches.
    fn step(&mut self, length: usize) {
        let kinds = self.mixed(0, length - 1);
        self.launches.push(ANCHOR);
        self.launches.extend(kinds);
    }

    /// A step with `others` launches that occur in no other step.
    fn odd_step(&mut self, length: usize, others: usize) {
        self.step(length - others);
        self.chaos(self.launches.len() + others);
    }

    /// A step whose second half starts with [`SECOND`].
    fn halves(&mut self, length: usize) {
        let (first, second) = (self.mixed(0, length / 2 - 1), self.mixed(0, length - length / 2 - 1));
        self.launches.push(ANCHOR);
        self.launches.extend(first);
        self.launches.push(SECOND);
        self.launches.extend(second);
    }

    /// Launches that never recur.
    fn chaos(&mut self, up_to: usize) {
        self.launches.extend((self.launches.len()..up_to).map(|place| 100_000 + place as u32));
    }
}

/// Number of the launch after which a result was first published, and that result.
fn first_published(launches: &[u32]) -> Option<(usize, StepSource, u32)> {
    let mut detector = StepDetector::default();
    (1..).zip(launches).find_map(|(number, &symbol)| {
        detector.push(symbol, 1_000, LaunchKind::Other);
        detector.published().map(|(source, distance)| (number, source, distance))
    })
}

/// Launches that start the steps after launch `from`, and the numbers of those at which steps are lost.
fn begins(launches: &[u32], from: usize) -> (Vec<u32>, Vec<usize>) {
    let mut detector = StepDetector::default();
    let (mut symbols, mut lost) = (Vec::new(), Vec::new());
    for (number, &symbol) in (1..).zip(launches) {
        match detector.push(symbol, if symbol == SECOND { 9_000 } else { 1_000 }, LaunchKind::Other) {
            Some(Cut::Begin(_)) if number > from => symbols.push(symbol),
            Some(Cut::Lost) if number > from => lost.push(number),
            _ => {}
        }
    }
    symbols.dedup();
    (symbols, lost)
}

/// Steps of these lengths, repeated.
fn steps_of(lengths: &[usize]) -> Vec<u32> {
    let mut program = Program::new();
    while program.launches.len() < 8_000 {
        lengths.iter().for_each(|&length| program.step(length));
    }
    program.launches
}

const ANCHORED: StepSource = StepSource::Anchor;

#[test]
fn a_step_without_order_is_known_after_two_epochs() {
    // 512 launches, and then twice as many.
    assert_eq!(first_published(&steps_of(&[40])), Some((1_536, ANCHORED, 40)));
    // Four occurrences are enough: at launches 0, 128, 256 and 384.
    assert_eq!(first_published(&steps_of(&[128])), Some((1_536, ANCHORED, 128)));
    // Eight steps are an epoch.
    assert_eq!(first_published(&steps_of(&[150])), Some((512 + 1_200, ANCHORED, 150)));
    // Three occurrences in the first epoch are not enough; then 1,024 and 2,048 launches.
    assert_eq!(first_published(&steps_of(&[200])), Some((3_584, ANCHORED, 200)));
}

#[test]
fn a_few_steps_of_another_length_do_not_hide_the_others() {
    // The distance is that of most steps, not the shortest.
    assert_eq!(first_published(&steps_of(&[40, 40, 40, 40, 40, 30])), Some((1_536, ANCHORED, 40)));
    // Distances within a tenth are regular.
    assert_eq!(first_published(&steps_of(&[50, 55, 50, 45])), Some((1_536, ANCHORED, 50)));
    // Half of the distances are not near the median.
    assert_eq!(first_published(&steps_of(&[36, 52])), None);
}

#[test]
fn a_fifth_of_the_launches_of_a_step_may_be_others() {
    let with_others = |others: usize| {
        let mut program = Program::new();
        (0..200).for_each(|_| program.odd_step(40, others));
        first_published(&program.launches)
    };
    // Of 80 launches in two steps, 16 have no counterpart: the similarity is 0.8.
    assert_eq!(with_others(8), Some((1_536, ANCHORED, 40)));
    assert_eq!(with_others(9), None);
}

#[test]
fn one_step_in_ten_may_be_another_one() {
    // Only the first step differs from the second; between 12 occurrences there are ten pairs of steps.
    let first_differs = |length: usize| {
        let mut program = Program::new();
        program.odd_step(length, length - 1);
        (0..200).for_each(|_| program.step(length));
        first_published(&program.launches).map(|(number, ..)| number)
    };
    assert_eq!(first_differs(44), Some(1_536));
    assert_eq!(first_differs(48), Some(3_584), "one of nine");
}

#[test]
fn two_alternating_kinds_of_step_are_one_step() {
    let alternating = |second: Option<u32>| {
        let mut program = Program::new();
        for _ in 0..100 {
            program.step(40);
            let kinds = program.mixed(20, 39);
            program.launches.push(second.unwrap_or(ANCHOR));
            program.launches.extend(kinds);
        }
        first_published(&program.launches)
    };
    // A launch that starts only one kind of step occurs once in both together.
    assert_eq!(alternating(Some(SECOND)), Some((1_536, ANCHORED, 80)));
    // A launch that starts both is followed by different launches each time.
    assert_eq!(alternating(None), None);
}

#[test]
fn two_epochs_agree_when_their_steps_differ_by_a_tenth() {
    let grows = |length: usize| {
        let mut program = Program::new();
        while program.launches.len() < 512 {
            program.step(40);
        }
        (0..200).for_each(|_| program.step(length));
        first_published(&program.launches)
    };
    assert_eq!(grows(44), Some((1_536, ANCHORED, 44)));
    assert_eq!(grows(45), Some((3_584, ANCHORED, 45)));
    assert_eq!(grows(60), Some((3_584, ANCHORED, 60)));
}

#[test]
fn a_launch_keeps_its_part_though_another_comes_first_in_an_epoch() {
    // Launch 512 is the twelfth of its step, so that the second epoch sees the other one first.
    let mut program = Program::new();
    (0..100).for_each(|_| program.halves(50));
    assert_eq!(first_published(&program.launches), Some((1_536, ANCHORED, 50)));
    assert_eq!(begins(&program.launches, 0), (vec![ANCHOR], vec![]));
}

#[test]
fn a_launch_keeps_its_part_though_another_comes_a_little_less_often() {
    // The other one keeps its position in the first epoch; then it moves by two launches each time.
    let mut program = Program::new();
    while program.launches.len() < 4_000 {
        let begin = program.launches.len();
        program.step(48);
        let place = if begin < 500 { 2 } else { 2 + (begin - 500) / 48 % 21 * 2 };
        program.launches[begin + place] = SECOND;
    }
    assert_eq!(first_published(&program.launches), Some((1_536, ANCHORED, 48)));
    assert_eq!(begins(&program.launches, 0).0, [ANCHOR]);
}

#[test]
fn an_epoch_without_steps_does_not_move_where_they_begin() {
    // The third epoch, launches 1,536 to 3,583, has no repetition; then the program continues with half a
    // step.
    let mut program = Program::new();
    while program.launches.len() < 1_536 {
        program.halves(48);
    }
    program.chaos(3_584);
    let rest = program.mixed(0, 23);
    program.launches.push(SECOND);
    program.launches.extend(rest);
    (0..400).for_each(|_| program.halves(48));
    let (symbols, lost) = begins(&program.launches, 3_584);
    assert_eq!(symbols, [ANCHOR]);
    assert!(lost.is_empty(), "{lost:?}");
}

#[test]
fn what_began_the_steps_of_a_phase_need_not_begin_those_of_the_next() {
    // 64 steps of a period, which start after a pause; then the same launch in the middle of steps without
    // order.
    let mut program = Program::new();
    let ordered: Vec<u32> = std::iter::once(SECOND).chain(500..539).collect();
    (0..64).for_each(|_| program.launches.extend(&ordered));
    (0..400).for_each(|_| program.halves(50));
    assert_eq!(begins(&program.launches[..2_560], 0).0, [SECOND]);
    assert_eq!(begins(&program.launches, 15_000).0, [ANCHOR]);
}
