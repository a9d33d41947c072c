//! The parts of a module (cubin) that matter here: sections, symbols and relocations of a 64-bit ELF file.
//!
//! Modules come from other people's programs, so every number in them is checked; nothing here panics.

/// Sections of a module at most; each kernel has five or so.
const MAX_SECTIONS: usize = 1 << 20;
const SECTION_HEADER: usize = 64;
const SYMBOL: usize = 24;
const RELOCATION: usize = 16;
const RELOCATION_WITH_ADDEND: usize = 24;

const SHT_RELA: u32 = 4;
const SHT_REL: u32 = 9;
const SHT_NOBITS: u32 = 8;

/// A section.
#[derive(Clone, Copy, Debug)]
pub struct Section<'a> {
    pub name: &'a str,
    pub bytes: &'a [u8],
    kind: u32,
    link: u32,
    info: u32,
}

/// A module, as far as it is understood.
#[derive(Clone, Debug)]
pub struct Elf<'a> {
    pub sections: Vec<Section<'a>>,
}

/// A symbol: the section that it is in, and its place there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol {
    pub section: usize,
    pub value: u64,
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    array(bytes, at).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    array(bytes, at).map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    array(bytes, at).map(u64::from_le_bytes)
}

fn part(bytes: &[u8], at: u64, length: u64) -> Option<&[u8]> {
    let at = usize::try_from(at).ok()?;
    bytes.get(at..at.checked_add(usize::try_from(length).ok()?)?)
}

fn text(strings: &[u8], at: u32) -> Option<&str> {
    let rest = strings.get(usize::try_from(at).ok()?..)?;
    std::str::from_utf8(rest.split(|&byte| byte == 0).next()?).ok()
}

impl<'a> Elf<'a> {
    /// The sections of `bytes`. `None` when that is no 64-bit little-endian ELF file, or one that is cut.
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        if bytes.get(..6)? != b"\x7fELF\x02\x01" || usize::from(u16_at(bytes, 58)?) != SECTION_HEADER {
            return None;
        }
        let table = u64_at(bytes, 40)?;
        let header = |index: u64| part(bytes, table.checked_add(index * SECTION_HEADER as u64)?, SECTION_HEADER as u64);
        // With very many sections the first one has their number, and where their names are.
        let first = header(0)?;
        let count = match u16_at(bytes, 60)? {
            0 => u64_at(first, 32)?,
            count => count.into(),
        };
        let names = match u16_at(bytes, 62)? {
            u16::MAX => u32_at(first, 40)?,
            names => names.into(),
        };
        if count > MAX_SECTIONS as u64 {
            return None;
        }
        let content = |header: &[u8]| match u32_at(header, 4)? {
            SHT_NOBITS => Some([].as_slice()),
            _ => part(bytes, u64_at(header, 24)?, u64_at(header, 32)?),
        };
        let names = content(header(names.into())?)?;
        let mut sections = Vec::new();
        for index in 0..count {
            let header = header(index)?;
            sections.push(Section {
                name: text(names, u32_at(header, 0)?)?,
                // Section 0 may have numbers of its own.
                bytes: if index == 0 { [].as_slice() } else { content(header)? },
                kind: u32_at(header, 4)?,
                link: u32_at(header, 40)?,
                info: u32_at(header, 44)?,
            });
        }
        Some(Self { sections })
    }

    /// The section of this name, and its number.
    pub fn section(&self, name: &str) -> Option<(usize, Section<'a>)> {
        self.sections.iter().copied().enumerate().find(|(_, section)| section.name == name)
    }

    /// Every place in section `number` that a relocation fills in with the address of a symbol: its offset, the symbol,
    /// and what is added.
    pub fn relocations(&self, number: usize) -> Vec<(u64, Symbol, u64)> {
        let of_it = |section: &&Section<'a>| {
            matches!(section.kind, SHT_RELA | SHT_REL) && usize::try_from(section.info).is_ok_and(|info| info == number)
        };
        let mut found = Vec::new();
        for section in self.sections.iter().filter(of_it) {
            let symbols = usize::try_from(section.link).ok().and_then(|link| self.sections.get(link));
            let symbols = symbols.map_or([].as_slice(), |symbols| symbols.bytes);
            let size = if section.kind == SHT_RELA { RELOCATION_WITH_ADDEND } else { RELOCATION };
            for entry in section.bytes.chunks_exact(size) {
                let Some((offset, info)) = u64_at(entry, 0).zip(u64_at(entry, 8)) else { continue };
                let addend = u64_at(entry, 16).unwrap_or(0);
                found.extend(symbol(symbols, info >> 32).map(|symbol| (offset, symbol, addend)));
            }
        }
        found
    }
}

fn symbol(symbols: &[u8], number: u64) -> Option<Symbol> {
    let at = usize::try_from(number).ok()?.checked_mul(SYMBOL)?;
    let entry = symbols.get(at..at.checked_add(SYMBOL)?)?;
    Some(Symbol { section: u16_at(entry, 6)?.into(), value: u64_at(entry, 8)? })
}
