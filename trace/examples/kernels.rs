//! Prints each kernel of a trace with its executions, total and longest time.
#![allow(clippy::disallowed_types, clippy::disallowed_macros, reason = "a program opens files and prints")]

use std::collections::BTreeMap;
use std::error::Error;
use std::fs::File;
use std::io::BufReader;

use gpuwhy_trace::event::Event;
use gpuwhy_trace::format::TraceReader;
use gpuwhy_trace::record::Record;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).ok_or("usage: kernels TRACE")?;
    let mut trace = TraceReader::new(BufReader::new(File::open(path)?))?;
    let mut kernels = BTreeMap::<_, Vec<u64>>::new();
    while let Some(event) = trace.next_event()? {
        let Event::Record(Record::Kernel(kernel)) = event else { continue };
        let name = trace.dictionary().launch_config(kernel.config).name;
        kernels.entry(name).or_default().push(kernel.end.nanos().saturating_sub(kernel.start.nanos()));
    }
    for (name, nanos) in kernels {
        let (total, longest) = (nanos.iter().sum::<u64>(), nanos.iter().max().unwrap_or(&0));
        println!("{:9} x {total:12} ns, at most {longest:10} ns  {}", nanos.len(), trace.dictionary().name(name));
    }
    trace.damage().sentences().iter().for_each(|missing| eprintln!("{missing}"));
    Ok(())
}
