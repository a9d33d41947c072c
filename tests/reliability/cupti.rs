//! A CUPTI that refuses, hangs, is slow, returns wrong values, corrupts records and loses buffers.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::program::{Outcome, outcome, outcome_of_hang, program};
use super::table;
use crate::support::Stage;

/// Every function of CUPTI that libprof.so may call.
const FUNCTIONS: &[&str] = &[
    "cuptiGetVersion",
    "cuptiGetTimestamp",
    "cuptiGetCallbackName",
    "cuptiSubscribe",
    "cuptiUnsubscribe",
    "cuptiEnableCallback",
    "cuptiActivityRegisterCallbacks",
    "cuptiActivityEnable",
    "cuptiActivityDisable",
    "cuptiActivityEnableRuntimeApi",
    "cuptiActivityEnableDriverApi",
    "cuptiActivityFlushAll",
    "cuptiActivityGetNextRecord",
    "cuptiActivityGetNumDroppedRecords",
    "cuptiActivitySetAttribute",
    "cuptiActivityGetStructSize",
    "cuptiSetThreadIdType",
];
const PHASES: &[&str] = &["start", "running", "finish"];
/// INVALID_PARAMETER, OUT_OF_MEMORY, NOT_INITIALIZED, INSUFFICIENT_PRIVILEGES, MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED,
/// UNKNOWN; and one that no version has.
const CODES: &[u32] = &[1, 8, 15, 35, 39, 999, 4711];
/// Number of processes in parallel: they sleep most of their time.
const AT_ONCE: usize = 4;

/// Runs the program with each fault; returns the outcomes in their order.
fn run_all(faults: &[String]) -> Vec<Outcome> {
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(BTreeMap::new());
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some((index, fault)) = {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    faults.get(index).map(|fault| (index, fault))
                } {
                    let run = |timeout: Option<&str>| {
                        let stage = Stage::new();
                        let mut command = program(&stage);
                        command.envs(timeout.map(|timeout| ("GPUWHY_EXIT_TIMEOUT", timeout)));
                        outcome(command.env("GPUWHY_REPLAY_FAULT", fault), &stage.path("trace.gpuwhy"))
                    };
                    let hangs = fault.contains("=hang");
                    let seen = if hangs { outcome_of_hang(|timeout| run(Some(timeout))) } else { run(None) };
                    seen.is_the_programs_own(fault);
                    outcomes.lock().unwrap().insert(index, seen);
                }
            });
        }
    });
    outcomes.into_inner().unwrap().into_values().collect()
}

/// Number of records in a run without a fault.
fn whole() -> u64 {
    let seen = run_all(&[String::new()]).remove(0);
    assert_eq!(seen.said, [""; 0]);
    let (records, end) = seen.trace.unwrap();
    assert_eq!(end, "clean");
    records
}

#[test]
fn a_function_that_fails_costs_records_and_nothing_else() {
    let whole = whole();
    // Each place once, to find out if the function is called there.
    // The collector asks for names as it starts. On a busy machine play begins earlier, or not: no place of its own.
    let by_chance = |place: &(&str, &str)| *place == ("cuptiGetCallbackName", "running");
    let places = FUNCTIONS.iter().flat_map(|name| PHASES.iter().map(move |phase| (*name, *phase)));
    let places: Vec<_> = places.filter(|place| !by_chance(place)).collect();
    let faults: Vec<_> = places.iter().map(|(name, phase)| format!("{name}=999@{phase}")).collect();
    let struck = run_all(&faults);
    let called: Vec<_> =
        places.into_iter().zip(struck).filter(|(_, seen)| seen.struck > 0).map(|(place, _)| place).collect();
    assert!(called.len() >= 15, "{called:?}");

    let faults: Vec<_> = called
        .iter()
        .flat_map(|(name, phase)| CODES.iter().map(move |code| format!("{name}={code}@{phase}")))
        .collect();
    let outcomes = run_all(&faults);
    let mut rows = Vec::new();
    for ((name, phase), seen) in called.iter().zip(outcomes.chunks(CODES.len())) {
        // Codes with the same outcome share a row, although the code itself is part of the message.
        let mut groups: Vec<((String, String), Vec<String>)> = Vec::new();
        for (code, seen) in CODES.iter().zip(seen) {
            assert!(seen.struck > 0, "{name}={code}@{phase} did not strike");
            let (trace, said) = seen.words(whole);
            // After play an ordinary flush may or may not happen before the exit, and may or may not report
            // an error.
            let said = if *phase == "finish" { "-" } else { said.split(" answered ").next().unwrap_or_default() };
            let said = said.to_owned();
            match groups.iter_mut().find(|(words, _)| *words == (trace.clone(), said.clone())) {
                Some((_, codes)) => codes.push(code.to_string()),
                None => groups.push(((trace, said), vec![code.to_string()])),
            }
        }
        for ((trace, said), codes) in groups {
            let codes = if codes.len() == CODES.len() { "any".to_owned() } else { codes.join(", ") };
            rows.push(vec![format!("`{name}`"), (*phase).to_owned(), codes, trace, said]);
        }
    }
    table::check("results", &["function", "fails", "with", "trace", "said"], &rows);
}

#[test]
fn a_library_that_is_slow_or_lies_costs_records_and_nothing_else() {
    let whole = whole();
    let faults: Vec<_> = [
        "cuptiActivityFlushAll=hang@running",
        "cuptiActivityFlushAll=hang@finish",
        "cuptiActivityFlushAll=100ms",
        "cuptiActivityGetNumDroppedRecords=hang@running",
        "cuptiActivityGetNumDroppedRecords=hang@finish",
        "cuptiGetTimestamp=hang@running",
        "cuptiGetTimestamp=hang@finish",
        "buffers=late",
        "buffers=twice",
        "buffers=never",
        "buffers=torn",
        "buffers=oversized",
        "buffers=foreign",
        "buffers=nested",
        "records=garbage",
        "records=nameless",
        "records=timeless",
        "records=backwards",
        "records=future",
        "records=unknown",
        "sizes=0",
        "sizes=4",
        "sizes=8",
        "sizes=1099511627776",
        "sizes=+8",
    ]
    .map(str::to_owned)
    .into();
    let mut rows = Vec::new();
    for (fault, seen) in faults.iter().zip(run_all(&faults)) {
        assert!(seen.struck > 0 || fault == "sizes=+8@running", "{fault} did not strike");
        let (trace, said) = seen.words(whole);
        rows.push(vec![format!("`{fault}`"), trace, said]);
    }
    table::check("lies", &["fault", "trace", "said"], &rows);
}
