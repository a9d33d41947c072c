//! The words that `gpuwhy explain` knows, read from the documentation.
//!
//! * The glossary: a `## Term (`name`)` and its paragraphs.
//! * Tables whose rows begin with names: of the report, what each leaf and field means and how it is measured; of the
//!   attribution, what each simulated run leaves out.

use super::aliases::ALIASES;

/// Where an entry is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A term of the glossary.
    Glossary,
    /// A row of a table about the report.
    Report,
    /// A row of the table of simulated runs.
    Simulation,
}

impl Source {
    /// Its path in the repository.
    pub fn file(self) -> &'static str {
        match self {
            Self::Glossary => "docs/guide/glossary.md",
            Self::Report => "docs/reference/report.md",
            Self::Simulation => "docs/design/attribution.md",
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Glossary => include_str!("../../docs/guide/glossary.md"),
            Self::Report => include_str!("../../docs/reference/report.md"),
            Self::Simulation => include_str!("../../docs/design/attribution.md"),
        }
    }
}

/// What is said about a word in one place.
#[derive(Debug)]
pub struct Entry {
    /// Where it is from.
    pub source: Source,
    /// The term; of a row, the section that it is in.
    pub title: String,
    /// Names in JSON and tables.
    pub names: Vec<String>,
    /// What is said, without Markdown.
    pub paragraphs: Vec<String>,
}

/// All entries, the glossary first.
#[derive(Debug)]
pub struct Entries(Vec<Entry>);

/// The section with the tables of leaves.
const LEAVES: &str = "The window and its leaves";

/// More edits than this are another word.
const MOST_EDITS: usize = 3;

impl Entries {
    /// Reads the embedded documents.
    pub fn read() -> Self {
        let mut entries = terms(Source::Glossary.text());
        entries.extend(rows(Source::Report));
        // Other tables there are about measurements.
        entries.extend(rows(Source::Simulation).into_iter().filter(|row| row.names.iter().all(|name| is_plain(name))));
        Self(entries)
    }

    /// Everything about a word: a term, or a name of the report.
    pub fn about(&self, word: &str) -> Vec<&Entry> {
        let word = key(word);
        let found: Vec<&Entry> = self.0.iter().filter(|entry| entry.is_about(&word)).collect();
        if !found.is_empty() {
            return found;
        }
        let alias = ALIASES.iter().find(|(alias, _)| key(alias) == word);
        alias.map_or_else(Vec::new, |(_, term)| self.0.iter().filter(|entry| entry.is_about(term)).collect())
    }

    /// The known word with the fewest edits from this one, if it is near.
    pub fn nearest(&self, word: &str) -> Option<String> {
        let word = key(word);
        let most = MOST_EDITS.min(word.chars().count() / 2);
        let words = self.0.iter().flat_map(Entry::keys).chain(ALIASES.iter().map(|(alias, _)| key(alias)));
        let near = words.map(|known| (edits(&known, &word), known)).filter(|(edits, _)| *edits <= most);
        near.min().map(|(_, known)| known)
    }

    /// The terms of the glossary with their names.
    pub fn titles(&self) -> Vec<String> {
        let terms = self.0.iter().filter(|entry| entry.source == Source::Glossary);
        terms
            .map(|Entry { title, names, .. }| match names.as_slice() {
                [] => title.clone(),
                names => format!("{title} ({})", names.join(", ")),
            })
            .collect()
    }

    /// The names of a document, in its order, each once, without those that the glossary has.
    pub fn names(&self, source: Source) -> Vec<String> {
        let is_term =
            |name: &String| self.0.iter().any(|entry| entry.source == Source::Glossary && entry.names.contains(name));
        let mut names: Vec<String> = Vec::new();
        for name in self.0.iter().filter(|entry| entry.source == source).flat_map(|entry| &entry.names) {
            if !names.contains(name) && !is_term(name) {
                names.push(name.clone());
            }
        }
        names
    }
}

impl Entry {
    /// Whether it is about this name of a table of leaves.
    pub fn is_named(&self, leaf: &str) -> bool {
        self.title == LEAVES && self.names.iter().any(|name| name == leaf)
    }

    fn is_about(&self, key: &str) -> bool {
        self.keys().any(|own| own == key)
    }

    /// The words that lead here.
    fn keys(&self) -> impl Iterator<Item = String> {
        let title = (self.source == Source::Glossary).then(|| key(&self.title));
        title.into_iter().chain(self.names.iter().map(|name| key(name)))
    }
}

/// A word as words are compared: `Data loading`, `data-loading` and `data_loading` are one; so are
/// `kernels[]` and `kernels`.
fn key(word: &str) -> String {
    let word = word.trim().trim_end_matches(['[', ']', '{', '}']).to_lowercase();
    word.replace([' ', '-'], "_")
}

fn terms(markdown: &str) -> Vec<Entry> {
    let sections = markdown.split("\n## ").skip(1);
    sections
        .map(|section| {
            let (heading, text) = section.split_once('\n').unwrap_or((section, ""));
            let title = heading.split(" (`").next().unwrap_or(heading);
            let paragraphs = text.split("\n\n").map(plain).filter(|paragraph| !paragraph.is_empty()).collect();
            Entry { source: Source::Glossary, title: plain(title), names: names(heading), paragraphs }
        })
        .collect()
}

/// The rows of all tables of a document whose first cell is nothing but names.
fn rows(source: Source) -> Vec<Entry> {
    let (mut entries, mut section, mut header) = (Vec::new(), "", Vec::new());
    let mut before = "";
    for line in source.text().lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            section = heading;
        } else if line.starts_with("|---") {
            header = cells(before);
        } else if line.starts_with("| `") {
            let cells = cells(line);
            let meaning = |(heading, cell): (&str, &str)| match plain(heading) {
                heading if heading.is_empty() => plain(cell),
                heading if ["definition", "meaning"].contains(&heading.as_str()) => plain(cell),
                heading => format!("{}: {}", capitalized(&heading), plain(cell)),
            };
            let columns = header.iter().copied().chain(std::iter::repeat("")).zip(cells.iter().copied()).skip(1);
            let paragraphs = columns.filter(|(_, cell)| !cell.is_empty()).map(meaning).collect();
            let names = cells.first().map_or_else(Vec::new, |cell| names(cell));
            entries.push(Entry { source, title: plain(section), names, paragraphs });
        }
        before = line;
    }
    entries
}

/// The cells of a row. A bar within a cell is written `\|`.
fn cells(row: &str) -> Vec<&str> {
    let row = row.trim().trim_start_matches('|');
    let row = row.strip_suffix('|').unwrap_or(row);
    let (mut cells, mut begin, mut previous) = (Vec::new(), 0, ' ');
    for (at, character) in row.char_indices() {
        if character == '|' && previous != '\\' {
            cells.push(row[begin..at].trim());
            begin = at + 1;
        }
        previous = character;
    }
    cells.push(row[begin..].trim());
    cells
}

/// What stands between backticks. `_pinned` behind `copy_h2d_pageable` means `copy_h2d_pinned`.
fn names(markdown: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for name in markdown.split('`').skip(1).step_by(2) {
        let whole = match names.first().and_then(|first| first.rsplit_once('_')) {
            Some((stem, _)) if name.starts_with('_') => format!("{stem}{name}"),
            _ => name.to_owned(),
        };
        names.push(whole);
    }
    names
}

/// Whether a name is one of a simulated run, and no number, option or call.
fn is_plain(name: &str) -> bool {
    name.contains('_') && name.chars().all(|character| character.is_ascii_lowercase() || character == '_')
}

/// Markdown as text: links without their targets, no marks for code and bold type, one line.
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

fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Letters to insert, leave out or replace to come from one word to the other.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (line, letter) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], line + 1);
        for (column, other) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *other);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use profiler_core::attribution::leaf::{Group, Leaf};
    use profiler_core::counters::roofs::{Limit, Roof};
    use profiler_core::counters::{Metric, Throttle};
    use profiler_core::whatif::ScenarioKind;

    use super::*;

    /// The section with what counters and gauges tell.
    const LIMITS: &str = "What limits computation";

    #[test]
    fn every_name_of_the_report_has_an_entry() {
        let entries = Entries::read();
        let groups = Group::ALL.iter().map(|group| group.name());
        let leaves = Leaf::ALL.iter().map(|leaf| leaf.name());
        let scenarios = ScenarioKind::ALL.iter().map(|scenario| scenario.name());
        for name in groups.clone().chain(leaves).chain(scenarios) {
            let found = entries.about(name);
            assert!(found.iter().any(|entry| !entry.paragraphs.is_empty()), "no entry for {name}");
        }
        let limits = Limit::ALL.iter().flat_map(|limit| [limit.name(), limit.words()]);
        let roofs = Roof::ALL.iter().map(|roof| roof.name());
        let metrics = Metric::ALL.iter().filter(|metric| **metric != Metric::Unknown).map(|metric| metric.name());
        let reasons = Throttle::ALL.iter().filter(|reason| **reason != Throttle::Idle).map(|reason| reason.name());
        for name in limits.chain(roofs).chain(metrics).chain(reasons).chain(["gauges", "counters", "limits"]) {
            assert!(entries.about(name).iter().any(|entry| entry.title == LIMITS), "no entry for {name}");
        }
        for name in groups {
            assert_eq!(entries.about(name)[0].source, Source::Glossary, "{name} has no term in the glossary");
        }
    }

    #[test]
    fn the_glossary_is_short_and_each_term_says_something() {
        let terms = terms(Source::Glossary.text());
        assert!((10..=40).contains(&terms.len()), "{} terms", terms.len());
        for term in &terms {
            assert!(!term.title.is_empty() && !term.paragraphs.is_empty(), "{term:?}");
        }
    }

    #[test]
    fn one_word_in_any_spelling_leads_to_the_same_entry() {
        let entries = Entries::read();
        for words in [["data_loading", "Data loading", "data-loading"], ["kernels[]", "kernels", "KERNELS"]] {
            let [first, others @ ..] = words.map(|word| format!("{:?}", entries.about(word)));
            assert!(first.len() > 2 && others.iter().all(|other| *other == first), "{words:?}");
        }
        for (alias, word) in ALIASES {
            assert!(!entries.about(alias).is_empty() && !entries.about(word).is_empty(), "{alias} leads nowhere");
        }
        assert!(entries.about("no such word").is_empty());
    }

    #[test]
    fn markdown_becomes_text() {
        assert_eq!(plain("See [the\nreport](a.md#b), **not** `x`."), "See the report, not x.");
        assert_eq!(
            names("`copy_h2d_pageable`, `_pinned`, `_other`"),
            ["copy_h2d_pageable", "copy_h2d_pinned", "copy_h2d_other"]
        );
        assert_eq!(cells("| `a` | b \\| c | |"), ["`a`", "b \\| c", ""]);
        assert_eq!(edits("dispatch", "dispatcher"), 2);
    }
}
