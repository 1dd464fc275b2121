//! `http.send` and `http.send_keyed`: requests that change something elsewhere.

use portcullis_canon::{Object, Value};
use portcullis_domain::permit::Permit;
use portcullis_domain::ports::{ToolFailure, ToolOutput};
use portcullis_domain::tool::{EffectClass, ToolSpec};
use portcullis_egress::Request;
use serde::Deserialize;

use super::rules::{HttpPlace, HttpRules};
use super::{Http, Tool, answer, arguments, failure};
use crate::arguments::{present, read, refused};
use crate::encoding::Encoding;
use crate::schema::{content, described, encoding, object};

/// What a body is unless the agent says otherwise.
const JSON: &str = "application/json";

/// The parameter that the gate fills.
const KEY: &str = "idempotency_key";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    url: String,
    method: String,
    #[serde(default)]
    body: String,
    #[serde(default)]
    encoding: Encoding,
    #[serde(default = "json")]
    content_type: String,
    #[serde(default, deserialize_with = "present")]
    idempotency_key: Option<String>,
}

fn json() -> String {
    JSON.to_owned()
}

pub(super) fn spec(tool: Tool, rules: &HttpRules, places: &[&HttpPlace]) -> ToolSpec {
    let keyed = tool == Tool::SendKeyed;
    let again = if keyed { " The place takes two requests with one key for one." } else { "" };
    ToolSpec {
        name: tool.name().to_owned(),
        description: format!(
            "Sends a request that changes something elsewhere, once, and gives the answer: status, headers and at most {} \
             bytes of content; `cut` says that there was more. A status from 400 to 499 is an answer: read it before \
             sending anything else. No redirect is followed.{again} Places: {}.",
            rules.content(),
            arguments::listed(tool, places)
        ),
        input_schema: schema(tool, places),
        effect: EffectClass::RemoteMutation,
        source: true,
        sink: true,
        authority: vec!["/url".to_owned(), "/body".to_owned()],
        deadline_ms: answer::deadline_ms(rules),
        terminal: false,
        fixed: Object::new(),
        max_result_bytes: answer::max_result(rules),
        target: Some(rules.shown(places)),
        probe: None,
        idempotency_key: keyed.then(|| KEY.to_owned()),
    }
}

fn schema(tool: Tool, places: &[&HttpPlace]) -> Value {
    let methods: Value = arguments::methods(tool, places).into_iter().collect();
    let method = described([
        ("enum", methods),
        ("description", Value::from("what is done with what the URL names")),
    ]);
    let mut properties = vec![
        ("url", arguments::url(places)),
        ("method", method),
        ("body", with_default(content("what is sent"), "")),
        ("encoding", encoding()),
        ("content_type", arguments::media("the media type of the body, where there is one", JSON)),
    ];
    if tool == Tool::SendKeyed {
        let key = described([
            ("type", Value::from("string")),
            ("description", Value::from("filled in by the gate")),
            ("pattern", Value::from("^[0-9a-f]{64}$")),
        ]);
        properties.push((KEY, key));
    }
    object(properties, &["url", "method"])
}

fn with_default(schema: Value, default: &str) -> Value {
    match schema {
        Value::Object(mut schema) => {
            schema.insert("default", default);
            Value::Object(schema)
        }
        other => other,
    }
}

pub(super) async fn call(
    http: &Http,
    tool: Tool,
    permit: &Permit,
) -> Result<ToolOutput, ToolFailure> {
    let arguments = permit.arguments();
    let arguments: Arguments = read(arguments)?;
    let (request, place) =
        arguments::request(&http.rules, tool, &arguments.url, &arguments.method)?;
    let request = with_body(request, &arguments)?;
    let request = match (place.key_header(), arguments.idempotency_key.as_deref()) {
        (Some(header), Some(key)) if is_key(key) => arguments::header(request, header, key)?,
        (None, None) => request,
        _ => {
            return Err(refused(
                "an idempotency key is where it should not be, or the other way round",
            ));
        }
    };
    let standing = permit.standing().clone();
    let request = request.while_true(move || standing.holds());
    let incoming = http.open(request).await.map_err(|error| failure::of_send(&error))?;
    if failure::leaves_open(incoming.status) {
        return Err(failure::open(place, incoming.status));
    }
    let answer = answer::collect(incoming, &http.rules);
    let answer = answer.await.map_err(|error| failure::of_send(&error))?;
    Ok(answer.output(place))
}

fn is_key(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn with_body(request: Request, arguments: &Arguments) -> Result<Request, ToolFailure> {
    let body = arguments.encoding.decode("body", &arguments.body)?;
    if body.is_empty() {
        return Ok(request);
    }
    let request = arguments::header(request, "content-type", &arguments.content_type)?;
    Ok(request.body(body.into_owned()))
}
