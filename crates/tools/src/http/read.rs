//! `http.read`: what a URL holds.

use portcullis_canon::{Object, Value};
use portcullis_domain::ports::{ToolFailure, ToolOutput};
use portcullis_domain::tool::{EffectClass, ToolSpec};
use serde::Deserialize;

use super::rules::{HttpPlace, HttpRules};
use super::{Http, Tool, answer, arguments, failure};
use crate::arguments::read;
use crate::schema::{described, object};

/// What is taken unless the agent says otherwise.
const ANYTHING: &str = "*/*";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    url: String,
    method: String,
    #[serde(default = "anything")]
    accept: String,
}

fn anything() -> String {
    ANYTHING.to_owned()
}

pub(super) fn spec(rules: &HttpRules, places: &[&HttpPlace]) -> ToolSpec {
    let methods = arguments::methods(Tool::Read, places);
    let usual = methods.first().copied().unwrap_or_default();
    let method = described([
        ("enum", methods.iter().copied().collect()),
        ("description", Value::from("`GET` for the content, `HEAD` for the headers alone")),
        ("default", Value::from(usual)),
    ]);
    ToolSpec {
        name: Tool::Read.name().to_owned(),
        description: format!(
            "Reads what a URL holds: status, headers and at most {} bytes of content; `cut` says that there was more. \
             Text comes as text with `encoding` utf8, anything else as base64. A status from 400 on is an answer too. No \
             redirect is followed. Places: {}.",
            rules.content(),
            arguments::listed(Tool::Read, places)
        ),
        input_schema: object(
            [
                ("url", arguments::url(places)),
                ("method", method),
                ("accept", arguments::media("the media types that are wanted", ANYTHING)),
            ],
            &["url"],
        ),
        effect: EffectClass::ReadOnly,
        source: true,
        // A URL carries out what stands in it.
        sink: true,
        authority: vec!["/url".to_owned()],
        deadline_ms: answer::deadline_ms(rules),
        terminal: false,
        fixed: Object::new(),
        max_result_bytes: answer::max_result(rules),
        target: Some(rules.shown(places)),
        probe: None,
        idempotency_key: None,
    }
}

pub(super) async fn call(http: &Http, arguments: &Object) -> Result<ToolOutput, ToolFailure> {
    let Arguments { url, method, accept } = read(arguments)?;
    let (request, place) = arguments::request(&http.rules, Tool::Read, &url, &method)?;
    let request = arguments::header(request, "accept", &accept)?;
    let incoming = http.open(request).await.map_err(|error| failure::of_read(&error))?;
    let answer = answer::collect(incoming, &http.rules);
    let answer = answer.await.map_err(|error| failure::of_read(&error))?;
    Ok(answer.output(place))
}
