//! Times of a Kineto trace: decimal microseconds in the text, nanoseconds here.
//!
//! The digits are parsed as an integer because a double holds microseconds since 1970 only to a quarter of a
//! microsecond, and a kernel takes only a few microseconds.

/// Parses a JSON number (or a quoted one) of microseconds into nanoseconds, truncating further digits. `None`
/// if it is not a number or out of range.
pub(super) fn nanoseconds(text: &str) -> Option<i64> {
    let text = text.trim_matches('"').trim();
    if text.contains(['e', 'E']) {
        // Only writers that print doubles use exponents, so parsing a double loses no precision.
        let nanos = text.parse::<f64>().ok()? * 1e3;
        return (nanos.is_finite() && nanos.abs() < i64::MAX as f64).then_some(nanos as i64);
    }
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !all_digits(whole) || !all_digits(fraction) {
        return None;
    }
    let thousandths = fraction.bytes().chain(std::iter::repeat(b'0')).take(3);
    let below = thousandths.fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0'));
    let nanos = whole.parse::<i64>().ok()?.checked_mul(1_000)?.checked_add(below)?;
    Some(if negative { -nanos } else { nanos })
}

#[cfg(test)]
mod tests {
    use super::nanoseconds;

    #[test]
    fn a_number_beyond_the_precision_of_a_double_keeps_its_nanoseconds() {
        assert_eq!(nanoseconds("1712195495502094.537"), Some(1_712_195_495_502_094_537));
        assert_eq!(nanoseconds("1712195495502094.5"), Some(1_712_195_495_502_094_500));
        assert_eq!(nanoseconds("1623142623460111"), Some(1_623_142_623_460_111_000));
    }

    #[test]
    fn writers_differ() {
        assert_eq!(nanoseconds("\"17.25\""), Some(17_250));
        assert_eq!(nanoseconds("1.5e3"), Some(1_500_000));
        assert_eq!(nanoseconds("-2.001"), Some(-2_001));
        assert_eq!(nanoseconds("0.0009"), Some(0), "below a nanosecond");
    }

    #[test]
    fn what_is_no_time_is_none() {
        for text in ["", "null", "abc", "1.2.3", "--1", ".5", "1e400", "99999999999999999999", "{}"] {
            assert_eq!(nanoseconds(text), None, "{text}");
        }
    }
}
