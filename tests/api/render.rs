//! rustdoc's JSON as lines: one for each public item, with its types.

use std::collections::BTreeSet;

use serde_json::Value;

/// The items of a crate.
pub struct Api<'a> {
    json: &'a Value,
}

impl<'a> Api<'a> {
    pub fn new(json: &'a Value) -> Self {
        Self { json }
    }

    /// A line for each public item.
    pub fn lines(&self) -> BTreeSet<String> {
        let mut lines = BTreeSet::new();
        let root = self.item(&self.json["root"]).expect("rustdoc names the root");
        self.module(root, "gpuprof", &mut lines);
        lines
    }

    fn item(&self, id: &Value) -> Option<&'a Value> {
        let id = id.as_u64()?.to_string();
        self.json["index"].get(&id)
    }

    fn module(&self, module: &'a Value, path: &str, lines: &mut BTreeSet<String>) {
        for child in items(&module["inner"]["module"]["items"]) {
            if let Some(item) = self.item(child).filter(|item| item["visibility"] == "public") {
                self.entry(item, path, lines);
            }
        }
    }

    fn entry(&self, item: &'a Value, parent: &str, lines: &mut BTreeSet<String>) {
        let inner = &item["inner"];
        let name = item["name"].as_str().unwrap_or_default();
        let path = format!("{parent}::{name}");
        if let Some(used) = inner.get("use") {
            // An item of a private module stands where it is re-exported; that of another crate is one line.
            let local = self.item(&used["id"]).filter(|item| item["crate_id"] == 0);
            match local {
                Some(item) => self.entry(item, parent, lines),
                None => _ = lines.insert(format!("use {} as {parent}::{}", text(&used["source"]), text(&used["name"]))),
            }
        } else if inner.get("module").is_some() {
            lines.insert(format!("mod {path}"));
            self.module(item, &path, lines);
        } else if let Some(function) = inner.get("function") {
            lines.insert(format!("fn {path}{}", signature(function)));
        } else if let Some(of) = inner.get("struct") {
            lines.insert(format!("struct {path}{}", attributes(item)));
            for field in items(&of["kind"]["plain"]["fields"]).iter().filter_map(|id| self.item(id)) {
                if field["visibility"] == "public" {
                    let kind = of_type(&field["inner"]["struct_field"]);
                    lines.insert(format!("field {path}::{}: {kind}", text(&field["name"])));
                }
            }
            self.implementations(&of["impls"], &path, lines);
        } else if let Some(of) = inner.get("enum") {
            lines.insert(format!("enum {path}{}", attributes(item)));
            for variant in items(&of["variants"]).iter().filter_map(|id| self.item(id)) {
                let parts = items(&variant["inner"]["variant"]["kind"]["tuple"]);
                let parts: Vec<_> = parts
                    .iter()
                    .filter_map(|id| self.item(id))
                    .map(|part| of_type(&part["inner"]["struct_field"]))
                    .collect();
                let parts = if parts.is_empty() { String::new() } else { format!("({})", parts.join(", ")) };
                lines.insert(format!("variant {path}::{}{parts}", text(&variant["name"])));
            }
            self.implementations(&of["impls"], &path, lines);
        } else if let Some(of) = inner.get("constant") {
            lines.insert(format!("const {path}: {}", of_type(&of["type"])));
        } else {
            lines.insert(format!("item {path}"));
        }
    }

    fn implementations(&self, ids: &Value, path: &str, lines: &mut BTreeSet<String>) {
        for implementation in items(ids).iter().filter_map(|id| self.item(id)) {
            let of = &implementation["inner"]["impl"];
            if of["is_synthetic"] == true || !of["blanket_impl"].is_null() {
                continue;
            }
            if !of["trait"].is_null() {
                lines.insert(format!("impl {} for {path}", text(&of["trait"]["path"])));
                continue;
            }
            for method in items(&of["items"]).iter().filter_map(|id| self.item(id)) {
                if method["visibility"] == "public" && method["inner"].get("function").is_some() {
                    let unsafely =
                        if method["inner"]["function"]["header"]["is_unsafe"] == true { "unsafe " } else { "" };
                    let signature = signature(&method["inner"]["function"]);
                    lines.insert(format!("{unsafely}fn {path}::{}{signature}", text(&method["name"])));
                }
            }
        }
    }
}

fn items(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("?")
}

/// What a caller must know of a type beyond its items.
fn attributes(item: &Value) -> &'static str {
    if item["attrs"].to_string().contains("non_exhaustive") { " (non_exhaustive)" } else { "" }
}

fn signature(function: &Value) -> String {
    let of = &function["sig"];
    let inputs: Vec<_> =
        items(&of["inputs"]).iter().map(|input| format!("{}: {}", text(&input[0]), of_type(&input[1]))).collect();
    let output = if of["output"].is_null() { String::new() } else { format!(" -> {}", of_type(&of["output"])) };
    format!("{}({}){output}{}", parameters(&function["generics"]), inputs.join(", "), conditions(&function["generics"]))
}

fn parameters(generics: &Value) -> String {
    let named = items(&generics["params"]).iter().filter(|parameter| !text(&parameter["name"]).starts_with("impl "));
    let names: Vec<_> = named
        .map(|parameter| format!("{}{}", text(&parameter["name"]), bounds(&parameter["kind"]["type"]["bounds"])))
        .collect();
    if names.is_empty() { String::new() } else { format!("<{}>", names.join(", ")) }
}

fn conditions(generics: &Value) -> String {
    let all: Vec<_> = items(&generics["where_predicates"])
        .iter()
        .map(|of| format!("{}{}", of_type(&of["bound_predicate"]["type"]), bounds(&of["bound_predicate"]["bounds"])))
        .collect();
    if all.is_empty() { String::new() } else { format!(" where {}", all.join(", ")) }
}

fn bounds(list: &Value) -> String {
    let all: Vec<_> = items(list).iter().map(bound).collect();
    if all.is_empty() { String::new() } else { format!(": {}", all.join(" + ")) }
}

fn bound(of: &Value) -> String {
    match of.get("trait_bound") {
        Some(of) => path(&of["trait"]),
        None => text(&of["outlives"]).to_owned(),
    }
}

/// A path with its arguments.
fn path(of: &Value) -> String {
    let name = text(&of["path"]);
    let arguments = &of["args"];
    if let Some(call) = arguments.get("parenthesized") {
        let inputs: Vec<_> = items(&call["inputs"]).iter().map(of_type).collect();
        let output = if call["output"].is_null() { String::new() } else { format!(" -> {}", of_type(&call["output"])) };
        return format!("{name}({}){output}", inputs.join(", "));
    }
    let given: Vec<_> = items(&arguments["angle_bracketed"]["args"])
        .iter()
        .map(|given| given.get("type").map_or_else(|| text(&given["lifetime"]).to_owned(), of_type))
        .collect();
    if given.is_empty() { name.to_owned() } else { format!("{name}<{}>", given.join(", ")) }
}

fn of_type(of: &Value) -> String {
    let list = |types: &Value| items(types).iter().map(of_type).collect::<Vec<_>>().join(", ");
    let Some((kind, of)) = of.as_object().and_then(|of| of.iter().next()) else { return text(of).to_owned() };
    match kind.as_str() {
        "resolved_path" => path(of),
        "primitive" | "generic" => text(of).to_owned(),
        "tuple" => format!("({})", list(of)),
        "slice" => format!("[{}]", of_type(of)),
        "array" => format!("[{}; {}]", of_type(&of["type"]), text(&of["len"])),
        "borrowed_ref" => {
            let mutable = if of["is_mutable"] == true { "mut " } else { "" };
            format!("&{mutable}{}", of_type(&of["type"]))
        }
        "raw_pointer" => {
            format!("*{} {}", if of["is_mutable"] == true { "mut" } else { "const" }, of_type(&of["type"]))
        }
        "impl_trait" => format!("impl {}", items(of).iter().map(bound).collect::<Vec<_>>().join(" + ")),
        "dyn_trait" => {
            format!("dyn {}", items(&of["traits"]).iter().map(|of| path(&of["trait"])).collect::<Vec<_>>().join(" + "))
        }
        "qualified_path" => format!("{}::{}", of_type(&of["self_type"]), text(&of["name"])),
        other => other.to_owned(),
    }
}
