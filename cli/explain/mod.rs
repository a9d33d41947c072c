//! `gpuwhy report --explain`: the meaning of a term in the report, and how it is measured.
//!
//! The explanations are the glossary, which is embedded in this program (see [`entries`]), and the catalogue of
//! remedies.

mod entries;
#[cfg(test)]
mod tests;

use std::io::{self, Write as _};

use anyhow::Result;
use console::style;
use gpuwhy_report::run::remedies::{self, RemedyEntry};
use gpuwhy_report::text_format::printable;
use profiler_core::leaf::Leaf;

use crate::{message, prose};
use entries::{Entries, FILE, GlossaryEntry};

/// Word that lists the remedies.
const REMEDIES: &str = "remedies";
/// Exit code when the term is unknown.
const UNKNOWN: u8 = 2;

/// Prints the explanation of a term, which may have several words, or lists all terms if `word` is empty;
/// returns the exit code. Fails when stdout cannot be written.
pub fn run(word: &str) -> Result<u8> {
    match about(word) {
        Ok(text) => {
            io::stdout().write_all(text.as_bytes())?;
            Ok(0)
        }
        Err(unknown) => {
            message::say(&unknown);
            Ok(UNKNOWN)
        }
    }
}

/// The explanation of a term, or the list of all terms if `word` is empty. Fails with a hint when the term is unknown.
pub fn about(word: &str) -> Result<String, String> {
    let entries = Entries::read();
    if word.is_empty() {
        return Ok(list(&entries));
    }
    if word == REMEDIES {
        let ids: Vec<&str> = remedies::remedies().map(|entry| entry.id).collect();
        return Ok(format!("{}\n{}", style("Remedies").bold(), prose::wrapped(&ids.join(", "), 2)));
    }
    let known = entries.about(word).into_iter().map(text);
    let texts: Vec<String> = known.chain(remedies::remedy(word).map(remedy)).collect();
    if texts.is_empty() { Err(unknown(&entries, word)) } else { Ok(texts.join("\n")) }
}

fn unknown(entries: &Entries, word: &str) -> String {
    let hint = match entries.nearest(word) {
        Some(nearest) => format!("did you mean `{nearest}`?"),
        None => "`gpuwhy report --explain` lists the known words; docs/reference/report.md lists the names in the JSON"
            .to_owned(),
    };
    format!("there is no entry for {:?}; {hint}", printable(word))
}

fn text(entry: &GlossaryEntry) -> String {
    let mut text = format!("{}\n", style(entry.heading()).bold());
    let leaf = Leaf::ALL.iter().find(|leaf| entry.is_row && entry.names.iter().any(|name| name == leaf.name()));
    if let Some(leaf) = leaf {
        text.push_str(&prose::wrapped(&format!("Counts as: {}", leaf.cause().name()), 2));
    }
    for paragraph in &entry.paragraphs {
        text.push_str(&prose::wrapped(paragraph, 2));
    }
    text + &format!("  [{FILE}]\n")
}

fn remedy(entry: &RemedyEntry) -> String {
    let mut text = format!("{}\n", style(format!("{} (remedy)", entry.id)).bold());
    for sentence in entry.sentences() {
        text.push_str(&prose::wrapped(&sentence, 2));
    }
    let not_when = Some(entry.not_when).filter(|words| !words.is_empty()).map(|words| format!("Not when: {words}."));
    let outside = entry.is_outside().then(|| "It can be tried without a change of the program.".to_owned());
    let lines = [
        Some(format!("Recognized by: {}.", entry.recognized)),
        Some(format!("Gain: {}.", entry.gain)),
        not_when,
        Some(format!("Certainty: {}; {}.", entry.certainty.words(), entry.results.words())),
        outside,
    ];
    lines.into_iter().flatten().for_each(|line| text.push_str(&prose::wrapped(&line, 2)));
    text + &entry.link.map(|link| format!("  [{link}]\n")).unwrap_or_default()
}

fn list(entries: &Entries) -> String {
    let mut text = String::new();
    for (heading, rows) in [("Terms, with their names in JSON", false), ("Words and names of the report", true)] {
        let words = entries.titles(rows).join(", ");
        text.push_str(&format!("{}\n{}\n", style(heading).bold(), prose::wrapped(&words, 2)));
    }
    text.push_str("gpuwhy report --explain WORD prints one of them; --explain remedies lists the remedies.\n");
    text
}
