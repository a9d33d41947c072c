//! Every word of the recorded reports is in the glossary, or is everyday English.
//!
//! Advice is left out: `--explain remedies` explains it. So are names that belong to the program.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use gpuwhy_report::text_format::Style;
use rustc_hash::FxHashSet;

use super::entries::{Entries, key};
use super::{text, unknown as unknown_word};

/// Units, and words that need no explanation; also with an `s` at the end.
const EVERYDAY: &str = "\
    a about active add after against ago ahead alike all allowed alone already also although always an and another \
    any are around as asked at atomics average avoid away b back backward be because before behind being below \
    between both bound build built busiest but by byte bytes cache came can candidate cannot change checkpoint clone \
    come command communicate compiler complete computation contain content contiguous copied copy copying corrected \
    cost could cover cuda data default delay detail did differ difference divide do doctor does done down drew \
    duration each earlier eight else end enough equal estimate estimated every exact example excluded far faster few \
    fewer first fit five for found four free from further furthest gather gave gb get given go goes gone group grow \
    had half hardly hardware harmless has have help here hide high higher highest hold how id if in include included \
    including infer input inside install into is it item its itself j join joined joining json kb keep kept kind \
    known lack large larger largest last late leak least leave left length lengthen less like line list listed load \
    loaded long longer longest look looked loses low lower lowered machine made make managed many mapping may mean \
    measure measured measurement measuring missing more most mostly moved ms much must name named near need needed \
    neither never newest next no none nor not nothing now ns number nvidia of off often on once one only open or \
    order other out output outside over own part pass pid pinning pip plugin precision predicted prepare preparing \
    probably processes program put python ran rank ranked rather reach reached read reason reduce reduced refer \
    regularly release remain remove repeat repeated report require resolved rest result room row run s safely same \
    saved second seen separate sequence set several shared short shorter show showed side since size sleeping slow \
    slowed slower slowest small so some something soon space speed start started state stay still stop stretched \
    subtract subtracted such sum take taken tb ten tenth than that the their them then there these they this those \
    through time timeline to together too took total turn two typical unchanged under until unusual up update us \
    usable use used using value vary w wait waited waiting was wasteful way well were what when where whether which \
    while whole why with within without work would write x yes you";

/// Longest phrase of the glossary, words.
const PHRASE: usize = 10;

/// Sentences and rows of a printed report without advice and without names of the program.
fn parts(text: &str) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    // Whether the last column of the table has words of the report, and not names.
    let mut in_words = false;
    for line in text.lines() {
        let trimmed = line.trim_start();
        let cells: Vec<&str> = trimmed.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
        let is_row = line.starts_with("  ") && !trimmed.starts_with("- ") && cells.len() > 2;
        if is_row && trimmed.starts_with(|first: char| first.is_ascii_digit()) {
            parts.push(cells[..cells.len() - usize::from(!in_words)].join(", "));
        } else if is_row || line.trim_start().starts_with("whole run ") {
            in_words = cells.last().is_some_and(|last| last.starts_with("cause") || last.starts_with("what limits"));
            parts.push(cells.join(" "));
        } else if let Some(last) = parts.last_mut().filter(|_| line.starts_with("  ") && !trimmed.starts_with("- ")) {
            // The rest of a sentence.
            last.push(' ');
            last.push_str(trimmed);
        } else {
            parts.push(trimmed.trim_start_matches("- ").to_owned());
        }
    }
    let advice = ["What to do", "Also: ", "Next: ", "gpuwhy: ", "Range ", "Work of CUDA graphs"];
    parts.retain(|part| !advice.iter().any(|start| part.starts_with(start)));
    parts
}

/// The words of a sentence; `None` for numbers and names of the program.
fn words(sentence: &str) -> Vec<Option<String>> {
    // A kernel's name may have spaces.
    let kernel =
        [("Kernel ", " ran "), ("Kernel ", " is "), ("If ", " used ")].into_iter().find_map(|(before, behind)| {
            let rest = sentence.strip_prefix(before)?;
            Some(format!("kernel {}", &rest[rest.find(behind)?..]))
        });
    let sentence = kernel.unwrap_or_else(|| sentence.to_owned());
    let mut words = Vec::new();
    let (mut depth, mut is_function) = (0_usize, false);
    for token in sentence.split_whitespace() {
        let opens = token.matches('(').count();
        // The function after `train.py:15`.
        is_function = is_function && (depth > 0 || opens > 0);
        depth = (depth + opens).saturating_sub(token.matches(')').count());
        let plain = token.trim_matches(|letter: char| !letter.is_alphanumeric() && letter != '%');
        let plain = plain.strip_suffix("'s").unwrap_or(plain);
        let is_word = plain.starts_with(char::is_alphabetic)
            && !token.starts_with("--")
            && !plain.contains(|letter: char| !letter.is_alphabetic() && !"-'".contains(letter));
        // An identifier such as cudaMalloc or DataLoader.
        let is_camel = plain.chars().skip(1).any(char::is_uppercase) && plain.chars().any(char::is_lowercase);
        words.push((plain == "%" || is_word && !is_camel && !is_function).then(|| plain.to_owned()));
        if token.contains(".py") {
            is_function = true;
        }
    }
    words
}

/// The words that neither the glossary nor the list of everyday words has.
fn unknown(words: &[Option<String>], known: &FxHashSet<String>, everyday: &FxHashSet<String>) -> BTreeSet<String> {
    let mut unknown = BTreeSet::new();
    let mut at = 0;
    while at < words.len() {
        let phrase = |length: usize| {
            let words: Option<Vec<&str>> = words.get(at..at + length)?.iter().map(Option::as_deref).collect();
            known.contains(&key(&words?.join(" "))).then_some(length)
        };
        match (1..=PHRASE).rev().find_map(phrase) {
            Some(length) => at += length,
            None => {
                let word = words[at].as_ref().filter(|word| *word != "%" && !everyday.contains(&key(word)));
                unknown.extend(word.map(|word| word.to_lowercase()));
                at += 1;
            }
        }
    }
    unknown
}

/// Recorded traces in a folder and those below it.
fn traces(folder: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let (folders, files): (Vec<_>, Vec<_>) = paths.partition(|path| path.is_dir());
    let here = files.into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "gpuwhy"));
    here.chain(folders.iter().flat_map(|folder| traces(folder))).collect()
}

#[test]
fn every_word_of_recorded_reports_has_an_entry_or_is_an_everyday_word() {
    let known: FxHashSet<String> = Entries::read().keys().collect();
    let everyday: FxHashSet<String> = EVERYDAY.split_whitespace().map(key).collect();
    let traces = traces(&Path::new(env!("CARGO_MANIFEST_DIR")).join("testing/fixtures"));
    assert!(traces.len() > 20, "{traces:?}");
    let mut found: BTreeMap<String, String> = BTreeMap::new();
    for trace in traces {
        let mut report = gpuwhy::open(&trace).unwrap();
        // Code of the program is not of gpuwhy's words.
        report.sources = gpuwhy_report::run::SourceLines::default();
        let texts = [report.to_string(), report.full_within(5, Style::default())];
        for part in texts.iter().flat_map(|text| parts(text)) {
            for word in unknown(&words(&part), &known, &everyday) {
                found.entry(word).or_insert_with(|| part.clone());
            }
        }
    }
    let lines: Vec<_> = found.iter().map(|(word, part)| format!("{word}: {part}")).collect();
    assert!(lines.is_empty(), "neither in docs/guide/glossary.md nor an everyday word:\n{}", lines.join("\n"));
}

#[test]
fn no_everyday_word_is_a_term_and_a_term_is_found_in_a_sentence() {
    let known: FxHashSet<String> = Entries::read().keys().collect();
    let everyday: FxHashSet<String> = EVERYDAY.split_whitespace().map(key).collect();
    let sentence =
        "Sleeping at train.py:79 (sleeper.<locals>.ex) takes 3.0 ms of cudaMalloc; best case of a frobnicator";
    assert_eq!(unknown(&words(sentence), &known, &everyday), BTreeSet::from(["frobnicator".to_owned()]));
    let rows = parts("      time     count  limited  kernel\n   76.7 ms      6156  registers  a_kernel of mine\n");
    assert_eq!(rows, ["time count limited kernel", "76.7 ms, 6156, registers"]);
}

#[test]
fn a_slip_is_answered_with_the_word_that_was_meant() {
    let entries = Entries::read();
    assert!(unknown_word(&entries, "no_sinks").contains("did you mean `no_syncs`?"));
    assert!(unknown_word(&entries, "zzzzzzzz").contains("lists the known words"));
}

#[test]
fn a_term_is_printed_with_its_name_and_where_more_is_said() {
    let text = text(Entries::read().about("launch")[0]);
    assert!(text.contains("(launch)") && text.contains("[docs/guide/glossary.md]"), "{text}");
}
