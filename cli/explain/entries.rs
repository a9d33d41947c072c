//! Terms that `gpuwhy report --explain` knows. The glossary is their only source.
//!
//! A `## Term (`name`)` heading with its paragraphs is an entry, and so is each row of the table of words:
//! the first cell has the search words, the second their meaning.

use gpuwhy_report::text_format::edits;
use gpuwhy_report::words;
use gpuwhy_trace::counters::Throttle;
use profiler_core::attribution::host_cause::HostCause;
use profiler_core::counters::roofs::{Limit, Roof};
use profiler_core::leaf::{Cause, Leaf};
use profiler_core::whatif::ScenarioKind;

pub const FILE: &str = "docs/guide/glossary.md";
const GLOSSARY: &str = include_str!("../../docs/guide/glossary.md");

/// Maximum edit distance of a suggestion.
const MOST_EDITS: usize = 3;

/// Glossary entry.
#[derive(Debug)]
pub struct GlossaryEntry {
    /// The term; for a row, its words.
    pub title: String,
    /// Names in JSON and tables; for a row, all its words.
    pub names: Vec<String>,
    /// True for a row of the table.
    pub is_row: bool,
    /// Text without Markdown.
    pub paragraphs: Vec<String>,
}

/// All entries, terms first.
#[derive(Debug)]
pub struct Entries(Vec<GlossaryEntry>);

impl Entries {
    /// Reads the embedded glossary.
    pub fn read() -> Self {
        let mut entries: Vec<GlossaryEntry> = GLOSSARY.split("\n## ").skip(1).filter_map(term).collect();
        entries.extend(GLOSSARY.lines().filter_map(row));
        Self(entries)
    }

    /// Entries for a word: a term, a name or a phrase of the report.
    pub fn about(&self, word: &str) -> Vec<&GlossaryEntry> {
        let found = |word: &str| -> Vec<&GlossaryEntry> {
            let word = key(word);
            self.0.iter().filter(|entry| entry.words().any(|own| key(own) == word)).collect()
        };
        match found(word) {
            none if none.is_empty() => name_of(word).map_or(none, found),
            entries => entries,
        }
    }

    /// Known word with the smallest edit distance to `word`, if it is close.
    pub fn nearest(&self, word: &str) -> Option<&str> {
        let word = key(word);
        let most = MOST_EDITS.min(word.chars().count() / 2);
        let words = self.0.iter().flat_map(GlossaryEntry::words);
        let near = words.map(|known| (edits(&key(known), &word), known)).filter(|(edits, _)| *edits <= most);
        near.min().map(|(_, known)| known)
    }

    /// Every word and phrase that [`about`](Self::about) finds, as its key.
    #[cfg(test)]
    pub fn keys(&self) -> impl Iterator<Item = String> {
        let own = self.0.iter().flat_map(GlossaryEntry::words).map(key);
        let named = phrases().filter(move |(_, name)| !self.about(name).is_empty()).map(|(words, _)| key(words));
        own.chain(named)
    }

    /// The terms with their names or, with `rows`, the words of all rows.
    pub fn titles(&self, rows: bool) -> Vec<String> {
        self.0.iter().filter(|entry| entry.is_row == rows).map(GlossaryEntry::heading).collect()
    }
}

impl GlossaryEntry {
    /// The title, followed by the names of a term.
    pub fn heading(&self) -> String {
        match self.names.as_slice() {
            names if self.is_row || names.is_empty() => self.title.clone(),
            names => format!("{} ({})", self.title, names.join(", ")),
        }
    }

    /// Words that find this entry.
    fn words(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.title.as_str()).chain(self.names.iter().map(String::as_str))
    }
}

/// What the report calls each cause, scenario, activity and limit, with its name.
fn phrases() -> impl Iterator<Item = (&'static str, &'static str)> {
    let causes = Cause::ALL.into_iter();
    let causes = causes.flat_map(|of| [(words::bottleneck(of), of.name()), (words::spent(of), of.name())]);
    let leaves = Leaf::ALL.into_iter().map(|of| (words::cause(of), of.name()));
    let scenarios = ScenarioKind::ALL.into_iter().map(|of| (words::condition(of), of.name()));
    let hosts = HostCause::ALL.into_iter().map(|of| (words::activity(of), of.name()));
    let limits = Limit::ALL.into_iter().map(|of| (words::limit(of), of.name()));
    let roofs = Roof::ALL.into_iter().map(|of| (words::roof(of), of.name()));
    let reasons = Throttle::ALL.into_iter().map(|of| (of.words(), of.name()));
    causes.chain(leaves).chain(scenarios).chain(hosts).chain(limits).chain(roofs).chain(reasons)
}

/// Name of the cause, scenario, activity or limit that the report calls `phrase`.
fn name_of(phrase: &str) -> Option<&'static str> {
    let phrase = key(phrase);
    phrases().find(|(words, _)| key(words) == phrase).map(|(_, name)| name)
}

/// Normalizes a word for comparison: `Data loading`, `data-loading` and `data_loading` are equal; so are
/// `kernels[]` and `kernel`.
pub fn key(word: &str) -> String {
    let word = word.trim().trim_end_matches(['[', ']', '{', '}', ':']).to_lowercase().replace([' ', '-'], "_");
    match word.strip_suffix('s') {
        Some(one) if one.ends_with("che") => one.trim_end_matches('e').to_owned(),
        Some(one) if !one.is_empty() && !one.ends_with('s') => one.to_owned(),
        _ => word,
    }
}

fn term(section: &str) -> Option<GlossaryEntry> {
    let (heading, text) = section.split_once('\n')?;
    if text.contains("\n| word |") {
        return None;
    }
    let title = plain(heading.split(" (`").next().unwrap_or(heading));
    let paragraphs = text.split("\n\n").filter(|text| !text.trim_start().starts_with('|')).map(plain);
    let names = heading.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    let paragraphs = paragraphs.filter(|paragraph| !paragraph.is_empty()).collect();
    Some(GlossaryEntry { title, names, is_row: false, paragraphs })
}

fn row(line: &str) -> Option<GlossaryEntry> {
    let cells = line.strip_prefix("| ")?.strip_suffix(" |")?;
    let (words, meaning) = cells.split_once(" | ").filter(|(words, _)| *words != "word")?;
    let title = plain(words);
    let names = title.split(", ").map(str::to_owned).collect();
    Some(GlossaryEntry { title, names, is_row: true, paragraphs: vec![plain(meaning)] })
}

/// Markdown as plain text on one line: link targets and the markers of code and bold type are removed.
fn plain(markdown: &str) -> String {
    let (mut text, mut rest) = (String::new(), markdown);
    while let Some((before, link)) = rest.split_once("](") {
        let (shown, behind) = match (before.rsplit_once('['), link.split_once(')')) {
            (Some((before, shown)), Some((_, behind))) => (format!("{before}{shown}"), behind),
            _ => (format!("{before}]("), link),
        };
        text.push_str(&shown);
        rest = behind;
    }
    text.push_str(rest);
    let text = text.replace("**", "").replace('`', "").replace("\\|", "|");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use gpuwhy_trace::counters::Metric;

    use super::*;

    #[test]
    fn every_name_of_the_report_has_an_entry_that_is_a_sentence() {
        let entries = Entries::read();
        let causes = Cause::ALL.iter().flat_map(|of| [of.name(), words::bottleneck(*of), words::spent(*of)]);
        let leaves = Leaf::ALL.iter().flat_map(|of| [of.name(), words::cause(*of)]);
        let scenarios = ScenarioKind::ALL.iter().flat_map(|of| [of.name(), words::condition(*of)]);
        let hosts = HostCause::ALL.iter().flat_map(|of| [of.name(), words::activity(*of)]);
        let limits = Limit::ALL.iter().flat_map(|of| [of.name(), words::limit(*of)]);
        let roofs = Roof::ALL.iter().map(|roof| roof.name());
        let metrics = Metric::ALL.iter().filter(|metric| **metric != Metric::Unknown).map(|metric| metric.name());
        let reasons = Throttle::ALL.iter().filter(|reason| **reason != Throttle::Idle).map(|reason| reason.name());
        let names = causes.chain(leaves).chain(scenarios).chain(hosts).chain(limits).chain(roofs).chain(metrics);
        for name in names.chain(reasons) {
            assert!(!entries.about(name).is_empty(), "no entry for {name}");
        }
        for entry in &entries.0 {
            let sentence = |text: &String| text.ends_with('.') && text.starts_with(|first: char| !first.is_lowercase());
            assert!(!entry.paragraphs.is_empty() && entry.paragraphs.iter().all(sentence), "{entry:?}");
        }
    }

    #[test]
    fn one_word_in_any_spelling_leads_to_the_same_entry() {
        let entries = Entries::read();
        for words in [["data_loading", "Data loading", "data-loading"], ["gauges[]", "gauge", "GAUGES"]] {
            let [first, others @ ..] = words.map(|word| format!("{:?}", entries.about(word)));
            assert!(first.len() > 2 && others.iter().all(|other| *other == first), "{words:?}");
        }
        assert!(entries.about("no such word").is_empty());
    }

    #[test]
    fn markdown_becomes_text() {
        assert_eq!(plain("See [the\nreport](a.md#b), **not** `x`."), "See the report, not x.");
    }
}
