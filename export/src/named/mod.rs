//! Named queries: the reports of `nsys stats` and the rules of `nsys analyze`, which [`nsys`](crate::nsys)
//! prints, for SQLite only; and recipes, questions about runs in the subset of SQL that SQLite, DuckDB, Spark
//! SQL and Trino share.
//!
//! Each query is a file in a folder of `queries/`; a number before its name is its place in lists. It starts
//! with comment lines: the question it answers, notes, and `parameter NAME DEFAULT LEAST MOST TEXT` or
//! `parameter NAME DEFAULT text TEXT`. Parameters are in braces in the SQL. Values are numbers (integers unless
//! the default has a decimal point) or words of letters, digits and `_.:-`, so that no value needs quoting,
//! which differs between engines. Text shared by several files is also in braces and defined in `parts/`.
//!
//! Recipes avoid the following, because an engine lacks them or interprets them differently: `GREATEST`,
//! `LEAST`, `ARG_MAX`, `FILTER`, `QUALIFY`, `UNNEST`, `LIKE`, `ROUND`, `CAST`, `MEDIAN` and other
//! percentiles, functions of dates, names in double quotes, division of integers, ordering by columns that
//! may be empty. Tests check for them.

pub mod duckdb;

use crate::error::ExportError;
use crate::query::Query;

// `REPORTS`, `RULES`, `RECIPES` and `PARTS`: the folders of `queries/` (build.rs).
include!(concat!(env!("OUT_DIR"), "/queries.rs"));

/// Kind of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueryKind {
    /// A report of `nsys stats`.
    Report,
    /// A rule of `nsys analyze`.
    Rule,
    /// A question about runs.
    Recipe,
}

/// A query with the values of its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedQuery {
    /// Its name.
    pub name: &'static str,
    /// Kind of the query.
    pub kind: QueryKind,
    /// The question it answers, in one line.
    pub about: &'static str,
    /// Notes on the result, one sentence per line.
    pub notes: Vec<&'static str>,
    /// Parameters that the user can set.
    pub parameters: Vec<Parameter>,
    /// Message of a rule without findings.
    pub(crate) none: Option<&'static str>,
    /// Descriptions of data that the result may lack, and the query that counts it.
    pub(crate) lacks: Vec<(&'static str, &'static str)>,
    sql: &'static str,
}

/// A parameter that the user can set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// Default value.
    pub default: &'static str,
    /// Minimum and maximum of a number; `None` for a word.
    range: Option<(i64, i64)>,
    /// Description.
    pub about: &'static str,
    /// Current value, as SQL.
    value: String,
}

impl NamedQuery {
    /// All queries of a kind, in recommended reading order.
    pub fn all(kind: QueryKind) -> Vec<Self> {
        let files = match kind {
            QueryKind::Report => REPORTS,
            QueryKind::Rule => RULES,
            QueryKind::Recipe => RECIPES,
        };
        files.iter().map(|&(name, file)| Self::parsed(kind, name, file)).collect()
    }

    /// Query with this name.
    pub fn named(name: &str) -> Option<Self> {
        let all = [QueryKind::Report, QueryKind::Rule, QueryKind::Recipe].into_iter().flat_map(Self::all);
        all.into_iter().find(|query| query.name == name)
    }

    fn parsed(kind: QueryKind, name: &'static str, file: &'static str) -> Self {
        let header: usize = file.lines().take_while(|line| line.starts_with("--")).map(|line| line.len() + 1).sum();
        let (header, sql) = file.split_at(header);
        let mut queries = sql.split("\n-- lacks ");
        let sql = queries.next().unwrap_or_default().trim_end();
        let lacks = queries.filter_map(|query| query.trim_end().split_once('\n')).collect();
        let mut query =
            Self { name, kind, about: "", notes: Vec::new(), parameters: Vec::new(), none: None, lacks, sql };
        for (number, line) in header.lines().filter_map(|line| line.strip_prefix("-- ")).enumerate() {
            match line.split_once(' ') {
                Some(("parameter", parameter)) => query.parameters.extend(Parameter::parsed(parameter)),
                Some(("none", none)) => query.none = Some(none),
                _ if number == 0 => query.about = line,
                _ => query.notes.push(line),
            }
        }
        if kind == QueryKind::Rule {
            query.parameters.extend(Parameter::parsed(RULE_ROWS));
        }
        query
    }

    /// True if it has this parameter.
    pub fn has(&self, parameter: &str) -> bool {
        self.parameters.iter().any(|of| of.name == parameter)
    }

    /// Sets a parameter.
    ///
    /// # Errors
    /// If the parameter does not exist or the value is invalid.
    pub fn set(&mut self, parameter: &str, value: &str) -> Result<(), ExportError> {
        let names: Vec<&str> = self.parameters.iter().map(|of| of.name).collect();
        let unknown = || match names.as_slice() {
            [] => ExportError::query(format!("{} has no parameters", self.name)),
            names => {
                ExportError::query(format!("{} has no parameter {parameter}; it has {}", self.name, names.join(", ")))
            }
        };
        let place = names.iter().position(|name| *name == parameter).ok_or_else(unknown)?;
        let parameter = &mut self.parameters[place];
        parameter.value = parameter.literal(value).map_err(ExportError::query)?;
        Ok(())
    }

    /// SQL with the values of the parameters.
    pub fn sql(&self) -> String {
        self.filled(self.sql)
    }

    /// Substitutes parts and parameters in an SQL text of this query.
    pub(crate) fn filled(&self, sql: &str) -> String {
        let parts = PARTS.iter().map(|&(name, part)| (name, part.trim_end()));
        let values = self.parameters.iter().map(|parameter| (parameter.name, parameter.value.as_str()));
        let texts: Vec<_> = parts.chain(values).collect();
        let fill = |sql: String, (name, text): &(&str, &str)| sql.replace(&format!("{{{name}}}"), text);
        // Parts may contain parts.
        let mut sql = sql.to_owned();
        loop {
            let filled = texts.iter().fold(sql.clone(), fill);
            if filled == sql {
                return sql;
            }
            sql = filled;
        }
    }

    /// The checked query.
    ///
    /// # Errors
    /// As [`Query::new`].
    pub fn query(&self) -> Result<Query, ExportError> {
        Query::new(&self.sql())
    }

    /// Maximum number of rows per trace that a rule shows.
    pub(crate) fn most_rows(&self) -> Option<u64> {
        let rows = self.parameters.iter().find(|parameter| self.kind == QueryKind::Rule && parameter.name == "rows");
        rows.and_then(|rows| rows.value.parse().ok())
    }
}

/// Parameter of every rule, as in nsys.
const RULE_ROWS: &str = "rows 50 -1 1000000000 Rows to show of each trace";

impl Parameter {
    fn parsed(line: &'static str) -> Option<Self> {
        let mut words = line.splitn(3, ' ');
        let (name, default, rest) = (words.next()?, words.next()?, words.next()?);
        let (range, about) = match rest.strip_prefix("text ") {
            Some(about) => (None, about),
            None => {
                let mut words = rest.splitn(3, ' ');
                let range = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
                (Some(range), words.next()?)
            }
        };
        let mut parameter = Self { name, default, range, about, value: String::new() };
        parameter.value = parameter.literal(default).ok()?;
        Some(parameter)
    }

    /// Permitted values, for display.
    pub fn values(&self) -> String {
        match self.range {
            Some((-1, most)) => format!("1 to {most}, -1 for all"),
            Some((least, most)) => format!("{least} to {most}"),
            None => "a word".to_owned(),
        }
    }

    fn literal(&self, value: &str) -> Result<String, String> {
        let refused = |what: &str| Err(format!("{}={value}: {what} is expected", self.name));
        match self.range {
            Some((least, most)) if self.default.contains('.') => match value.parse::<f64>() {
                Ok(number) if (least as f64..=most as f64).contains(&number) => Ok(format!("{number:?}")),
                _ => refused(&format!("a number from {}", self.values())),
            },
            Some((least, most)) => match value.parse::<i64>() {
                Ok(number) if (least..=most).contains(&number) && (number, least) != (0, -1) => Ok(number.to_string()),
                _ => refused(&format!("a whole number from {}", self.values())),
            },
            None if !value.is_empty() && value.chars().all(|c| c.is_ascii_alphanumeric() || "_.:-".contains(c)) => {
                Ok(format!("'{value}'"))
            }
            None => refused("a word of letters, digits, and the characters _.:-"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_recipe_is_one_query_of_the_tables_and_says_what_it_answers() {
        for recipe in NamedQuery::all(QueryKind::Recipe) {
            let query = recipe.query().unwrap_or_else(|error| panic!("{}: {error}", recipe.name));
            assert!(!query.tables().is_empty() && !query.columns().is_empty(), "{}", recipe.name);
            assert!(!recipe.about.is_empty() && !recipe.about.ends_with('.'), "{}", recipe.name);
            assert!(recipe.has("rows"), "{}", recipe.name);
            let sql = recipe.sql();
            assert!(!sql.contains(['{', '}', '"', '`', ';']) && !sql.contains("--"), "{}: {sql}", recipe.name);
            assert!(sql.contains("\nORDER BY ") && sql.contains("\nLIMIT "), "{}: no order", recipe.name);
        }
    }

    #[test]
    fn recipes_keep_to_the_words_that_engines_share() {
        const ELSEWHERE: [&str; 22] = [
            "GREATEST",
            "LEAST",
            "ARG_MAX",
            "MAX_BY",
            "FILTER",
            "QUALIFY",
            "UNNEST",
            "LIKE",
            "ILIKE",
            "ROUND",
            "CAST",
            "MEDIAN",
            "QUANTILE",
            "PERCENTILE_CONT",
            "APPROX_PERCENTILE",
            "DATE_TRUNC",
            "INTERVAL",
            "TRY",
            "IF",
            "USING",
            "NATURAL",
            "EXCEPT",
        ];
        for recipe in NamedQuery::all(QueryKind::Recipe) {
            let sql = recipe.sql();
            let words: Vec<&str> = sql.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
            for word in ELSEWHERE {
                assert!(!words.iter().any(|other| other.eq_ignore_ascii_case(word)), "{}: {word}", recipe.name);
            }
            // The quotient of two integers is an integer in SQLite and Trino, but not in DuckDB and Spark.
            for (place, _) in sql.match_indices(" / ") {
                let line = sql[..place].rsplit('\n').next().unwrap();
                let around = format!("{line}{}", sql[place..].split('\n').next().unwrap());
                assert!(
                    around.contains("e0")
                        || around.contains("/ 3.6e12")
                        || around.contains("_ns / ")
                        || around.contains("bus_factor"),
                    "{}: {around}",
                    recipe.name
                );
            }
        }
    }

    #[test]
    fn parameters_are_checked_and_put_in() {
        let mut recipe = NamedQuery::named("heatmap").unwrap();
        recipe.set("leaf", "host_cpu").unwrap();
        recipe.set("steps", "25").unwrap();
        let sql = recipe.sql();
        assert!(sql.contains("leaf = 'host_cpu'") && sql.contains("step - step % 25") && sql.ends_with("LIMIT 1000"));
        let mut error = |parameter: &str, value: &str| recipe.set(parameter, value).unwrap_err().to_string();
        assert!(error("leaf", "x' OR 1=1").contains("letters, digits"));
        assert!(error("steps", "0").contains("from 1 to 1000000"));
        assert!(error("step", "5").contains("leaf, steps, rows"));
        let mut rule = NamedQuery::named("gpu_gaps").unwrap();
        assert_eq!(rule.most_rows(), Some(50));
        rule.set("gap", "1.5").unwrap();
        rule.set("rows", "-1").unwrap();
        assert!(rule.sql().contains(">= 1.5 * 1e6") && rule.most_rows().is_none());
        for (parameter, value) in [("chunks", "3"), ("gap", "x"), ("gap", ""), ("rows", "0"), ("rows", "-2")] {
            assert!(rule.set(parameter, value).is_err(), "{parameter}={value}");
        }
    }

    #[test]
    fn names_are_found_and_differ() {
        let all = [QueryKind::Report, QueryKind::Rule, QueryKind::Recipe].into_iter().flat_map(NamedQuery::all);
        for query in all {
            assert_eq!(NamedQuery::named(query.name), Some(query));
        }
        assert_eq!(NamedQuery::named("straggler"), None);
    }
}
