//! Source lines of a module's instructions: its DWARF line table (`.debug_line`).
//!
//! In a module every function is a section `.text.NAME` that starts at address 0, and a relocation fills in
//! the address of each sequence of lines. Each sequence is therefore placed at an address that holds its
//! section number in the upper half. If two rows share an address, the last one counts, as in CUPTI's
//! `cuptiGetSassToSourceCorrelation`, which served as the reference.

use std::collections::HashMap;

use gimli::{DebugLine, DebugLineOffset, EndianSlice, LineRow, LittleEndian};
use object::read::elf::ElfFile64;
use object::{Object as _, ObjectSection as _, ObjectSymbol as _, RelocationTarget, SectionIndex};

/// Name prefix of function sections.
const CODE: &str = ".text.";
/// Section with the line tables.
const LINES: &str = ".debug_line";
/// Maximum number of rows; a module with megabytes of code has some 100,000.
const MAX_ROWS: usize = 1 << 22;
/// Bits by which a section number is shifted in an address; no section has 4 GiB.
const SECTION_SHIFT: u32 = 32;

/// Covers the code from `offset` up to the next row.
#[derive(Clone, Copy, Debug)]
struct LineTableRow {
    offset: u64,
    /// Index into the files, and line; `None` if unknown from here on.
    line: Option<(u32, u32)>,
}

/// Line table of a module.
#[derive(Debug, Default)]
pub struct LineTable {
    files: Vec<String>,
    functions: HashMap<String, Vec<LineTableRow>>,
}

impl LineTable {
    /// Reads the lines of the module `bytes`. Empty if it has none or is not a module.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        let mut lines = Self::default();
        // The intact part of a broken table is kept.
        let _ = lines.read(bytes);
        lines
    }

    /// True if the module has no line information.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// Returns the file and line (counted from 1) of the instruction at `offset` of a function.
    #[must_use]
    pub fn place(&self, function: &str, offset: u64) -> Option<(&str, u32)> {
        let rows = self.functions.get(function)?;
        let row = rows.get(rows.partition_point(|row| row.offset <= offset).checked_sub(1)?)?;
        let (file, line) = row.line?;
        Some((self.files.get(file as usize)?, line))
    }

    fn read(&mut self, module: &[u8]) -> Option<()> {
        let elf = ElfFile64::<object::LittleEndian>::parse(module).ok()?;
        let section = elf.section_by_name(LINES)?;
        let mut bytes = section.data().ok()?.to_vec();
        for (offset, relocation) in section.relocations() {
            let RelocationTarget::Symbol(symbol) = relocation.target() else { continue };
            let Ok(symbol) = elf.symbol_by_index(symbol) else { continue };
            let Some(section) = symbol.section_index() else { continue };
            let address = ((section.0 as u64) << SECTION_SHIFT)
                .wrapping_add(symbol.address())
                .wrapping_add_signed(relocation.addend());
            let at = usize::try_from(offset).ok()?;
            if let Some(place) = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<8>()) {
                *place = address.to_le_bytes();
            }
        }
        let table = DebugLine::new(&bytes, LittleEndian);
        let (mut at, mut count) = (0, 0);
        let mut rows: HashMap<usize, Vec<LineTableRow>> = HashMap::new();
        while let Some(length) = unit_length(&bytes, at) {
            let program = table.program(DebugLineOffset(at), 8, None, None);
            if let Ok(program) = program {
                let files = self.files(program.header());
                let mut program = program.rows();
                while let Ok(Some((_, row))) = program.next_row() {
                    count += 1;
                    if count > MAX_ROWS {
                        break;
                    }
                    let section = usize::try_from(row.address() >> SECTION_SHIFT).ok()?;
                    let offset = row.address() & ((1 << SECTION_SHIFT) - 1);
                    rows.entry(section).or_default().push(LineTableRow { offset, line: line(row, &files) });
                }
            }
            at += length;
        }
        for (section, mut rows) in rows {
            // The sort is stable: of several rows at one offset the last one counts, and it stays last.
            rows.sort_by_key(|row| row.offset);
            let section = elf.section_by_index(SectionIndex(section));
            if let Some(name) = section.ok().and_then(|section| section.name().ok()?.strip_prefix(CODE)) {
                self.functions.insert(name.to_owned(), rows);
            }
        }
        Some(())
    }

    /// Maps each file number of this table to an index into the files.
    fn files(&mut self, header: &gimli::LineProgramHeader<EndianSlice<'_, LittleEndian>>) -> HashMap<u64, u32> {
        let mut places = HashMap::new();
        // DWARF up to 4 counts files from 1, DWARF 5 from 0.
        let first = u64::from(header.version() < 5);
        for number in first..first + header.file_names().len() as u64 {
            let Some(file) = header.file(number) else { continue };
            let text = |value: gimli::AttributeValue<EndianSlice<'_, LittleEndian>>| match value {
                gimli::AttributeValue::String(text) => Some(text.to_string_lossy().into_owned()),
                _ => None,
            };
            let Some(name) = text(file.path_name()) else { continue };
            let folder = file.directory(header).and_then(text).filter(|folder| !folder.is_empty());
            let path = match folder {
                Some(folder) if !name.starts_with('/') => format!("{}/{name}", folder.trim_end_matches('/')),
                _ => name,
            };
            let known = self.files.iter().position(|file| *file == path);
            let place = known.unwrap_or_else(|| {
                self.files.push(path);
                self.files.len() - 1
            });
            places.insert(number, u32::try_from(place).unwrap_or(u32::MAX));
        }
        places
    }
}

/// Bytes of the table that starts at `at`, including its length field; `None` after the last table.
fn unit_length(bytes: &[u8], at: usize) -> Option<usize> {
    let length = u32::from_le_bytes(*bytes.get(at..)?.first_chunk::<4>()?);
    // 64-bit DWARF is not written for GPUs.
    (length > 0 && length < 0xffff_fff0).then(|| length as usize + 4)
}

fn line(row: &LineRow, files: &HashMap<u64, u32>) -> Option<(u32, u32)> {
    if row.end_sequence() {
        return None;
    }
    let line = u32::try_from(row.line()?.get()).ok()?;
    Some((*files.get(&row.file_index())?, line))
}
