//! A small regular expression, for names of kernels.
//!
//! `libprof.so` matches names inside the measured process and loads no library for it. The usual notation: literals,
//! `.`, `[a-z]`, `[^a-z]`, `*`, `+`, `?`, `|`, groups, `^`, `$`, and `\` before a character that is meant as itself. A
//! pattern matches anywhere in a name. All states are followed at once (Thompson's construction), so the time is
//! bounded by the length of the pattern times that of the name, whatever the pattern.

use std::fmt;

/// The longest pattern, characters.
const LONGEST: usize = 1_000;

/// Why a pattern cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadPattern {
    /// Place of the error, characters from 0.
    pub at: usize,
    /// What is wrong there.
    pub what: &'static str,
}

impl fmt::Display for BadPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at character {}", self.what, self.at + 1)
    }
}

impl std::error::Error for BadPattern {}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    One(char),
    Any,
    Class {
        ranges: Vec<(char, char)>,
        negated: bool,
    },
    Begin,
    End,
    /// Goes on at both places.
    Split(usize, usize),
    Jump(usize),
    Match,
}

/// A compiled pattern. See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    states: Vec<State>,
}

/// How deep groups may be nested.
const DEEPEST: usize = 50;

struct Parser {
    text: Vec<char>,
    at: usize,
    depth: usize,
}

/// A piece of a program; places in it count from its own begin.
type Piece = Vec<State>;

fn shifted(piece: &[State], by: usize) -> impl Iterator<Item = State> {
    piece.iter().map(move |state| match state {
        State::Split(a, b) => State::Split(a + by, b + by),
        State::Jump(to) => State::Jump(to + by),
        other => other.clone(),
    })
}

impl Parser {
    fn bad(&self, what: &'static str) -> BadPattern {
        BadPattern { at: self.at, what }
    }

    fn peek(&self) -> Option<char> {
        self.text.get(self.at).copied()
    }

    fn take(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.at += 1;
        Some(next)
    }

    fn alternatives(&mut self) -> Result<Piece, BadPattern> {
        let mut piece = self.sequence()?;
        while self.peek() == Some('|') {
            self.at += 1;
            let other = self.sequence()?;
            let mut both = vec![State::Split(1, piece.len() + 2)];
            both.extend(shifted(&piece, 1));
            both.push(State::Jump(piece.len() + other.len() + 2));
            both.extend(shifted(&other, piece.len() + 2));
            piece = both;
        }
        Ok(piece)
    }

    fn sequence(&mut self) -> Result<Piece, BadPattern> {
        let mut piece = Piece::new();
        while let Some(next) = self.peek() {
            if next == '|' || next == ')' {
                break;
            }
            let part = self.repeated()?;
            let by = piece.len();
            piece.extend(shifted(&part, by));
        }
        Ok(piece)
    }

    fn repeated(&mut self) -> Result<Piece, BadPattern> {
        let mut piece = self.single()?;
        while let Some(sign) = self.peek().filter(|sign| matches!(sign, '*' | '+' | '?')) {
            self.at += 1;
            let length = piece.len();
            let mut repeated = Piece::new();
            if sign == '+' {
                repeated.extend(piece);
                repeated.push(State::Split(0, length + 1));
            } else {
                let behind = if sign == '*' { length + 2 } else { length + 1 };
                repeated.push(State::Split(1, behind));
                repeated.extend(shifted(&piece, 1));
                if sign == '*' {
                    repeated.push(State::Jump(0));
                }
            }
            piece = repeated;
        }
        Ok(piece)
    }

    fn single(&mut self) -> Result<Piece, BadPattern> {
        let at = self.at;
        let state = match self.take().ok_or_else(|| self.bad("something is missing"))? {
            '.' => State::Any,
            '^' => State::Begin,
            '$' => State::End,
            '\\' => match self.take() {
                Some(escaped) if !escaped.is_alphanumeric() => State::One(escaped),
                Some(_) => return Err(BadPattern { at, what: "this escape is not supported" }),
                None => return Err(BadPattern { at, what: "nothing follows the backslash" }),
            },
            '[' => self.class(at)?,
            '(' => {
                self.depth += 1;
                if self.depth > DEEPEST {
                    return Err(BadPattern { at, what: "groups are nested too deep" });
                }
                let inner = self.alternatives()?;
                self.depth -= 1;
                return match self.take() {
                    Some(')') => Ok(inner),
                    _ => Err(BadPattern { at, what: "this group is not closed" }),
                };
            }
            '*' | '+' | '?' => return Err(BadPattern { at, what: "there is nothing to repeat" }),
            literal => State::One(literal),
        };
        Ok(vec![state])
    }

    fn class(&mut self, at: usize) -> Result<State, BadPattern> {
        let negated = self.peek() == Some('^');
        self.at += usize::from(negated);
        let mut ranges = Vec::new();
        loop {
            let first = match self.take() {
                Some(']') if !ranges.is_empty() => return Ok(State::Class { ranges, negated }),
                Some('\\') => self.take(),
                other => other,
            };
            let Some(first) = first else { return Err(BadPattern { at, what: "this class is not closed" }) };
            let mut last = first;
            if self.peek() == Some('-') && self.text.get(self.at + 1).is_some_and(|&next| next != ']') {
                self.at += 1;
                last = self.take().unwrap_or(first);
            }
            if last < first {
                return Err(BadPattern { at, what: "a range of this class runs backwards" });
            }
            ranges.push((first, last));
        }
    }
}

impl Pattern {
    /// Compiles a pattern.
    ///
    /// # Errors
    ///
    /// Where `text` is no pattern, or longer than 1,000 characters.
    pub fn new(text: &str) -> Result<Self, BadPattern> {
        let mut parser = Parser { text: text.chars().collect(), at: 0, depth: 0 };
        if parser.text.len() > LONGEST {
            return Err(BadPattern { at: LONGEST, what: "the pattern is too long" });
        }
        let mut states = parser.alternatives()?;
        if parser.at < parser.text.len() {
            return Err(parser.bad("this group was not opened"));
        }
        states.push(State::Match);
        Ok(Self { states })
    }

    /// Whether some part of `name` matches.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        let mut active = Vec::new();
        let mut known = vec![false; self.states.len()];
        let mut rest = name.chars().peekable();
        let mut first = true;
        loop {
            let place = Place { first, last: rest.peek().is_none() };
            // A match may begin here.
            if self.follow(0, place, &mut known, &mut active) {
                return true;
            }
            let Some(next) = rest.next() else { return false };
            let place = Place { first: false, last: rest.peek().is_none() };
            known.fill(false);
            let before = std::mem::take(&mut active);
            for state in before {
                let takes = match &self.states[state] {
                    State::One(one) => *one == next,
                    State::Any => true,
                    State::Class { ranges, negated } => {
                        ranges.iter().any(|&(from, to)| (from..=to).contains(&next)) != *negated
                    }
                    _ => false,
                };
                if takes && self.follow(state + 1, place, &mut known, &mut active) {
                    return true;
                }
            }
            first = false;
        }
    }

    /// Adds what can be reached from `start` without a character. `true` at the end of the pattern.
    fn follow(&self, start: usize, place: Place, known: &mut [bool], active: &mut Vec<usize>) -> bool {
        let mut open = vec![start];
        while let Some(state) = open.pop() {
            if std::mem::replace(&mut known[state], true) {
                continue;
            }
            match self.states[state] {
                State::Match => return true,
                State::Split(a, b) => open.extend([a, b]),
                State::Jump(to) => open.push(to),
                State::Begin if place.first => open.push(state + 1),
                State::End if place.last => open.push(state + 1),
                State::Begin | State::End => {}
                _ => active.push(state),
            }
        }
        false
    }
}

/// Where between the characters of a name.
#[derive(Clone, Copy)]
struct Place {
    first: bool,
    last: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, name: &str) -> bool {
        Pattern::new(pattern).unwrap().matches(name)
    }

    #[test]
    fn the_usual_notation_is_understood() {
        for (pattern, yes, no) in [
            ("gemm", "sm90_gemm_bf16", "gem"),
            ("^gemm", "gemm_1", "a_gemm"),
            ("gemm$", "my_gemm", "gemm_1"),
            ("^k_.*_end$", "k_middle_end", "k_end"),
            ("flash|softmax", "softmax_warp", "layer_norm"),
            ("(flash|soft)_(fwd|bwd)", "x_soft_bwd_y", "soft_x"),
            ("k[0-9]+$", "k42", "k4x"),
            ("k[^0-9]", "ka", "k1"),
            ("a?b*c", "c", "ab"),
            ("void f\\(int\\*\\)", "void f(int*)", "void f(int)"),
            ("", "anything", "\u{0}never"),
            ("[]a]b", "]b", "cb"),
            ("[a-]x", "-x", "bx"),
        ] {
            assert!(matches(pattern, yes), "{pattern} {yes}");
            assert!(pattern.is_empty() || !matches(pattern, no), "{pattern} {no}");
        }
    }

    #[test]
    fn a_hostile_pattern_takes_no_longer_than_any_other() {
        let pattern = Pattern::new(&format!("^{}{}$", "a?".repeat(200), "a".repeat(200))).unwrap();
        assert!(pattern.matches(&"a".repeat(300)));
        assert!(!pattern.matches(&"a".repeat(500)));
        assert!(Pattern::new("(a*)*b").unwrap().matches(&("a".repeat(2_000) + "b")));
    }

    #[test]
    fn what_is_no_pattern_is_told_with_its_place() {
        for (text, at) in [("a(b", 1), ("a)b", 1), ("*a", 0), ("a[b", 1), ("a\\", 1), ("\\d", 0), ("[z-a]", 0)] {
            assert_eq!(Pattern::new(text).unwrap_err().at, at, "{text}");
        }
        assert!(Pattern::new(&"(".repeat(60)).is_err() && Pattern::new(&"a".repeat(1_001)).is_err());
        assert_eq!(Pattern::new("a(b").unwrap_err().to_string(), "this group is not closed at character 2");
    }
}
