//! Recipes: questions about runs as SQL files, in the words that SQLite, DuckDB, Spark SQL and Trino share.
//!
//! A file begins with lines of comment: what it answers, notes, and `parameter NAME DEFAULT LEAST MOST TEXT` or
//! `parameter NAME DEFAULT text TEXT`. A parameter stands in braces in the SQL. Values are numbers, or words of
//! letters, digits and `_.:-`, so that nothing has to be quoted, which engines do differently.
//!
//! Words that the files do without, because an engine lacks them or means something else: `GREATEST`, `LEAST`,
//! `ARG_MAX`, `FILTER`, `QUALIFY`, `UNNEST`, `LIKE`, `ROUND`, `CAST`, `MEDIAN` and other percentiles, functions of
//! dates, names in double quotes, division of whole numbers, orders by columns that may be empty. The tests look for
//! them.

mod answer;
mod views;

use crate::error::ExportError;
use crate::query::Query;
use crate::tables::Table;

pub use answer::print;
pub use views::{duckdb, spark_schema};

macro_rules! recipes {
    ($($name:literal),* $(,)?) => {
        const FILES: &[(&str, &str)] = &[$(($name, include_str!(concat!("../../recipes/", $name, ".sql"))),)*];
    };
}

recipes! {
    "waste",
    "causes",
    "stragglers",
    "late_because",
    "imbalance",
    "collectives",
    "overlap",
    "heatmap",
    "kernels",
    "pace",
    "histogram",
    "calls",
    "copies",
    "pageable",
    "sync_copies",
    "ranges",
    "range_pace",
    "waits_of_host",
    "memory",
    "bad_nodes",
    "runs",
    "loss",
}

/// A question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// Its name.
    pub name: &'static str,
    /// What it answers: one line.
    pub about: &'static str,
    /// More about the answer: sentences, a line each.
    pub notes: Vec<&'static str>,
    /// What can be chosen.
    pub parameters: Vec<Parameter>,
    sql: &'static str,
}

/// Something that can be chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// Its value unless another is given.
    pub default: &'static str,
    /// Least and greatest number; none for a word.
    pub range: Option<(i64, i64)>,
    /// What it is.
    pub about: &'static str,
}

impl Recipe {
    /// All of them, in the order in which they are best read.
    #[must_use]
    pub fn all() -> Vec<Self> {
        FILES.iter().map(|&(name, file)| Self::parsed(name, file)).collect()
    }

    /// The one of this name.
    ///
    /// # Errors
    ///
    /// When there is none; the error names them.
    pub fn named(name: &str) -> Result<Self, ExportError> {
        let found = FILES.iter().find(|(known, _)| *known == name);
        found.map(|&(name, file)| Self::parsed(name, file)).ok_or_else(|| {
            let names: Vec<&str> = FILES.iter().map(|&(name, _)| name).collect();
            ExportError::query(format!("there is no recipe {name}; there are {}", names.join(", ")))
        })
    }

    fn parsed(name: &'static str, file: &'static str) -> Self {
        let comments = file.lines().map_while(|line| line.strip_prefix("-- "));
        let mut recipe = Self { name, about: "", notes: Vec::new(), parameters: Vec::new(), sql: file };
        for (number, line) in comments.enumerate() {
            match line.strip_prefix("parameter ") {
                Some(parameter) => recipe.parameters.extend(Parameter::parsed(parameter)),
                None if number == 0 => recipe.about = line,
                None => recipe.notes.push(line),
            }
        }
        recipe.sql = file.find("\n--").map_or(file, |_| {
            let start: usize = file.lines().take_while(|line| line.starts_with("--")).map(|line| line.len() + 1).sum();
            file.get(start..).unwrap_or_default()
        });
        recipe
    }

    /// The SQL with these values of parameters, name and value.
    ///
    /// # Errors
    ///
    /// When a parameter does not exist or its value is none that it can have.
    pub fn sql(&self, values: &[(String, String)]) -> Result<String, ExportError> {
        if let Some((unknown, _)) = values.iter().find(|(name, _)| self.parameters.iter().all(|of| of.name != name)) {
            let names: Vec<&str> = self.parameters.iter().map(|parameter| parameter.name).collect();
            return Err(ExportError::query(format!(
                "the recipe {} has no parameter {unknown}; it has {}",
                self.name,
                names.join(", ")
            )));
        }
        let mut sql = self.sql.trim_end().to_owned();
        for parameter in &self.parameters {
            // The last one counts, as with other options.
            let given = values.iter().rev().find(|(name, _)| name == parameter.name);
            let value = given.map_or(parameter.default, |(_, value)| value);
            sql = sql.replace(&format!("{{{}}}", parameter.name), &parameter.literal(value)?);
        }
        Ok(sql)
    }

    /// The tables that it reads, and the names of the columns of its answer.
    ///
    /// # Errors
    ///
    /// As [`sql`](Self::sql).
    pub fn shape(&self, values: &[(String, String)]) -> Result<(Vec<Table>, Vec<String>), ExportError> {
        let query = Query::new(&self.sql(values)?)?;
        Ok((query.tables(), query.columns().to_vec()))
    }
}

impl Parameter {
    fn parsed(line: &'static str) -> Option<Self> {
        let mut words = line.splitn(3, ' ');
        let (name, default, rest) = (words.next()?, words.next()?, words.next()?);
        if let Some(about) = rest.strip_prefix("text ") {
            return Some(Self { name, default, range: None, about });
        }
        let mut words = rest.splitn(3, ' ');
        let range = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some(Self { name, default, range: Some(range), about: words.next()? })
    }

    fn literal(&self, value: &str) -> Result<String, ExportError> {
        let refused = |what: String| Err(ExportError::query(format!("{}={value}: {what}", self.name)));
        match self.range {
            Some((least, most)) => match value.parse::<i64>() {
                Ok(number) if (least..=most).contains(&number) => Ok(number.to_string()),
                _ => refused(format!("a whole number from {least} to {most} is expected")),
            },
            None if !value.is_empty() && value.chars().all(|c| c.is_ascii_alphanumeric() || "_.:-".contains(c)) => {
                Ok(format!("'{value}'"))
            }
            None => refused("letters, digits, and the characters _.:- are expected".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_recipe_is_one_query_of_the_tables_and_says_what_it_answers() {
        for recipe in Recipe::all() {
            let (tables, columns) = recipe.shape(&[]).unwrap_or_else(|error| panic!("{}: {error}", recipe.name));
            assert!(!tables.is_empty() && !columns.is_empty(), "{}", recipe.name);
            assert!(!recipe.about.is_empty() && !recipe.about.ends_with('.'), "{}", recipe.name);
            assert!(recipe.parameters.iter().any(|parameter| parameter.name == "rows"), "{}", recipe.name);
            let sql = recipe.sql(&[]).unwrap();
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
        for recipe in Recipe::all() {
            let sql = recipe.sql(&[]).unwrap();
            let words: Vec<&str> = sql.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
            for word in ELSEWHERE {
                assert!(!words.iter().any(|other| other.eq_ignore_ascii_case(word)), "{}: {word}", recipe.name);
            }
            // A quotient of whole numbers is whole in SQLite and Trino, and is not in DuckDB and Spark.
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
        let recipe = Recipe::named("heatmap").unwrap();
        let values = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let sql = recipe.sql(&values(&[("leaf", "host_cpu"), ("steps", "25")])).unwrap();
        assert!(sql.contains("leaf = 'host_cpu'") && sql.contains("step - step % 25") && sql.ends_with("LIMIT 1000"));
        let error = |pairs: &[(&str, &str)]| recipe.sql(&values(pairs)).unwrap_err().to_string();
        assert!(error(&[("leaf", "x' OR 1=1")]).contains("letters, digits"));
        assert!(error(&[("steps", "0")]).contains("from 1 to 1000000"));
        assert!(error(&[("step", "5")]).contains("leaf, steps, rows"));
        assert!(Recipe::named("straggler").unwrap_err().to_string().contains("stragglers"));
    }
}
