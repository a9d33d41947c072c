//! Readable names of C++ functions, with a length limit.
//!
//! A mangled name can refer to its own parts, so 200 bytes may expand to gigabytes. Names that would be
//! longer than 16 KiB stay mangled.

use std::fmt::{self, Write};

use cpp_demangle::{DemangleOptions, Symbol};

/// Maximum bytes of a readable name. The longest observed name of a PyTorch kernel has 5,262.
const LONGEST: usize = 1 << 14;

/// Demangles a name. A name that is not C++ or would become too long is returned unchanged.
pub fn demangled(name: &str) -> String {
    readable(name, &DemangleOptions::new())
}

/// The same without parameters and return type.
#[must_use]
pub fn without_parameters(name: &str) -> String {
    readable(name, &DemangleOptions::new().no_params().no_return_type())
}

fn readable(name: &str, options: &DemangleOptions) -> String {
    // The demangler also accepts bare types: a kernel `f` with C linkage would become `float`.
    if !name.starts_with("_Z") {
        return name.to_owned();
    }
    let mut readable = Bounded(String::new());
    let made = Symbol::new(name).is_ok_and(|symbol| symbol.structured_demangle(&mut readable, options).is_ok());
    if made && !readable.0.is_empty() { readable.0 } else { name.to_owned() }
}

/// Text limited to [`LONGEST`] bytes; a longer write fails and stops the demangler.
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > LONGEST {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_functions_become_readable_and_others_stay() {
        assert_eq!(demangled("_Z4gemmPfS_i"), "gemm(float*, float*, int)");
        assert_eq!(without_parameters("_Z4gemmPfS_i"), "gemm");
        assert_eq!(without_parameters("_ZN2at6native6vectorILi4EEEvPf"), "at::native::vector<4>");
        for name in ["triton_poi_fused_0", "_Z", "", "f", "d", "Pf", "v"] {
            assert_eq!((demangled(name), without_parameters(name)), (name.to_owned(), name.to_owned()));
        }
    }

    /// `A<A<A<int, int>, A<int, int>>, ...>`: each level contains the previous one twice, the second time by
    /// reference.
    fn doubled(levels: u32) -> String {
        let mut inner = "1AIiiE".to_owned();
        for level in 0..levels {
            // References are base-36 numbers that start after `f`: each `A` from the outside in, then each
            // level from the inside out.
            let digit = char::from_digit(levels + 1 + level, 36).expect("at most 17 levels").to_ascii_uppercase();
            inner = format!("1AI{inner}S{digit}_E");
        }
        format!("_Z1fI{inner}Evv")
    }

    #[test]
    fn a_name_that_would_become_endless_stays_mangled() {
        assert_eq!(without_parameters(&doubled(1)), "f<A<A<int, int>, A<int, int> > >");
        assert!(demangled(&doubled(9)).len() > 8_000, "{}", demangled(&doubled(9)));
        for name in [doubled(12), doubled(17)] {
            assert_eq!((demangled(&name), without_parameters(&name)), (name.clone(), name));
        }
    }
}
