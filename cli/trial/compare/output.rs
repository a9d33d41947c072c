//! Compares what the program prints with a remedy and without.
//!
//! A run ends after a number of steps, not at the same line, and lines hold times of the clock. So lines are
//! matched by their words, and only numbers that unchanged runs print alike are compared.

use std::collections::{HashMap, HashSet};

/// Largest relative difference that is called rounding.
const ROUNDING: f64 = 1e-2;
/// Maximum length of a text in the answer, in characters.
const LONGEST: usize = 60;

/// How the output with a remedy compares.
#[derive(Clone, Debug, PartialEq)]
pub enum Compared {
    /// Everything that could be compared is equal.
    Equal,
    /// There is nothing to compare: the program prints nothing, or unchanged runs differ in all numbers.
    Nothing(&'static str),
    /// Of the lines that unchanged runs print, it lacks this one.
    Lacks {
        /// The last one.
        line: String,
        /// True if it lacks all of them.
        is_all: bool,
    },
    /// A number differs.
    Differs {
        /// The number with the words around it, with the remedy.
        changed: String,
        /// The same without.
        unchanged: String,
        /// True if all numbers differ by rounding only.
        is_rounding: bool,
    },
}

/// Words of a line without its numbers, and the numbers.
fn split(line: &str) -> (String, Vec<&str>) {
    let (mut words, mut numbers) = (String::new(), Vec::new());
    let mut rest = line;
    while let Some((start, end)) = next_number(rest) {
        let has_sign = rest[..start].ends_with('-') && !rest[..start - 1].ends_with(char::is_alphanumeric);
        let from = if has_sign { start - 1 } else { start };
        words.push_str(&rest[..from]);
        words.push('#');
        numbers.push(&rest[from..end]);
        rest = &rest[end..];
    }
    words.push_str(rest);
    (words, numbers)
}

/// Place of the first number in `text`; `nan` and `inf` are numbers.
fn next_number(text: &str) -> Option<(usize, usize)> {
    let digit = text.find(|letter: char| letter.is_ascii_digit()).map(|start| (start, start + number(&text[start..])));
    let is_word = |start: usize, end: usize| {
        !text[..start].ends_with(char::is_alphanumeric) && !text[end..].starts_with(char::is_alphanumeric)
    };
    let lower = text.to_ascii_lowercase();
    let words = ["nan", "inf"].into_iter().flat_map(|word| lower.match_indices(word));
    let words = words.map(|(start, word)| (start, start + word.len())).filter(|&(start, end)| is_word(start, end));
    words.chain(digit).min()
}

/// Length of the number at the start of `text`, such as `12`, `0.5` or `1e-05`.
fn number(text: &str) -> usize {
    let digits = |text: &str| text.len() - text.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
    let mut end = digits(text);
    if let Some(fraction) = text[end..].strip_prefix('.') {
        end += 1 + digits(fraction);
    }
    if let Some(exponent) = text[end..].strip_prefix(['e', 'E']) {
        let sign = usize::from(exponent.starts_with(['-', '+']));
        let digits = digits(&exponent[sign..]);
        if digits > 0 {
            end += 1 + sign + digits;
        }
    }
    end
}

/// Numbers of each line, by its words and how often they came before, or what it counts.
type Lines<'a> = HashMap<(String, u64), (&'a str, Vec<&'a str>)>;

fn rows(text: &str) -> impl Iterator<Item = &str> {
    text.split(['\n', '\r']).filter(|line| !line.trim().is_empty())
}

/// Lines whose words are in `counted` are known by their first number.
fn lines<'a>(text: &'a str, counted: &HashSet<String>) -> Lines<'a> {
    let mut seen = HashMap::<String, u64>::new();
    let rows = rows(text).map(|line| {
        let (words, numbers) = split(line);
        let count = seen.entry(words.clone()).or_default();
        *count += 1;
        let number = numbers.first().filter(|_| counted.contains(&words)).and_then(|number| number.parse().ok());
        let place = number.unwrap_or(*count);
        ((words, place), (line, numbers))
    });
    rows.collect()
}

/// First numbers of the lines of each form, such as "step 10 loss 2.3", where they are counts that grow.
fn counts(text: &str) -> HashMap<String, Vec<u64>> {
    let mut all = HashMap::<String, Option<Vec<u64>>>::new();
    for line in rows(text) {
        let (words, numbers) = split(line);
        let number = numbers.first().filter(|_| numbers.len() > 1).and_then(|number| number.parse().ok());
        let before = all.entry(words).or_insert_with(|| Some(Vec::new()));
        *before = number.zip(before.take()).map(|(number, before)| [before, vec![number]].concat());
    }
    let grow = |counts: &Vec<u64>| counts.windows(2).all(|pair| pair[0] < pair[1]);
    all.into_iter().filter_map(|(words, counts)| Some((words, counts.filter(grow)?))).collect()
}

/// Words of lines that both print for other counts: one of them in every tenth step, for example.
fn counted(one: &str, other: &str) -> HashSet<String> {
    let others = counts(other);
    let is_other = |words: &str, counts: &[u64]| {
        others.get(words).is_some_and(|others| counts.iter().zip(others).any(|(one, other)| one != other))
    };
    counts(one)
        .into_iter()
        .filter(|(words, counts)| counts.len() > 1 && is_other(words, counts))
        .map(|(words, _)| words)
        .collect()
}

/// Words in front of a number that is a time or a rate of the clock, and units behind one.
const CLOCK_WORDS: &str = "duration elapsed eta fps latency ms rate s sec seconds speed throughput time took us";
const CLOCK_UNITS: &str = "fps h hours min minutes ms ns s sec second seconds secs us";

/// True for a number that depends on the clock. Coarse ones, such as `8 it/s`, may be equal in unchanged runs
/// and differ because the remedy helps.
fn is_of_clock(line: &str, number: &str) -> bool {
    let start = offset(line, number);
    let (before, after) = (&line[..start], &line[start + number.len()..]);
    let unit = after.trim_start().trim_start_matches(['[', '(']);
    let unit: String = unit.chars().take_while(|letter| letter.is_alphanumeric() || *letter == '/').collect();
    let (name, per) = unit.split_once('/').unwrap_or((&unit, ""));
    let word = before.trim_end_matches(|letter: char| !letter.is_alphanumeric());
    let word =
        word.rsplit(|letter: char| !letter.is_alphanumeric() && letter != '_').next().unwrap_or("").to_lowercase();
    let is_one_of = |words: &str, word: &str| words.split(' ').any(|known| known == word);
    [name, per].iter().any(|unit| is_one_of(CLOCK_UNITS, &unit.to_lowercase()))
        || word.split('_').any(|part| is_one_of(CLOCK_WORDS, part))
        || is_in_clock_format(before, after)
}

/// True within `12:34`.
fn is_in_clock_format(before: &str, after: &str) -> bool {
    let next = after.strip_prefix(':').is_some_and(|rest| rest.starts_with(|letter: char| letter.is_ascii_digit()));
    next || before.strip_suffix(':').is_some_and(|rest| rest.ends_with(|letter: char| letter.is_ascii_digit()))
}

/// Place of `part` in `line`, of which it is a part.
fn offset(line: &str, part: &str) -> usize {
    part.as_ptr() as usize - line.as_ptr() as usize
}

/// Compares the output of changed runs with those of unchanged ones, and says what differs most. `is_complete` if all
/// of them ended by themselves.
pub fn compare(unchanged: &[&str], changed: &[&str], is_complete: bool) -> Compared {
    let weight = |compared: &Compared| match compared {
        Compared::Equal => 0,
        Compared::Nothing(_) => 1,
        Compared::Differs { is_rounding: true, .. } => 2,
        Compared::Lacks { is_all: false, .. } => 3,
        Compared::Lacks { is_all: true, .. } => 4,
        Compared::Differs { is_rounding: false, .. } => 5,
    };
    let all = changed.iter().map(|changed| compared(unchanged, changed, is_complete));
    // Of several that weigh the same, the first.
    all.reduce(|worst, one| if weight(&one) > weight(&worst) { one } else { worst })
        .unwrap_or(Compared::Nothing("there is no run with the change"))
}

fn compared(unchanged: &[&str], changed: &str, is_complete: bool) -> Compared {
    let Some((first, others)) = unchanged.split_first() else {
        return Compared::Nothing("there is no unchanged run");
    };
    let counted = counted(first, changed);
    let (first, again) = (lines(first, &counted), others.iter().map(|text| lines(text, &counted)).collect::<Vec<_>>());
    let changed = lines(changed, &counted);
    if first.is_empty() {
        return Compared::Nothing("the program prints nothing");
    }
    let (mut compared, mut found, mut lacks) = (0, false, None::<&str>);
    let mut worst = None::<(f64, String, String)>;
    let mut keys: Vec<_> = first.keys().collect();
    keys.sort();
    for key in keys {
        let (line, numbers) = &first[key];
        let Some((other_line, others)) = changed.get(key) else {
            let is_usual = !again.is_empty() && again.iter().all(|lines| lines.contains_key(key));
            if is_usual && !counted.contains(&key.0) && lacks.is_none_or(|last| last.as_ptr() < line.as_ptr()) {
                lacks = Some(line);
            }
            continue;
        };
        found = true;
        // One of them may have ended before this line, not all.
        let again: Vec<_> = again.iter().filter_map(|lines| Some(&lines.get(key)?.1)).collect();
        if again.is_empty() {
            continue;
        }
        compared += usize::from(numbers.is_empty());
        for (at, (number, other)) in numbers.iter().zip(others).enumerate() {
            if again.iter().any(|numbers| numbers.get(at) != Some(number)) || is_of_clock(line, number) {
                continue;
            }
            compared += 1;
            let difference = difference(number, other);
            if difference > 0.0 && worst.as_ref().is_none_or(|(most, ..)| difference > *most) {
                worst = Some((difference, around(other_line, other), around(line, number)));
            }
        }
    }
    match (worst, lacks.filter(|_| is_complete)) {
        (Some((difference, changed, unchanged)), _) => {
            Compared::Differs { changed, unchanged, is_rounding: difference <= ROUNDING }
        }
        (None, Some(line)) => Compared::Lacks { line: line.trim().chars().take(LONGEST).collect(), is_all: !found },
        (None, None) if compared == 0 => Compared::Nothing("it differs between two unchanged runs"),
        (None, None) => Compared::Equal,
    }
}

/// Relative difference of two numbers; infinite if one is none.
fn difference(one: &str, other: &str) -> f64 {
    if one == other {
        return 0.0;
    }
    match (one.parse::<f64>(), other.parse::<f64>()) {
        (Ok(one), Ok(other)) if one == other => 0.0,
        (Ok(first), Ok(second)) if (first - second).abs() <= 1.001 * last_digit(one).max(last_digit(other)) => {
            ROUNDING.min((first - second).abs() / first.abs().max(second.abs()))
        }
        (Ok(one), Ok(other)) if one.is_finite() && other.is_finite() => {
            (one - other).abs() / one.abs().max(other.abs())
        }
        _ => f64::INFINITY,
    }
}

/// The value of one unit of the last digit that is printed behind the decimal point; 0 for a whole number.
fn last_digit(number: &str) -> f64 {
    let (digits, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let places = digits.split_once('.').and_then(|(_, digits)| i32::try_from(digits.len()).ok());
    places.zip(exponent.parse::<i32>().ok()).map_or(0.0, |(places, exponent)| 10_f64.powi(exponent - places))
}

/// The number with the word in front of it.
fn around(line: &str, number: &str) -> String {
    let start = offset(line, number);
    let before = line[..start].trim_end();
    let word = before.rsplit(|letter: char| letter.is_whitespace() || letter == ',').next().unwrap_or("");
    let gap = &line[before.len()..start];
    let text = format!("{word}{gap}{number}");
    text.chars().skip(text.chars().count().saturating_sub(LONGEST)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compare(unchanged: &[&str], changed: &str) -> Compared {
        super::compare(unchanged, &[changed], false)
    }

    fn differs(changed: &str, unchanged: &str, is_rounding: bool) -> Compared {
        Compared::Differs { changed: changed.to_owned(), unchanged: unchanged.to_owned(), is_rounding }
    }

    #[test]
    fn a_line_is_its_words_and_its_numbers() {
        assert_eq!(
            split("step 10: loss=-2.5e-05, 3it/s"),
            ("step #: loss=#, #it/s".to_owned(), vec!["10", "-2.5e-05", "3"])
        );
        assert_eq!(split("epoch-3 v2.x"), ("epoch-# v#x".to_owned(), vec!["3", "2."]));
        assert_eq!(split("loss NaN, info inf"), ("loss #, info #".to_owned(), vec!["NaN", "inf"]));
        assert_eq!(split("done"), ("done".to_owned(), vec![]));
    }

    #[test]
    fn times_of_the_clock_are_left_out_and_losses_compared() {
        let one = "start\nstep 1 loss 2.3021 in 0.12 s\nstep 2 loss 2.1 in 0.11 s\n";
        let two = "start\nstep 1 loss 2.3021 in 0.13 s\nstep 2 loss 2.1 in 0.10 s\nstep 3 loss 1.9 in 0.1 s\n";
        assert_eq!(compare(&[one, two], "start\nstep 1 loss 2.3021 in 0.02 s\n"), Compared::Equal);
        assert_eq!(
            compare(&[one, two], "warning\nstart\nstep 1 loss 2.3017 in 0.02 s\nstep 2 loss 2.1 in 0.02 s\n"),
            differs("loss 2.3017", "loss 2.3021", true)
        );
        assert_eq!(compare(&[one, two], "step 1 loss nan in 0.1 s"), differs("loss nan", "loss 2.3021", false));
    }

    #[test]
    fn coarse_times_and_rates_are_left_out() {
        for (line, other) in [
            ("8 it/s", "16 it/s"),
            ("12 samples/sec", "14 samples/sec"),
            ("ms_per_step 12", "ms_per_step 8"),
            ("elapsed: 3", "elapsed: 2"),
            ("in 3 s", "in 2 s"),
            ("[00:12]", "[00:11]"),
        ] {
            assert_eq!(
                compare(&[line, line], other),
                Compared::Nothing("it differs between two unchanged runs"),
                "{line}"
            );
        }
        assert_eq!(
            compare(&["loss: 3", "loss: 3", "loss: 4"], "loss: 5"),
            Compared::Nothing("it differs between two unchanged runs")
        );
        assert_eq!(compare(&["steps 3", "steps 3"], "steps 4"), differs("steps 4", "steps 3", false));
    }

    #[test]
    fn nothing_to_compare_is_said() {
        assert_eq!(compare(&["", ""], "x 1"), Compared::Nothing("the program prints nothing"));
        assert_eq!(compare(&["t 1.5", "t 1.6"], "t 1.5"), Compared::Nothing("it differs between two unchanged runs"));
        assert_eq!(compare(&["ready", "ready"], "ready"), Compared::Equal);
    }

    #[test]
    fn lines_for_other_steps_are_matched_by_their_count() {
        let all: String = (0..100).map(|step| format!("step {step} loss {}\n", 5000 - step)).collect();
        let tenth: String = (0..100).step_by(10).map(|step| format!("step {step} loss {}\n", 5000 - step)).collect();
        let done = |text: &str| format!("{text}done in 3 s\n");
        assert_eq!(super::compare(&[&done(&all), &done(&all)], &[&done(&tenth)], true), Compared::Equal);
        let other = tenth.replace("step 50 loss 4950", "step 50 loss 4000");
        assert_eq!(compare(&[&all, &all], &other), differs("loss 4000", "loss 4950", false));
        // The first number is no count.
        let (one, two) = ("score 5 of 9\nscore 4 of 9\n", "score 5 of 9\nscore 3 of 9\n");
        assert_eq!(compare(&[one, one], two), differs("score 3", "score 4", false));
    }

    #[test]
    fn lines_that_a_complete_run_lacks_are_said() {
        let lacks = |line: &str, is_all| Compared::Lacks { line: line.to_owned(), is_all };
        let whole = "start\nloss 3\naccuracy 0.9\n";
        assert_eq!(super::compare(&[whole, whole], &["start\nloss 3\n"], true), lacks("accuracy 0.9", false));
        assert_eq!(super::compare(&[whole, whole], &["usage: none\n"], true), lacks("accuracy 0.9", true));
        assert_eq!(compare(&[whole, whole], "start\nloss 3\n"), Compared::Equal);
        assert_eq!(super::compare(&[whole, "start\nloss 3\n"], &["start\nloss 3\n"], true), Compared::Equal);
    }

    #[test]
    fn a_unit_of_the_last_digit_is_rounding_and_each_changed_run_counts() {
        assert_eq!(compare(&["loss 0.01", "loss 0.01"], "loss 0.02"), differs("loss 0.02", "loss 0.01", true));
        assert_eq!(
            compare(&["loss 1.2e-03", "loss 1.2e-03"], "loss 1.3e-03"),
            differs("loss 1.3e-03", "loss 1.2e-03", true)
        );
        assert_eq!(compare(&["loss 0.01", "loss 0.01"], "loss 0.03"), differs("loss 0.03", "loss 0.01", false));
        assert_eq!(compare(&["images 1", "images 1"], "images 2"), differs("images 2", "images 1", false));
        let changed = ["loss 2.50", "loss 2.51", "loss 9.50", "loss 2.50"];
        assert_eq!(super::compare(&["loss 2.50"; 2], &changed, false), differs("loss 9.50", "loss 2.50", false));
    }

    #[test]
    fn a_sign_and_another_form_of_a_number_count() {
        assert_eq!(compare(&["x=1.50", "x=1.50"], "x=1.5"), Compared::Equal);
        assert_eq!(compare(&["x=1.5", "x=1.5"], "x=-1.5"), differs("x=-1.5", "x=1.5", false));
    }
}
