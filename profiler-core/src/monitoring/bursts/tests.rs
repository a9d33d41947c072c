//! Synthetic runs: which bursts there are, and that they stay within their bounds.

use gpuwhy_trace::record::{RangeEvent, RangeEventKind};

use super::*;

const SECOND: u64 = 1_000_000_000;
const START: u64 = 1_000 * SECOND;
const LIMITS: BurstLimits = BurstLimits { every_ns: 120 * SECOND, longest_ns: 2 * SECOND, budget: 0.01 };

/// A run in tenths of a second.
struct Run {
    planner: BurstPlanner,
    cost: Cost,
    dictionary: Dictionary,
    /// Start in seconds after the start of the run, reason, and length.
    bursts: Vec<(f64, Trigger, f64)>,
    burst_from: Option<f64>,
    next_step: u64,
}

/// State of the program at a moment.
struct Moment {
    named: bool,
    busy: f64,
    /// Duration of a named step, nanoseconds; 0 if steps have no name.
    step: u64,
    /// Fraction of the time that recording costs.
    price: f64,
}

impl Run {
    fn of(seconds: u64, limits: BurstLimits, moment: impl Fn(f64, bool) -> Moment) -> Self {
        let mut dictionary = Dictionary::new();
        let name = dictionary.intern_name("step 5");
        let mut run = Self {
            planner: BurstPlanner::new(limits, &Cost::default()),
            cost: Cost::default(),
            dictionary,
            bursts: Vec::new(),
            burst_from: None,
            next_step: START,
        };
        for tenth in 0..seconds * 10 {
            let at = START + tenth * SECOND / 10;
            let time = tenth as f64 / 10.0;
            let now = moment(time, !run.bursts.is_empty());
            run.cost.observed_ns += SECOND / 10;
            if run.burst_from.is_some() {
                run.cost.records_ns += (now.price * SECOND as f64 / 10.0) as u64;
            }
            while now.step > 0 && run.next_step <= at {
                let event = RangeEvent {
                    at: Timestamp::from_nanos(run.next_step),
                    kind: RangeEventKind::Push,
                    message: name,
                    ..RangeEvent::default()
                };
                run.planner.push(&Record::Range(event), &run.dictionary);
                run.next_step += now.step;
            }
            let busy = Vec::from_iter((tenth % 10 == 0 && tenth > 10).then_some((at - 2 * SECOND, now.busy)));
            let view = MonitorView { names_one: now.named, busy, burst_steps: 0 };
            match run.planner.decide(Timestamp::from_nanos(at), &view, &run.cost) {
                Some(BurstDecision::Begin(trigger)) => {
                    assert!(run.burst_from.replace(time).is_none());
                    run.bursts.push((time, trigger, 0.0));
                }
                Some(BurstDecision::End) => {
                    let from = run.burst_from.take().unwrap();
                    run.bursts.last_mut().unwrap().2 = time - from;
                }
                None => {}
            }
        }
        run
    }

    fn taken(&self) -> f64 {
        self.cost.taken_ns() as f64 / self.cost.observed_ns as f64
    }
}

fn steady(named: bool, price: f64) -> Moment {
    Moment { named, busy: 0.5, step: 0, price }
}

#[test]
fn a_bottleneck_that_samples_name_needs_no_burst() {
    assert!(Run::of(1_200, LIMITS, |_, _| steady(true, 0.3)).bursts.is_empty());
    // Unknown while it changes, for less time than the period of the samples.
    let changing = |time: f64, _| steady(time % 60.0 > 15.0, 0.3);
    assert!(Run::of(1_200, LIMITS, changing).bursts.is_empty());
}

#[test]
fn an_open_bottleneck_has_one_burst_in_each_period_and_leaves_one_for_a_drift() {
    let run = Run::of(1_200, LIMITS, |_, _| steady(false, 0.1));
    assert!(run.bursts.iter().all(|burst| burst.1 == Trigger::Open), "{:?}", run.bursts);
    assert!((9..=11).contains(&run.bursts.len()), "{:?}", run.bursts);
    assert!((20.0..40.0).contains(&run.bursts[0].0), "{:?}", run.bursts);
    assert!(run.taken() <= LIMITS.budget, "{}", run.taken());
    let changed =
        Run::of(600, LIMITS, |time, _| Moment { busy: if time < 200.0 { 0.5 } else { 0.9 }, ..steady(false, 0.1) });
    let drifts: Vec<_> = changed.bursts.iter().filter(|burst| burst.1 == Trigger::Drift).collect();
    assert_eq!(drifts.len(), 1, "{:?}", changed.bursts);
    assert!((202.0..215.0).contains(&drifts[0].0), "{drifts:?}");
}

#[test]
fn steps_that_the_program_names_tell_a_drift_though_the_bottleneck_names_one() {
    let step = |time: f64| if (100.0..200.0).contains(&time) { 26_000_000 } else { 20_000_000 };
    let run = Run::of(300, LIMITS, |time, _| Moment { step: step(time), ..steady(true, 0.05) });
    let found: Vec<_> = run.bursts.iter().map(|burst| (burst.1, burst.0 as u64 / 20)).collect();
    assert_eq!(found, [(Trigger::Drift, 5), (Trigger::Drift, 10)], "{:?}", run.bursts);
}

#[test]
fn whatever_the_program_does_bursts_are_bounded_in_number_length_and_cost() {
    for (every, longest, price) in [(10, 2, 0.02), (60, 5, 0.4), (120, 2, 1.0), (1, 1, 0.3)] {
        let limits = BurstLimits { every_ns: every * SECOND, longest_ns: longest * SECOND, ..LIMITS };
        // Always unknown, and never the same for long.
        let run = Run::of(900, limits, |time, _| Moment {
            busy: if ((time / 25.0) as u64).is_multiple_of(2) { 0.2 } else { 0.8 },
            ..steady(false, price)
        });
        assert!(run.bursts.len() as u64 <= 2 + 900 / every, "{every}: {} bursts", run.bursts.len());
        assert!(!run.bursts.is_empty(), "{every}");
        assert!(run.bursts.iter().all(|burst| burst.2 <= longest as f64 + 0.11), "{:?}", run.bursts);
        // The first one may cost more than was known before it.
        assert!(run.taken() <= LIMITS.budget * 1.2, "{price}: {}", run.taken());
    }
}

#[test]
fn launches_that_stay_slow_are_measured_and_end_bursts() {
    let slower = |by: f64| {
        Run::of(900, LIMITS, move |_, recorded| Moment {
            step: if recorded { (20e6 * by) as u64 } else { 20_000_000 },
            ..steady(false, 0.02)
        })
    };
    let run = slower(1.04);
    let (bursts, nanos, slowed) = run.planner.summary();
    let (low, high) = slowed.unwrap();
    assert!(low <= 1.0401 && high >= 1.0399 && high - low < 0.02, "{low} {high}");
    assert_eq!((bursts, run.bursts.len()), (1, 1), "what it costs for the rest of the run is more than the budget");
    assert!((SHORTEST..=3 * SECOND).contains(&nanos));
    let (bursts, _, slowed) = slower(1.0).planner.summary();
    assert!(bursts >= 6 && slowed.is_some_and(|(low, high)| low <= 1.0 && high >= 1.0), "{bursts} {slowed:?}");
}

#[test]
fn a_burst_that_did_not_begin_takes_no_credit() {
    let mut planner = BurstPlanner::new(LIMITS, &Cost::default());
    let mut wanted = 0;
    for second in 0..400 {
        let at = Timestamp::from_nanos(START + second * SECOND);
        if planner.decide(at, &MonitorView::default(), &Cost::default()).is_some() {
            wanted += 1;
            planner.refused();
        }
    }
    assert!(wanted > 300, "{wanted}");
    assert_eq!(planner.summary(), (0, 0, None));
}

#[test]
fn a_late_decision_sees_every_second_since_the_last_one() {
    let mut planner = BurstPlanner::new(LIMITS, &Cost::default());
    let begun = (1..=20_u64).map(|call| 5 * call).find(|&second| {
        let seconds = (second.saturating_sub(19).max(1)..second)
            .map(|passed| (START + passed * SECOND, if passed < 60 { 0.5 } else { 0.9 }));
        let view = MonitorView { names_one: true, busy: seconds.collect(), burst_steps: 0 };
        planner.decide(Timestamp::from_nanos(START + second * SECOND), &view, &Cost::default()).is_some()
    });
    assert_eq!(begun, Some(65), "16 seconds are the reference, and three changed ones raise the alarm");
}

#[test]
fn enough_steps_end_a_burst() {
    let mut planner = BurstPlanner::new(LIMITS, &Cost::default());
    let mut ends = Vec::new();
    let mut begun = None;
    for tenth in 0..1_000 {
        let at = Timestamp::from_nanos(START + tenth * SECOND / 10);
        let view = MonitorView { burst_steps: 1_000, ..MonitorView::default() };
        match planner.decide(at, &view, &Cost::default()) {
            Some(BurstDecision::Begin(_)) => begun = Some(tenth),
            Some(BurstDecision::End) => ends.push(tenth - begun.unwrap()),
            None => {}
        }
    }
    assert_eq!(ends, [5]);
    let (bursts, nanos, _) = planner.summary();
    planner.finish(Timestamp::from_nanos(START + 100 * SECOND), &Cost::default());
    assert_eq!(planner.summary(), (bursts, nanos, None), "none is open");
}

#[test]
fn a_program_with_cuda_graphs_gets_no_bursts() {
    let earlier = Cost { records_ns: 100 * SECOND, ..Cost::default() };
    let view = MonitorView::default();
    let begun = |with_graph: bool| {
        let mut planner = BurstPlanner::new(LIMITS, &earlier);
        if with_graph {
            planner.graph_made();
        }
        let mut at = (0..1_000).map(|tenth| Timestamp::from_nanos(START + tenth * SECOND / 10));
        at.any(|at| planner.decide(at, &view, &earlier).is_some())
    };
    assert_eq!([false, true].map(begun), [true, false]);
}
