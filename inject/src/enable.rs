//! Switches the chosen activity on, and says what could not be.
//!
//! Callbacks are registered before the first kind is enabled. A kind that this CUPTI or this machine refuses is a
//! note in the report, except for kernels, without which there is nothing to say.

use cupti_sys::{ActivityHandler, Cupti, CuptiResult, Domain, Error, Kind, ThreadIdType};

use crate::interest;

/// Enables what is wanted, with stream dependencies or without, and returns notes for the report.
pub fn everything<H: ActivityHandler>(cupti: &'static Cupti, dependencies: bool) -> Result<Vec<String>, Error> {
    let mut notes = Vec::new();
    note(&mut notes, "thread ids of API calls are not the kernel's", cupti.set_thread_id_type(ThreadIdType::SYSTEM));
    cupti.register_callbacks::<H>()?;
    let on_request = if dependencies { interest::DEPENDENCY_KINDS } else { &[] };
    for &kind in interest::KINDS.iter().chain(on_request) {
        match cupti.enable(kind) {
            Err(error) if kind == Kind::CONCURRENT_KERNEL => {
                // What is on by now would cost the program time for nothing.
                for &enabled in interest::KINDS {
                    let _ = cupti.disable(enabled);
                }
                return Err(error);
            }
            result => note(&mut notes, &format!("no {kind} records"), result),
        }
    }
    for domain in [Domain::RUNTIME, Domain::DRIVER] {
        if !cupti.can_filter_api() || !enable_wanted_calls(cupti, domain) {
            let kind = if domain == Domain::RUNTIME { Kind::RUNTIME } else { Kind::DRIVER };
            notes.push(format!("this CUPTI cannot choose API calls: all {kind} calls are recorded, which costs more"));
            note(&mut notes, &format!("no {kind} records"), cupti.enable(kind));
        }
    }
    Ok(notes)
}

/// Whether at least one call of the domain could be enabled by itself.
fn enable_wanted_calls(cupti: &Cupti, domain: Domain) -> bool {
    api_functions(cupti, domain)
        .filter(|(_, name)| interest::wants(name))
        .filter(|&(id, _)| cupti.enable_api(domain, id).is_ok())
        .count()
        > 0
}

/// Every API function that this CUPTI can name, with its number.
pub fn api_functions(cupti: &Cupti, domain: Domain) -> impl Iterator<Item = (u32, String)> {
    (1..=interest::LAST_CALLBACK_ID).filter_map(move |id| Some((id, cupti.callback_name(domain, id)?)))
}

fn note(notes: &mut Vec<String>, what: &str, result: Result<(), Error>) {
    if let Err(error) = result {
        notes.push(format!("{what}: {error}"));
    }
}

/// An error of the start in words that say what to do.
pub fn explain(error: &Error) -> String {
    if error.code == CuptiResult::MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED {
        return "another profiler already holds CUPTI in this process (nsys, ncu, torch.profiler, a debugger); \
                run the program without it"
            .to_owned();
    }
    format!("{error}; `gpuprof doctor` shows what is missing")
}
