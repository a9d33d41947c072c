//! Arguments of tools: their JSON schema and their check, from one list of parameters.

use anyhow::{Result, anyhow, bail};
use serde_json::{Map, Value, json};

/// A parameter of a tool.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    pub name: &'static str,
    pub kind: ParameterKind,
    pub is_required: bool,
    /// For the model: what it means, and its default.
    pub about: &'static str,
}

/// What values a parameter may have.
#[derive(Clone, Copy, Debug)]
pub enum ParameterKind {
    Text,
    Texts,
    Flag,
    /// An integer from the first to the second.
    Number(u64, u64),
}

impl Parameter {
    pub const fn required(name: &'static str, kind: ParameterKind, about: &'static str) -> Self {
        Self { name, kind, is_required: true, about }
    }

    pub const fn optional(name: &'static str, kind: ParameterKind, about: &'static str) -> Self {
        Self { name, kind, is_required: false, about }
    }

    fn schema(&self) -> Value {
        let mut schema = match self.kind {
            ParameterKind::Text => json!({"type": "string"}),
            ParameterKind::Texts => json!({"type": "array", "items": {"type": "string"}}),
            ParameterKind::Flag => json!({"type": "boolean"}),
            ParameterKind::Number(least, most) => json!({"type": "integer", "minimum": least, "maximum": most}),
        };
        schema["description"] = self.about.into();
        schema
    }

    /// What is wrong with `value`; `None` if nothing.
    fn complaint(&self, value: &Value) -> Option<String> {
        let name = self.name;
        match self.kind {
            ParameterKind::Text => (!value.is_string()).then(|| format!("{name}: a string is expected")),
            ParameterKind::Flag => (!value.is_boolean()).then(|| format!("{name}: true or false is expected")),
            ParameterKind::Texts => {
                let are_texts = value.as_array().is_some_and(|all| all.iter().all(Value::is_string));
                (!are_texts).then(|| format!("{name}: a list of strings is expected"))
            }
            ParameterKind::Number(least, most) => {
                let is_within = value.as_u64().is_some_and(|number| (least..=most).contains(&number));
                (!is_within).then(|| format!("{name}: an integer from {least} to {most} is expected"))
            }
        }
    }
}

/// JSON schema of an object with these parameters.
pub fn schema(parameters: &[Parameter]) -> Value {
    let properties: Map<_, _> = parameters.iter().map(|of| (of.name.to_owned(), of.schema())).collect();
    let required: Vec<_> = parameters.iter().filter(|of| of.is_required).map(|of| of.name).collect();
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

/// Arguments that were checked.
#[derive(Debug)]
pub struct Arguments(Map<String, Value>);

impl Arguments {
    /// Checks `given` against the parameters. Fails when it is no object, or an argument is missing, unknown or wrong.
    pub fn checked(given: Option<&Value>, parameters: &[Parameter]) -> Result<Self> {
        let mut given = match given {
            None | Some(Value::Null) => Map::new(),
            Some(Value::Object(given)) => given.clone(),
            Some(_) => bail!("`arguments` is an object"),
        };
        // Some models pass null for what they leave out.
        given.retain(|_, value| !value.is_null());
        for (name, value) in &given {
            let Some(parameter) = parameters.iter().find(|of| of.name == name) else {
                let known: Vec<_> = parameters.iter().map(|of| of.name).collect();
                bail!("there is no argument {name:?}; there are: {}", known.join(", "));
            };
            if let Some(complaint) = parameter.complaint(value) {
                bail!(complaint);
            }
        }
        match parameters.iter().find(|of| of.is_required && !given.contains_key(of.name)) {
            Some(missing) => bail!("the argument {:?} is missing: {}", missing.name, missing.about),
            None => Ok(Self(given)),
        }
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.as_str()
    }

    /// A required text.
    pub fn needed(&self, name: &str) -> Result<&str> {
        self.text(name).ok_or_else(|| anyhow!("the argument {name:?} is missing"))
    }

    pub fn texts(&self, name: &str) -> Option<Vec<&str>> {
        Some(self.0.get(name)?.as_array()?.iter().filter_map(Value::as_str).collect())
    }

    pub fn number(&self, name: &str) -> Option<u64> {
        self.0.get(name)?.as_u64()
    }

    /// A number of rows, lines or bytes, or `default`.
    pub fn count(&self, name: &str, default: usize) -> usize {
        self.number(name).and_then(|number| usize::try_from(number).ok()).unwrap_or(default)
    }

    pub fn flag(&self, name: &str) -> bool {
        self.0.get(name).and_then(Value::as_bool).unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARAMETERS: &[Parameter] = &[
        Parameter::required("trace", ParameterKind::Text, "path"),
        Parameter::optional("limit", ParameterKind::Number(1, 50), "rows"),
        Parameter::optional("pids", ParameterKind::Texts, "processes"),
    ];

    #[test]
    fn an_argument_that_does_not_fit_is_named_with_what_is_expected() {
        let failed = |given: Value| Arguments::checked(Some(&given), PARAMETERS).unwrap_err().to_string();
        assert_eq!(failed(json!({})), "the argument \"trace\" is missing: path");
        assert_eq!(failed(json!({"trace": null})), "the argument \"trace\" is missing: path");
        assert_eq!(failed(json!({"trace": 7})), "trace: a string is expected");
        assert_eq!(failed(json!({"trace": "x", "limit": 0})), "limit: an integer from 1 to 50 is expected");
        assert_eq!(failed(json!({"trace": "x", "limit": 1.5})), "limit: an integer from 1 to 50 is expected");
        assert_eq!(failed(json!({"trace": "x", "pids": [1]})), "pids: a list of strings is expected");
        assert_eq!(failed(json!({"path": "x"})), "there is no argument \"path\"; there are: trace, limit, pids");
        assert_eq!(failed(json!([1])), "`arguments` is an object");
        let given = Arguments::checked(Some(&json!({"trace": "x", "limit": null})), PARAMETERS).unwrap();
        assert_eq!((given.needed("trace").unwrap(), given.count("limit", 9)), ("x", 9));
    }

    #[test]
    fn a_schema_lists_the_same_parameters() {
        let schema = schema(PARAMETERS);
        assert_eq!(schema["required"], json!(["trace"]));
        assert_eq!(schema["properties"]["limit"]["maximum"], 50);
        assert_eq!(schema["additionalProperties"], false);
    }
}
