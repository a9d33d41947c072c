//! What a line of source code does, as far as conditions of remedies ask: calls, operators, loops around it.
//!
//! A parser that the reader of a trace brings ([`Captures::read_code_with`]) makes this of the lines in the trace.
//! libprof.so has neither it nor the entries and conditions that need it: they come with the parser. Names are
//! resolved by the file's imports: `F.softmax` is `torch.nn.functional.softmax`.
//!
//! [`Captures::read_code_with`]: crate::capture::Captures::read_code_with

use std::collections::BTreeMap;

/// Parses the line with this number of the lines of a file, which may have gaps; `None` if it cannot.
pub type Parse = fn(&BTreeMap<u32, String>, u32) -> Option<Code>;

/// An expression.
#[derive(Clone, Debug, PartialEq)]
pub enum Expression {
    /// A name, or a path of an imported module: `x`, `torch.nn.functional.softmax`.
    Name(String),
    /// A number, a string, `True`, `None`: its text.
    Literal(String),
    /// A part of another expression: `x.grad`.
    Attribute(Box<Expression>, String),
    /// A call with its positional and named arguments.
    Call(Box<Expression>, Vec<Expression>, Vec<(String, Expression)>),
    /// `x[a, b]`
    Index(Box<Expression>, Vec<Expression>),
    /// An operator with its operands: `+`, `@`, `>`, `and`, `not`, and `:` of a slice.
    Operation(String, Vec<Expression>),
    /// A comprehension: what is made, and the loops in it.
    Comprehension(Box<Expression>, Vec<Loop>),
    /// Anything else with these parts: lists, strings with values in them, `await`.
    Other(Vec<Expression>),
}

/// A loop.
#[derive(Clone, Debug, PartialEq)]
pub struct Loop {
    /// Names that it sets; empty for `while`.
    pub names: Vec<String>,
    /// What it goes over, or the condition of a `while`.
    pub over: Expression,
}

/// What a statement does with its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Does {
    /// Nothing: a call for its effect.
    Evaluates,
    /// Assigns it.
    Assigns,
    /// Adds it to what is there, as `+=` does.
    Adds,
    /// Decides by it what runs next: `if`, `while`, `assert`.
    Decides,
    /// Returns it, or goes over it.
    Returns,
}

/// A statement.
#[derive(Clone, Debug, PartialEq)]
pub struct Statement {
    /// What it does with the value.
    pub does: Does,
    /// What it assigns.
    pub targets: Vec<Expression>,
    /// The value.
    pub value: Expression,
}

/// A line with what is around it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Code {
    /// Its statements; of a loop in one line, the statements in it.
    pub statements: Vec<Statement>,
    /// Later statements that use what it assigns, as far as the trace has them.
    pub uses: Vec<Statement>,
    /// Loops around it in its function, the innermost first.
    pub loops: Vec<Loop>,
    /// What `with` statements around it enter, and the decorators of its function.
    pub contexts: Vec<Expression>,
    /// Earlier assignments: names and the value that each had last.
    pub assigned: Vec<(String, Expression)>,
}

impl Expression {
    /// The expression and all of its parts.
    pub(in crate::run) fn all(&self) -> Vec<&Self> {
        let mut found = vec![self];
        let mut next = 0;
        while let Some(&of) = found.get(next) {
            next += 1;
            match of {
                Self::Name(_) | Self::Literal(_) => {}
                Self::Attribute(of, _) => found.push(of),
                Self::Call(function, arguments, named) => {
                    found.push(function);
                    found.extend(arguments);
                    found.extend(named.iter().map(|(_, value)| value));
                }
                Self::Index(of, by) => {
                    found.push(of);
                    found.extend(by);
                }
                Self::Operation(_, parts) | Self::Other(parts) => found.extend(parts),
                Self::Comprehension(of, loops) => {
                    found.push(of);
                    found.extend(loops.iter().map(|of| &of.over));
                }
            }
        }
        found
    }

    /// The path of a called function, or the name of a method: `numpy.argmax`, `item`. Empty for no call.
    pub(in crate::run) fn called(&self) -> &str {
        let Self::Call(function, ..) = self else { return "" };
        match &**function {
            Self::Name(path) => path,
            Self::Attribute(_, name) => name,
            _ => "",
        }
    }

    /// True for a call of one of these: a method or a function of the program by its name, a function of a library by
    /// the last part of its path. Functions of numpy are none of them: they run on the CPU.
    pub(in crate::run) fn calls(&self, names: &[&str]) -> bool {
        let called = self.called();
        let last = called.rsplit('.').next().unwrap_or(called);
        !called.starts_with("numpy.") && !called.starts_with("math.") && names.contains(&last)
    }

    /// The receiver of a method, or the first argument of a function: `x` in `x.sum()` and `torch.sum(x)`.
    pub(in crate::run) fn subject(&self) -> Option<&Self> {
        let Self::Call(function, arguments, _) = self else { return None };
        match &**function {
            Self::Attribute(of, _) => Some(of),
            _ => arguments.first(),
        }
    }

    /// A named argument of a call.
    pub(in crate::run) fn argument(&self, name: &str) -> Option<&Self> {
        let Self::Call(_, _, named) = self else { return None };
        named.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// True for a name or a call of one of these, such as the decorators `@torch.no_grad` and `@torch.no_grad()`.
    pub(in crate::run) fn is_or_calls(&self, names: &[&str]) -> bool {
        matches!(self, Self::Name(path) if names.contains(&path.rsplit('.').next().unwrap_or(path)))
            || self.calls(names)
    }

    /// True if `name` is in it.
    pub fn has_name(&self, name: &str) -> bool {
        self.all().iter().any(|part| matches!(part, Self::Name(known) if known == name))
    }

    /// True for the name of the CPU as a device.
    pub(in crate::run) fn is_cpu(&self) -> bool {
        matches!(self, Self::Literal(text) if text.trim_matches(['"', '\'']) == "cpu")
    }

    /// True for this literal, such as `0` or `True`.
    pub(in crate::run) fn is(&self, literal: &str) -> bool {
        matches!(self, Self::Literal(text) if text == literal)
    }
}

impl Code {
    /// All expressions of the line, and of the values that its names were assigned.
    pub(in crate::run) fn expressions(&self) -> Vec<&Expression> {
        let own: Vec<&Expression> = self.statements.iter().flat_map(|statement| statement.value.all()).collect();
        let named = self
            .assigned
            .iter()
            .filter(|(name, _)| own.iter().any(|part| matches!(part, Expression::Name(known) if known == name)));
        let assigned: Vec<&Expression> = named.flat_map(|(_, value)| value.all()).collect();
        own.into_iter().chain(assigned).collect()
    }

    /// Expressions of the line itself.
    pub(in crate::run) fn own(&self) -> Vec<&Expression> {
        self.statements.iter().flat_map(|statement| statement.value.all()).collect()
    }

    /// A call of one of these on the line, see [`Expression::calls`].
    pub(in crate::run) fn call(&self, names: &[&str]) -> Option<&Expression> {
        self.own().into_iter().find(|part| part.calls(names))
    }

    /// The same, also in what the names of the line were assigned.
    pub(in crate::run) fn call_or_assigned(&self, names: &[&str]) -> Option<&Expression> {
        self.expressions().into_iter().find(|part| part.calls(names))
    }

    /// The value that a name was assigned, or the expression itself.
    pub(in crate::run) fn resolved<'a>(&'a self, of: &'a Expression) -> &'a Expression {
        let Expression::Name(name) = of else { return of };
        self.assigned.iter().find(|(known, _)| known == name).map_or(of, |(_, value)| value)
    }

    /// True if the line has this operator.
    pub(in crate::run) fn has(&self, operator: &str) -> bool {
        self.own().iter().any(|part| matches!(part, Expression::Operation(of, _) if of == operator))
    }

    /// True if it multiplies matrices.
    pub(in crate::run) fn multiplies(&self) -> bool {
        self.has("@") || self.call(&["matmul", "mm", "bmm", "einsum", "linear", "baddbmm", "addmm"]).is_some()
    }

    /// The loop over a number of steps or over a list around it, in it or in the same function; none for `while True`
    /// and for the loop over a data loader.
    pub(in crate::run) fn loops(&self) -> impl Iterator<Item = &Loop> {
        let inner = self.statements.iter().flat_map(|statement| statement.value.all());
        let inner = inner.filter_map(|part| match part {
            Expression::Comprehension(_, loops) => Some(loops),
            _ => None,
        });
        inner.flatten().chain(&self.loops)
    }

    /// The innermost loop whose steps the line takes apart by the loop's own names, with those names used in the line:
    /// `for i in range(64): f(x[i])`, `for p in model.parameters(): p.mul_(2)`.
    pub(in crate::run) fn loop_over_parts(&self) -> Option<&Loop> {
        let used = |name: &String| self.own().iter().any(|part| part.has_name(name));
        self.loops().find(|of| !of.names.is_empty() && of.names.iter().any(used))
    }

    /// False if its loops set names, and the line uses none of them, nor do the values that its names were assigned:
    /// it does the same in each step. The loop may be around the call of its function.
    pub(in crate::run) fn may_take_parts(&self) -> bool {
        let used = self.expressions();
        let mut names = self.loops().flat_map(|of| &of.names).peekable();
        names.peek().is_none()
            || names.any(|name| used.iter().any(|part| matches!(part, Expression::Name(known) if known == name)))
    }

    /// True if the value of the line, or of this part of it, decides what runs next: in the line or in a later one.
    pub(in crate::run) fn decides(&self) -> bool {
        // A `while` whose condition has what the line sets, or the list that it adds to.
        let ends_loop = |of: &Loop| of.names.is_empty() && self.changed().any(|name| of.over.has_name(name));
        self.loops.iter().any(ends_loop)
            || self.statements.iter().chain(&self.uses).any(|statement| statement.does == Does::Decides)
    }

    /// Names that the line assigns, and those of lists that it adds to.
    fn changed(&self) -> impl Iterator<Item = &String> {
        let targets = self.statements.iter().flat_map(|statement| &statement.targets);
        let lists = self.statements.iter().flat_map(|statement| statement.value.all()).filter_map(|part| match part {
            Expression::Call(function, ..) => match &**function {
                Expression::Attribute(of, method) if method == "append" => Some(&**of),
                _ => None,
            },
            _ => None,
        });
        targets.chain(lists).filter_map(|of| match of {
            Expression::Name(name) => Some(name),
            _ => None,
        })
    }

    /// True if the value is only shown: printed, logged or collected for that.
    pub(in crate::run) fn shows(&self) -> bool {
        let of =
            |statements: &[Statement]| statements.iter().any(|of| of.value.all().iter().any(|part| is_shown(part)));
        !self.decides() && (of(&self.statements) || of(&self.uses))
    }
}

/// True for a call that prints or logs.
fn is_shown(call: &Expression) -> bool {
    const SHOWS: [&str; 12] = [
        "append",
        "print",
        "log",
        "info",
        "debug",
        "warning",
        "add_scalar",
        "add_scalars",
        "set_postfix",
        "set_description",
        "log_metric",
        "log_metrics",
    ];
    call.calls(&SHOWS)
}
