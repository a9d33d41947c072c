use std::cell::Cell;

use gpuwhy_report::kernels::LaunchConfiguration;
use gpuwhy_trace::record::{ContextId, DeviceId, LaunchConfig, LaunchConfigId};

use super::*;

/// Two groups of 2 and 1 passes; counts its calls, and returns configured results.
#[derive(Debug, Default)]
struct Fake {
    prepared: Option<usize>,
    passes_left: usize,
    in_pass: bool,
    /// Number of collections that report a second kernel.
    disturbed: u32,
    refuse_start: Option<u32>,
    refuse_stop: Option<u32>,
    collected: u32,
    /// Launch durations that collections of the first group report in sequence.
    durations: Vec<f64>,
}

impl Counter for Fake {
    fn groups(&self) -> usize {
        2
    }
    fn passes(&self) -> usize {
        3
    }
    fn missing(&self) -> Vec<String> {
        vec!["x__y.sum".to_owned()]
    }
    fn begin_group(&mut self, group: usize) -> Result<(), u32> {
        assert!(!self.in_pass && group < 2);
        (self.prepared, self.passes_left) = (Some(group), 2 - group);
        Ok(())
    }
    fn start(&mut self) -> Result<(), u32> {
        assert!(!self.in_pass && self.prepared.is_some() && self.passes_left > 0);
        self.in_pass = self.refuse_start.is_none();
        self.refuse_start.map_or(Ok(()), Err)
    }
    fn stop(&mut self) -> Result<bool, u32> {
        assert!(std::mem::take(&mut self.in_pass));
        self.passes_left -= 1;
        self.refuse_stop.map_or(Ok(self.passes_left == 0), Err)
    }
    fn collect(&mut self, group: usize) -> Result<Collected, u32> {
        assert!(self.prepared.take() == Some(group) && self.passes_left == 0, "all passes of the group, once");
        self.collected += 1;
        let dropped = usize::from(self.disturbed > 0);
        self.disturbed = self.disturbed.saturating_sub(1);
        let name = format!("group_{group}");
        let duration =
            (group == 0 && !self.durations.is_empty()).then(|| (DURATION.to_owned(), self.durations.remove(0)));
        Ok(Collected { ranges: 1, dropped, values: [(name, 1.0)].into_iter().chain(duration).collect() })
    }
}

fn choice(config: u32, name: &str) -> Choice {
    let launch =
        LaunchConfig { grid: [10, 1, 1], block: [128, 1, 1], dynamic_shared_bytes: 64, ..LaunchConfig::default() };
    let candidate = LaunchConfiguration {
        device: DeviceId(0),
        config: LaunchConfigId(config),
        launch,
        name: name.to_owned(),
        demangled: name.to_owned(),
        communication: false,
        launches: 9,
        total_ns: 9,
        graph_share: 0.0,
        nearest_roof: None,
    };
    Choice { candidate, share: 0.5 }
}

fn launch(name: &str) -> LaunchShape<'_> {
    LaunchShape {
        symbol: name.as_bytes(),
        context: 1,
        grid: [10, 1, 1],
        block: [128, 1, 1],
        shared_bytes: 64,
        cooperative: false,
        behind: Some(7),
    }
}

fn measurement(fake: Fake, limits: Limits) -> Measurement<Fake> {
    let context = |id, device| Context { id: ContextId(id), device: DeviceId(device), ..Context::default() };
    let mut measurement = Measurement::new(&[choice(4, "a"), choice(5, "b")], &[context(1, 0), context(2, 1)], limits);
    measurement.open(fake);
    measurement
}

const LIMITS: Limits = Limits { launches: 100, stall_ns: 1_000_000 };

thread_local!(static TIME: Cell<u64> = const { Cell::new(0) });

/// Runs a launch of `name` that takes 10 ns; true if it was measured.
fn run(measurement: &mut Measurement<Fake>, launch: &LaunchShape<'_>) -> bool {
    let now = TIME.get() + 10;
    TIME.set(now);
    // A hash that occurs once may be a position that does not occur again.
    measurement.wants(launch);
    if !measurement.wants(launch) || !measurement.begin_pass(launch, now) {
        return false;
    }
    assert!(measurement.is_in_pass() && !measurement.wants(launch), "one pass at a time");
    measurement.end_pass(|| now + 10);
    TIME.set(now + 10);
    true
}

#[test]
fn kernels_are_measured_one_after_the_other_a_pass_a_launch() {
    let mut measurement = measurement(Fake::default(), LIMITS);
    // The first group of both, two passes each; then the second group.
    for (now, other, passes) in [("a", "b", 2), ("b", "a", 2), ("a", "b", 1), ("b", "a", 1)] {
        for _ in 0..passes {
            assert!(!run(&mut measurement, &launch(other)), "it is not its access");
            assert!(run(&mut measurement, &launch(now)));
        }
    }
    assert!(measurement.is_over() && !run(&mut measurement, &launch("b")));
    let finished = measurement.take_finished();
    assert_eq!(finished.iter().map(|profile| profile.config.0).collect::<Vec<_>>(), [4, 5]);
    let first = &finished[0];
    assert_eq!((first.outcome, first.passes, first.launches, first.discarded), (Outcome::Measured, 3, 3, 0));
    assert_eq!((first.stall_ns, first.missing.len()), (30, 1));
    assert!(first.begin < first.end && first.values.len() == 2);
    assert!(measurement.close().is_some() && measurement.take_finished().is_empty());
}

#[test]
fn another_shape_context_or_name_is_left_alone() {
    let mut measurement = measurement(Fake::default(), LIMITS);
    let right = launch("a");
    for wrong in [
        launch("aa"),
        LaunchShape { context: 2, ..right },
        LaunchShape { grid: [10, 1, 2], ..right },
        LaunchShape { block: [64, 2, 1], ..right },
        LaunchShape { shared_bytes: 0, ..right },
        LaunchShape { behind: None, ..right },
    ] {
        assert!(!run(&mut measurement, &wrong), "{wrong:?}");
    }
    assert!(run(&mut measurement, &right));
    assert!(!run(&mut measurement, &LaunchShape { behind: Some(8), ..right }), "other work, perhaps");
    assert!(run(&mut measurement, &right));
}

#[test]
fn launches_that_are_short_beside_the_mean_give_way_to_others() {
    // The choice has a mean of 1 ns.
    let fake = || Fake { durations: vec![0.5, 0.2, 0.8], ..Fake::default() };
    let of = |behind| LaunchShape { behind: Some(behind), ..launch("a") };
    let mut measurement_of = measurement(fake(), LIMITS);
    for behind in [1, 1, 2, 2, 3, 3] {
        assert!(run(&mut measurement_of, &of(behind)));
    }
    (0..2).for_each(|_| assert!(run(&mut measurement_of, &launch("b"))));
    assert!(!run(&mut measurement_of, &of(1)) && run(&mut measurement_of, &of(3)), "the second group is of the same");
    let profile = &measurement_of.take_finished()[0];
    assert_eq!((profile.outcome, profile.launches, profile.discarded), (Outcome::Measured, 7, 4));
    assert_eq!(profile.value(DURATION), Some(0.8));
    // Only short ones come.
    let mut short = measurement(fake(), LIMITS);
    (0..2).for_each(|_| assert!(run(&mut short, &of(1))));
    assert!(!run(&mut short, &of(1)));
    short.tick(TIME.get() + PATIENCE_FOR_OTHERS + 1);
    (0..2).for_each(|_| assert!(run(&mut short, &of(1))));
    assert!(run(&mut short, &launch("b")), "taken as they are");
}

#[test]
fn passes_into_which_others_launched_are_repeated_a_few_times() {
    let mut measurement_of = measurement(Fake { disturbed: 2, ..Fake::default() }, LIMITS);
    (0..6).for_each(|_| assert!(run(&mut measurement_of, &launch("a"))));
    (0..2).for_each(|_| assert!(run(&mut measurement_of, &launch("b"))));
    assert!(run(&mut measurement_of, &launch("a")));
    let profile = &measurement_of.take_finished()[0];
    assert_eq!((profile.outcome, profile.launches, profile.discarded), (Outcome::Measured, 7, 4));
    assert_eq!(profile.values.len(), 2, "nothing of a disturbed pass is kept");
    let mut always = measurement(Fake { disturbed: 99, ..Fake::default() }, LIMITS);
    (0..8).for_each(|_| assert!(run(&mut always, &launch("a"))));
    let profile = &always.take_finished()[0];
    assert_eq!((profile.outcome, profile.launches, profile.discarded), (Outcome::Disturbed, 8, 8));
    assert!(profile.values.is_empty() && run(&mut always, &launch("b")), "the next one has its access");
}

#[test]
fn limits_end_it_with_what_there_is() {
    let mut few = measurement(Fake::default(), Limits { launches: 2, ..LIMITS });
    (0..2).for_each(|_| assert!(run(&mut few, &launch("a"))));
    (0..2).for_each(|_| assert!(run(&mut few, &launch("b"))));
    assert!(!run(&mut few, &launch("a")));
    let profile = &few.take_finished()[0];
    assert_eq!((profile.outcome, profile.values.len()), (Outcome::OutOfBudget, 1), "one group was complete");
    let mut short = measurement(Fake::default(), Limits { stall_ns: 5, ..LIMITS });
    assert!(run(&mut short, &launch("a")) && !run(&mut short, &launch("a")) && !run(&mut short, &launch("b")));
    let outcomes: Vec<_> = short.take_finished().iter().map(|profile| profile.outcome).collect();
    assert_eq!(outcomes, [Outcome::OutOfBudget, Outcome::OutOfBudget], "the limit is that of all");
}

#[test]
fn more_kernels_do_not_delay_the_program_longer() {
    let context = Context { id: ContextId(1), device: DeviceId(0), ..Context::default() };
    let choices: Vec<_> = (0..64).map(|number| choice(number, "a")).collect();
    let mut many = Measurement::new(&choices, &[context], Limits::OF_A_RUN);
    many.open(Fake::default());
    let mut seconds = 0;
    for _ in 0..1000 {
        if many.wants(&launch("a")) && many.begin_pass(&launch("a"), 0) {
            many.end_pass(|| 1_000_000_000);
            seconds += 1;
        }
    }
    assert!(many.is_over() && seconds == 5, "{seconds} s");
}

#[test]
fn a_refusal_is_reported_and_ends_it() {
    let mut refused = measurement(Fake { refuse_start: Some(35), ..Fake::default() }, LIMITS);
    assert!(!run(&mut refused, &launch("a")) && refused.is_over() && !refused.is_in_pass());
    let outcomes: Vec<_> = refused.take_finished().iter().map(|profile| profile.outcome).collect();
    assert_eq!(outcomes, [Outcome::Refused(35), Outcome::Refused(35)]);
    let mut busy = measurement(Fake { refuse_start: Some(26), ..Fake::default() }, LIMITS);
    assert!(!run(&mut busy, &launch("a")));
    assert_eq!(busy.take_finished()[0].outcome, Outcome::Busy);
    let mut unmeasurable = measurement(Fake { refuse_stop: Some(999), ..Fake::default() }, LIMITS);
    assert!(run(&mut unmeasurable, &launch("a")) && !unmeasurable.is_over(), "the next kernel may be measured");
    assert_eq!(unmeasurable.take_finished()[0].outcome, Outcome::Refused(999));
}

#[test]
fn a_cooperative_launch_is_never_measured() {
    let mut measurement = measurement(Fake::default(), LIMITS);
    assert!(!run(&mut measurement, &LaunchShape { cooperative: true, ..launch("a") }));
    assert_eq!(measurement.take_finished()[0].outcome, Outcome::Unsuitable);
}

#[test]
fn a_kernel_that_does_not_come_is_given_up() {
    let mut measurement = measurement(Fake::default(), LIMITS);
    measurement.tick(1_000);
    measurement.tick(1_000 + PATIENCE_NANOS);
    assert!(measurement.take_finished().is_empty());
    measurement.tick(1_001 + PATIENCE_NANOS);
    assert_eq!(measurement.take_finished()[0].outcome, Outcome::NotLaunched);
    assert!(measurement.begin_pass(&launch("b"), 5));
    measurement.tick(u64::MAX);
    assert!(measurement.is_in_pass() && measurement.close().is_none(), "an open pass is left alone");
    measurement.end_pass(|| 6);
    measurement.end();
    assert!(measurement.is_over());
    assert_eq!(measurement.take_finished()[0].outcome, Outcome::NotLaunched);
}
