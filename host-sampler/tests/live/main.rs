//! The reader tested with live interpreters: every CPython installed on this machine, each as a child
//! process.
//!
//! A child is equivalent to the current process, since all data is read from files of `/proc` in both cases.
//! The reader's results are compared with the interpreter's own description of its stack.

mod interpreter;
mod native;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

use gpuwhy_trace::record::MAX_FRAMES;
use host_sampler::python::{Lock, Miss, Sample};
use interpreter::{Program, interpreters};

/// Minimum number of samples of a moving program, and the pause between them.
const SAMPLES: u32 = 500;
/// Number of stacks in [`LOOKS`] that may be wrong. The interpreter links a new frame by several stores; a
/// thread that loses its core between two of them has the same half-linked stack however often it is read.
/// Observed: 2 in 61,500 samples on a machine with more busy threads than cores.
const WRONG: usize = 2;
const PAUSE: Duration = Duration::from_micros(100);

/// Samples until `enough` is true. On a busy machine, a program stays in the same place for a long time, so
/// the number of samples is not limited. Returns it.
fn sample_until(mut look: impl FnMut(), mut enough: impl FnMut() -> bool) -> u32 {
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut samples = 0;
    while samples < SAMPLES || !enough() {
        assert!(Instant::now() < deadline, "not seen in {samples} looks");
        sleep(PAUSE);
        look();
        samples += 1;
    }
    samples
}

/// A stack as text, outermost first, in the same form as the programs print theirs.
fn shown(sample: &Sample) -> Vec<String> {
    let line = |frame: &host_sampler::python::Frame| {
        let file = frame.file.rsplit('/').next().unwrap_or_default();
        format!("{} {file}:{}", frame.function, frame.line)
    };
    sample.frames.iter().rev().map(line).collect()
}

fn names(sample: &Sample) -> Vec<&str> {
    sample.frames.iter().map(|frame| &*frame.function).collect()
}

#[test]
fn a_stack_is_what_the_interpreter_says_it_is() {
    for interpreter in interpreters() {
        let mut program = Program::start(&interpreter, "shapes.py");
        let mut python = program.attach();
        assert_eq!(python.version().to_string(), interpreter.version);
        let mut compared = 0;
        while let Some((thread, expected)) = program.blocked() {
            // Half of them before the thread was sampled in this place.
            let before = (compared % 2 == 0).then(|| python.stack_of_still(thread).unwrap());
            let sample = python.sample(thread).unwrap();
            assert_eq!(shown(&sample), expected, "{interpreter}");
            let still = before.unwrap_or_else(|| python.stack_of_still(thread).unwrap());
            assert_eq!(still, sample.frames, "{interpreter}");
            assert!(!sample.is_truncated && !sample.is_collecting);
            assert_eq!(sample.lock, Lock::Free, "{interpreter}");
            compared += 1;
            program.release();
        }
        assert!(compared >= 8, "{interpreter}: {compared}");
        println!("{interpreter}: {compared} stacks as they should be");
    }
}

#[test]
fn the_innermost_part_of_a_deep_stack_is_kept() {
    for interpreter in interpreters() {
        let mut program = Program::start(&interpreter, "deep.py");
        let (mut python, mut fresh) = (program.attach(), program.attach());
        let (thread, _) = program.blocked().unwrap();
        let sample = python.sample(thread).unwrap();
        assert!(sample.is_truncated && sample.frames.len() == MAX_FRAMES, "{interpreter}");
        assert_eq!(names(&sample)[..2], ["wait", "bottom"], "{interpreter}");
        assert_eq!(python.sample(u32::MAX), Err(Miss::NoPython));
        assert_eq!(python.stack_of_still(u32::MAX), Err(Miss::NoPython));
        let begun = Instant::now();
        assert_eq!(fresh.stack_of_still(thread).unwrap(), sample.frames);
        let first = begun.elapsed();
        let begun = Instant::now();
        (0..200).for_each(|_| assert_eq!(fresh.stack_of_still(thread).unwrap().len(), MAX_FRAMES));
        println!(
            "{interpreter}: a stack of {MAX_FRAMES} frames takes {:?}, the first {first:?}",
            begun.elapsed() / 200
        );
    }
}

#[test]
fn a_busy_program_is_hardly_ever_shown_in_a_function_that_was_not_called_from_there() {
    for interpreter in interpreters() {
        let mut program = Program::start(&interpreter, "busy.py");
        let mut python = program.attach();
        let (thread, edges) = program.blocked().unwrap();
        program.release();
        let (seen, torn) = (RefCell::new(BTreeMap::<String, u32>::new()), Cell::new(0));
        let wrong = RefCell::new(Vec::new());
        let look = || {
            let Ok(sample) = python.sample(thread) else { return torn.set(torn.get() + 1) };
            let names = names(&sample);
            let is_called = |pair: &[&str]| edges.contains(&format!("{}>{}", pair[1], pair[0]));
            if names.last() != Some(&"<module>") || !names.windows(2).all(is_called) {
                return wrong.borrow_mut().push(names.join("<"));
            }
            *seen.borrow_mut().entry(names[0].to_owned()).or_default() += 1;
        };
        let samples = sample_until(look, || seen.borrow().len() > 2);
        println!("{interpreter}: {samples} looks, {} torn, innermost {:?}", torn.get(), seen.borrow());
        assert!(wrong.borrow().len() <= WRONG, "{interpreter}: {:?} in {samples} looks", wrong.borrow());
    }
}

#[test]
fn the_holder_of_the_lock_is_distinguished_from_those_who_wait() {
    for interpreter in interpreters() {
        let mut program = Program::start(&interpreter, "contend.py");
        let mut python = program.attach();
        let (first, second) = {
            let (first, ids) = program.blocked().unwrap();
            (first, ids[0].parse::<u32>().unwrap())
        };
        program.release();
        let (held, both) = (Cell::new([0_u32; 2]), Cell::new(0));
        let look = || {
            let holds = [(first, second), (second, first)].map(|(thread, other)| {
                let Ok(sample) = python.sample(thread) else { return false };
                assert_eq!(sample.holder.is_some(), sample.lock == Lock::OtherThread);
                assert!(sample.holder.is_none_or(|holder| holder == other), "{:?} of {other}", sample.holder);
                sample.lock == Lock::ThisThread
            });
            held.set([0, 1].map(|index: usize| held.get()[index] + u32::from(holds[index])));
            both.set(both.get() + u32::from(holds == [true; 2]));
        };
        let samples = sample_until(look, || held.get().iter().all(|&held| held > SAMPLES / 20));
        println!("{interpreter}: lock held by {:?} of {samples} looks, by both {}", held.get(), both.get());
        // Two samples are some microseconds apart; the lock changes its holder every 5 ms.
        assert!(both.get() < samples / 20, "{interpreter}");
    }
}

#[test]
fn garbage_collection_is_seen() {
    for interpreter in interpreters() {
        let mut program = Program::start(&interpreter, "garbage.py");
        let mut python = program.attach();
        let (thread, _) = program.blocked().unwrap();
        assert!(!python.sample(thread).unwrap().is_collecting, "{interpreter}");
        program.release();
        let collecting = Cell::new(0);
        let look = || {
            let is_collecting = python.sample(thread).is_ok_and(|sample| sample.is_collecting);
            collecting.set(collecting.get() + u32::from(is_collecting));
        };
        sample_until(look, || collecting.get() > SAMPLES / 20);
    }
}
