//! The user's own change: what the command line asks for, and the remedy for which it stands.

use std::ffi::OsString;
use std::path::Path;
use std::rc::Rc;

use anyhow::{Result, bail};
use gpuwhy_report::history::arguments as hash;
use gpuwhy_report::run::Results;
use gpuwhy_report::run::remedies::{Trial, remedy};
use serde_json::Value;

use super::candidates::{self, Candidate};
use super::{Change, OwnChange};
use crate::args::trial::TryArgs;
use crate::trial::place::tree::{self, Copies, Tree};
use crate::trial::{BAD_INPUT, NOTHING};

/// The copies of the working tree, if the command line has a diff. Fails with the exit code when they cannot be made,
/// or the diff does not apply.
pub fn copies(args: &TryArgs, folder: &Path) -> Result<Option<Copies>, (u8, anyhow::Error)> {
    let Some(file) = &args.patch else { return Ok(None) };
    let bad_input = |error| (BAD_INPUT, error);
    let diff = tree::read(file).map_err(bad_input)?;
    let tree = Tree::of_work(&args.link).map_err(bad_input)?;
    let mut copies = tree.copied(folder).map_err(|error| (NOTHING, error))?;
    copies.apply(&diff, &file.to_string_lossy()).map_err(bad_input)?;
    if let (Some(program), true) = (args.command.first(), args.build.is_none()) {
        copies.program(false, program).map_err(bad_input)?;
    }
    Ok(Some(copies))
}

/// The change of the command line, if there is one. It stands for the remedy that `--remedy` names; else the prediction
/// is that of the first one of the report whose place is about a changed line. Fails for an unknown remedy, or several.
pub fn candidate(args: &TryArgs, copies: Option<&Copies>, report: Option<&Value>) -> Result<Option<Candidate>> {
    if args.patch.is_none() && args.against.is_none() && args.env.is_empty() {
        return Ok(None);
    }
    let mut names = Vec::new();
    let mut keep = Vec::new();
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
    if !args.env.is_empty() {
        let variables = args.env.iter().map(|(name, _)| name.to_string_lossy());
        names.push(format!("env {}", variables.collect::<Vec<_>>().join(" ")));
        let set = args.env.iter().map(|(name, value)| [name, value].map(|word| word.to_string_lossy()).join("="));
        keep.push(format!("run with {}", set.collect::<Vec<_>>().join(" ")));
    }
    let rows = report.and_then(|report| report["bottleneck"]["remedies"].as_array()).into_iter().flatten();
    let named = args.remedy.first().cloned();
    let id = match args.remedy.as_slice() {
        [] => {
            let is_near = |row: &&Value| {
                row["at"].as_str().is_some_and(|at| copies.is_some_and(|copies| copies.is_changed_near(at)))
            };
            rows.clone().find(is_near).and_then(|row| row["id"].as_str()).map(str::to_owned)
        }
        [name] if remedy(name).is_some() || Trial::named(name).is_some() => Some(name.clone()),
        [name] => bail!(candidates::unknown(name)),
        _ => bail!("--remedy names the one remedy for which the change stands: leave out the others"),
    };
    // Reports look it up by the change that remedies share.
    let known = named.map(|id| Trial::named(&id).map_or(id, |trial| trial.id.to_owned()));
    let predicted = id.and_then(|id| rows.clone().find(|row| row["id"] == *id)).and_then(candidates::predicted);
    let names = names.join(", ");
    let word = |word: &OsString| word.to_string_lossy().into_owned();
    let content = copies.map(|copies| String::from_utf8_lossy(&copies.diff).into_owned());
    let parts = [String::new(), content.unwrap_or_default()].into_iter();
    let commands = args.against.iter().chain(&args.build).map(word);
    let values = args.env.iter().flat_map(|(name, value)| [word(name), word(value)]);
    let own = OwnChange {
        kept_as: format!("{names} {:08x}", hash(&parts.chain(commands).chain(values).collect::<Vec<_>>())),
        name: known.clone().unwrap_or(names),
        remedy: known,
        is_patch: args.patch.is_some(),
        against: args.against.clone(),
        environment: args.env.clone(),
    };
    let (change, text) = (Change::Own(Rc::new(own)), Some(keep.join(", ")));
    Ok(Some(Candidate { change, text, at: None, results: Results::Same, predicted, is_named: true }))
}
