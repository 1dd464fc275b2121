//! Arguments that stand in headers too, where a stateless server's schema says so (`x-mcp-header`).

use std::collections::{BTreeMap, BTreeSet};

use portcullis_canon::{Value, sanitize};
use portcullis_egress::{HeaderFault, Request};

use super::head::{Message, encoded};
use crate::listing::Listing;
use crate::session::SessionError;

/// What says that an argument stands in a header, and the name of that.
const KEY: &str = "x-mcp-header";

/// What all these headers begin with.
const PREFIX: &str = "mcp-param-";

/// The largest whole number that every reader reads alike.
const MAX_SAFE: i64 = (1 << 53) - 1;

/// How much of a tool's name goes into a sentence.
const QUOTED_BYTES: usize = 80;

/// One argument that stands in a header too.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Param {
    /// The names from the arguments to the value.
    path: Vec<String>,
    header: String,
}

/// These arguments, by the tool.
#[derive(Debug, Default)]
pub(super) struct Params(BTreeMap<String, Vec<Param>>);

impl Params {
    /// Puts into the headers of a call what stands there too.
    pub(super) fn put(
        &self,
        message: &Message,
        mut request: Request,
    ) -> Result<Request, HeaderFault> {
        let params = message.tool().and_then(|tool| self.0.get(tool));
        for param in params.into_iter().flatten() {
            let value = param
                .path
                .iter()
                .try_fold(message.arguments(), |value, name| Some(value?.get(name.as_str())));
            if let Some(text) = value.flatten().and_then(text) {
                request = request.header(&format!("{PREFIX}{}", param.header), &encoded(&text))?;
            }
        }
        Ok(request)
    }
}

/// A value as text; nothing for one that stands in no header.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(value) => Some(value.to_string()),
        Value::Number(_) => {
            let whole = value.as_i64().filter(|whole| (-MAX_SAFE..=MAX_SAFE).contains(whole));
            whole.map(|whole| whole.to_string())
        }
        _ => None,
    }
}

/// What the tools of a listing say of headers, and the listing without those that say it in a wrong way.
pub(super) fn of(listing: Listing) -> Result<(Listing, Params), SessionError> {
    let (mut params, mut kept) = (Params::default(), Vec::with_capacity(listing.tools().len()));
    for tool in listing.tools() {
        let mut found = Found::default();
        let schema = tool.raw().get("inputSchema");
        match schema.map_or(Ok(()), |schema| found.walk(schema, Some(&[]))) {
            Ok(()) => {
                if !found.params.is_empty() {
                    params.0.insert(tool.name().to_owned(), found.params);
                }
                kept.push(tool.clone());
            }
            Err(why) => {
                let name = sanitize::clip(&sanitize::line(tool.name()), QUOTED_BYTES);
                tracing::warn!(tool = %name, "left out, since its schema's `{KEY}` is wrong: {why}");
            }
        }
    }
    Ok((Listing::new(kept)?, params))
}

#[derive(Default)]
struct Found {
    params: Vec<Param>,
    names: BTreeSet<String>,
}

impl Found {
    /// Looks through a schema. `path` leads to it through `properties` alone; nothing where something else was between.
    fn walk(&mut self, schema: &Value, path: Option<&[String]>) -> Result<(), &'static str> {
        if let Some(items) = schema.as_array() {
            return items.iter().try_for_each(|item| self.walk(item, None));
        }
        let Some(object) = schema.as_object() else { return Ok(()) };
        for (key, value) in object.iter() {
            match key {
                KEY => self.take(schema, value, path)?,
                "properties" => self.walk_each(value, path)?,
                "$defs" | "definitions" | "dependentSchemas" | "dependencies"
                | "patternProperties" => self.walk_each(value, None)?,
                // Values and names, and no schemas.
                "default" | "const" | "enum" | "examples" | "required" | "dependentRequired" => {}
                _ => self.walk(value, None)?,
            }
        }
        Ok(())
    }

    /// Looks through schemas that stand under names.
    fn walk_each(&mut self, named: &Value, path: Option<&[String]>) -> Result<(), &'static str> {
        for (name, schema) in named.as_object().into_iter().flat_map(|named| named.iter()) {
            let longer = path.map(|path| [path, &[name.to_owned()]].concat());
            self.walk(schema, longer.as_deref())?;
        }
        Ok(())
    }

    fn take(
        &mut self,
        schema: &Value,
        said: &Value,
        path: Option<&[String]>,
    ) -> Result<(), &'static str> {
        let path = path.filter(|path| !path.is_empty());
        let path = path.ok_or("it is not at a property that can be reached by name")?;
        let header = said.as_str().filter(|name| !name.is_empty() && name.bytes().all(is_token));
        let header = header.ok_or("it is not the name of a header")?;
        let kind = schema.get("type").and_then(Value::as_str).unwrap_or_default();
        if !matches!(kind, "string" | "integer" | "boolean") {
            return Err("its property is no text, whole number or truth value");
        }
        if !self.names.insert(header.to_ascii_lowercase()) {
            return Err("it stands there twice");
        }
        self.params.push(Param { path: path.to_vec(), header: header.to_owned() });
        Ok(())
    }
}

/// What names of headers are made of.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use portcullis_canon::{Limits, parse};
    use portcullis_egress::{Method, Target};

    use super::*;
    use crate::listing::AdvertisedTool;

    fn listing(schemas: &[&str]) -> Listing {
        let tool = |(n, schema): (usize, &&str)| {
            let text = format!(r#"{{"name":"t{n}","inputSchema":{schema}}}"#);
            AdvertisedTool::read(parse(text.as_bytes(), &Limits::default()).unwrap()).unwrap()
        };
        Listing::new(schemas.iter().enumerate().map(tool).collect()).unwrap()
    }

    #[test]
    fn a_schema_that_says_it_wrongly_takes_its_tool_and_only_that_one() {
        let good = r#"{"properties":{"a":{"type":"string","x-mcp-header":"Region"},"b":{"properties":{"c":{"type":"integer","x-mcp-header":"C"}}},
            "d":{"default":{"x-mcp-header":1}}}}"#;
        let wrong = [
            r#"{"x-mcp-header":"A","type":"object"}"#,
            r#"{"properties":{"a":{"type":"number","x-mcp-header":"A"}}}"#,
            r#"{"properties":{"a":{"x-mcp-header":"A"}}}"#,
            r#"{"properties":{"a":{"type":"string","x-mcp-header":""}}}"#,
            r#"{"properties":{"a":{"type":"string","x-mcp-header":"A B"}}}"#,
            r#"{"properties":{"a":{"type":"string","x-mcp-header":7}}}"#,
            r#"{"properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"a"}}}"#,
            r#"{"properties":{"a":{"items":{"properties":{"b":{"type":"string","x-mcp-header":"A"}}}}}}"#,
            r#"{"anyOf":[{"properties":{"b":{"type":"string","x-mcp-header":"A"}}}]}"#,
            r#"{"$defs":{"x":{"type":"string","x-mcp-header":"A"}}}"#,
        ];
        for schema in wrong {
            let (left, params) = of(listing(&[schema, good])).unwrap();
            let names: Vec<_> = left.tools().iter().map(|tool| tool.name()).collect();
            assert_eq!(names, ["t1"], "{schema}");
            assert_eq!(params.0["t1"].len(), 2, "control: {schema}");
        }
    }

    #[test]
    fn what_a_call_gives_stands_in_its_headers() {
        let schema = r#"{"properties":{"a":{"type":"string","x-mcp-header":"Region"},"b":{"properties":{"c":{"type":"integer","x-mcp-header":"C"}}},
            "e":{"type":"boolean","x-mcp-header":"E"}}}"#;
        let (_, params) = of(listing(&[schema])).unwrap();
        let headers = |arguments: &str| {
            let line = format!(
                r#"{{"method":"tools/call","params":{{"name":"t0","arguments":{arguments}}}}}"#
            );
            let message = Message::read(line.as_bytes()).unwrap();
            let request = Request::new(Method::Post, Target::parse("https://a.example/").unwrap());
            // The debug form has the names alone.
            format!("{:?}", params.put(&message, request).unwrap())
        };
        let all = headers(r#"{"a":"x\ny","b":{"c":-7},"e":true}"#);
        for name in ["mcp-param-region", "mcp-param-c", "mcp-param-e"] {
            assert!(all.contains(name), "{all}");
        }
        for none in ["{}", r#"{"a":null,"b":{"c":9007199254740992},"e":1.5}"#, "1"] {
            assert!(!headers(none).contains("mcp-param"), "{none}");
        }
        assert_eq!(text(&Value::from(-7)).as_deref(), Some("-7"));
    }
}
