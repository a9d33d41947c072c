//! `gpuwhy explain`: what a word of the report means, and how it is measured.
//!
//! The answers are the documentation itself, which is part of this program: see [`entries`].

mod aliases;
mod entries;

use std::io::{self, Write as _};

use anyhow::Result;
use console::style;
use profiler_core::attribution::leaf::Leaf;
use profiler_core::text_format::printable;

use crate::{message, prose};
use entries::{Entries, Entry, Source};

/// Exit code when the word is unknown.
pub const UNKNOWN: u8 = 2;

/// What to explain.
#[derive(Debug)]
pub struct Props {
    /// The word, or several that are one term; none lists all words.
    pub words: Vec<String>,
}

/// Prints the explanation and answers with the exit code.
///
/// # Errors
///
/// When stdout cannot be written.
pub fn run(props: &Props) -> Result<u8> {
    let entries = Entries::read();
    let word = props.words.join(" ");
    let text = if props.words.is_empty() {
        list(&entries)
    } else {
        let found = entries.about(&word);
        if found.is_empty() {
            message::say(&unknown(&entries, &word));
            return Ok(UNKNOWN);
        }
        let texts: Vec<String> = found.into_iter().map(text).collect();
        texts.join("\n")
    };
    io::stdout().write_all(text.as_bytes())?;
    Ok(0)
}

fn unknown(entries: &Entries, word: &str) -> String {
    let hint = match entries.nearest(word) {
        Some(nearest) => format!("did you mean `{nearest}`?"),
        None => "`gpuwhy explain` lists the known words".to_owned(),
    };
    format!("there is no entry for {:?}; {hint}", printable(word))
}

fn text(entry: &Entry) -> String {
    let title = match entry.source {
        Source::Glossary if !entry.names.is_empty() => format!("{} ({})", entry.title, entry.names.join(", ")),
        Source::Glossary => entry.title.clone(),
        Source::Report | Source::Simulation => entry.names.join(", "),
    };
    let mut text = format!("{}\n", style(title).bold());
    if let Some(leaf) = Leaf::ALL.iter().find(|leaf| entry.source == Source::Report && entry.is_named(leaf.name())) {
        text.push_str(&prose::wrapped(&format!("Counts as: {}", leaf.group().name()), 2));
    }
    for paragraph in &entry.paragraphs {
        text.push_str(&prose::wrapped(paragraph, 2));
    }
    let file = entry.source.file();
    text.push_str(&match entry.source {
        Source::Glossary => format!("  [{file}]\n"),
        Source::Report | Source::Simulation => format!("  [{file}, {}]\n", entry.title),
    });
    text
}

fn list(entries: &Entries) -> String {
    let mut text = String::new();
    let headings = [
        (Source::Glossary, "Terms, with their names in JSON"),
        (Source::Simulation, "Simulated runs, by what costs nothing in them"),
        (Source::Report, "Names in the report and in JSON"),
    ];
    for (source, heading) in headings {
        let words = match source {
            Source::Glossary => entries.titles(),
            Source::Report | Source::Simulation => entries.names(source),
        };
        text.push_str(&format!("{}\n{}\n", style(heading).bold(), prose::wrapped(&words.join(", "), 2)));
    }
    text.push_str("gpuwhy explain WORD prints one of them.\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_answered_with_the_word_that_was_meant() {
        let entries = Entries::read();
        assert!(unknown(&entries, "no_sync").contains("did you mean `no_syncs`?"));
        assert!(unknown(&entries, "zzzzzzzz").contains("lists the known words"));
    }

    #[test]
    fn a_term_is_printed_with_its_name_and_where_more_is_said() {
        let text = text(Entries::read().about("launch")[0]);
        assert!(text.contains("(launch)") && text.contains("[docs/guide/glossary.md]"), "{text}");
    }
}
