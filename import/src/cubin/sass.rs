//! Instructions as text (SASS), as `nvdisasm -c` prints them.

use std::collections::HashMap;

/// Prefix of the line that starts the code of a function.
const CODE: &str = ".section\t.text.";
const CODE_SPACED: &str = ".section .text.";

/// Instructions of each function by offset.
#[derive(Debug, Default)]
pub struct Sass {
    functions: HashMap<String, HashMap<u64, String>>,
}

impl Sass {
    /// Parses the output of `nvdisasm -c`. Lines that are not instructions are skipped.
    #[must_use]
    pub fn of(text: &str) -> Self {
        let mut sass = Self::default();
        let mut function = None;
        for line in text.lines().map(str::trim) {
            let section = line.strip_prefix(CODE).or_else(|| line.strip_prefix(CODE_SPACED));
            if let Some(rest) = section {
                function = rest.split(',').next().map(|name| name.trim_matches('"').to_owned());
            } else if line.starts_with(".section") {
                function = None;
            } else if let (Some(name), Some((offset, words))) = (&function, instruction(line)) {
                sass.functions.entry(name.clone()).or_default().insert(offset, words);
            }
        }
        sass
    }

    /// Returns the instruction at `offset` of a function.
    #[must_use]
    pub fn instruction(&self, function: &str, offset: u64) -> Option<&str> {
        self.functions.get(function)?.get(&offset).map(String::as_str)
    }
}

/// `/*00c0*/ LDG.E R3, desc[UR4][R2.64] ;`
fn instruction(line: &str) -> Option<(u64, String)> {
    let (offset, words) = line.strip_prefix("/*")?.split_once("*/")?;
    let offset = u64::from_str_radix(offset, 16).ok()?;
    let words = words.split(';').next()?.split_whitespace().collect::<Vec<_>>().join(" ");
    (!words.is_empty()).then_some((offset, words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_found_by_function_and_offset() {
        let text = "\t.target\tsm_90\n\n\t.section\t.text.copy,\"ax\",@progbits\n\t.align\t128\ncopy:\n.text.copy:\n\
                    \x20       /*0000*/                   LDC R1, c[0x0][0x28] ;\n\
                    \x20       /*0070*/               @P0 EXIT ;\n.L_x_0:\n\
                    \t.section\t.nv.info,\"\"\n        /*0000*/ \t.byte 0x04\n\
                    \t.section .text._Z1fv,\"ax\"\n  /*0010*/ NOP;  /* 0x0000 */\n";
        let sass = Sass::of(text);
        assert_eq!(sass.instruction("copy", 0), Some("LDC R1, c[0x0][0x28]"));
        assert_eq!(sass.instruction("copy", 0x70), Some("@P0 EXIT"));
        assert_eq!(sass.instruction("_Z1fv", 0x10), Some("NOP"));
        assert_eq!((sass.instruction("copy", 0x10), sass.instruction("copy", 1)), (None, None));
        assert!(Sass::of("/*zz*/ X ;\n/*00").functions.is_empty());
    }
}
