//! Place of a launch, and what it says of the work launched there.

use std::fmt::Write;

use gpuwhy_trace::demangle::demangled;
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::NameId;
use profiler_core::attribution::LaunchPlace;

use crate::text_format::names::short_path;
use crate::text_format::shortened;

/// Maximum lengths of names of modules, and of operators after them.
pub(crate) const CLASS_WIDTH: usize = 40;
pub(crate) const OPERATORS_WIDTH: usize = 60;

/// Origin of a launch.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct LaunchSite {
    /// File of the program's innermost frame.
    pub file: String,
    /// Its line, from 1; 0 when unknown, as for native code.
    pub line: u32,
    /// Its function.
    pub function: String,
    /// Function and file of the innermost Python frame, if it is a different one.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::document::within"))]
    pub within: Option<(String, String)>,
    /// Class of the innermost module whose `forward` was running.
    pub module: Option<String>,
    /// Class of the module that called it, if that is no container of `torch.nn`.
    pub parent: Option<String>,
    /// PyTorch's operator, if native frames show it.
    pub operator: Option<String>,
    /// The loaded file that called CUDA, if native frames show it.
    pub binary: Option<String>,
}

/// `make.<locals>.Net.forward` is a method of `Net`.
pub(crate) fn class_of(method: &str) -> &str {
    let class = method.strip_suffix(".forward").unwrap_or(method);
    class.rsplit('.').next().unwrap_or(class)
}

/// `at::_ops::add_Tensor::call(...)` is `add_Tensor`; those of generated code stay as they are.
fn operator_of(symbol: &str) -> Option<String> {
    if symbol.starts_with("aten.") {
        return Some(symbol.to_owned());
    }
    let (_, rest) = symbol.split_once("at::_ops::")?;
    rest.split("::").next().map(str::to_owned)
}

impl LaunchSite {
    /// Resolves the names of a place.
    pub fn of(place: &LaunchPlace, dictionary: &Dictionary) -> Self {
        let name = |id: NameId| dictionary.name(id).to_owned();
        let function = |id: NameId| demangled(dictionary.name(id));
        Self {
            file: name(place.file),
            line: place.line,
            function: function(place.function),
            within: place.within.map(|(function, file)| (name(function), name(file))),
            module: place.module.map(|id| class_of(dictionary.name(id)).to_owned()),
            parent: place.parent.map(|id| class_of(dictionary.name(id)).to_owned()),
            operator: place.operator.and_then(|id| operator_of(&function(id))),
            binary: place.binary.map(name),
        }
    }

    /// Display text of the line: `train.py:42 (Block.forward)`.
    pub(crate) fn line_text(&self) -> String {
        let mut text = short_path(&self.file).into_owned();
        if self.line > 0 {
            let _ = write!(text, ":{}", self.line);
        }
        let _ = write!(text, " ({})", shortened(&self.function, 40));
        text
    }

    /// Display text: `train.py:42 (Block.forward), Linear, in torch/nn/functional.py (linear)`.
    pub fn text(&self) -> String {
        let mut text = self.line_text();
        // Omit a module if the function name already contains its class.
        let own = |class: &str| self.function.strip_suffix(".forward").is_some_and(|of| class_of(of) == class);
        if let Some(module) = self.module.as_deref().filter(|class| !own(class)) {
            let _ = write!(text, ", {}", shortened(module, 30));
        } else if let Some((function, file)) = &self.within {
            let _ = write!(text, ", in {} ({})", short_path(file), shortened(function, 40));
        }
        if let Some(operator) = &self.operator {
            let _ = write!(text, ", {}", shortened(operator, 30));
        }
        text
    }

    /// In code of Inductor, the operators that were fused, without those that only change the view of a tensor.
    pub fn operators(&self) -> Option<String> {
        self.operator.as_deref().and_then(computing)
    }

    /// Display text of the module: `Attention > Linear`; `None` outside modules.
    pub fn module_path(&self) -> Option<String> {
        path(self.parent.as_deref(), self.module.as_deref(), CLASS_WIDTH)
    }

    /// Display text of what captured work: its module, or the line outside modules.
    pub fn captured_in(&self) -> String {
        match self.module_path() {
            Some(module) => with_operators(module, self.operators().as_deref(), OPERATORS_WIDTH),
            None => self.text(),
        }
    }
}

/// The operators of generated code that compute: `silu, mul, mm` of `aten.view, aten.silu, aten.mul, aten.mm [x, y]`.
fn computing(operators: &str) -> Option<String> {
    /// Operators that only change the view of a tensor.
    const VIEWS: [&str; 16] = [
        "_unsafe_view",
        "alias",
        "as_strided",
        "detach",
        "expand",
        "lift_fresh_copy",
        "permute",
        "select",
        "slice",
        "split",
        "split_with_sizes",
        "squeeze",
        "t",
        "transpose",
        "unsqueeze",
        "view",
    ];
    let list = operators.starts_with("aten.").then(|| operators.split(" [").next().unwrap_or_default())?;
    let names = || list.split(", ").map(|name| name.strip_prefix("aten.").unwrap_or(name));
    let computing: Vec<&str> = names().filter(|name| !VIEWS.contains(name)).collect();
    Some(if computing.is_empty() { names().collect::<Vec<_>>().join(", ") } else { computing.join(", ") })
}

/// `Attention > Linear`, with classes of at most this length; `None` outside modules.
pub(crate) fn path(parent: Option<&str>, module: Option<&str>, width: usize) -> Option<String> {
    let module = shortened(module?, width);
    Some(parent.map_or_else(|| module.clone(), |parent| format!("{} > {module}", shortened(parent, width))))
}

/// `Decoder: silu, mul, mm`, with operators of at most this length.
pub(crate) fn with_operators(module: String, operators: Option<&str>, width: usize) -> String {
    match operators {
        Some(operators) => format!("{module}: {}", shortened(operators, width)),
        None => module,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_modules_and_operators() {
        assert_eq!(class_of("make.<locals>.Net.forward"), "Net");
        assert_eq!(operator_of("at::_ops::add_Tensor::call(at::Tensor const&)").as_deref(), Some("add_Tensor"));
        assert_eq!(operator_of("aten.add, aten.gelu [x]").as_deref(), Some("aten.add, aten.gelu [x]"));
        assert_eq!(operator_of("at::native::add"), None);
    }

    #[test]
    fn of_fused_operators_those_that_compute_are_named() {
        let fused = "aten._unsafe_view, aten.silu, aten.mul, aten.view, aten.t, aten.mm [linear_2, silu]";
        assert_eq!(computing(fused).as_deref(), Some("silu, mul, mm"));
        assert_eq!(computing("aten.view, aten.t [x]").as_deref(), Some("view, t"));
        assert_eq!(computing("add_Tensor"), None);
    }
}
