//! The program's command line and lines of its code as the trace keeps them, without what looks like a secret.
//!
//! A trace is passed on to colleagues and attached to bug reports, and command lines hold passwords and
//! tokens. A secret can only be guessed, by its name and its form; `GPUWHY_COMMAND_LINE` leaves out more.

use std::env;
use std::mem;
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;

use crate::config::CommandLine;

/// Text in place of a secret.
const MASK: &str = "***";
/// A name denotes a secret if one of its words is, or ends with, one of these (`PGPASSWORD`), in any
/// position.
const SECRETS: &[&str] =
    &["credential", "credentials", "passphrase", "passphrases", "passwd", "password", "passwords", "secret", "secrets"];
/// The same for pairs of words, written as one or two.
const COMPOUNDS: &[&str] = &["accesskey", "apikey", "authkey", "privatekey", "secretkey"];
/// A name denotes a secret if its last word ends with one of these: `--hub-token` does, `--max-tokens` and
/// `--token-budget` do not.
const ENDINGS: &[&str] = &["auth", "authorization", "bearer", "pwd", "token"];
/// A name denotes a secret if its last word is one of these: `--ssh-key` and `OPENAI_KEY` do, `--key-frames`
/// and `--monkey` do not.
const LAST_WORDS: &[&str] = &["cookie", "cookies", "key", "pass"];
/// The same for names in the query of a URL: its signature.
const SIGNATURES: &[&str] = &["sig", "signature"];
/// Options whose value is `user:password`.
const LOGINS: &[&str] = &["-u", "--user", "--login", "--proxy-user"];
/// Words between `Authorization:` and the secret in the header of a request.
const SCHEMES: &[&str] = &["basic", "bearer", "digest", "negotiate"];
/// Prefixes of access tokens of well-known services.
const TOKENS: &[&str] = &[
    "AIza",
    "AKIA",
    "ASIA",
    "eyJ",
    "ghp_",
    "gho_",
    "ghs_",
    "github_pat_",
    "ghr_",
    "ghu_",
    "glpat-",
    "hf_",
    "npm_",
    "nvapi-",
    "pypi-",
    "sk-",
    "xoxb-",
    "xoxp-",
];
/// Minimum length of an access token, bytes.
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

pub fn words() -> &'static [String] {
    KEPT.get().map_or(&[], Vec::as_slice)
}

/// Masks secrets. A word may be a complete script (`sh -c '...'`), so each piece between blanks is checked.
fn without_secrets(words: impl Iterator<Item = String>) -> Vec<String> {
    let mut masker = Masker::default();
    words
        .map(|word| json(&word).split_inclusive(char::is_whitespace).map(|piece| masker.masked(piece)).collect())
        .collect()
}

/// Rows of code, in order, whose secrets are masked.
#[derive(Default)]
pub struct CodeMasker {
    /// Number of the row that follows a statement with a secret that goes on.
    goes_on: Option<u32>,
}

impl CodeMasker {
    /// Masks secrets in a row: in its texts between quotes, by what they are assigned to or passed as, and by their
    /// form; and in its comment. All texts are masked in a statement that has the name of a secret, until its last row.
    pub fn masked(&mut self, number: u32, row: &str) -> String {
        let plain = without_texts(row);
        let is_secret = self.goes_on == Some(number) || names(&plain).any(is_surely_a_secret);
        let opened = plain.matches(['(', '[', '{']).count() > plain.matches([')', ']', '}']).count();
        let ends = plain.contains([')', ']', '}']) && !opened;
        let goes_on = opened || plain.trim_end().ends_with(['\\', '=']) || (self.goes_on == Some(number) && !ends);
        self.goes_on = number.checked_add(1).filter(|_| is_secret && goes_on);
        code_without_secrets(row, is_secret)
    }
}

/// A row of code without its texts and its comment.
fn without_texts(row: &str) -> String {
    let (mut out, mut quote, mut escaped) = (String::with_capacity(row.len()), None, false);
    for letter in row.chars() {
        match quote {
            Some(open) => {
                if letter == open && !escaped {
                    quote = None;
                }
                escaped = letter == '\\' && !escaped;
            }
            None if letter == '#' => break,
            None if letter == '"' || letter == '\'' => (quote, escaped) = (Some(letter), false),
            None => out.push(letter),
        }
    }
    out
}

/// Names in a row of code.
fn names(code: &str) -> impl Iterator<Item = &str> {
    code.split(|letter: char| !letter.is_alphanumeric() && letter != '_').filter(|name| !name.is_empty())
}

/// True for the name of a secret, but not for a word alone that has other meanings, such as `key`.
fn is_surely_a_secret(name: &str) -> bool {
    let words = words_of(name).into_iter().filter(|word| !word.is_empty()).count();
    names_a_secret(name) && (words > 1 || !LAST_WORDS.contains(&name.to_ascii_lowercase().as_str()))
}

/// Masks secrets in a line of code; all of its texts if it `is_secret`.
fn code_without_secrets(line: &str, is_secret: bool) -> String {
    let plain = |text: &str| -> String {
        let mut masker = Masker::default();
        json(text).split_inclusive(char::is_whitespace).map(|piece| masker.masked(piece)).collect()
    };
    let (mut out, mut rest) = (String::with_capacity(line.len()), line);
    while let Some(at) = rest.find(['"', '\'', '#']) {
        let quote = rest[at..].chars().next().unwrap_or('#');
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        if quote == '#' {
            return out + &plain(rest);
        }
        let mut escaped = false;
        let end = rest[1..].find(|letter| {
            let ends = letter == quote && !escaped;
            escaped = letter == '\\' && !escaped;
            ends
        });
        let text = end.map_or(&rest[1..], |end| &rest[1..=end]);
        // Letters such as `f` before the quote belong to the text.
        let before = out.trim_end_matches(|letter: char| letter.is_alphanumeric()).trim_end();
        let named = before.strip_suffix(['=', ':', '(', ',']).unwrap_or_default();
        let named = named.trim_end_matches([' ', ']', '"', '\'', '=', '!']);
        let name = named.rsplit(['(', ',', '{', ';', ' ']).next().unwrap_or_default();
        let masked =
            if text.is_empty() || !(is_secret || names_a_secret(name)) { plain(text) } else { MASK.to_owned() };
        out.push(quote);
        out.push_str(&masked);
        let Some(end) = end else { return out };
        out.push(quote);
        rest = &rest[end + 2..];
    }
    out + rest
}

/// Expectation about the next piece of a command line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Next {
    #[default]
    Plain,
    /// A secret, unless it is an option.
    Secret,
    /// One of several secrets separated by semicolons: `Cookie: a=b; c=d`.
    Cookies,
    /// `user:password`, unless it is an option or a file.
    Login,
}

/// Processes the pieces of a command line in order.
#[derive(Default)]
struct Masker {
    next: Next,
}

impl Masker {
    /// Masks a piece; keeps its trailing blanks.
    fn masked(&mut self, piece: &str) -> String {
        let text = piece.trim_end();
        let blanks = &piece[text.len()..];
        if text.is_empty() {
            return piece.to_owned();
        }
        let is_option = text.starts_with('-');
        let was = mem::take(&mut self.next);
        match was {
            Next::Secret if is_masked_json(text) => return piece.to_owned(),
            Next::Secret if !is_option && !is_scheme(text) => {
                return format!("{MASK}{blanks}");
            }
            Next::Cookies if !is_option => {
                self.next = if text.ends_with(';') { Next::Cookies } else { Next::Plain };
                return format!("{MASK}{blanks}");
            }
            Next::Login if !is_option => return login(text) + blanks,
            _ => {}
        }
        let is_name = is_option || text.ends_with(':');
        let header = header(text).or_else(|| header(text.split_once('=')?.1));
        let is_cookie = header.is_some_and(|(name, _)| name.to_ascii_lowercase().ends_with("cookie"));
        self.next = match text {
            _ if LOGINS.contains(&text) => Next::Login,
            _ if is_name && !text.contains('=') && text.to_ascii_lowercase().ends_with("cookie:") => Next::Cookies,
            _ if is_cookie && text.ends_with(';') => Next::Cookies,
            _ if header.is_some_and(|(_, value)| is_scheme(value)) => Next::Secret,
            _ if text.eq_ignore_ascii_case("bearer") || (was == Next::Secret && is_scheme(text)) => Next::Secret,
            _ if is_name && !text.contains('=') && names_a_secret(text) => Next::Secret,
            _ => Next::Plain,
        };
        value(text) + blanks
    }
}

fn is_scheme(text: &str) -> bool {
    SCHEMES.iter().any(|scheme| text.eq_ignore_ascii_case(scheme))
}

/// True for the remainder of a value that [`json`] masked: the program's own quotes around the mask.
fn is_masked_json(text: &str) -> bool {
    ['"', '\''].iter().any(|quote| text.starts_with(&format!("{quote}{MASK}{quote}")))
}

/// Masks the password in `user:password`. Two numbers are a user id and a group id.
fn login(text: &str) -> String {
    let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    match text.split_once(':') {
        Some((user, password)) if is_number(user) && is_number(password) => format!("{user}:{password}"),
        Some((user, password)) if !password.is_empty() => format!("{user}:{MASK}"),
        _ => value(text),
    }
}

/// Masks the values of `"password": "value"`, as JSON and Python write it.
fn json(text: &str) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(colon) = rest.find(':') {
        let (before, after) = rest.split_at(colon + 1);
        out.push_str(before);
        rest = after;
        let name = before[..colon].trim_end();
        let quote = after.trim_start().chars().next().filter(|letter| ['"', '\''].contains(letter));
        let name = quote.and_then(|_| name.strip_suffix(['"', '\'']));
        let name = name.and_then(|name| name.rsplit(['"', '\'']).next());
        if let Some((quote, _)) = quote.zip(name.filter(|name| names_a_secret(name))) {
            let start = after.len() - after.trim_start().len() + 1;
            let mut escaped = false;
            let end = after[start..].find(|letter| {
                let ends = letter == quote && !escaped;
                escaped = letter == '\\' && !escaped;
                ends
            });
            out.push_str(&after[..start]);
            out.push_str(MASK);
            rest = end.map_or("", |end| &after[start + end..]);
        }
    }
    out + rest
}

/// Name and value of a header with a secret and without a blank: `X-Api-Key:abc`. `auth:8080`, `secrets:/run/secrets`
/// and `key://x` are places.
fn header(text: &str) -> Option<(&str, &str)> {
    let (name, value) = text.split_once(':').filter(|(_, value)| !value.is_empty())?;
    let bare = name.trim_start_matches(['"', '\'']);
    let is_token = bare.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    let is_port = value.bytes().all(|byte| byte.is_ascii_digit()) && bare.bytes().all(|byte| byte.is_ascii_lowercase());
    (is_token && !is_port && !value.starts_with(['/', ':']) && names_a_secret(bare)).then_some((name, value))
}

/// Masks the secrets that a piece of text contains without a name, and those of a header.
fn value(text: &str) -> String {
    if let Some((name, value)) = header(text) {
        return if is_scheme(value) { text.to_owned() } else { format!("{name}:{MASK}") };
    }
    if let Some((name, rest)) = text.split_once('=') {
        let rest = match rest {
            "" => String::new(),
            _ if names_a_secret(name) => MASK.to_owned(),
            _ if LOGINS.contains(&name) => login(rest),
            _ => value(rest),
        };
        return format!("{}={rest}", url(name));
    }
    let bare = text.trim_matches(['"', '\'']);
    let is_token = bare.len() >= SHORTEST_TOKEN && TOKENS.iter().any(|start| bare.starts_with(start));
    if is_token { MASK.to_owned() } else { url(text) }
}

/// Masks the user and the password in `scheme://user:password@host`.
fn url(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let authority = rest.find('/').map_or(rest, |end| &rest[..end]);
    match authority.rfind('@') {
        Some(at) => format!("{scheme}://{MASK}{}", &rest[at..]),
        None => text.to_owned(),
    }
}

/// True if a value with this name is a secret. The last part of a path or a query is its name.
fn names_a_secret(name: &str) -> bool {
    let in_query = name.contains(['?', '&']);
    let words = words_of(name.rsplit(['/', '?', '&', ',']).next().unwrap_or(name));
    let joined = words.concat();
    let ends = |word: &String, endings: &[&str]| endings.iter().any(|ending| word.ends_with(ending));
    let last = words.last();
    COMPOUNDS.iter().any(|compound| joined.contains(compound))
        || words.iter().any(|word| ends(word, SECRETS))
        || last.is_some_and(|last| {
            ends(last, ENDINGS)
                || LAST_WORDS.contains(&last.as_str())
                || (in_query && SIGNATURES.contains(&last.as_str()))
        })
}

/// Splits a name into words in lower case: `wandb.apiKey` has three. Drops trailing digits: `OPENAI_KEY_2`
/// and `password2` count as `OPENAI_KEY` and `password`.
fn words_of(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = ' ';
    for letter in name.chars() {
        if !letter.is_alphanumeric() || (letter.is_uppercase() && before.is_lowercase()) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| letter.is_alphanumeric()) {
            word.extend(letter.to_lowercase());
        }
        before = letter;
    }
    for word in &mut words {
        word.truncate(word.trim_end_matches(|letter: char| letter.is_ascii_digit()).len());
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Masks the words of a line; text between single quotes is one word.
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
            (
                &["curl", "-H", "X-Api-Key:abc", "--header=X-Api-Key:abc", "-HX-Auth-Token:a=b", "api_key:7"],
                "curl -H X-Api-Key:*** --header=X-Api-Key:*** -HX-Auth-Token:*** api_key:***",
            ),
            (
                &[
                    "sh",
                    "-c",
                    "curl -H 'Authorization:Bearer abc' --header=Authorization:Basic abc -H Cookie:a=b; c=d -v",
                ],
                "sh -c curl -H 'Authorization:Bearer *** --header=Authorization:Basic *** -H Cookie:*** *** -v",
            ),
            (
                &["x", "--openai-key=abc", "--openai_key", "abc", "--key", "abc"],
                "x --openai-key=*** --openai_key *** --key ***",
            ),
            (
                &["env", "OPENAI_KEY=abc", "OPENAI_KEY_2=abc", "PGPASSWORD=abc"],
                "env OPENAI_KEY=*** OPENAI_KEY_2=*** PGPASSWORD=***",
            ),
            (
                &["x", "wandb.key=abc", "--ssh-key", "abc", "--wandb-key", "abc"],
                "x wandb.key=*** --ssh-key *** --wandb-key ***",
            ),
            (
                &["x", "--encryption-key=abc", "--license_key=abc", "--pass", "abc"],
                "x --encryption-key=*** --license_key=*** --pass ***",
            ),
            (
                &["curl", "--login", "me:abc", "-u", "me:abc", "--user=me:abc"],
                "curl --login me:*** -u me:*** --user=me:***",
            ),
            (&["curl", "--cookie", "abc", "-H", "Cookie: a=b; c=d", "y"], "curl --cookie *** -H Cookie: *** *** y"),
            (&["curl", "-H", "Authorization: Basic abc"], "curl -H Authorization: Basic ***"),
            (
                &["x", r#"{"password":"a b","lr":3,"api_key" : "a\"b"}"#, "{'token': 'abc'}"],
                r#"x {"password":"***","lr":3,"api_key" : "***"} {'token': '***'}"#,
            ),
            (
                &["https://h/a?x=1&sig=abc", "https://h/?X-Amz-Date=1&X-Amz-Signature=abc"],
                "https://h/a?x=1&sig=*** https://h/?X-Amz-Date=1&X-Amz-Signature=***",
            ),
            (&["npm_abcdefghijklmnop1234"], "***"),
            (
                &[
                    "env",
                    "DB_PASSWORD2=abc",
                    "x",
                    "--secret1=abc",
                    "--passwords=abc",
                    "--secretkey=abc",
                    "--token2",
                    "abc",
                ],
                "env DB_PASSWORD2=*** x --secret1=*** --passwords=*** --secretkey=*** --token2 ***",
            ),
            (&["curl", "-u", "me:1234", "x", "--password", "ab***cd"], "curl -u me:*** x --password ***"),
        ] {
            assert_eq!(kept(words), wanted);
        }
    }

    #[test]
    fn secrets_in_code_are_masked() {
        for (line, wanted) in [
            (r#"    api_key = "abc"  # x"#, r#"    api_key = "***"  # x"#),
            (r#"wandb.login(key='abc', relogin=True)"#, r#"wandb.login(key='***', relogin=True)"#),
            (r#"os.environ["HF_TOKEN"] = "a\"bc""#, r#"os.environ["HF_TOKEN"] = "***""#),
            (r#"h = {"X-Api-Key": f"abc{x}", "lr": "3"}"#, r#"h = {"X-Api-Key": f"***", "lr": "3"}"#),
            (r#"connect("postgres://me:word@host/db")"#, r#"connect("postgres://***@host/db")"#),
            (r#"login("hf_abcdefghijklmnop1234")"#, r#"login("***")"#),
            (r#"set_password("abc"#, r#"set_password("***"#),
            (r#"if password == "abc":"#, r#"if password == "***":"#),
            (
                r#"get(headers="Authorization: Bearer abc") # --token abc"#,
                r#"get(headers="Authorization: Bearer ***") # --token ***"#,
            ),
            (r#"api_key: str = "abc""#, r#"api_key: str = "***""#),
            (r#"password = """abc""""#, r#"password = """***""""#),
            (r#"token = os.getenv("T") or "abc""#, r#"token = os.getenv("***") or "***""#),
            (r#"password = "a" "b""#, r#"password = "***" "***""#),
            (r#"password = os.getenv("P", default="x")"#, r#"password = os.getenv("***", default="***")"#),
            (r#"PASSWORD, U = "a", "b""#, r#"PASSWORD, U = "***", "***""#),
        ] {
            assert_eq!(CodeMasker::default().masked(7, line), wanted);
        }
        let rows = [
            ("password = (", "password = ("),
            (r#"    "abc""#, r#"    "***""#),
            (r#"    "def")"#, r#"    "***")"#),
            (r#"x = "abc""#, r#"x = "abc""#),
            (r#"connect(password="#, r#"connect(password="#),
            (r#"    "abc")"#, r#"    "***")"#),
            (r#"y = "abc""#, r#"y = "abc""#),
        ];
        let mut masker = CodeMasker::default();
        for (number, (row, wanted)) in (1..).zip(rows) {
            assert_eq!(masker.masked(number, row), wanted);
        }
        for kept in [
            r#"out = attention(query, key=key, value=value)  # the key of it"#,
            r#"x = sorted(rows, key=len)[0]["key"].to("cuda")"#,
            r#"print("tokens per second:", n, f'{token}', "")"#,
            r#"'ü' "\"#,
        ] {
            assert_eq!(CodeMasker::default().masked(7, kept), kept);
        }
    }

    #[test]
    fn the_rest_is_kept() {
        for words in [
            &["python", "train.py", "--max-tokens", "4096", "--token-budget=7", "--tokenizer", "gpt2"][..],
            &["x", "--token", "--verbose", "file"],
            &["x", "secret_sharing.py", "/home/secret/password.txt", "--data=/srv/secrets/x"],
            &[
                "x",
                "auth:8080",
                "-v",
                "secrets:/run/secrets",
                "registry/token:latest",
                "key://x",
                "test_password.py::t",
                "x:y",
            ],
            &["x", "--author", "me", "--authors=you", "sk-learn", "a=b=c", "=", "", " ", "--password="],
            &[
                "x",
                "--key-frames",
                "3",
                "--monkey=3",
                "--hotkey",
                "a",
                "--bypass",
                "b",
                "--secretary=c",
                "--pass-through",
                "d",
            ],
            &["x", "--sig=9", "--signature", "f(x)", "docker", "-u", "1000:1000", "python", "-u", "train.py"],
            &["train.py", "--preset", "basic", "data.yaml", "--hash", "digest", "file"],
            &["bash", "--login", "run.sh", r#"{"lr":3,"name":"a:b"}"#, "a:'b'"],
            &["sh", "-c", "python  train.py\n--lr 3\t--out x "],
        ] {
            assert_eq!(kept(words), words.join(" "));
        }
    }
}
