//! Names of programs without a rank in a lake, which holds those of many days.

use std::collections::BTreeSet;

use super::place::{Lake, PartFile, date};
use super::read::visit;
use crate::error::ExportError;
use crate::tables::{Cell, Label, Table, folder};
use gpuwhy_import::{TraceFile, stem};

/// Names each program without a rank so that its run is not that of another program: by its own name, else its folder;
/// if another program has that, also by its file, and then by its host and start time. A program that the lake has
/// already gets the name that it has there. Ranks keep their labels.
///
/// # Errors
/// If a file of the lake cannot be read.
pub fn name_programs(traces: &[TraceFile], labels: &mut [Label], lake: &Lake) -> Result<(), ExportError> {
    let files = lake.files(Table::Processes)?;
    let is_program = |trace: &TraceFile| trace.session().rank().is_none();
    let ranked = traces.iter().zip(&*labels).filter(|(trace, _)| !is_program(trace));
    let mut taken: BTreeSet<String> = ranked.map(|(_, label)| label.run.clone()).collect();
    let mut order: Vec<usize> = (0..traces.len()).filter(|&index| is_program(&traces[index])).collect();
    order.sort_by_key(|&index| traces[index].session().start);
    for index in order {
        let session = traces[index].session();
        let itself = (session.start.nanos(), session.process_id);
        let names = candidates(&traces[index]);
        let mut found = None;
        for name in &names {
            let known = processes(&files, name)?;
            if known.contains(&itself) {
                found = Some(name);
                break;
            }
            if found.is_none() && known.is_empty() && !taken.contains(name) {
                found = Some(name);
            }
        }
        // The last candidate is the program itself.
        let name = found.unwrap_or(&names[2]).clone();
        taken.insert(name.clone());
        labels[index] = Label { run: name, rank: 0 };
    }
    Ok(())
}

fn candidates(trace: &TraceFile) -> [String; 3] {
    let (session, stem) = (trace.session(), stem(trace.path()));
    let place = session.named_run().or_else(|| folder(trace.path()));
    let base = place.unwrap_or_else(|| stem.clone());
    let with_file = format!("{base}-{stem}");
    let start = session.start.nanos();
    let seconds = start / 1_000_000_000 % 86_400;
    let time = format!("{:02}{:02}{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60);
    let unique = format!("{with_file}-{}-{}T{time}-{}", session.host, date(start).replace('-', ""), session.process_id);
    [base, with_file, unique]
}

/// Start time and id of each process of a run in the lake.
fn processes(files: &[PartFile], run: &str) -> Result<Vec<(u64, u32)>, ExportError> {
    let mut found = Vec::new();
    for file in files.iter().filter(|file| file.run == run) {
        visit(&file.path, &["start_ns", "process"], &mut |cells| {
            if let [Cell::Integer(start), Cell::Integer(process)] = cells {
                found.extend(u64::try_from(*start).ok().zip(u32::try_from(*process).ok()));
            }
            Ok(())
        })?;
    }
    Ok(found)
}
