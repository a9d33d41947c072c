//! What a process and its threads are called.

use profiler_core::dictionary::Dictionary;
use profiler_core::process_info::ProcessInfo;
use profiler_core::record::ThreadId;

/// The name of the program: the file of its first argument.
pub fn program(session: &ProcessInfo) -> &str {
    let first = session.command.first().map_or("", String::as_str);
    match first.rsplit('/').next() {
        Some("") | None => "process",
        Some(name) => name,
    }
}

/// What a thread is called: by its number, behind the name that the program gave to it.
pub fn thread(id: ThreadId, dictionary: &Dictionary) -> String {
    match dictionary.thread_name(id) {
        Some(name) => format!("{name}, thread {id}"),
        None => format!("thread {id}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_called_by_its_file() {
        let session = |first: &str| ProcessInfo { command: vec![first.to_owned()], ..ProcessInfo::default() };
        assert_eq!(program(&session("/usr/bin/python3")), "python3");
        assert_eq!(program(&session("")), "process");
        assert_eq!(program(&ProcessInfo::default()), "process");
    }
}
