//! Messages: JSON-RPC 2.0, one on each line.
//!
//! There are two generations of clients. Older ones open the connection with `initialize` (revisions up to 2025-11-25).
//! From revision 2026-07-28 on there is no handshake: every request names its revision in `_meta`. A server may serve
//! both (specification, "Versioning and Compatibility").

use serde_json::{Map, Value, json};

/// The revision without a handshake.
const MODERN: &str = "2026-07-28";
/// The revisions with one, the newest first. 2025-03-26 is left out, because it requires batches.
const WITH_HANDSHAKE: [&str; 3] = ["2025-11-25", "2025-06-18", "2024-11-05"];
/// Key of the revision in `_meta`.
const REVISION: &str = "io.modelcontextprotocol/protocolVersion";
/// Key of the server's name in `_meta`.
const SERVER: &str = "io.modelcontextprotocol/serverInfo";
/// How long a client may keep the list of tools, which never changes, milliseconds.
const KEPT_MS: u64 = 3_600_000;

const PARSE_ERROR: i64 = -32700;
const INVALID_REQUEST: i64 = -32600;
const UNKNOWN_METHOD: i64 = -32601;
pub const INVALID_PARAMETERS: i64 = -32602;
const UNSUPPORTED_REVISION: i64 = -32022;

/// A received line.
#[derive(Debug, PartialEq)]
pub enum Incoming {
    Request(Request),
    /// The client no longer wants the response to this request.
    Cancelled(Value),
    /// A notification or a response, which needs no answer.
    Ignored,
    /// Not a request; with the response.
    Invalid(Value),
}

/// A request.
#[derive(Debug, PartialEq)]
pub struct Request {
    pub id: Value,
    pub method: String,
    pub params: Map<String, Value>,
    /// True if it names its revision, so that the response has the fields of [`MODERN`].
    is_modern: bool,
}

impl Incoming {
    /// Parses a line.
    pub fn parse(line: &[u8]) -> Self {
        let message = match serde_json::from_slice(line) {
            Ok(Value::Object(message)) => message,
            Ok(Value::Array(_)) => return Self::Invalid(error(None, INVALID_REQUEST, "batches are not supported")),
            Ok(_) => return Self::Invalid(error(None, INVALID_REQUEST, "a message is a JSON object")),
            Err(why) => return Self::Invalid(error(None, PARSE_ERROR, &format!("this line is no JSON: {why}"))),
        };
        let id = message.get("id").filter(|id| id.is_string() || id.is_i64() || id.is_u64()).cloned();
        let params = match message.get("params") {
            Some(Value::Object(params)) => params.clone(),
            None => Map::new(),
            Some(_) => return Self::Invalid(error(id, INVALID_PARAMETERS, "`params` is an object")),
        };
        match (message.get("method").and_then(Value::as_str), id) {
            (Some("notifications/cancelled"), None) => {
                params.get("requestId").map_or(Self::Ignored, |id| Self::Cancelled(id.clone()))
            }
            (Some(method), Some(id)) => {
                let is_modern = revision(&params).is_some();
                Self::Request(Request { id, method: method.to_owned(), params, is_modern })
            }
            // A response: this server sends no requests.
            (None, _) if message.contains_key("result") || message.contains_key("error") => Self::Ignored,
            (Some(_), None) if !message.contains_key("id") => Self::Ignored,
            (_, id) => Self::Invalid(error(id, INVALID_REQUEST, "a request has a `method` and an `id`")),
        }
    }
}

fn revision(params: &Map<String, Value>) -> Option<&Value> {
    params.get("_meta")?.get(REVISION)
}

impl Request {
    /// The response to every method but `tools/call`, which gets `None`. `tools` is the list of tools, `instructions` a
    /// text for the model.
    pub fn answered(&self, tools: &Value, instructions: &str) -> Option<Value> {
        if let Some(asked) = revision(&self.params).filter(|revision| *revision != MODERN) {
            let mut answer = error(Some(self.id.clone()), UNSUPPORTED_REVISION, "Unsupported protocol version");
            answer["error"]["data"] = json!({"supported": [MODERN], "requested": asked});
            return Some(answer);
        }
        let capabilities = json!({"tools": {}});
        Some(match self.method.as_str() {
            "tools/call" => return None,
            "initialize" => {
                let asked = self.params.get("protocolVersion").and_then(Value::as_str);
                let agreed = WITH_HANDSHAKE.into_iter().find(|known| Some(*known) == asked);
                // A client that asks for 2025-03-26 knows the oldest revision too.
                let oldest = asked.filter(|asked| *asked < WITH_HANDSHAKE[1]).and(WITH_HANDSHAKE.last().copied());
                self.result(json!({
                    "protocolVersion": agreed.or(oldest).unwrap_or(WITH_HANDSHAKE[0]),
                    "capabilities": capabilities,
                    "serverInfo": server(),
                    "instructions": instructions,
                }))
            }
            "server/discover" => {
                let mut discovered =
                    json!({"supportedVersions": [MODERN], "capabilities": capabilities, "instructions": instructions});
                cacheable(&mut discovered);
                self.modern(discovered)
            }
            "tools/list" => {
                let mut listed = json!({"tools": tools});
                cacheable(&mut listed);
                self.result(listed)
            }
            "ping" => self.result(json!({})),
            method => error(Some(self.id.clone()), UNKNOWN_METHOD, &format!("there is no method {method:?}")),
        })
    }

    /// The response with this result.
    pub fn result(&self, result: Value) -> Value {
        if self.is_modern { self.modern(result) } else { json!({"jsonrpc": "2.0", "id": self.id, "result": result}) }
    }

    fn modern(&self, mut result: Value) -> Value {
        result["resultType"] = "complete".into();
        result["_meta"] = json!({ SERVER: server() });
        json!({"jsonrpc": "2.0", "id": self.id, "result": result})
    }

    /// The response that the request makes no sense.
    pub fn refused(&self, why: &str) -> Value {
        error(Some(self.id.clone()), INVALID_PARAMETERS, why)
    }
}

fn server() -> Value {
    json!({"name": "gpuwhy", "version": env!("CARGO_PKG_VERSION")})
}

fn cacheable(result: &mut Value) {
    result["ttlMs"] = KEPT_MS.into();
    result["cacheScope"] = "private".into();
}

/// Without an id, the field is missing: MCP has no null.
fn error(id: Option<Value>, code: i64, message: &str) -> Value {
    let mut answer = json!({"jsonrpc": "2.0", "error": {"code": code, "message": message}});
    if let Some(id) = id {
        answer["id"] = id;
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(text: &str) -> Request {
        match Incoming::parse(text.as_bytes()) {
            Incoming::Request(request) => request,
            other => panic!("{text}: {other:?}"),
        }
    }

    fn answer(text: &str) -> Value {
        request(text).answered(&json!([]), "Ask.").unwrap()
    }

    #[test]
    fn lines_that_are_no_requests_are_answered_or_passed_over() {
        let code = |line: &str| match Incoming::parse(line.as_bytes()) {
            Incoming::Invalid(answer) => (answer["error"]["code"].as_i64().unwrap(), answer.get("id").cloned()),
            other => panic!("{line}: {other:?}"),
        };
        assert_eq!(code("{"), (PARSE_ERROR, None));
        assert_eq!(code("[]"), (INVALID_REQUEST, None));
        assert_eq!(code("7"), (INVALID_REQUEST, None));
        assert_eq!(code(r#"{"id": null, "method": "ping"}"#), (INVALID_REQUEST, None));
        assert_eq!(code(r#"{"id": 3}"#), (INVALID_REQUEST, Some(3.into())));
        assert_eq!(code(r#"{"id": "a", "method": "ping", "params": [1]}"#), (INVALID_PARAMETERS, Some("a".into())));
        let ignored = [
            r#"{"jsonrpc": "2.0", "method": "notifications/initialized"}"#,
            r#"{"jsonrpc": "2.0", "id": 1, "result": {}}"#,
            r#"{"jsonrpc": "2.0", "method": "notifications/cancelled"}"#,
        ];
        for line in ignored {
            assert_eq!(Incoming::parse(line.as_bytes()), Incoming::Ignored, "{line}");
        }
        let line = br#"{"method": "notifications/cancelled", "params": {"requestId": 4}}"#;
        assert_eq!(Incoming::parse(line), Incoming::Cancelled(4.into()));
    }

    #[test]
    fn a_handshake_agrees_on_a_revision_that_both_know() {
        let agreed = |asked: &str| {
            let line = format!(r#"{{"id": 1, "method": "initialize", "params": {{"protocolVersion": "{asked}"}}}}"#);
            answer(&line)["result"]["protocolVersion"].clone()
        };
        assert_eq!(agreed("2025-06-18"), "2025-06-18");
        assert_eq!(agreed("2025-03-26"), "2024-11-05");
        assert_eq!(agreed("2999-01-01"), "2025-11-25");
        let pong = answer(r#"{"id": 2, "method": "ping"}"#);
        assert_eq!(pong, json!({"jsonrpc": "2.0", "id": 2, "result": {}}));
    }

    #[test]
    fn a_request_that_names_its_revision_needs_no_handshake() {
        let line = |method: &str, revision: &str| {
            format!(r#"{{"id": 1, "method": "{method}", "params": {{"_meta": {{"{REVISION}": "{revision}"}}}}}}"#)
        };
        let listed = answer(&line("tools/list", MODERN));
        assert_eq!(
            (&listed["result"]["resultType"], &listed["result"]["ttlMs"]),
            (&"complete".into(), &KEPT_MS.into())
        );
        assert_eq!(listed["result"]["_meta"][SERVER]["name"], "gpuwhy");
        assert_eq!(answer(&line("server/discover", MODERN))["result"]["supportedVersions"], json!([MODERN]));
        let refused = answer(&line("tools/list", "1900-01-01"));
        assert_eq!(refused["error"]["code"], UNSUPPORTED_REVISION);
        assert_eq!(refused["error"]["data"], json!({"supported": [MODERN], "requested": "1900-01-01"}));
        assert_eq!(answer(&line("logging/setLevel", MODERN))["error"]["code"], UNKNOWN_METHOD);
        assert!(request(&line("tools/call", MODERN)).answered(&json!([]), "").is_none());
    }
}
