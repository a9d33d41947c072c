//! Makes valid JSON of a row that is nearly so.
//!
//! Python writes `NaN` and `Infinity`, C++ `inf` and `-nan`; names of functions and files have control
//! characters, bytes that are not UTF-8, and lone backslashes. A value that is no JSON becomes `null`, a
//! character that a text may not have is replaced. A row with other errors stays invalid.

use serde_json::Value;

/// The row with the replacements.
pub(super) fn repaired(row: &[u8]) -> Vec<u8> {
    let mut made = Vec::with_capacity(row.len() + 16);
    // The newest byte outside of texts that is no white space. A comma waits, as none may precede a bracket.
    let (mut before, mut at) = (b' ', 0);
    while let Some(&byte) = row.get(at) {
        if byte.is_ascii_whitespace() {
            at += 1;
            continue;
        }
        let closes = matches!(byte, b'}' | b']');
        if before == b':' && (closes || byte == b',') {
            made.extend_from_slice(b"null");
        }
        if before == b',' && !closes {
            made.push(b',');
        }
        at += match byte {
            b'"' => text(&row[at..], &mut made),
            b',' => 1,
            b'{' | b'}' | b'[' | b']' | b':' => {
                made.push(byte);
                1
            }
            _ => token(&row[at..], &mut made),
        };
        before = byte;
    }
    String::from_utf8_lossy(&made).into_owned().into_bytes()
}

/// Copies the text that `row` starts with; returns its length.
fn text(row: &[u8], made: &mut Vec<u8>) -> usize {
    made.push(b'"');
    let mut at = 1;
    while let Some(&byte) = row.get(at) {
        at += 1;
        match byte {
            b'"' => {
                made.push(byte);
                break;
            }
            b'\\' => match escape(&row[at..]) {
                Some((length, is_valid)) => {
                    made.extend_from_slice(if is_valid { &row[at - 1..at + length] } else { b"\\ufffd" });
                    at += length;
                }
                None => made.extend_from_slice(b"\\\\"),
            },
            _ => made.push(if byte.is_ascii_control() { b' ' } else { byte }),
        }
    }
    at
}

/// Length of the escape sequence behind a backslash, and false if it is half of a character, as Python writes bytes
/// that are not UTF-8.
fn escape(bytes: &[u8]) -> Option<(usize, bool)> {
    let unit = |at: usize| {
        let digits = bytes.get(at..at + 5).filter(|digits| digits[0] == b'u')?;
        u16::from_str_radix(std::str::from_utf8(&digits[1..]).ok()?, 16).ok()
    };
    match bytes.first()? {
        b'u' => Some(match unit(0)? {
            0xd800..=0xdbff if bytes.get(5) == Some(&b'\\') && matches!(unit(6), Some(0xdc00..=0xdfff)) => (11, true),
            0xd800..=0xdfff => (5, false),
            _ => (5, true),
        }),
        byte => b"\"\\/bfnrt".contains(byte).then_some((1, true)),
    }
}

/// Copies the number or word that `row` starts with, or `null`; returns its length.
fn token(row: &[u8], made: &mut Vec<u8>) -> usize {
    let ends = |byte: &u8| byte.is_ascii_whitespace() || b"{}[],:\"".contains(byte);
    let token = &row[..row.iter().position(ends).unwrap_or(row.len())];
    let is_valid = serde_json::from_slice::<Value>(token).is_ok();
    made.extend_from_slice(if is_valid { token } else { b"null" });
    token.len()
}

#[cfg(test)]
mod tests {
    use super::repaired;
    use serde_json::{Value, json};

    fn read(row: &[u8]) -> Option<Value> {
        serde_json::from_slice(&repaired(row)).ok()
    }

    #[test]
    fn what_is_nearly_json_is_read_and_the_rest_is_kept() {
        for token in ["NaN", "Infinity", "-Infinity", "inf", "-inf", "nan", "-nan(ind)", "1.#INF", "None", "", "1e999"]
        {
            let row = format!(r#"{{"a": {token}, "b": [{token}, 1]}}"#);
            let list = if token.is_empty() { continue } else { json!([null, 1]) };
            assert_eq!(read(row.as_bytes()), Some(json!({"a": null, "b": list})), "{token}");
        }
        assert_eq!(read(br#"{"a": , "b": }"#), Some(json!({"a": null, "b": null})));
        assert_eq!(read(br#"{"a": [1, 2, ], }"#), Some(json!({"a": [1, 2]})));
        assert_eq!(read(b"{\"a\x01\": \"x\ny\x0b\", \"b\": -1.5e3}"), Some(json!({"a ": "x y ", "b": -1500.0})));
        assert_eq!(read(b"{\"a\": \"\xff\"}"), Some(json!({"a": "\u{fffd}"})));
        assert_eq!(read(br#"{"a": "\udc80\ud83d\ude00\ud83dx"}"#), Some(json!({"a": "\u{fffd}\u{1f600}\u{fffd}x"})));
        assert_eq!(
            read(br#"{"a": "C:\dir\n\u12", "b": "\"\u0041"}"#),
            Some(json!({"a": "C:\\dir\n\\u12", "b": "\"A"}))
        );
    }

    #[test]
    fn other_errors_stay() {
        for row in [&br#"{"a": "x" y"}"#[..], b"{\"a\": \"", b"{", b"", br#"{"a" "b"}"#] {
            assert_eq!(read(row), None, "{}", String::from_utf8_lossy(row));
        }
    }
}
