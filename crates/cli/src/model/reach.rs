//! Whether a provider answers, by a request that only lists its models.

use std::sync::Arc;
use std::time::Duration;

use portcullis::system::SystemClock;
use portcullis_canon::{Limits, Value, parse, sanitize};
use portcullis_egress::{CredentialRef, Method, Request, Response, Target};
use portcullis_models::{Dialect, KeyHeader};

use crate::args::Globals;
use crate::config::{Credentials, EgressChoice};
use crate::failure::{Code, Failure};

use super::keys;
use super::providers::Entry;

/// How long a provider is waited for.
const PATIENCE: Duration = Duration::from_secs(3);

/// The most bytes of a list.
const MAX_LIST: u64 = 4 << 20;

/// The most models of one provider that are kept.
const MAX_MODELS: usize = 500;

/// The longest name that is kept, in bytes.
const MAX_NAME: usize = 200;

/// What became of asking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// It lists these models; `None` when it answers with something else than a list.
    Reachable(Option<Vec<String>>),
    /// It does not take the key.
    Refused(String),
    /// No answer that could be used.
    Unreachable(String),
    /// Its key is not there, or cannot be used.
    NoKey(String),
}

/// Asks a provider for its models: one GET, within a short time.
pub(crate) async fn ask(
    entry: &Entry,
    known: &Credentials,
    way: &EgressChoice,
    globals: &Globals,
) -> Result<Reach, Failure> {
    let key = match keys::open(entry, known, globals) {
        Ok(key) => key,
        Err(failure) => {
            let advice = failure.advice().map(|advice| format!("; {advice}")).unwrap_or_default();
            return Ok(Reach::NoKey(format!("{}{advice}", failure.sentence())));
        }
    };
    let (egress, credential) = key.client(entry, way, PATIENCE, Arc::new(SystemClock::new()))?;
    let request = request(entry, credential.as_deref())?;
    Ok(match egress.send(request).await {
        Ok(response) => judge(entry.dialect, &response),
        Err(error) => Reach::Unreachable(error.to_string()),
    })
}

fn request(entry: &Entry, credential: Option<&str>) -> Result<Request, Failure> {
    let unusable = |fault: &dyn std::fmt::Display| Failure::new(Code::Model, fault.to_string());
    let path = match entry.dialect {
        Dialect::OpenAi | Dialect::Anthropic => "models",
        Dialect::Ollama => "tags",
    };
    let target = Target::parse(&format!("{}/{path}", entry.base)).map_err(|f| unusable(&f))?;
    let mut request = Request::new(Method::Get, target).max_body(MAX_LIST);
    for (name, value) in entry.dialect.headers() {
        request = request.header(name, &value).map_err(|f| unusable(&f))?;
    }
    let Some(credential) = credential else { return Ok(request) };
    let key = entry.dialect.key(credential);
    Ok(request.credential(match key.header {
        KeyHeader::Bearer => CredentialRef::bearer(&key.credential),
        KeyHeader::ApiKey => {
            CredentialRef::header(&key.credential, "x-api-key").map_err(|f| unusable(&f))?
        }
    }))
}

fn judge(dialect: Dialect, response: &Response) -> Reach {
    match response.status {
        200..=299 => Reach::Reachable(listed(dialect, &response.body)),
        401 | 403 => Reach::Refused(format!("it answered {} to this key", response.status)),
        // Some have no list; that they answer is what is asked.
        404 | 405 => Reach::Reachable(None),
        status => Reach::Unreachable(format!("it answered {status}")),
    }
}

fn listed(dialect: Dialect, body: &[u8]) -> Option<Vec<String>> {
    let (list, name) = match dialect {
        Dialect::OpenAi | Dialect::Anthropic => ("data", "id"),
        Dialect::Ollama => ("models", "name"),
    };
    let value = parse(body, &Limits::BARE.with_max_bytes(body.len())).ok()?;
    let items = value.get(list)?.as_array()?.iter();
    let names = items.filter_map(|item| item.get(name).and_then(Value::as_str));
    let names = names.take(MAX_MODELS);
    Some(names.map(|name| sanitize::clip(&sanitize::line(name), MAX_NAME)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_as_each_dialect_has_them() {
        let read = |dialect, body: &str| listed(dialect, body.as_bytes());
        let two = Some(vec!["a".to_owned(), "b".to_owned()]);
        assert_eq!(read(Dialect::OpenAi, r#"{"data":[{"id":"a"},{"id":"b"}]}"#), two);
        assert_eq!(read(Dialect::Ollama, r#"{"models":[{"name":"a"},{"name":"b"}]}"#), two);
        for odd in ["<html>", "[]", "{}", r#"{"data":1}"#] {
            assert_eq!(read(Dialect::Anthropic, odd), None, "{odd}");
        }
        let hidden = read(Dialect::OpenAi, "{\"data\":[{\"id\":\"\u{202e}x\"}]}").unwrap();
        assert!(!hidden[0].contains('\u{202e}'), "{hidden:?}");
    }
}
