//! A JSON reader for the calibration file, used by the injected library to avoid further dependencies.
//!
//! It accepts all of JSON; numbers become `f64`. The nesting depth is limited here, the length by the caller.

/// Maximum nesting depth of objects and arrays.
const DEPTH: u32 = 16;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Json {
    Null,
    Bool,
    Number(f64),
    Text(String),
    Array(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl Json {
    /// Parses the whole text; `None` if it is not JSON.
    pub(super) fn of(text: &str) -> Option<Self> {
        let mut rest = text;
        let value = value(&mut rest, DEPTH)?;
        rest.trim_start().is_empty().then_some(value)
    }

    /// First value with this name.
    pub(super) fn get(&self, name: &str) -> Option<&Self> {
        let Self::Object(fields) = self else { return None };
        fields.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    pub(super) fn text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    pub(super) fn number(&self) -> Option<f64> {
        if let Self::Number(number) = self { Some(*number) } else { None }
    }

    pub(super) fn array(&self) -> Option<&[Self]> {
        if let Self::Array(values) = self { Some(values) } else { None }
    }
}

fn value(rest: &mut &str, depth: u32) -> Option<Json> {
    let depth = depth.checked_sub(1)?;
    *rest = rest.trim_start();
    match rest.chars().next()? {
        '{' => list(rest, '}', |rest| {
            *rest = rest.trim_start();
            let name = string(rest)?;
            take(rest, ':')?;
            Some((name, value(rest, depth)?))
        })
        .map(Json::Object),
        '[' => list(rest, ']', |rest| value(rest, depth)).map(Json::Array),
        '"' => string(rest).map(Json::Text),
        _ => {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && !"+-.".contains(c)).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            *rest = after;
            match word {
                "null" => Some(Json::Null),
                "true" | "false" => Some(Json::Bool),
                // Rust would parse `inf` and `nan` as numbers.
                _ if word.starts_with(|c: char| c == '-' || c.is_ascii_digit()) => {
                    word.parse().ok().filter(|number: &f64| number.is_finite()).map(Json::Number)
                }
                _ => None,
            }
        }
    }
}

/// Comma-separated items up to the bracket `close`.
fn list<T>(rest: &mut &str, close: char, mut item: impl FnMut(&mut &str) -> Option<T>) -> Option<Vec<T>> {
    *rest = &rest[1..];
    let mut items = Vec::new();
    if take(rest, close).is_some() {
        return Some(items);
    }
    loop {
        items.push(item(rest)?);
        if take(rest, close).is_some() {
            return Some(items);
        }
        take(rest, ',')?;
    }
}

/// Skips white space and `wanted`.
fn take(rest: &mut &str, wanted: char) -> Option<()> {
    *rest = rest.trim_start().strip_prefix(wanted)?;
    Some(())
}

fn string(rest: &mut &str) -> Option<String> {
    let mut chars = rest.strip_prefix('"')?.chars();
    let mut text = String::new();
    loop {
        match chars.next()? {
            '"' => break,
            '\\' => text.push(match chars.next()? {
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                'b' => '\u{8}',
                'f' => '\u{c}',
                'u' => {
                    let digits: String = chars.by_ref().take(4).collect();
                    // Surrogate halves are replaced: names of GPUs contain none.
                    char::from_u32(u32::from_str_radix(&digits, 16).ok()?).unwrap_or('\u{fffd}')
                }
                c @ ('"' | '\\' | '/') => c,
                _ => return None,
            }),
            c if u32::from(c) < 0x20 => return None,
            c => text.push(c),
        }
    }
    *rest = chars.as_str();
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json_text::quoted;

    #[test]
    fn json_is_read() {
        let value = Json::of(r#" {"a": [1, -2.5e3, "x\"\u00e9\n"], "b": {}, "c": null, "d": true, "e": []} "#).unwrap();
        let list = value.get("a").and_then(Json::array).unwrap();
        assert_eq!((list[0].number(), list[1].number(), list[2].text()), (Some(1.0), Some(-2500.0), Some("x\"é\n")));
        assert_eq!((value.get("b"), value.get("e")), (Some(&Json::Object(vec![])), Some(&Json::Array(vec![]))));
        assert_eq!((value.get("c"), value.get("d"), value.get("f")), (Some(&Json::Null), Some(&Json::Bool), None));
        let name = "a \"quoted\" \\ name\u{1}\té";
        assert_eq!(Json::of(&quoted(name)), Some(Json::Text(name.to_owned())));
    }

    #[test]
    fn what_is_no_json_is_refused() {
        let deep = "[".repeat(100_000);
        for text in [
            "",
            "{",
            "[1,",
            "[1 2]",
            "{\"a\" 1}",
            "{a: 1}",
            "1 2",
            "nan",
            "inf",
            "1e999",
            "\"\\x\"",
            "\"a",
            "\"\n\"",
            &deep,
        ] {
            assert_eq!(Json::of(text), None, "{}", &text[..text.len().min(20)]);
        }
    }
}
