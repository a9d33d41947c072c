//! Every transition into and out of a capture.

use std::time::Duration;

use crate::capture::plan::*;
use crate::config::request::{RangeName, Schedule};

const START: CaptureEvent = CaptureEvent::ProfilerStart;
const STOP: CaptureEvent = CaptureEvent::ProfilerStop;
const OPEN: CaptureEvent = CaptureEvent::RangeOpened;
const CLOSE: CaptureEvent = CaptureEvent::RangeClosed;
const TICK: CaptureEvent = CaptureEvent::Tick;
const BEGIN: CaptureEvent = CaptureEvent::CommandStart;
const END: CaptureEvent = CaptureEvent::CommandStop;

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_nanos(1_000 + seconds * 1_000_000_000)
}

/// Actions of events one second apart, as text: `+1` starts capture 1, `-1` ends it, `w` warms up, `c`
/// cancels the awaited step, `.` is no action.
fn play(request: Request, events: &[CaptureEvent]) -> (String, Plan) {
    let mut plan = Plan::new(request, at(0));
    let text = played(&mut plan, events);
    (text, plan)
}

fn played(plan: &mut Plan, events: &[CaptureEvent]) -> String {
    let mut text = String::new();
    for (second, &event) in (0..).zip(events) {
        match plan.on(event, at(second)) {
            Action::None => text.push('.'),
            Action::Warm => text.push('w'),
            Action::Canceled => text.push('c'),
            Action::Begin { number, .. } => text.push_str(&format!("+{number}")),
            Action::End { number } => text.push_str(&format!("-{number}")),
        }
    }
    text
}

fn api(at_end: AtEnd) -> Request {
    Request { range: CaptureRange::ProfilerApi, at_end, ..Request::default() }
}

#[test]
fn the_whole_run_is_one_capture() {
    let (text, plan) = play(Request::default(), &[TICK, TICK, START, STOP, OPEN, CLOSE]);
    assert_eq!(text, "+1.....");
    assert_eq!(plan.taking(), Some(1));
}

#[test]
fn what_follows_the_end_of_a_range() {
    // A runtime call and the driver call inside it both cause the event: the second one has no effect.
    let twice = [STOP, START, START, STOP, STOP, START, STOP, START, STOP];
    for (at_end, expected, over) in [
        (AtEnd::StopShutdown, ".+1.-1.....", true),
        (AtEnd::Stop, ".+1.-1.....", false),
        (AtEnd::None, ".+1.......", false),
        (AtEnd::Repeat(None), ".+1.-1.+2-2+3-3", false),
        (AtEnd::Repeat(Some(2)), ".+1.-1.+2-2..", false),
    ] {
        let (text, plan) = play(api(at_end), &twice);
        assert_eq!((text.as_str(), plan.is_over()), (expected, over), "{at_end:?}");
    }
}

#[test]
fn only_the_chosen_kind_of_range_counts() {
    let named = CaptureRange::Named(RangeName::parse("epoch").unwrap());
    let request = Request { range: named, at_end: AtEnd::Repeat(None), ..Request::default() };
    assert_eq!(play(request, &[START, STOP, OPEN, CLOSE, OPEN, CLOSE]).0, "..+1-1+2-2");
    assert_eq!(play(api(AtEnd::Stop), &[TICK, OPEN, CLOSE]).0, "...");
}

#[test]
fn delay_and_duration() {
    let seconds = Duration::from_secs;
    let request = Request { delay: seconds(2), duration: Some(seconds(3)), ..Request::default() };
    let (text, plan) = play(request.clone(), &[TICK; 9]);
    assert_eq!(text, "..+1..-1...");
    assert!(plan.is_over());
    let stop = Request { at_end: AtEnd::Stop, ..request.clone() };
    let (text, plan) = play(stop, &[TICK; 9]);
    assert_eq!((text.as_str(), plan.is_over()), ("..+1..-1...", false));
    // Ranges before the delay do not count, and the duration cuts a range.
    let request = Request { range: CaptureRange::ProfilerApi, at_end: AtEnd::Repeat(None), ..request };
    assert_eq!(play(request, &[START, STOP, START, TICK, TICK, TICK, STOP, START]).0, "..+1..-1.+2");
}

#[test]
fn steps_that_have_a_name() {
    let steps = CaptureRange::Steps(Schedule::parse("1,1,1,2,1").unwrap(), RangeName::parse("step"));
    let request = Request { range: steps, at_end: AtEnd::Stop, ..Request::default() };
    let (text, plan) = play(request.clone(), &[OPEN, CLOSE].repeat(7));
    // skip, wait, warmup, the capture from the start of the fourth step to the end of the fifth.
    assert_eq!(text, "....w.+1..-1....");
    assert!(!plan.is_over() && !plan.wants_records());
    let request = Request { at_end: AtEnd::StopShutdown, ..request };
    assert!(play(request.clone(), &[OPEN, CLOSE].repeat(7)).1.is_over());
    let every = CaptureRange::Steps(Schedule::parse("0,0,0,1").unwrap(), RangeName::parse("step"));
    let (text, _) = play(Request { range: every, ..request }, &[OPEN, CLOSE, OPEN, CLOSE, OPEN]);
    assert_eq!(text, "+1-1+2-2+3");
}

#[test]
fn steps_that_are_detected_need_records_until_they_are_over() {
    let steps = CaptureRange::Steps(Schedule::parse("3,1,0,2,1").unwrap(), None);
    let request = Request { range: steps, at_end: AtEnd::Stop, ..Request::default() };
    let mut plan = Plan::new(request, at(0));
    assert!(plan.wants_records());
    assert_eq!(plan.on(CaptureEvent::StepsDetected(3), at(1)), Action::None);
    assert_eq!(plan.on(CaptureEvent::StepsDetected(5), at(2)), Action::Begin { number: 1, trigger: Trigger::Steps });
    assert_eq!(plan.on(CaptureEvent::StepsDetected(5), at(3)), Action::None);
    assert_eq!(plan.on(CaptureEvent::StepsDetected(8), at(4)), Action::End { number: 1 });
    assert!(!plan.wants_records());
}

#[test]
fn bursts_begin_and_end_beside_commands() {
    let begins = CaptureEvent::BurstBegins(Trigger::Drift);
    let auto = Request { range: CaptureRange::Bursts, ..Request::default() };
    assert_eq!(
        play(auto.clone(), &[TICK, START, begins, begins, CaptureEvent::BurstEnds, CaptureEvent::BurstEnds, begins]).0,
        "..+1.-1.+2"
    );
    // A command's capture is not a burst. After a stop by command, only a command starts again.
    let commands = [BEGIN, begins, CaptureEvent::BurstEnds, END, begins, END, begins];
    assert_eq!(play(auto.clone(), &commands).0, "+1..-1+2-2+3", "bursts go on after a stop");
    assert_eq!(play(auto, &[begins, BEGIN, CaptureEvent::BurstEnds, END]).0, "+1..-1", "a burst is a command's now");
    assert_eq!(play(Request::default(), &[TICK, begins, END, begins]).0, "+1.-1.");
}

#[test]
fn bursts_follow_a_run_that_was_measured_completely() {
    let (begins, follow) = (CaptureEvent::BurstBegins(Trigger::Graph), CaptureEvent::BurstsFollow);
    let events = [TICK, begins, follow, TICK, begins, CaptureEvent::BurstEnds, follow, BEGIN, END, begins];
    assert_eq!(play(Request::default(), &events).0, "+1.-1.+2-2.+3-3+4");
    assert_eq!(play(api(AtEnd::Stop), &[START, follow, STOP]).0, "+1.-1", "what was chosen is measured");
    assert_eq!(play(Request::default(), &[TICK, END, BEGIN, follow, END]).0, "+1-1+2.-2", "so is what was commanded");
}

#[test]
fn nothing_begins_after_bursts_of_a_program_that_makes_graphs() {
    let (begins, follow) = (CaptureEvent::BurstBegins(Trigger::Drift), CaptureEvent::BurstsFollow);
    let (_, mut plan) = play(Request::default(), &[TICK]);
    plan.graph_made();
    assert!(!plan.ended_for_graphs(), "the run is measured completely");
    assert_eq!(played(&mut plan, &[BEGIN, follow, BEGIN, begins, END, BEGIN]), ".-1....");
    assert!(plan.ended_for_graphs());
    // What is recorded when the first graph is seen goes on to its end; a command may take it over.
    let auto = Request { range: CaptureRange::Bursts, ..Request::default() };
    let (_, mut plan) = play(auto, &[begins]);
    plan.graph_made();
    assert_eq!(played(&mut plan, &[BEGIN, CaptureEvent::BurstEnds, END, BEGIN, begins]), "..-1..");
    // Without bursts, whoever chose commands decides.
    let mut plan = for_commands();
    plan.graph_made();
    assert_eq!(played(&mut plan, &[BEGIN, END, BEGIN]), "+1-1+2");
}

#[test]
fn commands_begin_and_end_beside_the_request() {
    // After a stop, a capture of the complete run does not restart automatically.
    assert_eq!(play(Request::default(), &[TICK, END, TICK, BEGIN, BEGIN, END, END, TICK]).0, "+1-1.+2.-2..");
    // A range that has not come yet still starts a capture.
    assert_eq!(play(api(AtEnd::Stop), &[BEGIN, START, STOP, END, START, STOP, BEGIN]).0, "+1..-1+2-2+3");
    // No capture starts once measuring is over.
    assert_eq!(play(api(AtEnd::StopShutdown), &[START, STOP, BEGIN]).0, "+1-1.");
}

/// A program whose steps are the ranges `step`, waiting for commands.
fn for_commands() -> Plan {
    Plan::new(Request { range: CaptureRange::Commands(RangeName::parse("step")), ..Request::default() }, at(0))
}

fn steps(first: u64, count: impl Into<Option<u64>>) -> AtStep {
    AtStep { first, count: count.into() }
}

#[test]
fn a_command_begins_at_its_step_and_ends_behind_the_last_one() {
    for asked_before in 0..=2 {
        let mut plan = for_commands();
        let before = [OPEN, CLOSE].repeat(asked_before);
        assert_eq!(played(&mut plan, &before), ".".repeat(before.len()));
        assert_eq!(plan.start_at_step(steps(2, 2)), AtStepAnswer::Waits);
        assert_eq!((plan.steps(), plan.awaited_step()), (Some(asked_before as u64), Some(2)));
        let rest = [OPEN, CLOSE].repeat(6 - asked_before);
        assert_eq!(played(&mut plan, &rest), ".".repeat(4 - before.len()) + "+1..-1....", "{asked_before}");
        assert_eq!((plan.steps(), plan.awaited_step(), plan.taking()), (Some(6), None, None));
    }
    // Without a number of steps, a command ends the capture, and another one may follow.
    let mut plan = for_commands();
    assert_eq!(plan.start_at_step(steps(0, None)), AtStepAnswer::Waits);
    assert_eq!(played(&mut plan, &[OPEN, CLOSE, OPEN, END, CLOSE]), "+1..-1.");
    assert_eq!(plan.start_at_step(steps(3, 1)), AtStepAnswer::Waits);
    assert_eq!(played(&mut plan, &[OPEN, CLOSE, OPEN, CLOSE]), "..+2-2");
}

#[test]
fn a_step_that_has_begun_is_past_and_a_capture_is_not_interrupted() {
    let mut plan = for_commands();
    played(&mut plan, &[OPEN, CLOSE, OPEN]);
    assert_eq!([0, 1].map(|first| plan.start_at_step(steps(first, 1))), [AtStepAnswer::Past; 2]);
    assert_eq!(plan.awaited_step(), None);
    assert_eq!(plan.start_at_step(steps(2, 1)), AtStepAnswer::Waits);
    assert_eq!(played(&mut plan, &[CLOSE, BEGIN]), ".+1");
    assert_eq!(plan.start_at_step(steps(9, 1)), AtStepAnswer::Busy);
    // The step comes during another capture, which contains it and continues after it.
    assert_eq!(played(&mut plan, &[OPEN, CLOSE, OPEN, CLOSE, END]), "....-1");
    assert_eq!(plan.awaited_step(), None);
}

#[test]
fn what_waits_for_a_step_can_be_replaced_and_canceled() {
    let mut plan = for_commands();
    plan.start_at_step(steps(5, 1));
    plan.start_at_step(steps(1, 1));
    assert_eq!(played(&mut plan, &[OPEN, CLOSE, OPEN, CLOSE]), "..+1-1");
    plan.start_at_step(steps(3, 1));
    assert_eq!(played(&mut plan, &[END, END, OPEN, CLOSE, OPEN, CLOSE]), "c.....");
}

#[test]
fn steps_count_where_something_counts_them() {
    let not_counted = [
        Request::default(),
        api(AtEnd::Stop),
        Request { range: CaptureRange::Commands(None), ..Request::default() },
        Request { range: CaptureRange::Nothing, ..Request::default() },
    ];
    for request in not_counted {
        let whole = request.is_complete();
        let mut plan = Plan::new(request, at(0));
        assert_eq!(plan.start_at_step(steps(5, 1)), AtStepAnswer::NotCounted);
        played(&mut plan, &[TICK]);
        let expected = if whole { AtStepAnswer::Busy } else { AtStepAnswer::NotCounted };
        assert_eq!((plan.start_at_step(steps(5, 1)), plan.steps()), (expected, None));
    }
    let mut over = Plan::new(api(AtEnd::StopShutdown), at(0));
    played(&mut over, &[START, STOP]);
    assert_eq!(over.start_at_step(steps(5, 1)), AtStepAnswer::Busy);
}

#[test]
fn a_command_at_a_step_stands_beside_a_schedule() {
    // Steps 1 and 4 are captured by the schedule, 2 and 3 by the command; the schedule counts them all.
    let range = CaptureRange::Steps(Schedule::parse("1,0,0,1,1").unwrap(), RangeName::parse("step"));
    let mut plan = Plan::new(Request { range, at_end: AtEnd::Stop, ..Request::default() }, at(0));
    assert_eq!(plan.start_at_step(steps(2, 2)), AtStepAnswer::Waits);
    assert_eq!(played(&mut plan, &[OPEN, CLOSE].repeat(5)), "..+1-1+2..-2..");
    let range = CaptureRange::Steps(Schedule::parse("3,0,0,1,1").unwrap(), RangeName::parse("step"));
    let mut plan = Plan::new(Request { range, at_end: AtEnd::Stop, ..Request::default() }, at(0));
    assert_eq!(plan.start_at_step(steps(0, 2)), AtStepAnswer::Waits);
    assert_eq!(played(&mut plan, &[OPEN, CLOSE].repeat(5)), "+1..-1..+2-2..");
}

#[test]
fn detected_steps_begin_and_end_when_they_are_known() {
    let range = CaptureRange::Steps(Schedule::parse("1000,0,0,1").unwrap(), None);
    let mut plan = Plan::new(Request { range, at_end: AtEnd::Stop, ..Request::default() }, at(0));
    let seen = CaptureEvent::StepsDetected;
    assert_eq!(played(&mut plan, &[seen(3)]), ".");
    assert_eq!(plan.start_at_step(steps(2, 4)), AtStepAnswer::Past);
    assert_eq!(plan.start_at_step(steps(8, 4)), AtStepAnswer::Waits);
    // When the eighth is known, ten are: four more follow.
    assert_eq!(played(&mut plan, &[seen(7), seen(10), seen(12), seen(15), seen(20)]), ".+1.-1.");
    assert!(plan.wants_records(), "the schedule still waits for its own");
    let range = CaptureRange::Steps(Schedule::parse("0,0,0,1,1").unwrap(), None);
    let mut plan = Plan::new(Request { range, at_end: AtEnd::Stop, ..Request::default() }, at(0));
    assert_eq!(plan.start_at_step(steps(8, 4)), AtStepAnswer::Waits);
    assert_eq!(played(&mut plan, &[seen(0), seen(1)]), "+1-1");
    assert!(plan.wants_records(), "steps are detected for the command");
    assert_eq!(played(&mut plan, &[seen(9), seen(14), seen(14)]), "+2-2.");
    assert!(!plan.wants_records());
    assert_eq!(plan.start_at_step(steps(20, 1)), AtStepAnswer::NotCounted, "nothing detects any more");
}
