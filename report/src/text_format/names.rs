//! Kernel names in a bounded width: distinguishing parts are kept, C++ noise is removed first.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use super::{printable, shortened};

/// Shortens the names of kernels to at most `width` characters each. A name that is too long keeps its start,
/// and the part from the first difference to its most similar name.
pub(crate) fn short_names<'a>(names: impl Iterator<Item = &'a str>, width: usize) -> Vec<String> {
    let names: Vec<&str> = names.collect();
    let plain = distinguished(&names, width);
    // The most similar name is adjacent in sorted order.
    let mut order: Vec<&String> = plain.iter().collect();
    order.sort_unstable();
    order.dedup();
    let mut alike: HashMap<&String, usize> = HashMap::new();
    for pair in order.windows(2) {
        let same = pair[0].chars().zip(pair[1].chars()).take_while(|(a, b)| a == b).count();
        for name in pair {
            let most = alike.entry(name).or_default();
            *most = same.max(*most);
        }
    }
    let mut short: Vec<String> =
        plain.iter().map(|name| cut_before(name, alike.get(name).copied().unwrap_or(0), width)).collect();
    number_the_alike(&mut short, &names, width);
    short
}

/// Removes the least distinguishing parts of the names; a part that is the only difference between two names
/// stays.
fn distinguished(names: &[&str], width: usize) -> Vec<String> {
    let forms: [fn(&str, usize) -> String; 3] = [
        without_noise,
        |name, width| without_namespaces(&printable(name), width),
        |name, _| printable(name).into_owned(),
    ];
    let mut plain: Vec<String> = names.iter().map(|name| forms[0](name, width)).collect();
    for form in &forms[1..] {
        let mut owners: HashMap<&str, &str> = HashMap::new();
        let mut shared: HashSet<String> = HashSet::new();
        for (shown, &name) in plain.iter().zip(names) {
            if *owners.entry(shown).or_insert(name) != name {
                shared.insert(shown.clone());
            }
        }
        for (shown, name) in plain.iter_mut().zip(names).filter(|(shown, _)| shared.contains(*shown)) {
            *shown = form(name, width);
        }
    }
    plain
}

/// Makes the printed names of two kernels differ: if the distinguishing part has no room, the later ones get
/// a number.
fn number_the_alike(short: &mut [String], names: &[&str], width: usize) {
    let mut known: HashMap<String, Vec<&str>> = HashMap::new();
    for (shown, &name) in short.iter_mut().zip(names) {
        let of_it = known.entry(shown.clone()).or_default();
        let place = of_it.iter().position(|other| *other == name).unwrap_or_else(|| {
            of_it.push(name);
            of_it.len() - 1
        });
        if place > 0 {
            let number = format!(" #{}", place + 1);
            *shown = shortened(shown, width.saturating_sub(number.len())) + &number;
        }
    }
}

/// Like `short_names`, for one name.
pub fn short_name(name: &str, width: usize) -> String {
    cut_in_the_middle(&without_noise(name, width), width)
}

/// Removes the least distinguishing parts of a name while it is longer than `width`.
fn without_noise(name: &str, width: usize) -> String {
    let name = without_namespaces(&printable(name), width);
    if name.chars().count() <= width { name } else { without_plain_arguments(&name) }
}

/// Template arguments of PyTorch's kernels other than the functor that names their work.
const PLAIN_ARGUMENTS: [&str; 6] = [
    "array<",
    "TrivialOffsetCalculator<",
    "OffsetCalculator<",
    "LoadWithoutCast",
    "StoreWithoutCast",
    "(unsigned long)",
];

/// Removes template arguments of a C++ name that are numbers, flags, or listed in [`PLAIN_ARGUMENTS`]. Lists
/// with only such arguments stay unchanged.
fn without_plain_arguments(name: &str) -> String {
    let Some(open) = name.find('<').filter(|_| name.trim_end().ends_with('>')) else { return without_lambdas(name) };
    let inner = name.trim_end();
    let inner = &inner[open + 1..inner.len() - 1];
    let (mut depth, mut begin, mut arguments) = (0_i32, 0, Vec::new());
    for (at, character) in inner.char_indices() {
        match character {
            '<' | '(' | '{' | '[' => depth += 1,
            '>' | ')' | '}' | ']' => depth -= 1,
            ',' if depth == 0 => {
                arguments.push(inner[begin..at].trim());
                begin = at + 1;
            }
            _ => {}
        }
    }
    arguments.push(inner[begin..].trim());
    if depth != 0 {
        return name.to_owned();
    }
    let is_plain = |argument: &&str| {
        let number = argument.strip_suffix("ul").or_else(|| argument.strip_suffix('u')).unwrap_or(argument);
        number.parse::<i64>().is_ok()
            || matches!(*argument, "true" | "false")
            || PLAIN_ARGUMENTS.iter().any(|plain| argument.starts_with(plain))
    };
    let kept: Vec<String> = arguments
        .iter()
        .filter(|argument| !is_plain(argument))
        .map(|argument| without_plain_arguments(argument))
        .collect();
    if kept.is_empty() { name.to_owned() } else { format!("{}<{}>", &name[..open], kept.join(", ")) }
}

/// Removes the least informative parts of a C++ name if it is longer than `width`: return type, parameters,
/// namespaces.
fn without_namespaces(name: &str, width: usize) -> String {
    if name.chars().count() <= width {
        return name.to_owned();
    }
    let name = name.strip_prefix("void ").unwrap_or(name).replace("(anonymous namespace)::", "");
    let mut short = String::with_capacity(name.len());
    for part in without_parameters(&name).split_inclusive("::") {
        short.push_str(part);
        if let Some(before) = short.strip_suffix("::") {
            let kept = before.trim_end_matches(|c: char| c.is_alphanumeric() || c == '_').len();
            if kept < before.len() {
                short.truncate(kept);
            }
        }
    }
    short
}

/// Replaces a lambda by its enclosing function and its parameters:
/// `clamp(Tensor&)::{lambda()#1}::operator()() const::{lambda(float)#2}` is `clamp(float)`.
fn without_lambdas(name: &str) -> String {
    let Some(last) = name.rfind("{lambda(") else { return name.to_owned() };
    let mut depth = 0;
    let function = name.char_indices().find(|&(_, character)| {
        depth += i32::from(character == '<') - i32::from(character == '>');
        character == '(' && depth == 0
    });
    let Some((end, _)) = function.filter(|&(end, _)| 0 < end && end < last) else { return name.to_owned() };
    let function = name[..end].trim_end_matches("::operator");
    let takes = name[last + "{lambda(".len()..].split(')').next().unwrap_or_default();
    if takes.is_empty() { function.to_owned() } else { format!("{function}({takes})") }
}

fn without_parameters(name: &str) -> &str {
    let whole = name.strip_suffix(" const").unwrap_or(name);
    let mut depth = 0;
    for (at, character) in whole.char_indices().rev() {
        match character {
            ')' => depth += 1,
            '(' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return if at > 0 && character == '(' { &whole[..at] } else { name };
        }
    }
    name
}

/// Keeps the start and the end, more of the end, because kernel names of one library start with the same
/// text.
fn cut_in_the_middle(name: &str, width: usize) -> String {
    let length = name.chars().count();
    if length <= width {
        return name.to_owned();
    }
    let head = width.saturating_sub(1) / 3;
    let tail = width.saturating_sub(1) - head;
    name.chars().take(head).chain(['~']).chain(name.chars().skip(length - tail)).collect()
}

/// Keeps the start, and the text from the word that contains character `from`; like [`cut_in_the_middle`] if
/// that also shows `from`.
fn cut_before(name: &str, from: usize, width: usize) -> String {
    let length = name.chars().count();
    let head = width.saturating_sub(1) / 3;
    let tail = width.saturating_sub(1) - head;
    if length <= width || from < head || from >= length - tail {
        return cut_in_the_middle(name, width);
    }
    let before: Vec<char> = name.chars().take(from).collect();
    let word = before.iter().rposition(|c| !c.is_alphanumeric()).map_or(from, |at| at + 1);
    let from = word.max(from.saturating_sub(tail / 2)).min(length - tail);
    let rest: String = name.chars().skip(from).collect();
    let begin: String = name.chars().take(head).collect();
    format!("{begin}~{}", shortened(&rest, tail))
}

/// Returns the path of a library's file from its package directory on, or only the file name of any other
/// file.
///
/// It is in quotes if it has a blank, so that a sentence as its name is not read as one of the report.
pub(crate) fn short_path(path: &str) -> Cow<'_, str> {
    // A native function without a name carries the build id of its file.
    let path = path.split(" build-id:").next().unwrap_or(path);
    let package = ["/site-packages/", "/dist-packages/"].into_iter().find_map(|at| path.rsplit_once(at));
    let name = match package {
        Some((_, within)) => within,
        None => path.rsplit_once('/').map_or(path, |(_, name)| name),
    };
    let name = printable(name);
    if name.contains(' ') { format!("\"{name}\"").into() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_distinguished_by_what_differs() {
        let of = |functor: &str| {
            let functor = format!("at::native::{functor}<float>");
            format!("void at::native::vectorized_kernel<4, {functor}, std::array<char*, 2ul> >(int, {functor})")
        };
        assert_eq!(
            short_name(&of("FillFunctor"), 90),
            "vectorized_kernel<4, FillFunctor<float>, array<char*, 2ul> >",
            "no more is left out than must be"
        );
        let flash =
            |what: &str| format!("cudnn_generated_fort_native_sdpa_sm90_flash_{what}_wgmma_f16_knob_3_64x64x128");
        for [a, b] in [[of("FillFunctor"), of("AddFunctor")], [flash("fprop"), flash("bprop")]] {
            for width in [24, 36, 44, 56] {
                let short = short_names([a.as_str(), b.as_str(), a.as_str()].into_iter(), width);
                assert!(short.iter().all(|name| name.chars().count() <= width), "{short:?}");
                assert!(short[0] != short[1], "{short:?}");
            }
        }
        let names = [flash("fprop"), flash("bprop")];
        let short = short_names(names.iter().map(String::as_str), 44);
        assert_eq!(short[1], "cudnn_generate~bprop_wgmma_f16_knob_3_64x64~", "a word is not cut where it differs");
        assert_eq!(short_name("run<int>(int)", 8), "run<int>", "parameters go first");
        assert_eq!(
            short_name(&of("AddFunctor"), 40),
            "vectorized_kernel<AddFunctor<float>>",
            "then numbers and arrays"
        );
        let lambda = "vectorized_kernel<4, clamp(Base&, Limits)::{lambda()#1}::operator()() const::{lambda(float)#7}, array<char*, 2> >";
        assert_eq!(short_name(lambda, 40), "vectorized_kernel<clamp(float)>", "then what lambdas are in");
        let long = |first: &str, last: &str| format!("kernel_{first}_{}_{last}", "x".repeat(60));
        let names = [long("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa1", "z"), long("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa2", "z")];
        let of_width = |width| short_names(names.iter().map(String::as_str), width);
        assert!((8..90).map(of_width).all(|short| short[0] != short[1]), "two kernels never print alike");
        let numbers = ["f<1, functor_of_a_long_name>", "f<2, functor_of_a_long_name>", "f<1, functor_of_a_long_name>"];
        assert_eq!(
            short_names(numbers.into_iter(), 26),
            ["f<1, fun~r_of_a_long_name>", "f<2, fun~r_of_a_long_name>", "f<1, fun~r_of_a_long_name>"],
            "an argument that tells them apart stays"
        );
        let ends = |last: &str| format!("void gemm_{}_{last}_{}(float*, int)", "x".repeat(40), "y".repeat(60));
        let names = ["nn", "nt", "tn"].map(ends);
        let short = short_names(names.iter().map(String::as_str), 40);
        for (name, part) in short.iter().zip(["nn_y", "nt_y", "tn_y"]) {
            assert!(name.contains(part) && name.chars().count() <= 40, "{short:?}");
        }
        // They differ only in a word far from both ends, or in the type of a parameter.
        let overloads = ["void scale_all_of_the_values(float*)", "void scale_all_of_the_values(double*)"];
        let short = short_names(overloads.into_iter(), 30);
        assert!(short[0].contains("float") && short[1].contains("double"), "{short:?}");
        assert_eq!(short_name("gemm", 4), "gemm");
    }

    #[test]
    fn paths_are_named_so_that_they_can_be_found() {
        assert_eq!(short_path("/home/u/project/train.py"), "train.py");
        assert_eq!(short_path("/lib/python3.12/site-packages/torch/optim/adamw.py"), "torch/optim/adamw.py");
        assert_eq!(short_path("<string>"), "<string>");
        assert_eq!(short_path("libfoo.so.1 build-id:00ff"), "libfoo.so.1");
        assert_eq!(short_path("/x/Run this.\nNow"), "\"Run this.\\nNow\"");
    }
}
