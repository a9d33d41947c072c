//! Two copies of the working tree, one with the user's diff: nothing is applied to the user's files, and no run of
//! the program writes to them.
//!
//! A copy has what git tracks and untracked files that git does not ignore, as they are now. git only lists files, and
//! applies the diff in the copy: no hook, filter or file monitor of the user's runs, and the index stays as it is.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{ErrorKind, Read as _};
use std::ops::RangeInclusive;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, Result, bail};
use gpuwhy_report::text_format::{bytes, counted};
use rustix::fs::statvfs;
use serde_json::{Value, json};

use crate::interrupt;

/// Most bytes and files that git does not track: they may be anything.
const MOST_BYTES: u64 = 256_000_000;
const MOST_FILES: usize = 20_000;
/// Bytes of a block, which a file fills.
const BLOCK: u64 = 4096;
/// Variables that stay as they are: below HOME are settings, caches and installed packages of the user, and TMPDIR is
/// the place of the copies.
const KEPT: [&str; 2] = ["HOME", "TMPDIR"];
/// Variables that are lists of folders also with only one.
const LISTS: [&str; 3] = ["PATH", "PYTHONPATH", "LD_LIBRARY_PATH"];
/// Files by which a folder is a virtual environment, with packages that git ignores.
const ENVIRONMENTS: [&str; 2] = ["pyvenv.cfg", "conda-meta"];
/// Distance of a place from a changed line at which they are about the same, in lines.
const NEAR: u64 = 3;
/// Parts of git's message that say most, the first before the others.
const TELLING: [&str; 6] =
    ["beyond a symbolic link", "invalid path", "full index line", "patch failed", "already exists", ""];

/// The working tree of the program.
#[derive(Debug)]
pub struct Tree {
    /// The top folder, without symbolic links.
    root: PathBuf,
    /// The working directory, relative to it.
    work: PathBuf,
    /// Paths that the copies share with the user's tree, relative to it.
    links: Vec<PathBuf>,
    is_git: bool,
}

/// What is copied.
#[derive(Debug, Default)]
struct Listed {
    /// Files and folders, relative to the tree, a folder before what is in it.
    names: Vec<PathBuf>,
    /// Number of files, and their bytes: of those that git does not track, and of the others.
    sizes: [(usize, u64); 2],
    /// What git tracks, and what it ignores.
    known: [HashSet<PathBuf>; 2],
}

/// The copies: unchanged, and with the diff.
#[derive(Debug)]
pub struct Copies {
    tree: Tree,
    sides: [PathBuf; 2],
    /// The diff.
    pub diff: Vec<u8>,
    changed: Vec<ChangedFile>,
    /// Number of files in each, and the bytes of both.
    files: usize,
    bytes: u64,
}

/// A file that the diff changes, with its changed places before and after: the first line, and how many. Without any,
/// it is the line before.
#[derive(Debug)]
struct ChangedFile {
    path: PathBuf,
    hunks: Vec<[(u64, u64); 2]>,
}

impl ChangedFile {
    /// The changed lines.
    fn lines(&self, side: usize) -> impl Iterator<Item = RangeInclusive<u64>> {
        self.hunks.iter().map(move |hunk| hunk[side].0..=hunk[side].0 + hunk[side].1.max(1) - 1)
    }

    /// The lines where `line` is after the change; `None` if it is deleted.
    fn moved(&self, line: u64) -> Option<(u64, u64)> {
        let mut moved = line;
        for &[(first, count), (new, new_count)] in &self.hunks {
            if (first..first + count).contains(&line) {
                return (new_count > 0).then(|| (new, new + new_count - 1));
            }
            if first < line {
                moved = moved + new_count - count;
            }
        }
        Some((moved, moved))
    }
}

/// git in `folder`, as if nobody had set anything for this process.
fn git(folder: &Path) -> Command {
    let mut git = Command::new("git");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_bytes().starts_with(b"GIT_")) {
        git.env_remove(name);
    }
    git.arg("-C").arg(folder).args(["-c", "core.fsmonitor=false", "-c", "core.untrackedCache=false"]);
    git.args(["-c", "core.hooksPath=/dev/null"]).env("GIT_OPTIONAL_LOCKS", "0").env("LC_ALL", "C").stdin(Stdio::null());
    git
}

/// Without settings of anybody, and in no repository, although the folder for temporary files may be in one.
fn alone(git: &mut Command) -> &mut Command {
    git.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_ATTR_NOSYSTEM", "1");
    git.env("GIT_DIR", "/dev/null")
}

fn output(command: &mut Command) -> Result<Output> {
    command.output().context("--patch and --write-patch need git, which cannot be started")
}

/// The diff of two files, relative to `folder`, as git makes it without anybody's settings.
///
/// # Errors
/// Without git.
pub fn difference(folder: &Path, options: &[&str], before: &Path, after: &Path) -> Result<Vec<u8>> {
    let mut compare = git(folder);
    alone(&mut compare).args(["diff", "--no-index", "--no-ext-diff", "--no-textconv"]).args(options);
    Ok(output(compare.arg("--").args([before, after]))?.stdout)
}

/// The first message of git on stderr.
fn said(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().find(|line| line.starts_with("fatal: ") || line.starts_with("error: "));
    line.and_then(|line| line.split_once(": ")).map_or("it says nothing", |(_, words)| words).to_owned()
}

/// The path in a line of output.
fn line(output: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(output.strip_suffix(b"\n").unwrap_or(output)))
}

impl Tree {
    /// The tree of the working directory: that of git, or the folder itself.
    ///
    /// # Errors
    /// Without git, outside of a working tree of a repository, and for links that are not in the tree.
    pub fn of_work(links: &[PathBuf]) -> Result<Self> {
        let work = fs::canonicalize(".").context("the working directory")?;
        let asked = output(git(&work).args(["rev-parse", "--is-inside-work-tree", "--show-toplevel"]))?;
        let is_git = asked.status.success();
        if asked.stdout.starts_with(b"false") {
            bail!("{}: this is no working tree of its git repository: run the command in one", work.display());
        }
        if !is_git && !said(&asked).starts_with("not a git repository") {
            bail!("{}: git cannot read its repository: {}", work.display(), said(&asked));
        }
        let root = match asked.stdout.strip_prefix(b"true\n") {
            Some(top) if is_git => fs::canonicalize(line(top))?,
            _ => work.clone(),
        };
        let relative = work.strip_prefix(&root).unwrap_or(Path::new("")).to_owned();
        let links = links.iter().map(|link| {
            let parent = link.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let path = link.file_name().and_then(|name| Some(fs::canonicalize(parent).ok()?.join(name)));
            let path = path.or_else(|| fs::canonicalize(link).ok()).unwrap_or_default();
            if fs::symlink_metadata(&path).is_err() {
                bail!("--link {}: there is no such file or folder", link.display());
            }
            match path.strip_prefix(&root) {
                Ok(inside) if !relative.starts_with(inside) => Ok(inside.to_owned()),
                _ => bail!("--link {}: it names no part of {}", link.display(), work.display()),
            }
        });
        let links = links.collect::<Result<_>>()?;
        Ok(Self { root, work: relative, links, is_git })
    }

    /// The folder that paths of a diff are relative to.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Makes the copies in `folder`.
    ///
    /// # Errors
    /// When a file cannot be read or written, files that git does not track are too many or too large, `folder` has no
    /// room, or a signal came.
    pub fn copied(self, folder: &Path) -> Result<Copies> {
        let mut listed = Listed::default();
        self.list(Path::new(""), &mut listed)?;
        let folder = fs::canonicalize(folder)?;
        let [(loose, some), (others, more)] = listed.sizes;
        let (files, size, about) = (loose + others, 2 * (some + more), statvfs(&folder)?);
        let free = about.f_bavail.saturating_mul(about.f_frsize);
        // Some file systems say nothing.
        if size > free && about.f_blocks > 0 {
            let (root, at, size, free) = (self.root.display(), folder.display(), bytes(size), bytes(free));
            bail!(
                "two copies of {root} take {size}, and {free} are free for {at}: set TMPDIR to a folder with more room"
            );
        }
        // Some programs use the name of their folder.
        let name = self.root.file_name().unwrap_or(OsStr::new("tree"));
        let sides = ["a", "b"].map(|side| folder.join("copies").join(side).join(name));
        for name in &listed.names {
            if interrupt::exit_code().is_some() {
                bail!("interrupted");
            }
            let copied = self.copy(name, &sides);
            copied.with_context(|| format!("cannot copy {} to {} (TMPDIR)", name.display(), folder.display()))?;
        }
        for side in &sides {
            for link in &self.links {
                let to = side.join(link);
                fs::create_dir_all(to.parent().unwrap_or(side))?;
                symlink(self.root.join(link), &to).with_context(|| format!("cannot link {}", link.display()))?;
            }
            fs::create_dir_all(side.join(&self.work))?;
        }
        Ok(Copies { tree: self, sides, diff: Vec::new(), changed: Vec::new(), files, bytes: size })
    }

    /// Adds what is in a folder, with empty folders, to which the program may write, but nothing that git ignores, and
    /// nothing that is linked. Submodules and repositories in it say themselves what they track.
    fn list(&self, below: &Path, listed: &mut Listed) -> Result<()> {
        let folder = self.root.join(below);
        if self.is_git && (below == Path::new("") || folder.join(".git").exists()) {
            for (what, names) in ["--cached", "--ignored"].into_iter().zip(&mut listed.known) {
                let mut list = git(&folder);
                list.args(["ls-files", "-z", "--exclude-standard", what]);
                let list =
                    output(if what == "--ignored" { list.args(["--others", "--directory"]) } else { &mut list })?;
                if !list.status.success() {
                    bail!("git cannot list the files of {}: {}", folder.display(), said(&list));
                }
                let found = list.stdout.split(|byte| *byte == 0).map(OsStr::from_bytes);
                names.extend(found.map(|name| below.join(name).components().collect::<PathBuf>()));
            }
        }
        for entry in fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
            let name = below.join(entry?.file_name());
            let [tracked, ignored] = &listed.known;
            let is_linked = self.links.iter().any(|link| name.starts_with(link));
            if is_linked || name.ends_with(".git") || ignored.contains(&name) {
                continue;
            }
            let Ok(about) = fs::symlink_metadata(self.root.join(&name)) else { continue };
            let is_tracked = tracked.contains(&name);
            let (files, size) = &mut listed.sizes[usize::from(is_tracked)];
            *files += usize::from(!about.is_dir());
            *size += if about.is_file() { about.len().next_multiple_of(BLOCK) } else { 0 };
            if !is_tracked && (*size > MOST_BYTES || *files > MOST_FILES) {
                let (whose, what) = match self.is_git {
                    true => ("neither tracked nor ignored by git", "add them to .gitignore"),
                    false => ("in no git repository", "run the command in the folder of the program, `git init` there"),
                };
                let (root, size, most) = (self.root.display(), bytes(*size), bytes(MOST_BYTES));
                bail!(
                    "{root} has {files} or more files with {size} that are {whose} (such as {}); at most {MOST_FILES} \
                     with {most} are copied: {what}, or share what is large by --link PATH",
                    name.display()
                );
            }
            listed.names.push(name.clone());
            if about.is_dir() {
                self.list(&name, listed)?;
            }
        }
        Ok(())
    }

    /// Copies `name` to both sides.
    fn copy(&self, name: &Path, sides: &[PathBuf; 2]) -> Result<()> {
        let from = self.root.join(name);
        let Ok(about) = fs::symlink_metadata(&from) else { return Ok(()) };
        for side in sides {
            let to = side.join(name);
            fs::create_dir_all(to.parent().unwrap_or(side))?;
            if about.is_symlink() {
                symlink(self.target(&from, side)?, &to)?;
            } else if about.is_dir() {
                fs::create_dir_all(&to)?;
            } else if about.is_file() {
                // The second copy is one of the first: somebody may be editing the file.
                let first = sides[0].join(name);
                fs::copy(if *side == sides[0] { &from } else { &first }, &to)?;
                // Builds go by the times of files. Only the owner of an unreadable file cannot set it.
                let _ = File::open(&to).and_then(|file| file.set_modified(about.modified()?));
            }
        }
        Ok(())
    }

    /// The target of a symbolic link in a copy: within the copy if it was within the tree.
    fn target(&self, link: &Path, side: &Path) -> Result<PathBuf> {
        let target = fs::read_link(link)?;
        let whole = normal(&link.parent().unwrap_or(&self.root).join(&target));
        Ok(match whole.strip_prefix(&self.root) {
            Ok(inside) if target.is_absolute() => side.join(inside),
            Ok(_) => target,
            Err(_) => whole,
        })
    }
}

/// The path without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut whole, part| {
        match part {
            Component::ParentDir => drop(whole.pop()),
            Component::CurDir => {}
            other => whole.push(other),
        }
        whole
    })
}

impl Copies {
    /// Applies the diff to the second copy. `name` is that of its file.
    ///
    /// # Errors
    /// When it does not apply exactly.
    pub fn apply(&mut self, diff: &[u8], name: &str) -> Result<()> {
        let [_, side] = &self.sides;
        let file = self.sides[1].parent().unwrap_or(side).with_file_name("diff");
        fs::write(&file, diff)?;
        self.diff = diff.to_vec();
        let work = side.join(&self.tree.work);
        let tries = [(side, "-p1"), (&work, "-p1"), (side, "-p0"), (&work, "-p0")];
        let mut complaints = Vec::new();
        for (at, strip) in tries {
            let applied = output(self.applying(at).args([strip, "--apply", "--numstat", "-z"]).arg(&file))?;
            if applied.status.success() {
                // Added and deleted lines, and the name: of one that is renamed, the new one.
                let names = applied.stdout.split(|byte| *byte == 0);
                let names = names.filter_map(|row| row.splitn(3, |byte| *byte == b'\t').nth(2).map(OsStr::from_bytes));
                let below = at.strip_prefix(side).unwrap_or(Path::new(""));
                self.changed = names.map(|name| self.compared(normal(&below.join(name)))).collect::<Result<_>>()?;
                return Ok(());
            }
            complaints.push(said(&applied));
        }
        for (at, strip) in tries {
            if output(self.applying(at).args([strip, "--check", "--reverse"]).arg(&file))?.status.success() {
                bail!("--patch {name}: the files have this change already; take it back first (git apply -R {name})");
            }
        }
        if complaints.iter().all(|words| words.contains("No valid patches in input")) {
            bail!("--patch {name}: this is no diff, or an empty one");
        }
        let rank = |words: &String| TELLING.iter().position(|part| words.contains(part));
        let why = complaints.iter().min_by_key(|words| rank(words)).map_or("", String::as_str);
        let missing = if why.ends_with("No such file or directory") {
            " (the diff is applied to what git tracks or does not ignore)"
        } else {
            ""
        };
        bail!("--patch {name}: it does not apply to the files as they are: {why}{missing}")
    }

    /// `git apply` in a copy, without settings of the user's but those of line ends.
    fn applying(&self, folder: &Path) -> Command {
        let mut apply = git(folder);
        for setting in ["core.autocrlf", "core.eol"] {
            let Ok(value) = output(git(&self.tree.root).args(["config", "--get", setting])) else { continue };
            if value.status.success() {
                apply.arg("-c").arg(format!("{setting}={}", line(&value.stdout).display()));
            }
        }
        alone(&mut apply).args(["apply", "--whitespace=nowarn"]);
        apply
    }

    /// A changed file with its lines.
    fn compared(&self, path: PathBuf) -> Result<ChangedFile> {
        let there = |side: &PathBuf| Some(side.join(&path)).filter(|file| file.is_file());
        let [before, after] = self.sides.each_ref().map(|side| there(side).unwrap_or_else(|| "/dev/null".into()));
        let text = difference(&self.sides[0], &["-U0"], &before, &after)?;
        let range = |text: &str| {
            let (first, count) = text.get(1..)?.split_once(',').unwrap_or((&text[1..], "1"));
            Some((first.parse().ok()?, count.parse().ok()?))
        };
        let hunks = text.split(|byte| *byte == b'\n').filter_map(|line| {
            let hunk = std::str::from_utf8(line.strip_prefix(b"@@ ")?.split(|byte| *byte == b'@').next()?).ok()?;
            let (before, after) = hunk.trim().split_once(' ')?;
            Some([range(before)?, range(after)?])
        });
        Ok(ChangedFile { path, hunks: hunks.collect() })
    }

    /// How the loop of the steps, as the Python side knows it, is known with the diff. Its file is below the top.
    pub fn changed_loop(&self, key: &Value) -> Value {
        let place = key["file"].as_str().map(|file| normal(Path::new(file))).zip(key["line"].as_u64());
        let moved = place.and_then(|(path, line)| self.changed.iter().find(|file| file.path == path)?.moved(line));
        let mut key = key.clone();
        if let Some((first, last)) = moved {
            key["lines"] = json!([first, last]);
        }
        key
    }

    /// The top folder of a copy.
    pub fn root(&self, is_changed: bool) -> &Path {
        &self.sides[usize::from(is_changed)]
    }

    /// The working directory in a copy.
    pub fn work(&self, is_changed: bool) -> PathBuf {
        self.root(is_changed).join(&self.tree.work)
    }

    /// `text` with absolute paths in the tree as paths in a copy.
    pub fn mapped(&self, is_changed: bool, text: &OsStr) -> OsString {
        let side = &self.sides[usize::from(is_changed)];
        // A path may have any name; one of several, or one that does not exist yet, ends at these letters.
        if fs::symlink_metadata(text).is_ok() {
            return self.in_copy(side, text.as_bytes()).into();
        }
        let ends = |byte: &u8| b"=:;,&|<>()`'\" \t\n".contains(byte);
        let mapped = text.as_bytes().split_inclusive(ends).flat_map(|part| {
            let end = part.len() - usize::from(part.last().is_some_and(ends));
            // `file:///path` and `sqlite:////path` have more than one.
            let slashes = part[..end].iter().take_while(|byte| **byte == b'/').count().saturating_sub(1);
            let path = self.in_copy(side, &part[slashes..end]).into_os_string().into_vec();
            [&part[..slashes], &path, &part[end..]].concat()
        });
        OsString::from_vec(mapped.collect())
    }

    /// The value of a variable, mapped. In a list of folders to search, one that only the user's tree has stays.
    pub fn value(&self, is_changed: bool, name: &OsStr, value: &OsStr) -> OsString {
        let folders = || value.as_bytes().split(|byte| *byte == b':').map(OsStr::from_bytes);
        let is_list = value.as_bytes().contains(&b':')
            && folders().all(|folder| folder.is_empty() || Path::new(folder).is_absolute());
        if !is_list && LISTS.iter().all(|list| name != *list) {
            return self.mapped(is_changed, value);
        }
        let work = [self.tree.root.join(&self.tree.work), self.work(is_changed)];
        let folders = folders().map(|folder| {
            let mapped = self.mapped(is_changed, folder);
            let [own, copy] = [work[0].join(folder), work[1].join(&mapped)];
            if own.exists() && !copy.exists() { own.into() } else { mapped }
        });
        folders.collect::<Vec<_>>().join(OsStr::new(":"))
    }

    /// The same path in a copy, if it is absolute and in the tree, by whatever symbolic links.
    fn in_copy(&self, side: &Path, path: &[u8]) -> PathBuf {
        let path = Path::new(OsStr::from_bytes(path));
        let real = path.is_absolute().then(|| {
            let there = path.ancestors().find_map(|above| Some((above, fs::canonicalize(above).ok()?)))?;
            Some(there.1.join(path.strip_prefix(there.0).ok()?))
        });
        let inside = real.flatten().and_then(|real| Some(real.strip_prefix(&self.tree.root).ok()?.to_owned()));
        let is_copied =
            |inside: &PathBuf| side.join(inside).exists() || !self.is_installed(&self.tree.root.join(inside));
        inside.filter(is_copied).map_or_else(|| path.to_owned(), |inside| normal(&side.join(inside)))
    }

    /// True if it is there, in a virtual environment of the user's tree.
    fn is_installed(&self, path: &Path) -> bool {
        let mut folders = path.ancestors().take_while(|folder| folder.starts_with(&self.tree.root));
        path.exists() && folders.any(|folder| ENVIRONMENTS.iter().any(|name| folder.join(name).exists()))
    }

    /// Variables with paths in the tree, with those of a copy.
    pub fn environment(&self, is_changed: bool) -> impl Iterator<Item = (OsString, OsString)> {
        let all = std::env::vars_os().filter(|(name, _)| KEPT.iter().all(|kept| name != kept));
        all.filter_map(move |(name, value)| {
            let mapped = self.value(is_changed, &name, &value);
            (mapped != value).then_some((name, mapped))
        })
    }

    /// What a program of a copy printed, with the paths of the user's tree.
    pub fn mapped_back(&self, is_changed: bool, text: &str) -> String {
        let [from, to] = [&self.sides[usize::from(is_changed)], &self.tree.root].map(|path| path.to_string_lossy());
        text.replace(&*from, &to)
    }

    /// The program in a copy. One of a virtual environment that git ignores is that of the user's tree.
    ///
    /// # Errors
    /// For another file that the copy has not.
    pub fn program(&self, is_changed: bool, word: &OsStr) -> Result<OsString> {
        let [own, copy] = [self.tree.root.join(&self.tree.work), self.work(is_changed)];
        let path = copy.join(self.mapped(is_changed, word));
        let (found, is_there) = if word.as_bytes().contains(&b'/') {
            let is_installed = !path.exists() && self.is_installed(&own.join(word));
            let found = if is_installed { own.join(word) } else { path };
            (found.clone().into(), found.exists() || !own.join(word).is_file())
        } else {
            let list = std::env::var_os("PATH").unwrap_or_default();
            let first = |work: &Path, list: &OsStr| {
                std::env::split_paths(list).position(|folder| work.join(folder).join(word).is_file())
            };
            // One of the same name in a later folder is another program; the diff may delete or add one.
            let place = first(&copy, &self.value(is_changed, OsStr::new("PATH"), &list)).unwrap_or(usize::MAX);
            (word.to_owned(), is_changed || first(&own, &list).is_none_or(|own| place <= own))
        };
        if !is_there {
            bail!(
                "{}: git ignores it, so the copies of the tree do not have it: --build COMMAND makes it in each copy, \
                 --link PATH uses the one that is there",
                word.display()
            );
        }
        Ok(found)
    }

    /// The changed lines, for the settings of a run: `{file: [[first, last], ...]}`, also of the user's own files if
    /// the diff is applied.
    pub fn changed_lines(&self, is_changed: bool) -> Value {
        let row = |root: &Path, file: &ChangedFile, side: usize| {
            let lines: Vec<_> = file.lines(side).map(|lines| [*lines.start(), *lines.end()]).collect();
            (root.join(&file.path).to_string_lossy().into_owned(), json!(lines))
        };
        let side = usize::from(is_changed);
        let own = self.changed.iter().filter(|_| is_changed).map(|file| row(&self.tree.root, file, 0));
        self.changed.iter().map(|file| row(&self.sides[side], file, side)).chain(own).collect()
    }

    /// Why a run with the diff tells nothing, from the files that it `used`, as the Python side has them.
    pub fn unused(&self, used: &Value) -> Option<String> {
        let used: Vec<_> = used.as_array()?.iter().filter_map(Value::as_str).map(Path::new).collect();
        let is_used = |root: &Path, file: &&ChangedFile| used.iter().any(|path| **path == root.join(&file.path));
        if let Some(own) = self.changed.iter().find(|file| is_used(&self.tree.root, file)) {
            return Some(format!(
                "the program loads {} of the user's own tree instead of the copy with the diff, as an editable install \
                 does; set PYTHONPATH to the folder that has the package, which is mapped into the copy",
                own.path.display()
            ));
        }
        let are_python = self.changed.iter().all(|file| file.path.extension().is_some_and(|end| end == "py"));
        if !are_python || self.changed.is_empty() || self.changed.iter().any(|file| is_used(&self.sides[1], &file)) {
            return None;
        }
        let names: Vec<_> = self.changed.iter().map(|file| file.path.display().to_string()).collect();
        Some(format!("the program loads none of the changed files ({})", names.join(", ")))
    }

    /// True if `place`, such as `train.py:7 (main)`, is about a changed line.
    pub fn is_changed_near(&self, place: &str) -> bool {
        let place = place.split_once(" (").map_or(place, |(place, _)| place);
        let Some((file, number)) = place.rsplit_once(':') else { return false };
        let Ok(number) = number.parse::<u64>() else { return false };
        let is_near =
            |lines: RangeInclusive<u64>| number + NEAR >= *lines.start() && number <= lines.end().saturating_add(NEAR);
        let is_file = |changed: &&ChangedFile| changed.path.ends_with(file) || Path::new(file).ends_with(&changed.path);
        self.changed.iter().filter(is_file).any(|changed| changed.lines(0).any(is_near))
    }

    /// What there is before the runs.
    pub fn words(&self) -> String {
        let (root, files) = (self.tree.root.display(), counted(self.files as u64, "file"));
        let ignored = if self.tree.is_git { ", without files that git ignores" } else { "" };
        format!("both run in copies of {root} ({files}, together {}){ignored}", bytes(self.bytes))
    }

    /// What may be the reason for which the unchanged program failed with `errors`.
    pub fn hint(&self, errors: &str) -> String {
        if errors.contains("No space left on device") {
            let words =
                "If that is the folder for temporary files, where the copies are, set TMPDIR to one with more room";
            return format!("\n{words}.");
        }
        if !self.tree.is_git {
            return String::new();
        }
        let own = self.tree.root.join(&self.tree.work);
        let is_missing = |path: &&Path| !self.sides[0].join(path).exists() && self.tree.root.join(path).exists();
        // The top folder of what a word names.
        let missing = |word: &str| {
            let path = normal(&own.join(word)).strip_prefix(&self.tree.root).ok()?.to_owned();
            let top = path.ancestors().filter(is_missing).last()?;
            Some(top.strip_prefix(&self.tree.work).map_or_else(|_| self.tree.root.join(top), Path::to_owned))
        };
        let mut words = errors.rsplit(|letter: char| letter.is_whitespace() || "'\"`:,()[]".contains(letter));
        let add = words.find_map(missing).map_or("--link PATH adds more".to_owned(), |path| {
            format!("they lack {0}, which --link {0} adds", path.display())
        });
        format!("\nThe copies have what git tracks or does not ignore, and are no repository; {add}.")
    }
}

/// Reads the diff; `-` is standard input.
///
/// # Errors
/// When it cannot be read.
pub fn read(file: &Path) -> Result<Vec<u8>> {
    let mut diff = Vec::new();
    let read = match file.as_os_str() == "-" {
        true => std::io::stdin().read_to_end(&mut diff).map(|_| diff),
        false => fs::read(file),
    };
    read.map_err(|error| match error.kind() {
        ErrorKind::NotFound => anyhow::anyhow!("--patch {}: there is no such file", file.display()),
        _ => anyhow::anyhow!("--patch {}: {error}", file.display()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_again_after_the_change() {
        // Two lines inserted after line 3, lines 6 and 7 replaced by one, line 9 deleted.
        let hunks = vec![[(3, 0), (4, 2)], [(6, 2), (8, 1)], [(9, 1), (9, 0)]];
        let file = ChangedFile { path: PathBuf::new(), hunks };
        let moved: Vec<_> = [3, 4, 6, 7, 8, 9, 10].into_iter().map(|line| file.moved(line)).collect();
        let at = |line| Some((line, line));
        assert_eq!(moved, [at(3), at(6), at(8), at(8), at(9), None, at(10)]);
    }
}
