//! What the line of source code that a remedy names says of it, if the trace has the line and its reader a parser.
//!
//! A line never accuses alone: it opens an entry or makes it surer beside what the GPU showed, and closes none.

use std::rc::Rc;

use super::facts::Facts;
use crate::run::LineRow;
use crate::run::code::{Code, Does, Expression};

impl Facts<'_> {
    /// The line that an entry would name.
    pub(super) fn code(&self, at: Option<&str>) -> Option<Rc<Code>> {
        self.source?.at(at?)
    }

    /// True if what is known of the line that an entry would name fulfills the condition; false without the line.
    pub(super) fn line(&self, at: Option<&str>, holds: impl Fn(&Code) -> bool) -> bool {
        self.code(at).is_some_and(|code| holds(&code))
    }

    /// Lines of the program that contain `word`, with their places, as far as the trace has them.
    pub(super) fn lines_with(&self, word: &str) -> Vec<(String, Rc<Code>)> {
        self.source.map(|source| source.with(word)).unwrap_or_default()
    }

    /// Where data loaders are made, if none of them has workers.
    pub(super) fn loader_without_workers(&self) -> Option<String> {
        let without = |at: &String| self.source.is_some_and(|source| source.does("workers", Some(at)));
        let made: Vec<String> = self.lines_with("DataLoader(").into_iter().map(|(at, _)| at).collect();
        made.iter().all(without).then(|| made.first().cloned()).flatten()
    }

    /// The line with the most idle time that is evident and fulfills the condition.
    pub(super) fn idle_line(&self, holds: impl Fn(&Code) -> bool) -> Option<&LineRow> {
        let lines = self.host.into_iter().flat_map(|host| &host.lines).filter(|row| row.is_evident());
        let mut lines = lines.filter(|row| self.line(Some(&row.place()), &holds));
        lines.next()
    }
}

/// True if the line does what the remedy with this id is about. False where nothing says what such a line looks like.
#[doc(hidden)]
#[must_use]
pub fn fits(id: &str, line: &Code) -> bool {
    CONDITIONS.iter().any(|(of, holds)| *of == id && holds(line))
}

/// Ids of the remedies with a condition on their line.
#[doc(hidden)]
pub fn with_lines() -> impl Iterator<Item = &'static str> {
    CONDITIONS.iter().map(|(id, _)| *id)
}

/// A remedy by its id, and what its line looks like.
type Condition = (&'static str, fn(&Code) -> bool);

/// Entries of `catalog/code.rs` are said only at such a line; the others are surer there.
const CONDITIONS: &[Condition] = &[
    ("read_to_show", |line| line.shows() && (reads(line) || line.call(&["print"]).is_some())),
    ("read_to_decide", |line| reads(line) && line.decides() && !checks(line)),
    ("numpy_on_gpu", |line| of_numpy(line).is_some()),
    ("one_hot_product", |line| line.multiplies() && line.call_or_assigned(&["one_hot"]).is_some()),
    ("product_summed", sums_products),
    ("softmax_parts", is_softmax),
    ("cat_grows", grows),
    ("norm_of_each", |line| of_parameters(line).is_some()),
    ("tensor_of_numbers", makes_of_numbers),
    ("pin_in_loop", |line| line.call(&["pin_memory"]).is_some()),
    ("stay_on_gpu", |line| {
        let goes =
            |of: &Expression| of.calls(&["cpu"]) || of.calls(&["to"]) && of.all().iter().any(|part| part.is_cpu());
        line.statements.iter().any(|statement| statement.does == Does::Evaluates && goes(&statement.value))
    }),
    ("index_grad", |line| line.own().iter().any(|part| matches!(part, Expression::Index(..)))),
    ("sort_topk", selects_few),
    ("unknown_size", |line| {
        let sized = [("repeat_interleave", "output_size"), ("bincount", "minlength")];
        sized.iter().any(|(name, size)| line.call(&[name]).is_some_and(|call| call.argument(size).is_none()))
            || line.call(&["unique", "masked_select", "nonzero"]).is_some()
    }),
    ("scalar_tensor", |line| line.call(&["tensor", "as_tensor", "full"]).is_some()),
    ("batch_loop", |line| line.loop_over_parts().is_some() && !carries(line)),
    ("rnn_cells", |line| line.loop_over_parts().is_some()),
    ("no_grad", |line| {
        let is_off = |of: &Expression| of.all().iter().any(|part| part.is_or_calls(&["no_grad", "inference_mode"]));
        line.own().into_iter().any(calls_a_model) && !line.contexts.iter().any(is_off)
    }),
    ("gc", |line| {
        line.own().iter().any(|part| part.called() == "gc.collect" || part.calls(&["collect"]) && part.has_name("gc"))
    }),
    ("workers", |line| {
        line.call(&["DataLoader"]).is_some_and(|call| {
            call.argument("**").is_none() && call.argument("num_workers").is_none_or(|count| count.is("0"))
        })
    }),
    ("deterministic", |line| {
        let set = line.call(&["use_deterministic_algorithms"]);
        set.and_then(Expression::subject).is_some_and(|on| on.is("True"))
    }),
    ("index_put", |line| {
        let call = line.call(&["index_put_", "index_put"]);
        call.is_some_and(|call| match call {
            Expression::Call(_, arguments, _) => {
                arguments.last().is_some_and(|last| last.is("True"))
                    || call.argument("accumulate").is_some_and(|on| on.is("True"))
            }
            _ => false,
        })
    }),
    ("clip_norm", |line| {
        let call = line.call(&["clip_grad_norm_"]);
        call.and_then(|call| call.argument("error_if_nonfinite")).is_some_and(|on| on.is("True"))
    }),
    ("anomaly", |line| {
        let call = line.call(&["set_detect_anomaly", "detect_anomaly"]);
        let entered = || line.contexts.iter().flat_map(Expression::all).find(|part| part.calls(&["detect_anomaly"]));
        call.or_else(entered).is_some_and(|call| !call.subject().is_some_and(|on| on.is("False")))
    }),
    ("cupy_fuse", |line| {
        let is_elementwise = |part: &&&Expression| match part {
            Expression::Operation(operator, parts) => {
                matches!(operator.as_str(), "+" | "-" | "*" | "/" | "**") && parts.len() == 2
            }
            _ => false,
        };
        line.own().iter().filter(is_elementwise).count() >= 2
    }),
    ("empty_cache", |line| line.call(&["empty_cache"]).is_some()),
    ("fp64", |line| {
        let double = |part: &&Expression| match part {
            Expression::Name(path) => matches!(path.as_str(), "torch.float64" | "torch.double" | "numpy.float64"),
            _ => part.calls(&["double", "from_numpy"]) || part.called().starts_with("numpy."),
        };
        line.expressions().iter().any(double)
    }),
];

/// True if the line returns, or decides by, one value that it makes of an array: what it launches is for that alone.
pub(super) fn reads_alone(line: &Code) -> bool {
    const REDUCES: [&str; 10] = ["max", "amax", "min", "amin", "sum", "mean", "norm", "any", "all", "abs"];
    let reduces = |of: &Expression| of.all().iter().any(|part| part.calls(&REDUCES));
    let read = |of: &Expression| of.calls(&["float", "bool", "int", "item"]) && reduces(of);
    let uses = |does: Does| matches!(does, Does::Returns | Does::Decides);
    line.statements.iter().any(|of| uses(of.does) && of.value.all().into_iter().any(read))
}

/// True if a step of the loop uses what the one before made: `h = cell(x[t], h)`, `x[t] = f(x[t - 1])`.
fn carries(line: &Code) -> bool {
    let base = |of: &Expression| match of {
        Expression::Name(name) => Some(name.clone()),
        Expression::Index(of, _) => of.all().iter().find_map(|part| match part {
            Expression::Name(name) => Some(name.clone()),
            _ => None,
        }),
        _ => None,
    };
    line.statements.iter().any(|statement| {
        let made = statement.targets.iter().filter_map(|target| Some((target, base(target)?)));
        made.into_iter().any(|(target, name)| match target {
            Expression::Index(..) => statement.value.all().iter().any(|part| {
                matches!(part, Expression::Index(..)) && *part != target && base(part).as_ref() == Some(&name)
            }),
            _ => statement.value.has_name(&name),
        })
    })
}

/// True if only a part of what is sorted is used: `x.sort()[0][:k]`, or a name that is cut later.
fn selects_few(line: &Code) -> bool {
    const SORTS: [&str; 3] = ["sort", "argsort", "msort"];
    let cut = |part: &Expression| {
        let Expression::Index(of, by) = part else { return false };
        let sliced = by.iter().any(|by| matches!(by, Expression::Operation(operator, _) if operator == ":"));
        sliced && of.all().iter().any(|of| line.resolved(of).all().iter().any(|of| of.calls(&SORTS)))
    };
    let later = line.uses.iter().flat_map(|of| of.value.all()).any(|part| match part {
        Expression::Index(_, by) => by.iter().any(|by| matches!(by, Expression::Operation(of, _) if of == ":")),
        _ => false,
    });
    line.own().into_iter().any(cut) || line.call(&SORTS).is_some() && later
}

/// `model(x)`, `self.model(x)`: a call of no function of a library, and of no method of tensors.
fn calls_a_model(part: &Expression) -> bool {
    const MODELS: [&str; 6] = ["model", "net", "network", "encoder", "decoder", "module"];
    let Expression::Call(function, arguments, _) = part else { return false };
    match &**function {
        Expression::Name(name) | Expression::Attribute(_, name) => {
            MODELS.contains(&name.as_str()) && !arguments.is_empty()
        }
        _ => false,
    }
}

/// Calls that read values of the GPU.
const READS: [&str; 8] = ["item", "tolist", "cpu", "numpy", "float", "int", "bool", "len"];
/// Functions of numpy on a whole array that PyTorch has, too, and those that have another name there.
const OF_NUMPY: [&str; 18] = [
    "argmax", "argmin", "argsort", "sort", "sum", "mean", "std", "var", "amax", "amin", "median", "quantile", "where",
    "abs", "exp", "log", "sqrt", "cumsum",
];
const RENAMED: [(&str, &str); 4] = [("max", "amax"), ("min", "amin"), ("percentile", "quantile"), ("clip", "clamp")];

/// True if it reads a value of the GPU.
fn reads(line: &Code) -> bool {
    line.call(&READS).is_some()
}

/// True if it looks for numbers that are not finite: `check_each` says what to do.
fn checks(line: &Code) -> bool {
    line.call_or_assigned(&["isnan", "isinf", "isfinite"]).is_some()
}

/// PyTorch's name of the function of numpy that the line calls on a copied tensor.
pub(super) fn of_numpy(line: &Code) -> Option<&'static str> {
    let copied = |part: &&Expression| part.called() == "cpu" || part.called() == "numpy";
    let called = |part: &&Expression| {
        let inner = part.all();
        part.called().starts_with("numpy.") && inner.iter().any(|of| line.resolved(of).all().iter().any(copied))
    };
    let call = line.own().into_iter().find(called)?;
    let name = call.called().strip_prefix("numpy.")?;
    let renamed = RENAMED.iter().find(|(of, _)| *of == name).map(|(_, torch)| *torch);
    renamed.or_else(|| OF_NUMPY.iter().find(|of| **of == name).copied())
}

/// `(a[:, None] * b).sum(-1)`: a sum of a product with an added dimension.
fn sums_products(line: &Code) -> bool {
    let widens = |part: &&Expression| match part {
        Expression::Index(_, by) => by.iter().any(|by| by.is("None")),
        _ => part.calls(&["unsqueeze"]),
    };
    let product = |part: &Expression| match part {
        Expression::Operation(operator, parts) if operator == "*" => {
            parts.iter().flat_map(|part| line.resolved(part).all()).any(|part| widens(&part))
        }
        _ => false,
    };
    let sums = line.own().into_iter().filter(|part| part.calls(&["sum"]));
    let mut subjects = sums.filter_map(Expression::subject);
    subjects.any(|of| product(line.resolved(of)))
}

/// `e / e.sum(-1)`, where `e` is `exp(...)`.
fn is_softmax(line: &Code) -> bool {
    let exponential = |part: &Expression| line.resolved(part).all().iter().any(|of| of.calls(&["exp"]));
    line.own().into_iter().any(|part| {
        let Expression::Operation(operator, parts) = part else { return false };
        let [above, below] = &parts[..] else { return false };
        let below = line.resolved(below);
        let sum = below.all().into_iter().find(|of| of.calls(&["sum"]));
        let of_sum = sum.and_then(Expression::subject);
        operator == "/" && exponential(above) && of_sum.is_some_and(exponential)
    })
}

/// `x = torch.cat([x, y])` in a loop.
fn grows(line: &Code) -> bool {
    const JOINS: [&str; 6] = ["cat", "concat", "concatenate", "vstack", "hstack", "append"];
    let in_loop = !line.loops.is_empty();
    line.statements.iter().any(|statement| {
        let joined = statement.value.calls(&JOINS);
        let same = |target: &Expression| statement.value.all().contains(&target);
        in_loop && joined && statement.targets.iter().any(same)
    })
}

/// What does at once what the line does for one parameter after another; `None` if it does nothing like that.
pub(super) fn of_parameters(line: &Code) -> Option<&'static str> {
    const PARAMETERS: [&str; 4] = ["parameters", "named_parameters", "param_groups", "buffers"];
    /// Calls of a line, and what replaces the loop around it.
    const TOGETHER: [(&[&str], &str); 3] = [
        (
            &["norm", "vector_norm", "clamp_", "pow", "square"],
            "torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm, foreach=True), or get_total_norm for norms alone",
        ),
        (
            &["lerp_", "copy_"],
            "torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(decay)) for moving averages",
        ),
        (&["mul_", "add_", "sub_", "div_", "addcmul_", "addcdiv_", "zero_"], "an optimizer with fused=True"),
    ];
    let over = |part: &&Expression| match part {
        Expression::Attribute(_, name) => PARAMETERS.contains(&name.as_str()),
        _ => part.calls(&PARAMETERS),
    };
    let of = |of: &Expression| of.all().iter().any(|part| line.resolved(part).all().iter().any(over));
    line.loops().find(|around| of(&around.over))?;
    TOGETHER.iter().find(|(calls, _)| line.call(calls).is_some()).map(|(_, together)| *together)
}

/// `torch.tensor(rows)` of a list or of a name that is no number.
fn makes_of_numbers(line: &Code) -> bool {
    let makes = |part: &&Expression| {
        let Expression::Call(_, arguments, _) = part else { return false };
        let first = arguments.first().map(|first| line.resolved(first));
        let many = !matches!(first, None | Some(Expression::Literal(_)));
        matches!(part.called(), "torch.tensor" | "torch.FloatTensor" | "torch.LongTensor" | "torch.as_tensor") && many
    };
    line.own().iter().any(makes)
}
