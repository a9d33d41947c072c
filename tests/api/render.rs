//! rustdoc's JSON as text: one line for each public item, with its types.

use std::collections::BTreeSet;

use serde_json::Value;

/// Packages whose types are part of a report.
const OURS: [&str; 2] = ["profiler_core::", "gpuwhy_trace::"];

/// Items of a crate.
pub struct Api<'a> {
    json: &'a Value,
    /// Types to include; all items if `None`.
    reached: Option<BTreeSet<u64>>,
    /// Types of other packages that these refer to.
    pub beyond: BTreeSet<String>,
}

impl<'a> Api<'a> {
    /// Includes all public items.
    pub fn new(json: &'a Value) -> Self {
        Self { json, reached: None, beyond: BTreeSet::new() }
    }

    /// Includes the types of this package with these names, and those that a caller reaches from them through
    /// fields, variants and return types of methods.
    pub fn reached_from(json: &'a Value, names: &BTreeSet<String>) -> Self {
        let paths = json["paths"].as_object().expect("rustdoc has paths");
        let name_of = |path: &Value| items(path).iter().map(text).collect::<Vec<_>>().join("::");
        let roots = paths.iter().filter(|(_, of)| of["crate_id"] == 0 && names.contains(&name_of(&of["path"])));
        let mut left: Vec<u64> = roots.filter_map(|(id, _)| id.parse().ok()).collect();
        let mut api = Self::new(json);
        let own = format!("{}::", text(&api.item(&json["root"]).expect("rustdoc names the root")["name"]));
        assert_eq!(left.len(), names.iter().filter(|name| name.starts_with(&own)).count(), "{names:?}");
        let mut reached = BTreeSet::new();
        while let Some(id) = left.pop() {
            let local = api.item(&id.into()).filter(|item| item["crate_id"] == 0);
            if let Some(item) = local.filter(|_| reached.insert(id)) {
                api.leads_to(item, &mut left);
            } else if let Some(other) = paths.get(&id.to_string()).filter(|of| of["crate_id"] != 0) {
                let name = name_of(&other["path"]);
                api.beyond.extend(Some(name).filter(|name| OURS.iter().any(|own| name.starts_with(own))));
            }
        }
        api.reached = Some(reached);
        api
    }

    /// One line for each included item.
    pub fn lines(&self) -> BTreeSet<String> {
        let mut lines = BTreeSet::new();
        let root = self.item(&self.json["root"]).expect("rustdoc names the root");
        self.module(root, text(&root["name"]), &mut lines);
        lines
    }

    /// Types that a type refers to.
    fn leads_to(&self, item: &Value, to: &mut Vec<u64>) {
        let inner = &item["inner"];
        named(&inner["type_alias"]["type"], to);
        named(&inner["function"]["sig"]["output"], to);
        let (plain, tuple) = (&inner["struct"]["kind"]["plain"]["fields"], &inner["struct"]["kind"]["tuple"]);
        let mut fields: Vec<_> = [plain, tuple].into_iter().flat_map(items).collect();
        for variant in items(&inner["enum"]["variants"]).iter().filter_map(|id| self.item(id)) {
            let kind = &variant["inner"]["variant"]["kind"];
            fields.extend([&kind["tuple"], &kind["struct"]["fields"]].into_iter().flat_map(items));
        }
        for field in fields.into_iter().filter_map(|id| self.item(id)).filter(|field| field["visibility"] != "crate") {
            named(&field["inner"]["struct_field"], to);
        }
        let implementations = [&inner["struct"]["impls"], &inner["enum"]["impls"]].into_iter().flat_map(items);
        for of in implementations.filter_map(|id| self.item(id)).map(|found| &found["inner"]["impl"]) {
            if of["trait"].is_null() {
                for method in items(&of["items"]).iter().filter_map(|id| self.item(id)) {
                    if method["visibility"] == "public" {
                        named(&method["inner"]["function"]["sig"]["output"], to);
                    }
                }
            }
        }
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
        let passes_on = inner.get("use").is_some() || inner.get("module").is_some();
        let counts = |reached: &BTreeSet<u64>| item["id"].as_u64().is_some_and(|id| reached.contains(&id));
        if !passes_on && !self.reached.as_ref().is_none_or(counts) {
            return;
        }
        if let Some(used) = inner.get("use") {
            // An item of a private module appears where it is re-exported; an item of another crate is one
            // line.
            let local = self.item(&used["id"]).filter(|item| item["crate_id"] == 0);
            match local {
                Some(item) => self.entry(item, parent, lines),
                None if self.reached.is_some() => {}
                None => _ = lines.insert(format!("use {} as {parent}::{}", text(&used["source"]), text(&used["name"]))),
            }
        } else if inner.get("module").is_some() {
            if self.reached.is_none() {
                lines.insert(format!("mod {path}"));
            }
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
            let tuple = items(&of["kind"]["tuple"]).iter().enumerate();
            for (index, field) in tuple.filter_map(|(index, id)| Some((index, self.item(id)?))) {
                if field["visibility"] == "public" {
                    lines.insert(format!("field {path}::{index}: {}", of_type(&field["inner"]["struct_field"])));
                }
            }
            self.implementations(&of["impls"], &path, lines);
        } else if let Some(of) = inner.get("enum") {
            lines.insert(format!("enum {path}{}", attributes(item)));
            for variant in items(&of["variants"]).iter().filter_map(|id| self.item(id)) {
                let kind = &variant["inner"]["variant"]["kind"];
                let parts = [&kind["tuple"], &kind["struct"]["fields"]].into_iter().flat_map(items);
                let parts: Vec<_> = parts
                    .filter_map(|id| self.item(id))
                    .map(|part| match (text(&part["name"]), of_type(&part["inner"]["struct_field"])) {
                        (name, kind) if name.starts_with(|first: char| first.is_ascii_digit()) => kind,
                        (name, kind) => format!("{name}: {kind}"),
                    })
                    .collect();
                let parts = if parts.is_empty() { String::new() } else { format!("({})", parts.join(", ")) };
                lines.insert(format!("variant {path}::{}{parts}", text(&variant["name"])));
            }
            self.implementations(&of["impls"], &path, lines);
        } else if let Some(of) = inner.get("type_alias") {
            lines.insert(format!("type {path} = {}", of_type(&of["type"])));
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
                if method["visibility"] == "public" && method["inner"].get("assoc_const").is_some() {
                    let kind = of_type(&method["inner"]["assoc_const"]["type"]);
                    lines.insert(format!("const {path}::{}: {kind}", text(&method["name"])));
                }
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

/// The types that are named in a type.
fn named(of: &Value, to: &mut Vec<u64>) {
    match of {
        Value::Object(parts) => {
            to.extend(parts.get("resolved_path").and_then(|path| path["id"].as_u64()));
            parts.values().for_each(|part| named(part, to));
        }
        Value::Array(parts) => parts.iter().for_each(|part| named(part, to)),
        _ => {}
    }
}

fn items(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("?")
}

/// Attributes of a type that affect callers.
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

/// A path with its generic arguments.
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
