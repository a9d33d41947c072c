//! Display names of a process and its threads.

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::process_info::ProcessInfo;
use gpuwhy_trace::record::ThreadId;

/// Name of the program; see [`ProcessInfo::program`].
pub fn program(session: &ProcessInfo) -> &str {
    match session.program() {
        "" => "process",
        name => name,
    }
}

/// Display name of a thread: its name, followed by its number.
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
        let session = |command: &[&str]| ProcessInfo {
            command: command.iter().map(|word| (*word).to_owned()).collect(),
            ..ProcessInfo::default()
        };
        assert_eq!(program(&session(&["/usr/bin/python3"])), "python3");
        assert_eq!(program(&session(&["/usr/bin/python3", "-u", "/home/u/train.py", "--lr", "1"])), "train.py");
        assert_eq!(program(&session(&[""])), "process");
        assert_eq!(program(&ProcessInfo::default()), "process");
    }
}
