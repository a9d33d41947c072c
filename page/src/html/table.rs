//! Tables of the static report.

use std::fmt::{Display, Write as _};

use profiler_core::leaf::Cause;

use super::palette::mark;
use crate::escape::escaped;

/// A table: columns, and rows in HTML.
pub(super) struct Table {
    /// Names, and what their cells are.
    columns: Vec<(&'static str, &'static str)>,
    rows: String,
}

impl Table {
    /// A table with these columns, written as `Kernel:name|Doing|Time:n`: each with its name and what its cells are:
    /// `n` a number, `name` of something of the program, `long` a name that may be broken, `html` and
    /// `bars` markup of this package, else words.
    pub(super) fn new(columns: &'static str) -> Self {
        let columns = columns.split('|').map(|column| column.split_once(':').unwrap_or((column, "")));
        Self { columns: columns.collect(), rows: String::new() }
    }

    /// Appends a row with a cell for each column.
    pub(super) fn row(&mut self, cells: &[&dyn Display]) {
        self.rows.push_str("<tr>");
        for ((_, kind), cell) in self.columns.iter().zip(cells) {
            let cell = cell.to_string();
            let _ = match *kind {
                "html" => write!(self.rows, "<td>{cell}</td>"),
                "bars" => write!(self.rows, "<td class=\"wide\">{cell}</td>"),
                "" => write!(self.rows, "<td>{}</td>", escaped(&cell)),
                "long" => write!(self.rows, "<td class=\"name\"><span>{}</span></td>", escaped(&cell)),
                class => write!(self.rows, "<td class=\"{class}\">{}</td>", escaped(&cell)),
            };
        }
        self.rows.push_str("</tr>\n");
    }

    /// Appends the table, with the markup before and after its head and rows.
    pub(super) fn write(&self, page: &mut String, before: &str, after: &str) {
        let _ = write!(page, "{before}<thead><tr>");
        for (name, kind) in &self.columns {
            let class = if *kind == "n" { " class=\"n\"" } else { "" };
            let _ = write!(page, "<th{class}>{name}</th>");
        }
        let _ = write!(page, "</tr></thead><tbody>\n{}</tbody>{after}", self.rows);
    }

    /// Appends a section with the table; nothing if it has no rows.
    pub(super) fn write_section(&self, page: &mut String, title: &str) {
        if !self.rows.is_empty() {
            self.write(page, &format!("<section><h2>{title}</h2><table>"), "</table></section>\n");
        }
    }

    /// Appends a section with the table, which may be wider than the page; nothing if it has no rows. `before` is the
    /// start of the section, and `label` names the table for screen readers.
    pub(super) fn write_wide(&self, page: &mut String, before: &str, label: &str, after: &str) {
        if !self.rows.is_empty() {
            let region = format!("<div class=\"across\" role=\"region\" aria-label=\"{label}\" tabindex=\"0\"><table>");
            self.write(page, &format!("<section>{before}{region}"), &format!("</table></div>{after}</section>\n"));
        }
    }
}

/// Markup of a cause: its letters, and `words` about it.
pub(super) fn marked(cause: Cause, words: &str) -> String {
    format!("<span class=\"mark m-{}\">{}</span> {words}", cause.name(), mark(cause))
}
