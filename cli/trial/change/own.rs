//! The user's own change: what the command line asks for, and the remedy for which it stands.

use std::ffi::OsString;
use std::path::Path;
use std::rc::Rc;

use anyhow::Result;
use gpuwhy_report::history::arguments as hash;
use gpuwhy_report::run::remedies::{Trial, remedy};
use serde_json::Value;

use super::candidates::{Candidate, predicted, rows, unknown};
use super::{Change, OwnChange};
use crate::args::trial::TryArgs;
use crate::trial::place::tree::{self, Copies, Tree};
use crate::trial::refused::{BAD_INPUT, NOTHING, Refused};

/// The copies of the working tree, if the command line has a diff.
///
/// # Errors
/// When they cannot be made, or the diff does not apply.
pub fn copies(args: &TryArgs, folder: &Path) -> Result<Option<Copies>, Refused> {
    let Some(file) = &args.patch else { return Ok(None) };
    let bad_input = Refused::with(BAD_INPUT);
    let diff = tree::read(file).map_err(&bad_input)?;
    let tree = Tree::of_work(&args.link).map_err(&bad_input)?;
    let mut copies = tree.copied(folder).map_err(Refused::with(NOTHING))?;
    copies.apply(&diff, &file.to_string_lossy()).map_err(&bad_input)?;
    if let (Some(program), true) = (args.command.first(), args.build.is_none()) {
        copies.program(false, program).map_err(&bad_input)?;
    }
    Ok(Some(copies))
}

/// The change of the command line, if there is one. It stands for the remedy that `--remedy` names; else the prediction
/// is that of the first one of the report whose place is about a changed line.
///
/// # Errors
/// For an unknown remedy, or several.
pub fn candidate(
    args: &TryArgs,
    copies: Option<&Copies>,
    report: Option<&Value>,
) -> Result<Option<Candidate>, Refused> {
    let (mut names, mut keep) = (Vec::new(), Vec::new());
    if let Some(file) = &args.patch {
        // A pipe, such as `<(git diff)`, has no name that says something.
        let is_pipe = file.as_os_str() == "-" || ["/dev", "/proc"].iter().any(|folder| file.starts_with(folder));
        let name = file.file_name().filter(|_| !is_pipe).map(|name| format!(" {}", name.to_string_lossy()));
        keep.push(if is_pipe { "the diff".to_owned() } else { format!("git apply {}", file.display()) });
        names.push(format!("patch{}", name.unwrap_or_default()));
    }
    if let Some(other) = &args.against {
        names.push("against".to_owned());
        keep.push(format!("the command {}", other.to_string_lossy()));
    }
    let word = |word: &OsString| word.to_string_lossy().into_owned();
    let variables: Vec<_> = args.env.iter().map(|(name, value)| [word(name), word(value)]).collect();
    if !variables.is_empty() {
        let set = |parts: usize| variables.iter().map(|pair| pair[..parts].join("=")).collect::<Vec<_>>().join(" ");
        names.push(format!("env {}", set(1)));
        keep.push(format!("run with {}", set(2)));
    }
    if names.is_empty() {
        return Ok(None);
    }
    let rows = report.into_iter().flat_map(rows);
    let is_near =
        |row: &&Value| row["at"].as_str().is_some_and(|at| copies.is_some_and(|copies| copies.is_changed_near(at)));
    let row = match args.remedy.as_slice() {
        [] => rows.clone().find(is_near),
        [name] if remedy(name).is_some() || Trial::named(name).is_some() => {
            rows.clone().find(|row| row["id"] == **name)
        }
        [name] => return Err(unknown(name)),
        _ => {
            let words = "--remedy names the one remedy for which the change stands: leave out the others";
            return Err(Refused(BAD_INPUT, words.to_owned()));
        }
    };
    // Reports look it up by the change that remedies share.
    let known = args.remedy.first().map(|id| Trial::named(id).map_or(id.as_str(), |trial| trial.id).to_owned());
    let names = names.join(", ");
    let content = copies.map(|copies| String::from_utf8_lossy(&copies.diff).into_owned());
    let parts = [String::new(), content.unwrap_or_default()].into_iter();
    let parts = parts.chain(args.against.iter().chain(&args.build).map(word)).chain(variables.concat());
    let own = OwnChange {
        kept_as: format!("{names} {:08x}", hash(&parts.collect::<Vec<_>>())),
        name: known.clone().unwrap_or(names),
        remedy: known,
        is_patch: args.patch.is_some(),
        against: args.against.clone(),
        environment: args.env.clone(),
    };
    let (text, predicted) = (Some(keep.join(", ")), row.and_then(predicted));
    Ok(Some(Candidate { text, predicted, is_named: true, ..Candidate::plain(Change::Own(Rc::new(own))) }))
}
