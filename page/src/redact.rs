//! Placeholders for private data in a page that is shared: command line, host, folders, and the texts of
//! ranges.
//!
//! The names of the trace are replaced, not the words of the page, so that everything derived from them has
//! placeholders: tables, evidence, advice. Computations use the original names. Within a page the same text
//! has the same placeholder; placeholders are numbered in order of first use and are independent of the text.

use std::collections::BTreeSet;

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::process_info::ProcessInfo;
use gpuwhy_trace::record::{NameId, RangeEvent, RangeEventKind};
use rustc_hash::{FxHashMap, FxHashSet};

/// Parts of a path after which it is the same on every machine: Python and system libraries.
const PUBLIC: [&str; 4] = ["/site-packages/", "/dist-packages/", "/lib/python", "/usr/lib/"];
/// Minimum length of a host name that is searched in notes: shorter ones are parts of other words.
const SHORTEST_HOST: usize = 3;

/// Names of the trace that are texts of ranges.
#[derive(Debug, Default)]
pub(crate) struct RangeTexts {
    messages: BTreeSet<NameId>,
    domains: BTreeSet<NameId>,
}

impl RangeTexts {
    /// Collects the names in this event.
    pub(crate) fn take(&mut self, range: &RangeEvent) {
        if matches!(range.kind, RangeEventKind::Push | RangeEventKind::Start | RangeEventKind::Mark) {
            self.messages.extend([range.message, range.category]);
            self.domains.insert(range.domain);
        }
    }
}

/// Placeholders by kind and text.
#[derive(Debug, Default)]
struct Marks {
    known: FxHashMap<(&'static str, String), usize>,
    counts: FxHashMap<&'static str, usize>,
}

impl Marks {
    fn of(&mut self, kind: &'static str, text: &str) -> String {
        let count = self.counts.entry(kind).or_default();
        let number = *self.known.entry((kind, text.to_owned())).or_insert_with(|| {
            *count += 1;
            *count
        });
        format!("<{kind} {number}>")
    }

    /// A path with a placeholder for its folder; a path within a library stays visible from the library on.
    fn path(&mut self, path: &str) -> String {
        if let Some(public) = PUBLIC.iter().filter_map(|part| path.find(part)).min() {
            let (folder, rest) = path.split_at(public);
            return if folder.is_empty() { rest.to_owned() } else { self.of("folder", folder) + rest };
        }
        match path.rsplit_once('/') {
            Some((folder, name)) if !folder.is_empty() => format!("{}/{name}", self.of("folder", folder)),
            _ => path.to_owned(),
        }
    }

    /// A sentence with placeholders for paths and the host.
    fn sentence(&mut self, text: &str, host: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find('/') {
            let (before, from) = rest.split_at(at);
            out.push_str(before);
            let ends = |letter: char| letter.is_whitespace() || "\"'`,;()<>|".contains(letter);
            // "and/or" and "10/s" are not paths.
            let begins = out.chars().next_back().is_none_or(|letter| !letter.is_alphanumeric() && letter != '/');
            let length = from.find(ends).unwrap_or(from.len());
            let (token, after) = from.split_at(length);
            let path = token.trim_end_matches(['.', ':']);
            if begins && path.len() > 1 {
                out.push_str(&self.path(path));
                out.push_str(&token[path.len()..]);
            } else {
                out.push_str(token);
            }
            rest = after;
        }
        out.push_str(rest);
        if host.len() >= SHORTEST_HOST { out.replace(host, "<host>") } else { out }
    }
}

/// Returns the process information and all names, with placeholders for private data. The meaning of ids does
/// not change.
pub(crate) fn redacted(
    session: &ProcessInfo,
    dictionary: &Dictionary,
    ranges: &RangeTexts,
) -> (ProcessInfo, Dictionary) {
    let mut marks = Marks::default();
    let frames = dictionary.frames();
    let files: FxHashSet<NameId> = frames.iter().map(|frame| frame.file).collect();
    // The page shows these anyway, so a range with the same name is not private.
    let mut shown: FxHashSet<NameId> = dictionary.launch_configs().iter().map(|config| config.name).collect();
    shown.extend(dictionary.api_functions().iter().map(|function| function.name));
    shown.extend(frames.iter().map(|frame| frame.function));
    let mut words = Dictionary::new();
    for (index, name) in dictionary.names().iter().enumerate() {
        let id = NameId(index as u32);
        let secret = !name.is_empty() && !shown.contains(&id);
        // A native function without a symbol has the name of its file.
        let reported = if files.contains(&id) || (shown.contains(&id) && name.starts_with('/')) {
            marks.path(name)
        } else if secret && ranges.messages.contains(&id) {
            marks.of("range", name)
        } else if secret && ranges.domains.contains(&id) {
            marks.of("domain", name)
        } else {
            name.to_string()
        };
        words.append_name(&reported);
    }
    dictionary.launch_configs().iter().for_each(|&config| _ = words.append_launch_config(config));
    dictionary.api_functions().iter().for_each(|&function| _ = words.append_api_function(function));
    frames.iter().for_each(|&frame| _ = words.append_frame(frame));
    dictionary.devices().iter().for_each(|device| words.add_device(device.clone()));
    dictionary.contexts().iter().for_each(|&context| words.add_context(context));
    dictionary.links().iter().for_each(|&link| words.add_link(link));
    // Thread names are omitted, because the program chooses them like texts of ranges; threads show numbers.
    let host = &session.host;
    let numeric = |(name, value): &(String, String)| {
        let reported = if value.trim().parse::<u64>().is_ok() { value.clone() } else { "<value>".to_owned() };
        (name.clone(), reported)
    };
    let process = ProcessInfo {
        command: vec!["<command>".to_owned()],
        host: "<host>".to_owned(),
        cupti_path: marks.path(&session.cupti_path),
        rank_variables: session.rank_variables.iter().map(numeric).collect(),
        notes: session.notes.iter().map(|note| marks.sentence(note, host)).collect(),
        ..session.clone()
    };
    (process, words)
}

#[cfg(test)]
mod tests {
    use gpuwhy_trace::record::{Frame, LaunchConfig, StackId, ThreadId, ThreadName};

    use super::*;
    use gpuwhy_trace::source_line::SourceLine;

    #[test]
    fn folders_have_marks_and_libraries_are_reported() {
        let mut marks = Marks::default();
        assert_eq!(marks.path("/home/alice/model/train.py"), "<folder 1>/train.py");
        assert_eq!(marks.path("/home/alice/model/data.py"), "<folder 1>/data.py");
        let torch = "/home/alice/venv/lib/python3.11/site-packages/torch/nn/module.py";
        assert_eq!(marks.path(torch), "<folder 2>/lib/python3.11/site-packages/torch/nn/module.py");
        assert_eq!(marks.path("/usr/lib/x86_64-linux-gnu/libcuda.so.1"), "/usr/lib/x86_64-linux-gnu/libcuda.so.1");
        assert_eq!(["train.py", "<string>", "/x", ""].map(|path| marks.path(path)), ["train.py", "<string>", "/x", ""]);
    }

    #[test]
    fn notes_keep_their_words() {
        let mut marks = Marks::default();
        let note = "no samples: \"/home/alice/a b\" and/or 10/s on node7; see /data/alice/log.txt.";
        let reported = marks.sentence(note, "node7");
        assert_eq!(reported, "no samples: \"<folder 1>/a b\" and/or 10/s on <host>; see <folder 2>/log.txt.");
        assert_eq!(marks.sentence("nothing here", ""), "nothing here");
        assert_eq!(marks.sentence("GPUWHY_OUTPUT=/home/alice/t is set", "n"), "GPUWHY_OUTPUT=<folder 1>/t is set");
    }

    #[test]
    fn ids_stand_for_the_same_things() {
        let mut dictionary = Dictionary::new();
        let [kernel, file, function, secret, shared, domain] =
            ["gemm", "/home/alice/train.py", "step", "secret plan", "gemm", "alice"]
                .map(|name| dictionary.append_name(name));
        dictionary.append_launch_config(LaunchConfig { name: kernel, ..LaunchConfig::default() });
        let frame = Frame { caller: StackId::NONE, function, file, line: 7 };
        let stack = dictionary.append_frame(frame);
        dictionary.add_thread_name(ThreadName { thread: ThreadId(5), name: secret });
        let mut ranges = RangeTexts::default();
        for message in [secret, shared, function, kernel] {
            let kind = RangeEventKind::Push;
            ranges.take(&RangeEvent { kind, message, domain, category: domain, ..RangeEvent::default() });
        }
        dictionary.add_source_line(SourceLine { file, line: 7, text: "secret".into() });
        let session = ProcessInfo { host: "node7".into(), command: vec!["secret".into()], ..ProcessInfo::default() };
        let (process, words) = redacted(&session, &dictionary, &ranges);
        assert_eq!((process.command.join(" "), process.host.as_str()), ("<command>".to_owned(), "<host>"));
        let reported = [kernel, file, function, secret, shared, domain].map(|id| words.name(id).to_owned());
        assert_eq!(reported, ["gemm", "<folder 1>/train.py", "step", "<range 1>", "<range 2>", "<range 3>"]);
        assert_eq!(words.stack(stack).collect::<Vec<_>>(), [frame]);
        assert_eq!(words.thread_name(ThreadId(5)), None);
        assert_eq!(words.launch_configs(), dictionary.launch_configs());
        assert!(words.source_lines().is_empty(), "source code has no placeholder");
    }
}
