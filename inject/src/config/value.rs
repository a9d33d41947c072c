//! Syntax of values: switches, durations, percentages, sizes. Invalid text yields `None`.

use std::time::Duration;

/// True for the words that switch something off.
pub fn is_off(text: &str) -> bool {
    matches!(text, "off" | "none" | "no" | "0" | "false")
}

/// Parses `on`, `off` and their synonyms.
pub fn on_or_off(text: &str) -> Option<bool> {
    match text {
        "on" | "1" | "yes" | "true" => Some(true),
        _ => is_off(text).then_some(false),
    }
}

/// Returns the value of the word `text`. `off` stands for all words that switch something off.
pub fn one_of<T: Copy>(text: &str, words: &[(&str, T)]) -> Option<T> {
    let is_word = |word: &str| word == text || (word == "off" && is_off(text));
    words.iter().find(|(word, _)| is_word(word)).map(|&(_, choice)| choice)
}

/// Parses a word for off, or else with `parse`.
pub fn or_off<T>(text: &str, parse: impl FnOnce(&str) -> Option<T>) -> Option<Option<T>> {
    if is_off(text) { Some(None) } else { parse(text).map(Some) }
}

/// Parses `500ms`, `2s`, `1.5s`, `1m`; a bare number is in seconds.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: f64 = digits.parse().ok()?;
    let seconds = match &text[digits.len()..] {
        "ns" => number * 1e-9,
        "us" => number * 1e-6,
        "ms" => number * 1e-3,
        "" | "s" => number,
        "m" | "min" => number * 60.0,
        "h" => number * 3600.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(seconds).ok()
}

/// Parses `1%` or `1` as a hundredth. More than 0 and at most 100.
pub fn parse_percent(text: &str) -> Option<f64> {
    let number: f64 = text.strip_suffix('%').unwrap_or(text).trim().parse().ok()?;
    (number > 0.0 && number <= 100.0).then_some(number / 100.0)
}

/// Parses `4096`, `512K`, `64M`, `2G`, with an optional `B` or `iB`.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().ok()?;
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        _ => return None,
    };
    number.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_sizes() {
        assert_eq!(parse_duration("1.5s"), Some(Duration::from_millis(1500)));
        assert_eq!(parse_duration("2"), Some(Duration::from_secs(2)));
        assert_eq!(parse_duration("-1s"), None);
        assert_eq!(parse_duration("1e400s"), None);
        assert_eq!(parse_bytes("64MiB"), Some(64 << 20));
        assert_eq!(parse_bytes("99999999999999999999G"), None);
        assert_eq!(parse_bytes("18446744073709551615G"), None);
    }
}
