//! The arguments that both kinds of request have: the URL, the method, and what they may be.

use std::fmt::Write as _;

use portcullis_canon::Value;
use portcullis_domain::ports::ToolFailure;
use portcullis_egress::{MAX_URL, Request, Target};

use super::rules::{HttpPlace, HttpRules};
use super::{Tool, method};
use crate::arguments::refused;
use crate::schema::described;

/// The most places that a description lists.
const MAX_LISTED: usize = 16;

/// The longest media type, in characters.
const MAX_MEDIA: u64 = 200;

/// A URL of one of these places. The pattern refuses the others before anybody is asked about the call.
pub(super) fn url(places: &[&HttpPlace]) -> Value {
    let origins: Vec<String> = places.iter().map(|place| escaped(place.origin())).collect();
    // Every printable character but `#` and `\`.
    let pattern = format!("^(?:{})(?:[/?][!\"$-\\[\\]-~]*)?$", origins.join("|"));
    described([
        ("type", Value::from("string")),
        (
            "description",
            Value::from("the whole URL as it is sent: percent-encoded, without a fragment"),
        ),
        ("maxLength", Value::from(MAX_URL)),
        ("pattern", Value::from(pattern)),
    ])
}

/// An origin has letters, digits, and `:/.-[]`.
fn escaped(origin: &str) -> String {
    let mut pattern = String::new();
    for c in origin.chars() {
        if ".[]".contains(c) {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}

/// The methods that a tool has at some place.
pub(super) fn methods(tool: Tool, places: &[&HttpPlace]) -> Vec<&'static str> {
    let open = |method| places.iter().any(|place| tool.takes(place, method));
    method::ALL.into_iter().filter(|(method, _)| open(*method)).map(|(_, name)| name).collect()
}

/// A media type as a header takes it.
pub(super) fn media(what: &str, default: &str) -> Value {
    described([
        ("type", Value::from("string")),
        ("description", Value::from(what)),
        ("maxLength", Value::from(MAX_MEDIA)),
        ("pattern", Value::from("^[!-~]+(?: [!-~]+)*$")),
        ("default", Value::from(default)),
    ])
}

/// The places for a model to read, each with its methods.
pub(super) fn listed(tool: Tool, places: &[&HttpPlace]) -> String {
    let mut list = String::new();
    for place in places.iter().take(MAX_LISTED) {
        let between = if list.is_empty() { "" } else { ", " };
        let methods = methods(tool, &[place]).join("/");
        // Writing to a text does not fail.
        let _ = write!(list, "{between}{} ({methods})", place.origin());
    }
    match places.len().checked_sub(MAX_LISTED) {
        None | Some(0) => list,
        Some(more) => format!("{list}, and {more} more"),
    }
}

/// A request that is within the operator's rules, with the credential of its place by name.
pub(super) fn request<'r>(
    rules: &'r HttpRules,
    tool: Tool,
    url: &str,
    method: &str,
) -> Result<(Request, &'r HttpPlace), ToolFailure> {
    let target = Target::parse(url).map_err(|fault| refused(fault.to_string()))?;
    let origin = target.origin();
    let place = rules.place(&origin);
    let place = place.ok_or_else(|| {
        refused(format!("`{origin}` is not a place that the operator's rules name"))
    })?;
    let known = method::http_method(method).ok_or_else(|| refused("there is no such method"))?;
    if !tool.takes(place, known) {
        let message = format!("`{origin}` is not asked by `{}` with {method}", tool.name());
        return Err(refused(message));
    }
    let request = header(Request::new(known, target), "user-agent", AGENT)?;
    Ok(match place.named_credential() {
        Some(credential) => (request.credential(credential.clone()), place),
        None => (request, place),
    })
}

/// How this program names itself: some places answer nobody who does not.
const AGENT: &str = concat!("portcullis/", env!("CARGO_PKG_VERSION"));

/// Adds a header; a value that HTTP cannot carry is refused.
pub(super) fn header(request: Request, name: &str, value: &str) -> Result<Request, ToolFailure> {
    request.header(name, value).map_err(|fault| refused(fault.to_string()))
}
