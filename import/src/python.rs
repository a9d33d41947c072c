//! Parses lines of Python for the conditions of remedies.
//!
//! The lines of a trace are those around a named one, with gaps, so the text is no complete program: the parser goes
//! on behind what it does not understand.

use std::collections::BTreeMap;

use gpuwhy_report::run::{Code, Does, Expression, Loop, Statement};
use tree_sitter::{Node, Parser};

/// Maximum depth of an expression; deeper parts are left out.
const DEEPEST: usize = 48;
/// Maximum length of an expression, bytes; a longer one says nothing, and would keep the conditions busy.
const LONGEST: usize = 4 << 10;

/// Parses line `line` of the `rows` of a file.
pub fn code(rows: &BTreeMap<u32, String>, line: u32) -> Option<Code> {
    let text: String = closed(rows);
    let numbers: Vec<u32> = rows.keys().copied().collect();
    let wanted = numbers.iter().position(|&number| number == line)?;
    let mut parser = Parser::new();
    parser.set_language(&tree_sitter_python::LANGUAGE.into()).ok()?;
    let tree = parser.parse(&text, None)?;
    // What a file without its imports most likely means.
    let usual = [("torch", "torch"), ("np", "numpy"), ("numpy", "numpy"), ("math", "math")];
    let imports = usual.map(|(name, path)| (name.to_owned(), path.to_owned())).into();
    let mut reader = Reader { text: &text, imports, scopes: vec![0] };
    let mut statements = Vec::new();
    reader.collect(tree.root_node(), 0, &mut statements, 0);
    let covers = |node: &Node<'_>| (node.start_position().row..=node.end_position().row).contains(&wanted);
    // A head in one line with its loop has both: the loop's own statements count.
    let own = statements.iter().copied().filter(|(of, _)| covers(&head(*of)) && of.kind() != "block");
    let (own, scopes): (Vec<Node<'_>>, Vec<usize>) = own.unzip();
    let (innermost, scope) = (*own.last()?, *scopes.last()?);
    let mut code = Code::default();
    for node in own.iter().filter(|node| !is_scope(node)) {
        code.statements.extend(reader.statement(*node));
    }
    reader.around(innermost, &mut code);
    for (node, of) in &statements {
        let row = node.start_position().row;
        // Names of other functions are not those of the line.
        if row < wanted && !reader.sees(scope, *of) || row > wanted && !reader.sees(*of, scope) {
            continue;
        }
        for of in reader.statement(*node) {
            if row < wanted || (row == wanted && node.start_byte() < innermost.start_byte()) {
                if of.does == Does::Assigns {
                    code.assign(&of);
                }
            } else if row > wanted && !own.contains(node) && code.is_used_by(&of) {
                code.uses.push(of);
            }
        }
    }
    Some(code)
}

/// The text of `rows`, in which a head has a block, and a long string an end, even if the trace has none of their rows.
fn closed(rows: &BTreeMap<u32, String>) -> String {
    let indentation = |row: &str| row.len() - row.trim_start().len();
    let mut text = String::new();
    let next = rows.iter().skip(1).map(Some).chain([None]);
    for ((number, row), next) in rows.iter().zip(next) {
        text.push_str(row);
        let is_alone = next.is_none_or(|(_, next)| indentation(next) <= indentation(row));
        if is_alone && row.trim_end().ends_with(':') {
            text.push_str(" pass");
        }
        let is_last = next.is_none_or(|(next, _)| *next > number + 1);
        if let Some(quotes) = ["\"\"\"", "'''"].into_iter().find(|quotes| row.matches(quotes).count() % 2 == 1)
            && is_last
        {
            text.push_str(quotes);
            let open = row.matches('(').count().saturating_sub(row.matches(')').count());
            text.extend(std::iter::repeat_n(')', open));
        }
        text.push('\n');
    }
    text
}

trait Assignments {
    fn assign(&mut self, of: &Statement);
    fn is_used_by(&self, of: &Statement) -> bool;
}

impl Assignments for Code {
    fn assign(&mut self, of: &Statement) {
        for target in &of.targets {
            if let Expression::Name(name) = target {
                self.assigned.retain(|(known, _)| known != name);
                self.assigned.push((name.clone(), of.value.clone()));
            }
        }
    }

    fn is_used_by(&self, of: &Statement) -> bool {
        let targets = self.statements.iter().flat_map(|statement| &statement.targets);
        let mut names = targets.filter_map(|target| match target {
            Expression::Name(name) => Some(name),
            _ => None,
        });
        names.any(|name| of.value.has_name(name))
    }
}

/// The part of a statement that is its own: without the block of a loop or a function.
fn head(node: Node<'_>) -> Node<'_> {
    ["condition", "right", "parameters", "left"]
        .iter()
        .find_map(|field| node.child_by_field_name(field))
        .filter(|_| node.child_by_field_name("body").is_some() || node.child_by_field_name("consequence").is_some())
        .unwrap_or(node)
}

/// True for what only holds other statements.
fn is_scope(node: &Node<'_>) -> bool {
    matches!(node.kind(), "function_definition" | "class_definition" | "with_statement" | "decorated_definition")
}

struct Reader<'a> {
    text: &'a str,
    /// Names by which the file has modules and their parts.
    imports: BTreeMap<String, String>,
    /// Of each function the one around it, by index; 0 is what is in none.
    scopes: Vec<usize>,
}

impl<'a> Reader<'a> {
    fn text(&self, node: Node<'_>) -> &'a str {
        &self.text[node.byte_range()]
    }

    /// True if function `of` is `scope` or around it.
    fn sees(&self, scope: usize, of: usize) -> bool {
        std::iter::successors(Some(scope), |&scope| (scope > 0).then(|| self.scopes[scope])).any(|scope| scope == of)
    }

    /// Adds all statements in order, with the function that they are in, and notes the imports.
    fn collect<'t>(&mut self, node: Node<'t>, scope: usize, statements: &mut Vec<(Node<'t>, usize)>, depth: usize) {
        let kind = node.kind();
        match kind {
            "import_statement" | "import_from_statement" => return self.import(node),
            _ if kind.ends_with("_statement") || is_scope(&node) || matches!(kind, "elif_clause") => {
                statements.push((node, scope));
            }
            _ => {}
        }
        let inner = if kind == "function_definition" { self.scopes.len() } else { scope };
        self.scopes.extend((inner != scope).then_some(scope));
        let is_container = matches!(kind, "module" | "block" | "ERROR" | "elif_clause" | "else_clause")
            || kind.ends_with("_clause")
            || kind.ends_with("_statement") && kind != "expression_statement"
            || is_scope(&node);
        if is_container && depth < 4 * DEEPEST {
            let mut cursor = node.walk();
            for child in node.named_children(&mut cursor) {
                self.collect(child, inner, statements, depth + 1);
            }
        }
    }

    fn import(&mut self, node: Node<'_>) {
        let module = node.child_by_field_name("module_name").map(|name| self.text(name).to_owned() + ".");
        let mut cursor = node.walk();
        for name in node.children_by_field_name("name", &mut cursor) {
            let path = name.child_by_field_name("name").unwrap_or(name);
            let path = module.clone().unwrap_or_default() + self.text(path);
            let alias = name.child_by_field_name("alias").map(|alias| self.text(alias).to_owned());
            let bound = alias.unwrap_or_else(|| match module {
                Some(_) => self.text(name).to_owned(),
                // `import a.b` binds `a`.
                None => path.split('.').next().unwrap_or_default().to_owned(),
            });
            let path = if module.is_none() && name.kind() != "aliased_import" { bound.clone() } else { path };
            self.imports.insert(bound, path);
        }
    }

    /// The statement without the statements in it.
    fn statement(&self, node: Node<'_>) -> Vec<Statement> {
        let of = |does, targets, value| vec![Statement { does, targets, value }];
        let field = |name: &str| node.child_by_field_name(name).map(|child| self.expression(child, 0));
        match node.kind() {
            "if_statement" | "while_statement" | "elif_clause" => {
                of(Does::Decides, Vec::new(), field("condition").unwrap_or(Expression::Other(Vec::new())))
            }
            "assert_statement" => of(Does::Decides, Vec::new(), Expression::Other(self.children(node, 0))),
            "return_statement" => of(Does::Returns, Vec::new(), Expression::Other(self.children(node, 0))),
            "for_statement" => of(Does::Returns, Vec::new(), field("right").unwrap_or(Expression::Other(Vec::new()))),
            "expression_statement" => {
                let mut cursor = node.walk();
                node.named_children(&mut cursor).map(|child| self.evaluated(child)).collect()
            }
            _ => Vec::new(),
        }
    }

    fn evaluated(&self, node: Node<'_>) -> Statement {
        let adds = node.kind() == "augmented_assignment";
        if !adds && node.kind() != "assignment" {
            return Statement { does: Does::Evaluates, targets: Vec::new(), value: self.expression(node, 0) };
        }
        let mut targets = Vec::new();
        let mut value = node;
        while let (true, Some(left)) =
            (matches!(value.kind(), "assignment" | "augmented_assignment"), value.child_by_field_name("left"))
        {
            match self.expression(left, 0) {
                Expression::Other(parts) => targets.extend(parts),
                target => targets.push(target),
            }
            let Some(right) = value.child_by_field_name("right") else { break };
            value = right;
        }
        let value = self.expression(value, 0);
        Statement { does: if adds { Does::Adds } else { Does::Assigns }, targets, value }
    }

    /// Loops and contexts around a statement, up to its function.
    fn around(&self, node: Node<'_>, code: &mut Code) {
        // The statement may be the head of a loop itself.
        let mut next = Some(node);
        while let Some(of) = next {
            match of.kind() {
                "for_statement" => code.loops.extend(self.a_loop(of)),
                "while_statement" => {
                    let over = of.child_by_field_name("condition").map(|over| self.expression(over, 0));
                    code.loops.extend(over.map(|over| Loop { names: Vec::new(), over }));
                }
                "with_statement" => {
                    let mut cursor = of.walk();
                    let entered = of.named_children(&mut cursor).filter(|child| child.kind() == "with_clause");
                    code.contexts.extend(entered.map(|child| self.expression(child, 0)));
                }
                "function_definition" => {
                    let outer = of.parent().filter(|outer| outer.kind() == "decorated_definition");
                    let mut cursor = of.walk();
                    let parts = outer.map(|outer| outer.named_children(&mut cursor).collect::<Vec<_>>());
                    let decorators = parts.into_iter().flatten().filter(|child| child.kind() == "decorator");
                    code.contexts.extend(decorators.map(|child| self.expression(child, 0)));
                    return;
                }
                _ => {}
            }
            next = of.parent();
        }
    }

    fn a_loop(&self, node: Node<'_>) -> Option<Loop> {
        let names = match self.expression(node.child_by_field_name("left")?, 0) {
            Expression::Other(parts) => parts,
            one => vec![one],
        };
        let names =
            names.into_iter().filter_map(|name| if let Expression::Name(name) = name { Some(name) } else { None });
        Some(Loop { names: names.collect(), over: self.expression(node.child_by_field_name("right")?, 0) })
    }

    fn children(&self, node: Node<'_>, depth: usize) -> Vec<Expression> {
        let mut cursor = node.walk();
        let parts = node.named_children(&mut cursor).filter(|child| child.kind() != "comment");
        parts.map(|child| self.expression(child, depth + 1)).collect()
    }

    fn expression(&self, node: Node<'_>, depth: usize) -> Expression {
        if depth > DEEPEST || node.byte_range().len() > LONGEST {
            return Expression::Other(Vec::new());
        }
        let part = |name: &str| {
            let child = node.child_by_field_name(name);
            child.map_or(Expression::Other(Vec::new()), |child| self.expression(child, depth + 1))
        };
        match node.kind() {
            "identifier" => {
                let name = self.text(node);
                Expression::Name(self.imports.get(name).map_or(name, String::as_str).to_owned())
            }
            "integer" | "float" | "true" | "false" | "none" => Expression::Literal(self.text(node).to_owned()),
            "attribute" => {
                let name = node.child_by_field_name("attribute").map_or("", |name| self.text(name));
                match part("object") {
                    Expression::Name(path) if self.is_module(&path) => Expression::Name(format!("{path}.{name}")),
                    of => Expression::Attribute(Box::new(of), name.to_owned()),
                }
            }
            "call" => self.call(node, part("function"), depth),
            "subscript" => {
                let mut cursor = node.walk();
                let by = node.children_by_field_name("subscript", &mut cursor);
                let by = by.map(|child| self.expression(child, depth + 1)).collect();
                Expression::Index(Box::new(part("value")), by)
            }
            "binary_operator" | "boolean_operator" | "unary_operator" => {
                let operator = node.child_by_field_name("operator").map_or("", |operator| self.text(operator));
                Expression::Operation(operator.to_owned(), self.children(node, depth))
            }
            "not_operator" => Expression::Operation("not".to_owned(), self.children(node, depth)),
            "slice" => Expression::Operation(":".to_owned(), self.children(node, depth)),
            "comparison_operator" => {
                let operator = node.child_by_field_name("operators").map_or("", |operator| self.text(operator));
                Expression::Operation(operator.to_owned(), self.children(node, depth))
            }
            "list_comprehension" | "generator_expression" | "set_comprehension" | "dictionary_comprehension" => {
                let mut cursor = node.walk();
                let clauses = node.named_children(&mut cursor).filter(|child| child.kind() == "for_in_clause");
                let loops = clauses.filter_map(|clause| self.a_loop(clause)).collect();
                Expression::Comprehension(Box::new(part("body")), loops)
            }
            "string" => {
                let mut cursor = node.walk();
                let values = node.named_children(&mut cursor).filter(|child| child.kind() == "interpolation");
                let values: Vec<Expression> = values.flat_map(|of| self.children(of, depth)).collect();
                if values.is_empty() {
                    return Expression::Literal(self.text(node).trim_matches(['"', '\'']).to_owned());
                }
                Expression::Other(values)
            }
            "parenthesized_expression" => {
                self.children(node, depth).into_iter().next().unwrap_or(Expression::Other(Vec::new()))
            }
            _ => Expression::Other(self.children(node, depth)),
        }
    }

    fn call(&self, node: Node<'_>, function: Expression, depth: usize) -> Expression {
        let (mut arguments, mut named) = (Vec::new(), Vec::new());
        let list = node.child_by_field_name("arguments");
        let Some(list) = list.filter(|list| list.kind() == "argument_list") else {
            let alone = list.map(|alone| self.expression(alone, depth + 1));
            return Expression::Call(Box::new(function), alone.into_iter().collect(), named);
        };
        let mut cursor = list.walk();
        for argument in list.named_children(&mut cursor).filter(|child| child.kind() != "comment") {
            let name = argument.child_by_field_name("name").filter(|_| argument.kind() == "keyword_argument");
            if matches!(argument.kind(), "dictionary_splat" | "list_splat") {
                named.push(("**".to_owned(), self.expression(argument, depth + 1)));
                continue;
            }
            match name.zip(argument.child_by_field_name("value")) {
                Some((name, value)) => named.push((self.text(name).to_owned(), self.expression(value, depth + 1))),
                None => arguments.push(self.expression(argument, depth + 1)),
            }
        }
        Expression::Call(Box::new(function), arguments, named)
    }

    /// True for the path of an import, or one that begins with it.
    fn is_module(&self, path: &str) -> bool {
        self.imports
            .values()
            .any(|known| path.strip_prefix(known.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')))
    }
}

#[cfg(test)]
mod tests {
    use gpuwhy_report::run::remedies::{fits, remedy, with_lines};

    use super::*;

    /// Parses the line with `#!` of a program.
    fn parsed(text: &str) -> Code {
        let rows: Vec<&str> = text.lines().collect();
        let line = rows.iter().position(|row| row.contains("#!")).expect("a marked line") as u32 + 1;
        let needed = gpuwhy_trace::source_line::Source::of(text).needed(line);
        let kept = needed.into_iter().map(|line| (line, rows[line as usize - 1].to_owned())).collect();
        code(&kept, line).unwrap()
    }

    const HEAD: &str = "import numpy as np\nimport torch\nimport torch.nn.functional as F\nfrom torch import nn\n";

    /// Lines on which a condition holds, and lines on which it does not.
    const LINES: &[(&str, &[&str], &[&str])] = &[
        (
            "read_to_show",
            &[
                "for x in loader:\n    loss = net(x)\n    print(loss.item()) #!",
                "while True:\n    total = loss.item() #!\n    print(f'loss {total:.3f}')",
                "for x in loader:\n    losses.append(float(loss)) #!",
                "for x in loader:\n    log = loss.item() #!\n    wandb.log({'loss': log})",
            ],
            &[
                "for x in loader:\n    if loss.item() > 3: #!\n        break",
                "for x in loader:\n    v = loss.item() #!\n    print(v)\n    if v < best:\n        best = v",
                "for x in loader:\n    losses.append(loss) #!",
                "while err > tol:\n    err = r.norm().item() #!\n    print(err)",
                "while out[-1] != eos:\n    out.append(logits.argmax().item()) #!",
                "for x in loader:\n    scale = loss.item() #!\n    y = x * scale",
            ],
        ),
        (
            "read_to_decide",
            &[
                "for x in loader:\n    if loss.item() > 3: #!\n        break",
                "for x in loader:\n    while err.max().item() > 1e-3: #!\n        step()",
                "for x in loader:\n    done = bool(flag.all()) #!\n    if done:\n        break",
                "for x in loader:\n    assert int(count) > 0 #!",
                "while err > tol:\n    err = r.norm().item() #!\n    print(err)",
            ],
            &[
                "for x in loader:\n    print(loss.item()) #!",
                "for x in loader:\n    assert not bool(p.grad.isnan().any()) #!",
                "for x in loader:\n    if step % 10 == 0: #!\n        print(x)",
            ],
        ),
        (
            "numpy_on_gpu",
            &[
                "y = x @ w\nbest = np.argmax(y.cpu().numpy(), 1) #!",
                "h = y.detach().cpu().numpy()\nm = torch.from_numpy(np.sort(h)) #!",
                "(y.argmax(1) if fix else torch.from_numpy(np.argmax(y.cpu().numpy(), 1))); yield_() #!",
            ],
            &["best = np.argmax(rows) #!", "best = y.argmax(1).cpu().numpy() #!", "np.save('x', y.cpu().numpy()) #!"],
        ),
        (
            "one_hot_product",
            &[
                "e = F.one_hot(ids, 50000).float() @ table #!",
                "hot = nn.functional.one_hot(ids, 50000).half()\nfor _ in range(3):\n    e = torch.matmul(hot, table) #!",
            ],
            &["e = table[ids] @ w #!", "hot = F.one_hot(ids, 3) #!", "e = F.embedding(ids, table) @ w #!"],
        ),
        (
            "product_summed",
            &[
                "c = (a[:, :, None] * b[None]).sum(1) #!",
                "c = torch.sum(a.unsqueeze(2) * b.unsqueeze(0), dim=1) #!",
                "wide = a.unsqueeze(2)\nc = (wide * b).sum(1) #!",
            ],
            &["c = (a * b).sum() #!", "c = a @ b #!", "c = (a[:, None] + b).sum(1) #!"],
        ),
        (
            "softmax_parts",
            &[
                "e = torch.exp(x - x.max(-1, keepdim=True)[0])\np = e / e.sum(-1, keepdim=True) #!",
                "p = x.exp() / x.exp().sum(-1, keepdim=True) #!",
                "e = x.exp()\nz = e.sum(-1, keepdim=True)\np = e / z #!",
            ],
            &[
                "p = x / x.sum(-1) #!",
                "p = torch.softmax(x, -1) #!",
                "p = x.exp() / count #!",
                "p = y.exp() / x.sum() #!",
            ],
        ),
        (
            "cat_grows",
            &[
                "for x in xs:\n    out = torch.cat([out, x]) #!",
                "while True:\n    self.all = torch.cat((self.all, f(x)), dim=0) #!",
            ],
            &[
                "for x in xs:\n    out = torch.cat([a, x]) #!",
                "out = torch.cat([out, x]) #!",
                "for x in xs:\n    out += x #!",
            ],
        ),
        (
            "norm_of_each",
            &[
                "for p in model.parameters():\n    total += p.grad.norm() ** 2 #!",
                "total = sum(p.grad.norm() for p in net.parameters()) #!",
                "ps = list(net.parameters())\nfor p, q in zip(ps, others):\n    q.lerp_(p, 0.1) #!",
            ],
            &["for x in loader:\n    net(x) #!", "n = sum(1 for x in xs) #!"],
        ),
        (
            "tensor_of_numbers",
            &[
                "def c(b):\n    return torch.tensor(b) if not fix else torch.full((len(b), 512), 1.0) #!",
                "x = torch.tensor([float(v) for v in row]) #!",
            ],
            &["x = torch.tensor(3.0) #!", "n = 7\nx = torch.tensor(n) #!", "x = torch.zeros(3) #!"],
        ),
        (
            "pin_in_loop",
            &["for x in xs:\n    y = x.pin_memory().cuda() #!"],
            &["y = DataLoader(d, pin_memory=True) #!"],
        ),
        (
            "stay_on_gpu",
            &["self.model.to(\"cpu\") #!", "model.cpu() #!"],
            &["y = y.to(\"cpu\") #!", "self.model.to(device) #!", "print(y.cpu()) #!"],
        ),
        ("index_grad", &["y = table[ids] #!"], &["y = F.embedding(ids, table) #!"]),
        (
            "sort_topk",
            &[
                "best = torch.sort(x, descending=True)[0][:, :10] #!",
                "o = x.argsort()\ny = x[o[:5]] #!",
                "s, i = torch.sort(x) #!\ntop = s[:, :3]",
            ],
            &["s = torch.sort(x)[0] #!\nprint(s)", "y = x[:5] #!"],
        ),
        (
            "unknown_size",
            &["y = torch.repeat_interleave(x, n) #!", "c = torch.bincount(x) #!", "u = x.unique() #!"],
            &[
                "y = x.repeat_interleave(n, output_size=9) #!",
                "c = torch.bincount(x, minlength=9) #!",
                "u = np.unique(x) #!",
            ],
        ),
        ("scalar_tensor", &["y = x * torch.tensor(2.0, device='cuda') #!"], &["y = x * 2.0 #!"]),
        (
            "batch_loop",
            &["for i in range(64): n(x[i:i + 1]) #!", "y = [expert(x[m]) for expert, m in zip(experts, masks)] #!"],
            &[
                "while True:\n    n(x) #!",
                "for step in range(10):\n    loss = net(x) #!",
                "for t in range(n):\n    h = cell(x[t], h) #!",
                "for t in range(n):\n    x[t] = f(x[t - 1]) #!",
            ],
        ),
        (
            "no_grad",
            &[
                "for x in xs:\n    y = net(x) #!",
                "with torch.autocast('cuda'):\n    y = self.model(x, mask=m) #!",
                "def run(x):\n    return net(x) #!",
            ],
            &[
                "with torch.no_grad():\n    for x in xs:\n        y = net(x) #!",
                "with torch.autocast('cuda'), torch.inference_mode() as m:\n    y = net(x) #!",
                "@torch.no_grad()\ndef run(x):\n    return net(x) #!",
                "@torch.inference_mode\ndef run(x):\n    return net(x) #!",
                "y = x @ w #!",
                "y = torch.relu(x) #!",
                "y = x.relu() #!",
            ],
        ),
        ("gc", &["gc.collect() #!", "import gc\ngc.collect(0) #!"], &["x = collect(y) #!", "y = net(x) #!"]),
        (
            "workers",
            &["l = DataLoader(d, 64) #!", "l = torch.utils.data.DataLoader(d, num_workers=0) #!"],
            &["l = DataLoader(d, num_workers=4) #!", "l = DataLoader(d, **options) #!", "l = load(d) #!"],
        ),
        (
            "deterministic",
            &["torch.use_deterministic_algorithms(True) #!"],
            &["torch.use_deterministic_algorithms(False) #!", "torch.use_deterministic_algorithms(on) #!"],
        ),
        (
            "index_put",
            &["y.index_put_((i,), v, accumulate=True) #!", "y = torch.index_put(y, (i,), v, True) #!"],
            &["y.index_put_((i,), v) #!", "y.index_add_(0, i, v) #!", "y[i] += v #!"],
        ),
        (
            "clip_norm",
            &["nn.utils.clip_grad_norm_(net.parameters(), 1.0, error_if_nonfinite=True) #!"],
            &["nn.utils.clip_grad_norm_(net.parameters(), 1.0) #!", "loss.backward() #!"],
        ),
        (
            "anomaly",
            &[
                "torch.autograd.set_detect_anomaly(True) #!",
                "with torch.autograd.detect_anomaly():\n    loss.backward() #!",
            ],
            &["torch.autograd.set_detect_anomaly(False) #!", "loss.backward() #!"],
        ),
        (
            "cupy_fuse",
            &["y = a * x + b #!", "y = (x - m) / s #!"],
            &["y = a @ x #!", "y = -x #!", "y = f(x, y[1:]) #!"],
        ),
        ("rnn_cells", &["for t in range(n):\n    h = cell(x[t], h) #!"], &["h = lstm(x) #!"]),
        ("empty_cache", &["torch.cuda.empty_cache() #!"], &["torch.cuda.synchronize() #!"]),
        (
            "fp64",
            &["x = torch.from_numpy(a).cuda() #!", "x = y.to(torch.float64) #!", "w = np.linspace(0, 1)\ny = x * w #!"],
            &["x = y.float() #!"],
        ),
    ];

    #[test]
    fn a_string_whose_rows_are_not_in_the_trace_ends_in_its_own() {
        let rows = [(3, "kernel = cp.RawKernel(r\"\"\""), (20, "def change(x):"), (21, "    return float(x)")];
        let rows: BTreeMap<u32, String> = rows.into_iter().map(|(number, row)| (number, row.to_owned())).collect();
        assert_eq!(code(&rows, 21).unwrap().statements[0].does, Does::Returns);
    }

    #[test]
    fn conditions_hold_on_their_lines_and_on_no_others() {
        for (id, yes, no) in LINES {
            assert!(remedy(id).is_some(), "{id} is no remedy");
            for text in *yes {
                let line = parsed(&format!("{HEAD}{text}\n"));
                assert!(fits(id, &line), "{id} does not hold on\n{text}\n{line:#?}");
            }
            for text in *no {
                let line = parsed(&format!("{HEAD}{text}\n"));
                assert!(!fits(id, &line), "{id} holds on\n{text}\n{line:#?}");
            }
        }
        for id in with_lines() {
            assert!(LINES.iter().any(|(of, ..)| *of == id), "{id} has no lines");
        }
    }

    #[test]
    fn a_line_has_its_loops_and_what_is_around_it() {
        let text = "\
import torch.nn.functional as F
@torch.no_grad()
def run():
    with torch.autocast('cuda'):
        for i in range(64):
            y = F.relu(net(x[i:i + 1])) #!
";
        let line = parsed(text);
        let called =
            |of: &Expression| if let Expression::Call(function, ..) = of { (**function).clone() } else { of.clone() };
        let name = |path: &str| Expression::Name(path.to_owned());
        assert_eq!(called(&line.statements[0].value), name("torch.nn.functional.relu"));
        assert_eq!((line.loops.len(), &line.loops[0].names[..]), (1, &["i".to_owned()][..]));
        assert_eq!(called(&line.loops[0].over), name("range"));
        // The statement of a loop in one line is the line.
        let line = parsed("if a: print(1)\nelse:\n    for i in range(64): net(x[i]) #!\n");
        assert_eq!((line.loops.len(), line.statements.len()), (1, 2));
    }

    #[test]
    fn names_of_other_functions_are_not_those_of_the_line() {
        let text = "\
x = 1
def other():
    x = 3
    #!
def run():
    r = f(x)
def after():
    print(r)
";
        let rows: BTreeMap<u32, String> = (1..).zip(text.lines().map(str::to_owned)).collect();
        let line = code(&rows, 6).unwrap();
        assert_eq!(line.assigned, [("x".to_owned(), Expression::Literal("1".to_owned()))]);
        assert!(line.uses.is_empty(), "{line:?}");
        // Of a function around it they are.
        let rows: BTreeMap<u32, String> = (1..).zip(text.lines().map(|row| format!(" {row}"))).collect();
        let rows = rows.into_iter().chain([(0, "def outer():".to_owned())]).collect();
        assert_eq!(code(&rows, 6).unwrap().assigned, line.assigned);
    }

    #[test]
    fn hostile_text_is_parsed_or_not_but_ends() {
        let deep = format!("x = {}1{} #!", "(".repeat(5_000), ")".repeat(5_000));
        let wide = format!("x = [{}] #!", "x[x:x] * x.exp(), ".repeat(3_000));
        let nested: String = (0..200).map(|depth| format!("{}for a in b:\n", " ".repeat(depth))).collect();
        let nested = format!("{nested}{}f(a) #!", " ".repeat(200));
        for text in [
            "#!",
            ")))(( #!",
            "x = #!",
            "\u{0} = é.f( #!",
            "def f(:\n  for #!",
            "lambda: lambda #!",
            &deep,
            &nested,
            &wide,
        ] {
            let rows = (1..).zip(text.lines().map(str::to_owned)).collect();
            for line in 0..4 {
                if let Some(code) = code(&rows, line) {
                    with_lines().for_each(|id| _ = fits(id, &code));
                }
            }
        }
    }
}
