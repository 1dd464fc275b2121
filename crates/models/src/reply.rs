//! From what a provider said to a whole reply, or the name of what is wrong with it. The same rules for every dialect.

use std::collections::BTreeSet;
use std::sync::Arc;

use portcullis_canon::{Limits, Object, Value, parse, sanitize};
use portcullis_domain::ports::{
    MAX_PLAUSIBLE_TOKENS, MAX_TOOL_USES, ModelFailure, ModelFault, ModelReply, Stop, ToolUse, Usage,
};

use crate::transport::MAX_REPLY_BYTES;

/// The most bytes of a provider's words in an error.
const MAX_QUOTED: usize = 300;

/// A run of this many letters, digits, `-`, `_` or `.` in a provider's words may be a key that it echoes.
const KEY_LIKE: usize = 32;

/// A reply as it was read, before it is known to be whole and plausible.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    /// Why it ends; `None` for a reason that is not known here.
    pub(crate) stop: Option<Stop>,
    /// What it says.
    pub(crate) text: String,
    /// What it asks for.
    pub(crate) uses: Vec<DraftUse>,
    /// What has to be given back as it is.
    pub(crate) verbatim: Option<Arc<[u8]>>,
    /// What was counted.
    pub(crate) usage: Counted,
}

/// One tool use as it was read.
#[derive(Debug)]
pub(crate) struct DraftUse {
    /// `None` where the provider gives none.
    pub(crate) id: Option<String>,
    /// The name.
    pub(crate) name: String,
    /// `None` when they are no object.
    pub(crate) arguments: Option<Object>,
}

/// What became of a usage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Counted {
    /// The provider did not say.
    #[default]
    Nothing,
    /// It said this.
    Plausible(Usage),
    /// It said what cannot be.
    Implausible,
}

impl Counted {
    pub(crate) fn usage(self) -> Option<Usage> {
        match self {
            Self::Plausible(usage) => Some(usage),
            Self::Nothing | Self::Implausible => None,
        }
    }

    /// A usage of these counts, or none that can be. Counts that are all zero say nothing.
    pub(crate) fn of(usage: Option<Usage>) -> Self {
        match usage {
            None => Self::Implausible,
            Some(usage) if usage == Usage::default() => Self::Nothing,
            Some(usage) => Self::Plausible(usage),
        }
    }
}

/// One count: absent and `null` are zero; `None` when it is no natural number that can be.
pub(crate) fn count(value: Option<&Value>) -> Option<u64> {
    match value {
        None | Some(Value::Null) => Some(0),
        Some(value) => value.as_u64().filter(|count| *count <= MAX_PLAUSIBLE_TOKENS),
    }
}

/// A failure with one sentence.
pub(crate) fn failure(fault: ModelFault, message: &str, usage: Option<Usage>) -> ModelFailure {
    let message = sanitize::clip(&sanitize::line(message), 512);
    ModelFailure { fault, message, retry_after: None, usage, raw: None }
}

/// A failure with the body that it was found in.
pub(crate) fn found_in(failure: ModelFailure, raw: Arc<[u8]>) -> ModelFailure {
    ModelFailure { raw: Some(raw), ..failure }
}

/// A provider's own words in a sentence of ours: printable, short, and without what looks like a key.
pub(crate) fn quoted(words: &str) -> String {
    let key_char = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let mut out = String::new();
    let mut run = String::new();
    let flush = |run: &mut String, out: &mut String| {
        out.push_str(if run.len() >= KEY_LIKE { "[left out]" } else { run });
        run.clear();
    };
    for c in words.chars().take(4 * MAX_QUOTED) {
        if key_char(c) {
            run.push(c);
        } else {
            flush(&mut run, &mut out);
            out.push(c);
        }
    }
    flush(&mut run, &mut out);
    sanitize::clip(&sanitize::line(&out), MAX_QUOTED)
}

/// Reads the JSON of a whole body.
pub(crate) fn json(raw: &[u8]) -> Result<Object, ModelFailure> {
    let limits = Limits::BARE.with_max_bytes(MAX_REPLY_BYTES);
    match parse(raw, &limits) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(failure(ModelFault::WrongShape, "the reply is JSON, and no object", None)),
        Err(error) => {
            let page = raw.trim_ascii_start().starts_with(b"<");
            let what = if page { "a page for a browser, as of a proxy" } else { "no JSON" };
            Err(failure(ModelFault::NotJson, &format!("the reply is {what}: {error}"), None))
        }
    }
}

/// The `error` member of a body, in the shapes that providers have.
pub(crate) fn error_in(object: &Object) -> Option<String> {
    let error = object.get("error").filter(|error| !error.is_null())?;
    let words = error.as_str().or_else(|| error.get("message").and_then(Value::as_str));
    Some(quoted(words.unwrap_or("no words")))
}

/// An error inside of a reply that came with a good status.
pub(crate) fn provider_error(words: &str, usage: Counted) -> ModelFailure {
    let message = format!("the provider answered with an error: {words}");
    failure(ModelFault::ProviderError, &message, usage.usage())
}

/// A reply of another shape.
pub(crate) fn wrong_shape(what: &str) -> ModelFailure {
    failure(ModelFault::WrongShape, &format!("the reply has {what}"), None)
}

impl Draft {
    /// The reply, when it is whole and plausible. What was cut off or refused keeps its words and loses its tool uses.
    pub(crate) fn finish(self, raw: Arc<[u8]>) -> Result<ModelReply, ModelFailure> {
        if self.usage == Counted::Implausible {
            let message = "the reply counts tokens that cannot be";
            return Err(failure(ModelFault::UsageImplausible, message, None));
        }
        let usage = self.usage.usage();
        let fail = |fault, message: &str| Err(failure(fault, message, usage));
        let Some(stop) = self.stop else {
            return fail(
                ModelFault::UnknownStop,
                "the reply ends for a reason that is not known here",
            );
        };
        let text = self.text;
        if stop.is_cut() {
            return Ok(ModelReply { stop, text, uses: Vec::new(), verbatim: None, usage, raw });
        }
        if self.uses.len() > MAX_TOOL_USES {
            return fail(ModelFault::TooManyUses, "the reply asks for more tools than one may");
        }
        let mut uses = Vec::with_capacity(self.uses.len());
        let mut ids = BTreeSet::new();
        for (index, draft) in self.uses.into_iter().enumerate() {
            if draft.name.is_empty() {
                return fail(ModelFault::WrongShape, "the reply has a tool use without a name");
            }
            let Some(arguments) = draft.arguments else {
                let message = "the reply has a tool use whose arguments are no JSON object";
                return fail(ModelFault::ArgumentsNotObject, message);
            };
            let given = draft.id.filter(|id| !id.is_empty());
            let id = given.unwrap_or_else(|| format!("use_{index}"));
            if !ids.insert(id.clone()) {
                return fail(ModelFault::RepeatedId, "the reply has two tool uses with one id");
            }
            uses.push(ToolUse { id, name: draft.name, arguments });
        }
        if uses.is_empty() && text.trim().is_empty() {
            return fail(ModelFault::EmptyReply, "the reply says nothing and asks for nothing");
        }
        let stop = if uses.is_empty() { Stop::EndTurn } else { Stop::ToolUse };
        Ok(ModelReply { stop, text, uses, verbatim: self.verbatim, usage, raw })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_provider_lose_what_may_be_a_key() {
        let key = format!("sk-{}", "a1".repeat(20));
        let said = quoted(&format!("bad key `{key}`\u{202e} for gpt-4o-mini-2024-07-18"));
        assert!(!said.contains("a1a1"), "{said}");
        assert!(said.contains("[left out]") && said.contains("gpt-4o-mini-2024-07-18"), "{said}");
        assert!(!said.contains('\u{202e}'));
        assert!(quoted(&"x ".repeat(10_000)).len() <= MAX_QUOTED);
    }

    #[test]
    fn a_count_is_a_natural_number_that_can_be() {
        let read = |text: &str| count(Some(&parse(text.as_bytes(), &Limits::BARE).expect("json")));
        assert_eq!(count(None), Some(0));
        assert_eq!(read("null"), Some(0));
        assert_eq!(read("7"), Some(7));
        assert_eq!(read("1000000000"), Some(1_000_000_000));
        for wrong in ["1000000001", "-1", "1.5", "1e300", "\"7\"", "true", "99999999999999999999"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
