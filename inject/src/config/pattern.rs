//! File names with placeholders.

use std::env;
use std::path::PathBuf;

/// Text in place of a variable that is not set.
const UNSET: &str = "unset";

/// A file name with `%p` (process id), `%h` (host name), `%q{VAR}` (environment) and `%%`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(String);

/// A part of a pattern.
enum PatternPart<'a> {
    /// Literal text.
    Text(&'a str),
    ProcessId,
    Host,
    Variable(&'a str),
    /// Looks like a placeholder but is not one.
    Unknown(&'a str),
}

/// A file name made from a pattern.
#[derive(Debug, PartialEq, Eq)]
pub struct Expanded {
    /// File name.
    pub path: PathBuf,
    /// Variables of the pattern that are unset or empty.
    pub unset: Vec<String>,
}

impl Pattern {
    /// Makes a pattern from its text; everything except placeholders is literal.
    pub fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    fn parts(&self) -> Vec<PatternPart<'_>> {
        let mut parts = Vec::new();
        let mut rest = self.0.as_str();
        while let Some(at) = rest.find('%') {
            parts.push(PatternPart::Text(&rest[..at]));
            let (part, length) = placeholder(&rest[at..]);
            parts.push(part);
            rest = &rest[at + length..];
        }
        parts.push(PatternPart::Text(rest));
        parts
    }

    /// Returns the first text that looks like a placeholder but is not one.
    pub fn unknown_placeholder(&self) -> Option<String> {
        self.parts().into_iter().find_map(|part| match part {
            PatternPart::Unknown(text) => Some(text.to_owned()),
            _ => None,
        })
    }

    /// File name to show to users before there is a process.
    pub fn shown(&self) -> String {
        let parts = self.parts().into_iter().map(|part| match part {
            PatternPart::Text(text) | PatternPart::Unknown(text) => text.to_owned(),
            PatternPart::ProcessId => "<pid>".to_owned(),
            PatternPart::Host => "<host>".to_owned(),
            PatternPart::Variable(name) => format!("<{name}>"),
        });
        parts.collect()
    }

    /// Makes the file name for this process.
    pub fn expand(&self, process_id: u32, host: &str) -> Expanded {
        self.expand_with(process_id, host, |name| env::var(name).unwrap_or_default())
    }

    fn expand_with(&self, process_id: u32, host: &str, variable: impl Fn(&str) -> String) -> Expanded {
        let mut unset = Vec::new();
        let parts = self.parts().into_iter().map(|part| match part {
            PatternPart::Text(text) | PatternPart::Unknown(text) => text.to_owned(),
            PatternPart::ProcessId => process_id.to_string(),
            PatternPart::Host => host.to_owned(),
            PatternPart::Variable(name) => match variable(name) {
                value if value.is_empty() => {
                    unset.push(name.to_owned());
                    UNSET.to_owned()
                }
                // Neither a slash nor `..` must lead into another folder.
                value if value.chars().all(|letter| letter == '.') => "_".repeat(value.len()),
                value => value.replace('/', "_"),
            },
        });
        let name: String = parts.collect();
        Expanded { path: PathBuf::from(name), unset }
    }
}

/// Parses the placeholder at the start of a text; returns its length too.
fn placeholder(text: &str) -> (PatternPart<'_>, usize) {
    let after = &text[1..];
    match after.chars().next() {
        Some('p') => (PatternPart::ProcessId, 2),
        Some('h') => (PatternPart::Host, 2),
        Some('%') => (PatternPart::Text("%"), 2),
        Some(letter) => match after.strip_prefix("q{").and_then(|name| name.split_once('}')) {
            Some((name, _)) => (PatternPart::Variable(name), name.len() + 4),
            None => (PatternPart::Unknown(&text[..1 + letter.len_utf8()]), 1 + letter.len_utf8()),
        },
        None => (PatternPart::Unknown(text), 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(text: &str) -> Expanded {
        let variable = |name: &str| match name {
            "RANK" => "3".to_owned(),
            "UP" => "..".to_owned(),
            "NOPE" => String::new(),
            _ => "a/b".to_owned(),
        };
        Pattern::new(text).expand_with(42, "node7", variable)
    }

    fn expand(text: &str) -> String {
        expanded(text).path.to_str().unwrap().to_owned()
    }

    #[test]
    fn patterns_are_replaced() {
        assert_eq!(expand("gpuwhy-%p.gpuwhy"), "gpuwhy-42.gpuwhy");
        assert_eq!(expand("/tmp/%h/r%q{RANK}-%p"), "/tmp/node7/r3-42");
        assert_eq!(expand("100%%-%q{JOB}"), "100%-a_b");
        assert_eq!(expand("%q{UP}/%q{JOB}"), "__/a_b", "into no other folder");
        assert_eq!(Pattern::new("%h/r%q{RANK}-%p%%").shown(), "<host>/r<RANK>-<pid>%");
    }

    #[test]
    fn what_is_no_pattern_stands_for_itself() {
        for (text, unknown) in [("50%", "%"), ("%x", "%x"), ("%q{RANK", "%q"), ("%q", "%q"), ("é%é", "%é")] {
            assert_eq!(expand(text), text);
            assert_eq!(Pattern::new(text).unknown_placeholder().as_deref(), Some(unknown));
        }
        assert_eq!(Pattern::new("%p%h%q{A}%%p").unknown_placeholder(), None);
    }

    #[test]
    fn a_variable_that_is_not_set_makes_no_hidden_file() {
        let Expanded { path, unset } = expanded("%q{NOPE}.gpuwhy");
        assert_eq!((path.to_str(), unset), (Some("unset.gpuwhy"), vec!["NOPE".to_owned()]));
        assert!(expanded("%q{RANK}").unset.is_empty());
    }
}
