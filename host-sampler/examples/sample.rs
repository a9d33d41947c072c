//! Samples the threads of a running Python process: `look PID [LOOKS [THREAD]]`.
//!
//! Prints the native stack of a waiting thread (the first one unless another is named); the stack of the
//! first thread and the state in which it waits; the children; then the time per sample and the number of
//! failures. The kernel must let the caller read the process (a child of the shell, or root).

use std::time::Instant;

use host_sampler::children::Children;
use host_sampler::memory::Memory;
use host_sampler::native::Native;
use host_sampler::process::Process;
use host_sampler::python::Python;
use host_sampler::thread::Thread;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let id: u32 = arguments.next().ok_or("look PID [LOOKS]")?.parse()?;
    let samples: u32 = arguments.next().map_or(Ok(10_000), |samples| samples.parse())?;
    let thread: u32 = arguments.next().map_or(Ok(id), |thread| thread.parse())?;
    let process = Process::with_id(id);
    if let Some((sp, pc)) = Thread::open(&process, thread)?.place() {
        let mut native = Native::new(&process)?;
        for _ in 0..3 {
            let begin = Instant::now();
            let stack = native.waiting(sp, pc, false);
            println!("native stack in {:?}, {:?}", begin.elapsed(), stack.end);
            stack.functions.iter().for_each(|function| println!("    {} ({})", function.name, function.file));
        }
    }

    let begin = Instant::now();
    let mut python = Python::find(&process)?;
    println!("Python {}, found in {:?}", python.version(), begin.elapsed());
    let sample = python.sample(id)?;
    println!("lock: {:?}, collecting: {}", sample.lock, sample.is_collecting);
    for frame in &sample.frames {
        println!("    {} ({}:{})", frame.function, frame.file, frame.line);
    }

    let (mut failed, mut frames) = (0_u32, 0);
    let begin = Instant::now();
    for _ in 0..samples {
        match python.sample(id) {
            Ok(sample) => frames += sample.frames.len(),
            Err(_) => failed += 1,
        }
    }
    let each = begin.elapsed() / samples;
    let frames = frames as f64 / f64::from(samples - failed);
    println!("stack: {each:?} a sample, {frames:.1} frames, {failed} of {samples} failed");

    let thread = Thread::open(&process, id)?;
    let begin = Instant::now();
    (0..samples).try_for_each(|_| thread.times().map(drop))?;
    println!("times: {:?} a look, now {:?}", begin.elapsed() / samples, thread.times()?);
    let begin = Instant::now();
    (0..samples).try_for_each(|_| thread.state().map(drop))?;
    println!("state: {:?} a look, now {:?}", begin.elapsed() / samples, thread.state()?);
    let memory = Memory::open(&process)?;
    let mut page = [0; 4096];
    let somewhere = host_sampler::maps::files(&process)?.first().ok_or("nothing is mapped")?.address;
    let begin = Instant::now();
    (0..samples).try_for_each(|_| memory.u64(somewhere).map(drop))?;
    println!("8 bytes: {:?} a read", begin.elapsed() / samples);
    let begin = Instant::now();
    (0..samples).try_for_each(|_| memory.read(somewhere, &mut page))?;
    println!("4 KiB: {:?} a read", begin.elapsed() / samples);
    let mut children = Children::of(process);
    println!("children: {:?}", children.child_counts());
    let begin = Instant::now();
    for _ in 0..100 {
        children.child_counts();
    }
    println!("children: {:?} a look", begin.elapsed() / 100);
    Ok(())
}
