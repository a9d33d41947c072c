//! Answers of tools: a text for people and models, and the same facts as JSON, each of bounded size.
//!
//! A client shows its model one of the two. Without a text of its own, the text is the JSON, as the specification
//! advises.

use serde_json::{Map, Value, json};

/// Most bytes of the text, and of the JSON.
pub const MOST_BYTES: usize = 8_000;
/// Space for sentences about what was left out.
const NOTE_BYTES: usize = 500;
/// Most characters of a string: names of kernels can have thousands.
const MOST_LETTERS: usize = 400;
/// Most sentences about what was left out, and most characters of one.
const NOTES: usize = 4;
const NOTE_LETTERS: usize = 200;

/// An answer in progress.
#[derive(Debug, Default)]
pub struct Answer {
    facts: Map<String, Value>,
    text: Option<String>,
    /// True if the text is not about the facts: a client must not show them instead.
    is_text: bool,
    left_out: Vec<String>,
}

/// The part of a list or a text that is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// Rows or lines before it.
    pub offset: usize,
    /// Most rows of it.
    pub limit: usize,
}

/// Number of all rows.
#[derive(Clone, Copy, Debug)]
pub enum Total {
    Exactly(usize),
    /// It is only known that there are so many.
    AtLeast(usize),
}

impl Answer {
    /// Adds a fact.
    pub fn fact(&mut self, name: &str, value: impl Into<Value>) {
        self.facts.insert(name.to_owned(), clipped(value.into()));
    }

    /// Adds the rows of the page, as many as fit, and says how to get the others. `rows` are those from the page's
    /// offset on.
    pub fn rows(&mut self, name: &str, rows: impl IntoIterator<Item = Value>, total: Total, page: Page) {
        let (all, of) = match total {
            Total::Exactly(all) => (all, format!("of {all}")),
            Total::AtLeast(all) => (all, "of more".to_owned()),
        };
        let mut left = (MOST_BYTES - NOTE_BYTES).saturating_sub(self.bytes() + name.len());
        let mut shown = Vec::new();
        for row in rows.into_iter().take(page.limit).map(clipped) {
            match left.checked_sub(row.to_string().len() + 1) {
                Some(rest) => left = rest,
                None => break,
            }
            shown.push(row);
        }
        let next = page.offset + shown.len();
        if shown.is_empty() && page.offset < all && page.limit > 0 {
            self.note(format!("{name}: a row is larger than an answer may be; ask for less of it"));
        } else if next < all {
            self.note(format!("{name}: rows {} to {next} {of}; for more ask with offset: {next}", page.offset + 1));
        } else if shown.is_empty() && page.offset > 0 {
            self.note(format!("{name}: no rows from offset {} on", page.offset));
        }
        self.facts.insert(name.to_owned(), shown.into());
    }

    /// An answer that is only a text: its lines from `offset` on, as many as fit.
    pub fn only_text(text: &str, offset: usize) -> Self {
        let mut answer = Self { is_text: true, ..Self::default() };
        answer.text(text, offset);
        answer
    }

    /// Adds the facts as text: its lines from `offset` on, as many as fit; says how to get the others.
    pub fn text(&mut self, text: &str, offset: usize) {
        let all = text.lines().count();
        let mut page = String::new();
        let mut next = offset;
        for line in text.lines().skip(offset) {
            let mut line = line.to_owned();
            truncate(&mut line, MOST_LETTERS);
            if page.len() + line.len() + 1 > MOST_BYTES - NOTE_BYTES {
                break;
            }
            page.push_str(&line);
            page.push('\n');
            next += 1;
        }
        if next < all {
            page.push_str(&format!("[lines {} to {next} of {all}; for more ask with offset: {next}]\n", offset + 1));
        }
        self.text = Some(page);
    }

    /// Adds a sentence about what is missing.
    pub fn note(&mut self, mut note: String) {
        truncate(&mut note, NOTE_LETTERS);
        if self.left_out.len() < NOTES {
            self.left_out.push(note);
        }
    }

    /// Halves the largest lists until the facts fit.
    fn fit(&mut self) {
        let mut is_cut = false;
        while self.bytes() > MOST_BYTES - NOTE_LETTERS {
            let lists = self.facts.values_mut().filter_map(largest_list);
            let Some((_, list)) = lists.max_by_key(|(bytes, _)| *bytes) else { break };
            list.truncate(list.len() / 2);
            is_cut = true;
        }
        if is_cut {
            self.note("the longest lists are cut to fit; other tools have the rest".to_owned());
        }
    }

    fn bytes(&self) -> usize {
        Value::Object(self.facts.clone()).to_string().len() + self.left_out.iter().map(String::len).sum::<usize>()
    }

    /// The result of the call.
    pub fn result(mut self) -> Value {
        if self.is_text {
            let notes = self.left_out.iter().map(|note| format!("[{note}]\n"));
            let text = self.text.unwrap_or_default() + &notes.collect::<String>();
            return json!({"content": [{"type": "text", "text": text}], "isError": false});
        }
        self.fit();
        if !self.left_out.is_empty() {
            self.facts.insert("left_out".to_owned(), self.left_out.into());
        }
        let facts = Value::Object(self.facts);
        let text = self.text.unwrap_or_else(|| facts.to_string());
        json!({"content": [{"type": "text", "text": text}], "structuredContent": facts, "isError": false})
    }
}

/// The result of a call that failed, for the model to read.
pub fn failure(why: &str) -> Value {
    let mut why = why.to_owned();
    // A character has at most four bytes.
    truncate(&mut why, (MOST_BYTES - NOTE_BYTES) / 4);
    json!({"content": [{"type": "text", "text": why}], "isError": true})
}

/// The list of several elements with the most bytes in `value`, with their number.
fn largest_list(value: &mut Value) -> Option<(usize, &mut Vec<Value>)> {
    let bytes = value.to_string().len();
    match value {
        Value::Array(list) => {
            if list.len() > 1 {
                Some((bytes, list))
            } else {
                list.iter_mut().filter_map(largest_list).max_by_key(|(bytes, _)| *bytes)
            }
        }
        Value::Object(fields) => fields.values_mut().filter_map(largest_list).max_by_key(|(bytes, _)| *bytes),
        _ => None,
    }
}

/// `value` with long strings cut.
fn clipped(value: Value) -> Value {
    match value {
        Value::String(mut text) => {
            truncate(&mut text, MOST_LETTERS);
            text.into()
        }
        Value::Array(values) => values.into_iter().map(clipped).collect(),
        Value::Object(fields) => fields.into_iter().map(|(name, value)| (name, clipped(value))).collect(),
        other => other,
    }
}

fn truncate(text: &mut String, letters: usize) {
    if let Some((end, _)) = text.char_indices().nth(letters) {
        text.truncate(end);
        text.push_str("...");
    }
}

/// The fields `names` of an object, without those that are null.
pub fn picked(from: &Value, names: &[&str]) -> Value {
    let fields = names.iter().map(|&name| (name.to_owned(), from[name].clone()));
    fields.filter(|(_, value)| !value.is_null()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_do_not_fit_can_be_asked_for() {
        let rows: Vec<Value> = (0..1000).map(|number| json!({"number": number, "name": "k".repeat(100)})).collect();
        let (mut offset, mut seen) = (0, 0);
        while offset < rows.len() {
            let mut answer = Answer::default();
            answer.rows("rows", rows[offset..].to_vec(), Total::Exactly(rows.len()), Page { offset, limit: 500 });
            let result = answer.result();
            let facts = &result["structuredContent"];
            assert!(facts.to_string().len() <= MOST_BYTES, "{}", facts.to_string().len());
            assert_eq!(result["content"][0]["text"], facts.to_string());
            let shown = facts["rows"].as_array().unwrap();
            assert_eq!(shown[0]["number"], offset);
            offset += shown.len();
            seen += shown.len();
            let note = format!("ask with offset: {offset}");
            let notes = facts["left_out"].to_string();
            assert_eq!(notes.contains(&note), offset < rows.len(), "{notes}");
        }
        assert_eq!(seen, rows.len());
    }

    #[test]
    fn long_texts_and_names_are_cut_between_characters() {
        let mut answer = Answer::default();
        answer.fact("name", "\u{e9}".repeat(MOST_LETTERS + 1));
        answer.text(&"a line of text\n".repeat(1000), 10);
        let result = answer.result();
        let name = result["structuredContent"]["name"].as_str().unwrap();
        assert_eq!(name, "\u{e9}".repeat(MOST_LETTERS) + "...");
        let text = result["content"][0]["text"].as_str().unwrap();
        assert!(text.len() <= MOST_BYTES && text.contains("[lines 11 to "), "{text}");
        let mut only = Answer::only_text("one\ntwo\n", 1);
        only.note("three is missing".to_owned());
        let expected = json!({"content": [{"type": "text", "text": "two\n[three is missing]\n"}], "isError": false});
        assert_eq!(only.result(), expected);
        let failed = failure(&"\u{1f600}".repeat(MOST_BYTES));
        assert!(failed["content"][0]["text"].as_str().unwrap().len() <= MOST_BYTES);
        // Of a line that is longer than an answer its start is shown, so that a client gets to the next one.
        let lines = Answer::only_text(&("x".repeat(2 * MOST_BYTES) + "\nlast"), 0).result();
        assert!(lines["content"][0]["text"].as_str().unwrap().ends_with("...\nlast\n"), "{lines}");
    }

    #[test]
    fn facts_are_cut_until_they_fit() {
        let mut answer = Answer::default();
        answer.fact("cause", "launch");
        answer.fact("evidence", vec!["a sentence of the evidence"; 500]);
        let rows: Value = (0..100).map(|line| json!({"file": "train.py".repeat(20), "line": line})).collect();
        answer.fact("lines", json!({"idle_time": rows, "calls": []}));
        answer.fact("devices", json!([{"kernels": vec!["kernel"; 2000]}]));
        (0..20).for_each(|number| answer.note(format!("note {number}")));
        let result = answer.result();
        let facts = &result["structuredContent"];
        assert!(facts.to_string().len() <= MOST_BYTES, "{}", facts.to_string().len());
        assert_eq!((&facts["cause"], facts["left_out"].as_array().unwrap().len()), (&"launch".into(), NOTES));
        for list in [&facts["evidence"], &facts["lines"]["idle_time"], &facts["devices"][0]["kernels"]] {
            assert!(list.as_array().unwrap().len() > 5, "{facts}");
        }
    }

    #[test]
    fn a_row_that_never_fits_is_said() {
        let mut answer = Answer::default();
        let cell = |column: u32| (format!("c{column}"), Value::from("x".repeat(MOST_LETTERS)));
        let row: Value = (0..100).map(cell).collect();
        answer.rows("rows", [row], Total::AtLeast(1), Page { offset: 0, limit: 10 });
        let result = answer.result();
        assert!(result["structuredContent"]["left_out"][0].as_str().unwrap().contains("larger than an answer"));
    }
}
