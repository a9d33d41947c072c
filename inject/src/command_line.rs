//! What is kept of the program's command line: all of it but what looks like a secret.
//!
//! A trace is handed on to colleagues and attached to bug reports, and command lines hold passwords and tokens. What a
//! secret is can only be guessed, by the name that it is given under and by its form; so `GPUWHY_COMMAND_LINE` leaves
//! out more.

use std::env;
use std::mem;
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;

use crate::config::CommandLine;

/// What stands in place of a secret.
const MASK: &str = "***";
/// Names of secrets, without what separates their words: each is one wherever it is in a name.
const SECRETS: &[&str] =
    &["accesskey", "apikey", "authkey", "credential", "passphrase", "passwd", "password", "privatekey", "secret"];
/// Last words of names of secrets. `--hub-token` is one, `--max-tokens` and `--token-budget` are not.
const LAST_WORDS: &[&str] = &["auth", "authorization", "bearer", "pwd", "token"];
/// What access tokens of well-known services begin with.
const TOKENS: &[&str] = &[
    "AIza",
    "AKIA",
    "ASIA",
    "eyJ",
    "ghp_",
    "gho_",
    "ghs_",
    "github_pat_",
    "glpat-",
    "hf_",
    "nvapi-",
    "sk-",
    "xoxb-",
    "xoxp-",
];
/// No access token is shorter, in bytes.
const SHORTEST_TOKEN: usize = 20;

static KEPT: OnceLock<Vec<String>> = OnceLock::new();

/// Reads the command line of this process. Only the first call counts.
pub fn keep(how: CommandLine) {
    KEPT.get_or_init(|| {
        let words = env::args_os().map(|word| String::from_utf8_lossy(word.as_bytes()).into_owned());
        match how {
            CommandLine::Full => without_secrets(words),
            CommandLine::Name => words.take(1).collect(),
            CommandLine::Off => Vec::new(),
        }
    });
}

/// What is kept.
pub fn words() -> &'static [String] {
    KEPT.get().map_or(&[], Vec::as_slice)
}

/// A word may be a whole script (`sh -c '...'`), so each piece between blanks is checked.
fn without_secrets(words: impl Iterator<Item = String>) -> Vec<String> {
    let mut masker = Masker::default();
    words.map(|word| word.split_inclusive(char::is_whitespace).map(|piece| masker.masked(piece)).collect()).collect()
}

/// Goes through the pieces of a command line.
#[derive(Default)]
struct Masker {
    /// The last piece was the name of a secret: what follows is its value, unless it is an option.
    announced: bool,
}

impl Masker {
    /// The piece, with blanks that end it.
    fn masked(&mut self, piece: &str) -> String {
        let text = piece.trim_end();
        let blanks = &piece[text.len()..];
        if text.is_empty() {
            return piece.to_owned();
        }
        if mem::take(&mut self.announced) && !text.starts_with('-') && !is_bearer(text) {
            return format!("{MASK}{blanks}");
        }
        let is_name = text.starts_with('-') || text.ends_with(':');
        self.announced = is_bearer(text) || (is_name && !text.contains('=') && names_a_secret(text));
        value(text) + blanks
    }
}

/// Before the token in the header of a request, itself behind `Authorization:`.
fn is_bearer(text: &str) -> bool {
    text.eq_ignore_ascii_case("bearer")
}

/// A piece of text without the secrets that are in it by themselves.
fn value(text: &str) -> String {
    if let Some((name, rest)) = text.split_once('=') {
        let rest = if names_a_secret(name) && !rest.is_empty() { MASK.to_owned() } else { value(rest) };
        return format!("{}={rest}", url(name));
    }
    let bare = text.trim_matches(['"', '\'']);
    let is_token = bare.len() >= SHORTEST_TOKEN && TOKENS.iter().any(|start| bare.starts_with(start));
    if is_token { MASK.to_owned() } else { url(text) }
}

/// Text in which `scheme://user:password@host` has no user and no password.
fn url(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let authority = rest.find('/').map_or(rest, |end| &rest[..end]);
    match authority.rfind('@') {
        Some(at) => format!("{scheme}://{MASK}{}", &rest[at..]),
        None => text.to_owned(),
    }
}

/// Whether what is given under this name is a secret. Of a path or a query the last part is the name.
fn names_a_secret(name: &str) -> bool {
    let name = name.rsplit(['/', '?', '&', ',']).next().unwrap_or(name).to_ascii_lowercase();
    let words: Vec<_> = name.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let joined = words.concat();
    SECRETS.iter().any(|secret| joined.contains(secret))
        || words.last().is_some_and(|last| LAST_WORDS.iter().any(|word| last.ends_with(word)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words of a line, of which those between single quotes are one, without secrets.
    fn kept(words: &[&str]) -> String {
        without_secrets(words.iter().map(|&word| word.to_owned())).join(" ")
    }

    #[test]
    fn secrets_are_masked_by_name_and_by_form() {
        for (words, wanted) in [
            (&["x", "--api-key=abc", "--lr", "3"][..], "x --api-key=*** --lr 3"),
            (&["x", "--token", "abc", "y"], "x --token *** y"),
            (&["x", "--hf_token", "abc", "--seed=1"], "x --hf_token *** --seed=1"),
            (&["env", "WANDB_API_KEY=abc", "DB_PASSWORD=d=e", "A=b"], "env WANDB_API_KEY=*** DB_PASSWORD=*** A=b"),
            (&["x", "-db.passwordFile", "f", "wandb.apiKey=abc"], "x -db.passwordFile *** wandb.apiKey=***"),
            (&["x", "--client-secret='abc'", "--set=token=abc"], "x --client-secret=*** --set=token=***"),
            (
                &["x", "--url=https://u:p@h/a?b=c", "https://h/?token=abc"],
                "x --url=https://***@h/a?b=c https://h/?token=***",
            ),
            (&["x", "postgres://me:word@host:5/db", "a@b.c"], "x postgres://***@host:5/db a@b.c"),
            (&["x", "hf_abcdefghijklmnop1234", "AKIAABCDEFGHIJKLMNOP"], "x *** ***"),
            (
                &["sh", "-c", "run --password abc; curl -H 'Authorization: Bearer abc'"],
                "sh -c run --password *** curl -H 'Authorization: Bearer ***",
            ),
            (&["curl", "-H", "X-Api-Key: abc"], "curl -H X-Api-Key: ***"),
        ] {
            assert_eq!(kept(words), wanted);
        }
    }

    #[test]
    fn the_rest_is_kept() {
        for words in [
            &["python", "train.py", "--max-tokens", "4096", "--token-budget=7", "--tokenizer", "gpt2"][..],
            &["x", "--token", "--verbose", "file"],
            &["x", "secret_sharing.py", "/home/secret/password.txt", "--data=/srv/secrets/x"],
            &["x", "--author", "me", "--authors=you", "--key=batch", "sk-learn", "a=b=c", "=", "", " ", "--password="],
            &["sh", "-c", "python  train.py\n--lr 3\t--out x "],
        ] {
            assert_eq!(kept(words), words.join(" "));
        }
    }
}
