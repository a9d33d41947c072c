//! Selects the query from the arguments, and checks that the options apply to it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use gpuwhy_export::lake::Lake;
use gpuwhy_export::named::{NamedQuery, QueryKind};
use gpuwhy_report::text_format::edits;

use crate::args::query::{Engine, OfRecipes, OfReports, QueryArgs};

/// The kinds in list order, with descriptions.
const KINDS: [(QueryKind, &str); 3] = [
    (QueryKind::Report, "Reports, the tables of nsys stats"),
    (QueryKind::Rule, "Rules, the checks of nsys analyze"),
    (QueryKind::Recipe, "Recipes, questions about runs"),
];
/// Default output of the nsys subcommands, as far as a gpuwhy trace has the data: kind, name, description,
/// query names.
const SETS: [(QueryKind, &str, &str, &str); 2] = [
    (
        QueryKind::Report,
        "stats",
        "The four that nsys stats prints by default",
        "cuda_api_sum,cuda_gpu_kern_sum,cuda_gpu_mem_time_sum,cuda_gpu_mem_size_sum",
    ),
    (
        QueryKind::Rule,
        "analyze",
        "All of these",
        "cuda_memcpy_async,cuda_memcpy_sync,cuda_memset_sync,cuda_api_sync,gpu_gaps,gpu_time_util,gpu_idle_causes",
    ),
];
/// Maximum number of names that an error suggests.
const SUGGESTED: usize = 3;

/// The requested query.
#[derive(Debug)]
pub enum Choice {
    /// Reports and rules, in the requested order.
    Reports(Vec<NamedQuery>),
    Recipe(NamedQuery),
    /// SQL of the user.
    Sql(String),
}

impl Choice {
    /// Parses the query and its files. Fails when there is no such query or parameter, or an option does not
    /// apply.
    pub fn of(args: &QueryArgs) -> Result<(Self, Vec<PathBuf>)> {
        let (text, paths) = divided(args)?;
        let choice = if is_sql(&text) {
            Self::Sql(text)
        } else {
            let mut queries = named(&text)?;
            for (name, value) in &args.values {
                set(&mut queries, name, value)?;
            }
            match queries.iter().position(|query| query.kind == QueryKind::Recipe) {
                None => Self::Reports(queries),
                Some(_) if queries.len() == 1 => Self::Recipe(queries.remove(0)),
                Some(place) => bail!("{} is a recipe, which cannot be asked together with others", queries[place].name),
            }
        };
        choice.refuse_options(args, &paths)?;
        Ok((choice, paths))
    }

    /// Refuses options that do not apply to this query.
    fn refuse_options(&self, args: &QueryArgs, paths: &[PathBuf]) -> Result<()> {
        let OfReports { timeunit, filter_time, filter_nvtx } = &args.of_reports;
        let OfRecipes { engine, program } = &args.of_recipes;
        let of_reports = [
            ("--timeunit", timeunit.is_some()),
            ("--filter-time", filter_time.is_some()),
            ("--filter-nvtx", filter_nvtx.is_some()),
        ];
        let with = ("--with", program.is_some());
        let of_recipes = [("--engine", engine.is_some()), with];
        let of_traces = [("--run", args.run.is_some()), ("--pid", args.pid.is_some())];
        match self {
            Self::Reports(reports) => refuse(reports[0].name, "recipes", &of_recipes)?,
            Self::Sql(_) => {
                refuse("SQL", "rules and recipes", &[("--set", !args.values.is_empty())])?;
                refuse("SQL", "reports and rules", &of_reports)?;
                refuse("SQL", "recipes", &of_recipes)?;
            }
            Self::Recipe(recipe) => {
                refuse(recipe.name, "reports and rules", &of_reports)?;
                match engine.unwrap_or(Engine::Sqlite) {
                    Engine::Sqlite => refuse("the engine sqlite", "duckdb", &[with])?,
                    Engine::Duckdb => {}
                    Engine::Print => {
                        refuse("the engine print", "duckdb", &[with])?;
                        refuse("the engine print", "the others", &of_traces)?;
                    }
                }
            }
        }
        if paths.iter().any(|path| is_lake(path)) { refuse("a lake", "traces", &of_traces) } else { Ok(()) }
    }
}

/// True if the path is that of a lake.
pub fn is_lake(path: &Path) -> bool {
    let lake = Lake::new(path);
    lake.is_remote() || lake.is_there()
}

/// Refuses the first of `options` that is given: they apply to `others`, not to `what`.
fn refuse(what: &str, others: &str, options: &[(&str, bool)]) -> Result<()> {
    match options.iter().find(|(_, is_given)| *is_given) {
        Some((option, _)) => bail!("{option} does not apply to {what}: it is for {others}"),
        None => Ok(()),
    }
}

/// Splits the arguments into the query and the files. SQL may also come after the files.
fn divided(args: &QueryArgs) -> Result<(String, Vec<PathBuf>)> {
    let mut words: Vec<PathBuf> = args.query.iter().map(PathBuf::from).chain(args.paths.iter().cloned()).collect();
    // File names may have spaces too.
    let may_be_sql = |word: &PathBuf| word.to_str().is_some_and(is_sql) && !word.exists();
    let is_name = words[0].to_str().is_some_and(|word| named(word).is_ok());
    let is_behind = !is_name && !may_be_sql(&words[0]) && words.last().is_some_and(may_be_sql);
    let query = words.remove(if is_behind { words.len() - 1 } else { 0 });
    let query = query.to_str().with_context(|| format!("{}: no query has this name", query.display()))?;
    Ok((query.to_owned(), words))
}

fn is_sql(text: &str) -> bool {
    text.contains(char::is_whitespace)
}

/// Parses a list `NAME[:PARAMETER=VALUE]...,...`, as in nsys.
fn named(list: &str) -> Result<Vec<NamedQuery>> {
    let mut queries = Vec::new();
    for text in list.split(',') {
        if let Some((_, _, _, names)) = SETS.iter().find(|(_, name, ..)| *name == text) {
            queries.extend(named(names)?);
            continue;
        }
        let mut parts = text.split(':');
        let name = parts.next().unwrap_or_default();
        let mut query = NamedQuery::named(name).with_context(|| unknown(list, name))?;
        for part in parts {
            let (parameter, value) =
                part.split_once('=').with_context(|| format!("{text}: PARAMETER=VALUE is expected after a colon"))?;
            query.set(parameter, value)?;
        }
        queries.push(query);
    }
    Ok(queries)
}

/// Sets a parameter of each query that has it.
fn set(queries: &mut [NamedQuery], parameter: &str, value: &str) -> Result<()> {
    let have: Vec<_> = queries.iter().map(|query| query.has(parameter)).collect();
    let none = !have.contains(&true);
    for (query, _) in queries.iter_mut().zip(have).filter(|(_, has)| *has || none) {
        query.set(parameter, value)?;
    }
    Ok(())
}

fn unknown(list: &str, name: &str) -> String {
    if Path::new(list).exists() {
        return format!(
            "{list} is a file or folder: the query stands in front of it, as in `gpuwhy query stats {list}`; `gpuwhy \
             query --list` lists the queries"
        );
    }
    let near = near(name);
    let near = if near.is_empty() { String::new() } else { format!("did you mean {}? ", near.join(", ")) };
    format!("there is no query {name:?}; {near}`gpuwhy query --list` lists them")
}

/// Names that contain the word or have a small edit distance to it, the nearest first.
fn near(word: &str) -> Vec<&'static str> {
    let key = |name: &str| name.to_lowercase().replace('_', "");
    let word = key(word);
    let letters = word.chars().count();
    let names = KINDS.iter().flat_map(|(kind, _)| NamedQuery::all(*kind)).map(|query| query.name);
    let names = names.chain(SETS.map(|(_, name, ..)| name));
    let mut near: Vec<_> = names
        .map(|name| (edits(&key(name), &word), name))
        .filter(|(edits, name)| *edits <= letters / 3 || letters > 2 && key(name).contains(&word))
        .collect();
    near.sort_unstable();
    near.into_iter().map(|(_, name)| name).take(SUGGESTED).collect()
}

/// Lists all named queries by kind, or the chosen ones with their parameters. Fails when there is no such
/// query.
pub fn listed(args: &QueryArgs) -> Result<String> {
    let mut text = String::new();
    if args.query.is_some() {
        for query in named(&divided(args)?.0)? {
            describe(&query, &mut text);
        }
        return Ok(text);
    }
    for (kind, heading) in KINDS {
        let sets = SETS.iter().filter(|(of, ..)| *of == kind);
        let mut rows: Vec<(&str, &str)> = sets.map(|(_, name, about, _)| (*name, *about)).collect();
        rows.extend(NamedQuery::all(kind).iter().map(|query| (query.name, query.about)));
        let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        writeln!(text, "{heading}:")?;
        for (name, about) in rows {
            writeln!(text, "  {name:<width$}  {about}")?;
        }
        text.push('\n');
    }
    text.push_str("`gpuwhy query --list NAME` describes one, with its parameters.\n");
    Ok(text)
}

fn describe(query: &NamedQuery, text: &mut String) {
    let indent = query.name.len().max(16);
    text.push_str(&format!("{:<indent$} {}\n", query.name, query.about));
    for note in &query.notes {
        text.push_str(&format!("{:<indent$} {note}\n", ""));
    }
    for parameter in &query.parameters {
        let (name, default, about, values) = (parameter.name, parameter.default, parameter.about, parameter.values());
        text.push_str(&format!("{:<indent$}   --set {name}={default}  {about} ({values})\n", ""));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_near_are_suggested() {
        assert_eq!(near("stragler"), ["stragglers"]);
        assert_eq!(near("gpukernsum"), ["cuda_gpu_kern_sum"]);
        assert_eq!(near("kern_exec"), ["cuda_kern_exec_sum", "cuda_kern_exec_trace"]);
        assert!(near("xyzzy").is_empty() && near("").is_empty());
    }

    #[test]
    fn sets_are_names_and_rules_are_all_in_one() {
        let names = |list: &str| named(list).unwrap().iter().map(|query| query.name).collect::<Vec<_>>();
        assert_eq!(names("stats").len(), 4);
        assert_eq!(names("analyze"), NamedQuery::all(QueryKind::Rule).iter().map(|rule| rule.name).collect::<Vec<_>>());
        assert_eq!(names("gpu_gaps:gap=10,cuda_api_sum"), ["gpu_gaps", "cuda_api_sum"]);
        for wrong in ["gpu_gap", "gpu_gaps:gap", "gpu_gaps:chunks=3", "", "stats,"] {
            assert!(named(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_parameter_is_set_where_there_is_one() {
        let mut rules = named("gpu_gaps,gpu_time_util").unwrap();
        set(&mut rules, "gap", "1.5").unwrap();
        assert!(rules[0].sql().contains("1.5 * 1e6"));
        assert!(set(&mut rules, "gaps", "1").unwrap_err().to_string().contains("gap, rows"));
    }
}
