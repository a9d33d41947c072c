//! Writes several tables as one parseable text.

use std::io::{self, Write};

use super::format::TableFormat;
use crate::json::quoted;

/// Separates tables as the format requires: an empty line in CSV and TSV, and in JSON an object with a member
/// for each table, because consecutive arrays are not a valid document. A single table is unchanged.
pub struct TableWriter<W> {
    output: W,
    format: TableFormat,
    /// Names of the tables, if there are several.
    names: Vec<String>,
    /// Number of tables started.
    begun: usize,
    /// True if the table started last has written any output.
    has_written: bool,
    /// Text to write before the next byte.
    pending: String,
}

impl<W: Write> TableWriter<W> {
    /// Creates a document of tables with these names.
    pub fn new(output: W, format: TableFormat, names: impl IntoIterator<Item = String>) -> Self {
        Self { output, format, names: unique(names), begun: 0, has_written: false, pending: String::new() }
    }

    /// Starts the next table.
    ///
    /// # Errors
    /// If the output cannot be written.
    pub fn next_table(&mut self) -> io::Result<()> {
        self.close()?;
        match self.format {
            TableFormat::Json if self.names.len() > 1 => {
                let before = if self.begun == 0 { "{\n" } else { ",\n" };
                self.pending = format!("{before}{}: ", quoted(&self.names[self.begun]));
            }
            TableFormat::Csv | TableFormat::Tsv if self.has_written => self.pending = "\n".to_owned(),
            _ => {}
        }
        self.begun += 1;
        if self.format == TableFormat::Json {
            self.has_written = false;
        }
        Ok(())
    }

    /// Completes the text.
    ///
    /// # Errors
    /// If the output cannot be written.
    pub fn finish(mut self) -> io::Result<()> {
        self.close()?;
        if self.format == TableFormat::Json && self.names.len() > 1 {
            self.output.write_all(b"}\n")?;
        }
        self.output.flush()
    }

    /// A table without rows writes no output, which is not valid JSON.
    fn close(&mut self) -> io::Result<()> {
        if self.format == TableFormat::Json && self.begun > 0 && !self.has_written {
            self.write_all(b"[]\n")?;
        }
        Ok(())
    }
}

impl<W: Write> Write for TableWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.output.write_all(std::mem::take(&mut self.pending).as_bytes())?;
        self.has_written |= !bytes.is_empty();
        self.output.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}

/// A table that is requested repeatedly, possibly with other options, gets a number after its name.
fn unique(names: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut taken: Vec<String> = Vec::new();
    for name in names {
        let numbered = (2..).map(|number| format!("{name}_{number}"));
        let free = std::iter::once(name.clone()).chain(numbered).find(|name| !taken.contains(name));
        taken.extend(free);
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(format: TableFormat, tables: &[(&str, &str)]) -> String {
        let mut text = Vec::new();
        let names = tables.iter().map(|(name, _)| (*name).to_owned());
        let mut document = TableWriter::new(&mut text, format, names);
        for (_, table) in tables {
            document.next_table().unwrap();
            document.write_all(table.as_bytes()).unwrap();
        }
        document.finish().unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn several_tables_are_one_json_document() {
        let json = |tables: &[(&str, &str)]| -> serde_json::Value {
            serde_json::from_str(&written(TableFormat::Json, tables)).unwrap()
        };
        let all = json(&[("a", ""), ("b", "[1]\n"), ("a", "[2]\n"), ("c", "")]);
        assert_eq!(all, serde_json::json!({"a": [], "b": [1], "a_2": [2], "c": []}));
        assert_eq!(json(&[("a", "[1]\n")]), serde_json::json!([1]));
        assert_eq!(json(&[("a", "")]), serde_json::json!([]));
    }

    #[test]
    fn an_empty_line_is_between_tables_of_csv_and_nowhere_else() {
        let tables = [("a", ""), ("b", "x\n1\n"), ("c", ""), ("d", "y\n2\n"), ("e", "")];
        assert_eq!(written(TableFormat::Csv, &tables), "x\n1\n\ny\n2\n");
        assert_eq!(written(TableFormat::Table, &tables), "x\n1\ny\n2\n");
    }
}
