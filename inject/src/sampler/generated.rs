//! Operators in code that PyTorch's Inductor generated.
//!
//! A frame of such a file is called `call` wherever it is. The comments of the file say more: above each kernel stand
//! the operators that it computes and the nodes of the model's graph that they came from. Read on the collector's
//! thread, because the files of a program may be gone when its trace is read.

use std::fs::File;
use std::io::Read;
use std::sync::Arc;

use gpuwhy_trace::short_text::cut;
use rustc_hash::FxHashMap;

/// Maximum number of files that are read, and the bytes read of each: the code of a large model has 2 MB.
const MAX_FILES: usize = 256;
const MAX_BYTES: u64 = 8 << 20;
/// Maximum length of a name, as of other functions.
const MAX_NAME: usize = 240;

/// Comments of generated files, read once.
#[derive(Debug, Default)]
pub struct GeneratedFiles {
    /// For each file the lines of its comments, ascending, with the operators.
    files: FxHashMap<Arc<str>, Vec<(u32, Arc<str>)>>,
}

impl GeneratedFiles {
    /// Operators of the kernel that `line` of `file` launches: `aten.add, aten.gelu [x, h_1]`. `None` if the file
    /// cannot be read, or has no such comment above the line in the same function.
    pub fn operators(&mut self, file: &Arc<str>, line: u32) -> Option<Arc<str>> {
        if !self.files.contains_key(file) {
            if self.files.len() >= MAX_FILES {
                return None;
            }
            self.files.insert(Arc::clone(file), comments(&read(file).unwrap_or_default()));
        }
        let comments = self.files.get(file)?;
        let above = comments.partition_point(|(at, _)| *at < line).checked_sub(1)?;
        comments.get(above).map(|(_, operators)| Arc::clone(operators)).filter(|operators| !operators.is_empty())
    }
}

fn read(path: &str) -> Option<String> {
    let file = File::open(path).ok()?;
    // Nothing else may be waited for.
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut text).ok()?;
    Some(String::from_utf8_lossy(&text).into_owned())
}

/// The comments of a file; empty ones where a function starts.
fn comments(text: &str) -> Vec<(u32, Arc<str>)> {
    let of_line = |(number, line): (usize, &str)| {
        let line = line.trim_start();
        let operators = if line.starts_with("def ") { Some(String::new()) } else { operators(line) };
        Some((u32::try_from(number).ok()? + 1, operators?.into()))
    };
    text.lines().enumerate().filter_map(of_line).collect()
}

/// Operators of a comment, and the nodes of the model's graph:
/// `# Topologically Sorted Source Nodes: [x], Original ATen: [aten.add]`, without the nodes in some versions. Source:
/// `torch/_inductor/utils.py` (`get_kernel_metadata`).
fn operators(line: &str) -> Option<String> {
    let list = |name: &str| {
        let (_, rest) = line.split_once(name)?;
        let (inside, _) = rest.trim_start().strip_prefix('[')?.split_once(']')?;
        Some(inside.trim()).filter(|inside| !inside.is_empty())
    };
    let operators = list("Original ATen:").filter(|_| line.starts_with('#'))?;
    let mut name = operators.to_owned();
    if let Some(nodes) = list("Source Nodes:") {
        name = format!("{name} [{nodes}]");
    }
    if name.len() > MAX_NAME {
        name = format!("{}...", cut(&name, MAX_NAME - 3));
    }
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "\
# kernel path: /tmp/ind/4l/c4ld.py
# Topologically Sorted Source Nodes: [h], Original ATen: [aten.native_layer_norm]
triton_per_fused_native_layer_norm_0 = async_compile.triton('triton_per_fused_native_layer_norm_0', '''
''', device_str='cuda')

class Runner:
    def call(self, args):
        buf0 = empty_strided_cuda((64, 1), (1, 1), torch.float32)
        # Topologically Sorted Source Nodes: [h], Original ATen: [aten.native_layer_norm]
        stream0 = get_raw_stream(0)
        triton_per_fused_native_layer_norm_0.run(primals_3, buf0, stream=stream0)
        # Topologically Sorted Source Nodes: [linear, x], Original ATen: [aten.addmm, aten.add]
        extern_kernels.addmm(primals_5, buf0, out=buf4)
        del primals_5
        # Original ATen: [aten.sum]
        triton_red_fused_sum_1.run(buf4, buf5, stream=stream0)
";

    #[test]
    fn a_line_has_the_operators_of_the_comment_above_it() {
        let folder = std::env::temp_dir().join(format!("gpuwhy-generated-{}", std::process::id()));
        std::fs::write(&folder, CODE).unwrap();
        let file: Arc<str> = folder.to_string_lossy().into();
        let mut files = GeneratedFiles::default();
        let mut at = |line| files.operators(&file, line).map(|found| found.to_string());
        assert_eq!(at(3).as_deref(), Some("aten.native_layer_norm [h]"));
        assert_eq!(at(8), None, "the comment of another function");
        assert_eq!(at(11).as_deref(), Some("aten.native_layer_norm [h]"));
        assert_eq!(at(13).as_deref(), Some("aten.addmm, aten.add [linear, x]"));
        assert_eq!(at(16).as_deref(), Some("aten.sum"));
        std::fs::remove_file(&folder).unwrap();
        assert!(files.operators(&file, 16).is_some(), "read once");
        assert_eq!(files.operators(&"/nowhere.py".into(), 3), None);
        assert_eq!(files.operators(&"/dev/zero".into(), 3), None);
    }

    #[test]
    fn comments_of_other_programs_are_not_operators() {
        assert_eq!(operators("# Original ATen: []"), None);
        assert_eq!(operators("# Source Nodes: [x]"), None);
        assert_eq!(operators("text = 'Original ATen: [aten.add]'"), None);
        let long = format!("# Original ATen: [{}]", "aten.\u{e9}, ".repeat(100));
        assert!(operators(&long).is_some_and(|name| name.len() <= MAX_NAME && name.ends_with("...")));
    }
}
