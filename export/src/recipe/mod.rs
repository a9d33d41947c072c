//! Questions about runs as SQL files: recipes, in the words that SQLite, DuckDB, Spark SQL and Trino share, and the
//! reports and rules of [`nsys`](crate::nsys), for SQLite alone.
//!
//! A file begins with lines of comment: what it answers, notes, and `parameter NAME DEFAULT LEAST MOST TEXT` or
//! `parameter NAME DEFAULT text TEXT`. A parameter stands in braces in the SQL. Values are numbers, whole ones unless
//! the default has a point, or words of letters, digits and `_.:-`, so that nothing has to be quoted, which engines do
//! differently. What several files have in common stands in braces too: its text is in `parts/`.
//!
//! Words that recipes do without, because an engine lacks them or means something else: `GREATEST`, `LEAST`,
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

macro_rules! files {
    ($list:ident, $folder:literal, $($name:literal),* $(,)?) => {
        const $list: &[(&str, &str)] = &[$(($name, include_str!(concat!("../../queries/", $folder, $name, ".sql"))),)*];
    };
}

// In the order in which they are best read.
files! {
    RECIPES, "",
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

// Those of `nsys stats`, in the order of the alphabet.
files! {
    STATISTICS, "",
    "cuda_api_gpu_sum",
    "cuda_api_sum",
    "cuda_api_trace",
    "cuda_gpu_kern_gb_sum",
    "cuda_gpu_kern_sum",
    "cuda_gpu_mem_size_sum",
    "cuda_gpu_mem_time_sum",
    "cuda_gpu_sum",
    "cuda_gpu_trace",
    "cuda_kern_exec_sum",
    "cuda_kern_exec_trace",
    "cuda_kern_library_sum",
    "cuda_kern_line_sum",
    "cuda_memory_usage_sum",
    "cuda_memory_usage_trace",
    "nvtx_gpu_proj_sum",
    "nvtx_gpu_proj_trace",
    "nvtx_kern_sum",
    "nvtx_pushpop_sum",
    "nvtx_pushpop_trace",
    "nvtx_startend_sum",
    "nvtx_sum",
    "osrt_sum",
    "um_cpu_page_faults_sum",
    "um_sum",
    "um_total_sum",
}

// Those of `nsys analyze`, in its order.
files! {
    RULES, "",
    "cuda_memcpy_async",
    "cuda_memcpy_sync",
    "cuda_memset_sync",
    "cuda_api_sync",
    "gpu_gaps",
    "gpu_time_util",
    "gpu_idle_causes",
}

// What several files have in common: one that has another in it stands before it.
files! {
    PARTS, "parts/",
    "projected_ranges",
    "busy_devices",
    "device_work",
    "gpu_operations",
    "memory_operations",
    "memory_held",
    "copy_and_call",
    "call",
    "share",
    "spread",
    "collective_waits",
}

/// What a file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shelf {
    /// `gpuwhy recipe`, for any engine.
    Recipes,
    /// `gpuwhy stats`, for SQLite alone.
    Statistics,
    /// `gpuwhy analyze`, for SQLite alone.
    Rules,
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
    /// What a rule says when it finds nothing.
    pub(crate) none: Option<&'static str>,
    /// What an answer may be without, and the query that counts it.
    pub(crate) lacks: Vec<(&'static str, &'static str)>,
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
        Self::on(Shelf::Recipes)
    }

    /// Those for one use.
    pub(crate) fn on(shelf: Shelf) -> Vec<Self> {
        let files = match shelf {
            Shelf::Recipes => RECIPES,
            Shelf::Statistics => STATISTICS,
            Shelf::Rules => RULES,
        };
        files.iter().map(|&(name, file)| Self::parsed(name, file)).collect()
    }

    /// The one of this name.
    ///
    /// # Errors
    ///
    /// When there is none; the error names them.
    pub fn named(name: &str) -> Result<Self, ExportError> {
        let found = RECIPES.iter().find(|(known, _)| *known == name);
        found.map(|&(name, file)| Self::parsed(name, file)).ok_or_else(|| {
            let names: Vec<&str> = RECIPES.iter().map(|&(name, _)| name).collect();
            ExportError::query(format!("there is no recipe {name}; there are {}", names.join(", ")))
        })
    }

    fn parsed(name: &'static str, file: &'static str) -> Self {
        let header: usize = file.lines().take_while(|line| line.starts_with("--")).map(|line| line.len() + 1).sum();
        let (header, sql) = file.split_at(header);
        let mut queries = sql.split("\n-- lacks ");
        let sql = queries.next().unwrap_or_default().trim_end();
        let lacks = queries.filter_map(|query| query.trim_end().split_once('\n')).collect();
        let mut recipe = Self { name, about: "", notes: Vec::new(), parameters: Vec::new(), none: None, lacks, sql };
        for (number, line) in header.lines().filter_map(|line| line.strip_prefix("-- ")).enumerate() {
            match line.split_once(' ') {
                Some(("parameter", parameter)) => recipe.parameters.extend(Parameter::parsed(parameter)),
                Some(("none", none)) => recipe.none = Some(none),
                _ if number == 0 => recipe.about = line,
                _ => recipe.notes.push(line),
            }
        }
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
        self.filled(self.sql, values)
    }

    /// Puts parts and parameters into one of its queries.
    pub(crate) fn filled(&self, sql: &str, values: &[(String, String)]) -> Result<String, ExportError> {
        let mut sql = sql.to_owned();
        for (name, part) in PARTS {
            sql = sql.replace(&format!("{{{name}}}"), part.trim_end());
        }
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
            Some((least, most)) if self.default.contains('.') => match value.parse::<f64>() {
                Ok(number) if (least as f64..=most as f64).contains(&number) => Ok(format!("{number:?}")),
                _ => refused(format!("a number from {least} to {most} is expected")),
            },
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
