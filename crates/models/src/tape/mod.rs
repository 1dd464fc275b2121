//! Recordings of models: made beside a live one, played without any.
//!
//! A recording is a private folder. `recording.json` says whose it is and how requests were rendered; each exchange is a
//! file named by the digest of model and canonical request, `<digest>.json`, and for equal requests in sequence
//! `<digest>.2.json` and so on. Whole replies stand in it, and bodies that were refused, with why; attempts that may be
//! made again do not. What is played is judged by the same code as what comes from a provider.

mod folder;
mod record;
mod replay;
mod scripted;

use std::sync::Arc;

use portcullis_canon::{Digest, Kind, Limits, Object, Value, from_slice, parse, sanitize, to_vec};
use portcullis_domain::ports::{
    Disposition, MAX_PLAUSIBLE_TOKENS, ModelFailure, ModelFault, ModelName, ModelOutcome,
    ModelReply, Stop, Usage,
};
use serde::{Deserialize, Serialize};

use crate::dialect::Dialect;
use crate::render::{FenceSeed, Profile};
use crate::reply::{Counted, Draft, DraftUse, failure};
use crate::transport::MAX_REPLY_BYTES;

pub use folder::TapeError;
pub use record::Recorder;
pub use replay::Replayer;
pub use scripted::ScriptedModel;

/// The most bytes of one recorded exchange.
const MAX_FILE: u64 = 64 * 1024 * 1024;

const MANIFEST: &str = "recording.json";
const FORMAT: &str = "portcullis/recording/v1";

/// Whose recording it is, and how its requests were rendered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The model.
    pub model: ModelName,
    /// What its provider speaks.
    pub dialect: Dialect,
    /// How steps were rendered.
    pub profile: Profile,
    /// What marks of outside content were drawn from.
    pub seed: FenceSeed,
    /// The cap on each reply, in tokens, as requests have it; `None` in recordings that do not say.
    pub max_output_tokens: Option<u64>,
    /// Further members of each request.
    pub extra: Object,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ManifestFile {
    format: String,
    model: String,
    dialect: String,
    profile: String,
    fence_seed: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_output_tokens: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    extra: Option<Value>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExchangeFile {
    model: String,
    request: Value,
    /// A reply, or what was refused: one of the two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reply: Option<ReplyFile>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    refused: Option<RefusedFile>,
    /// The provider's body as text. Of a reply it is for whoever looks; what was refused is judged by it again.
    raw: String,
}

/// A body that came and was refused.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RefusedFile {
    fault: String,
    message: String,
    usage: Option<UsageFile>,
    /// Whether the body came in pieces.
    pieces: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReplyFile {
    stop: String,
    text: String,
    uses: Vec<UseFile>,
    verbatim: Option<String>,
    usage: Option<UsageFile>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct UseFile {
    id: String,
    name: String,
    arguments: Value,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct UsageFile {
    input: u64,
    cache_read: u64,
    cache_write: u64,
    cache_write_long: u64,
    output: u64,
}

fn shape(name: &str, reason: impl std::fmt::Display) -> TapeError {
    let reason = sanitize::clip(&sanitize::line(&reason.to_string()), 200);
    TapeError::Shape { name: name.to_owned(), reason }
}

impl Manifest {
    fn read(bytes: &[u8]) -> Result<Self, TapeError> {
        let wrong = |what: &str| shape(MANIFEST, format!("it names no {what} that is known here"));
        let file: ManifestFile =
            from_slice(bytes, &Limits::BARE).map_err(|error| shape(MANIFEST, error))?;
        if file.format != FORMAT {
            return Err(wrong("format"));
        }
        let extra = match file.extra {
            None => Object::new(),
            Some(Value::Object(extra)) => extra,
            Some(_) => return Err(wrong("`extra`")),
        };
        Ok(Self {
            max_output_tokens: file.max_output_tokens,
            extra,
            model: ModelName::read(&file.model).map_err(|_| wrong("model"))?,
            dialect: Dialect::named(&file.dialect).ok_or_else(|| wrong("dialect"))?,
            profile: Profile::named(&file.profile).ok_or_else(|| wrong("profile"))?,
            seed: FenceSeed::from_hex(&file.fence_seed).ok_or_else(|| wrong("seed"))?,
        })
    }

    fn write(&self) -> Result<Vec<u8>, TapeError> {
        let file = ManifestFile {
            format: FORMAT.to_owned(),
            model: self.model.as_str().to_owned(),
            dialect: self.dialect.as_str().to_owned(),
            profile: self.profile.as_str().to_owned(),
            fence_seed: self.seed.hex(),
            max_output_tokens: self.max_output_tokens,
            extra: (!self.extra.is_empty()).then(|| Value::Object(self.extra.clone())),
        };
        to_vec(&file).map_err(|error| shape(MANIFEST, error))
    }
}

/// What a recording is keyed on: the model and the canonical request. `None` when the body is no JSON.
fn key(model: &ModelName, body: &[u8]) -> Option<(Digest, Value)> {
    let request = parse(body, &Limits::ENVELOPE).ok()?;
    let whole =
        Object::from_iter([("model", Value::from(model.as_str())), ("request", request.clone())]);
    Some((Digest::of_value(Kind::ModelRequest, &Value::Object(whole)), request))
}

/// The name of the `nth` exchange with this key, from one.
fn file_name(key: Digest, nth: u64) -> String {
    if nth == 1 { format!("{}.json", key.hex()) } else { format!("{}.{nth}.json", key.hex()) }
}

const STOPS: [Stop; 5] =
    [Stop::ToolUse, Stop::EndTurn, Stop::MaxTokens, Stop::Refusal, Stop::ContextFull];

impl UsageFile {
    const fn of(usage: &Usage) -> Self {
        Self {
            input: usage.input_tokens,
            cache_read: usage.cache_read_tokens,
            cache_write: usage.cache_write_tokens,
            cache_write_long: usage.cache_write_long_tokens,
            output: usage.output_tokens,
        }
    }

    /// As a provider's counts are taken.
    fn counted(self) -> Counted {
        let counts =
            [self.input, self.cache_read, self.cache_write, self.cache_write_long, self.output];
        let possible = counts.iter().all(|count| *count <= MAX_PLAUSIBLE_TOKENS);
        Counted::of(possible.then_some(Usage {
            input_tokens: self.input,
            cache_read_tokens: self.cache_read,
            cache_write_tokens: self.cache_write,
            cache_write_long_tokens: self.cache_write_long,
            output_tokens: self.output,
        }))
    }
}

fn counted(usage: Option<UsageFile>) -> Counted {
    usage.map_or(Counted::Nothing, UsageFile::counted)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl ExchangeFile {
    fn of(model: &ModelName, request: Value, reply: &ModelReply) -> Self {
        let uses = reply.uses.iter().map(|u| UseFile {
            id: u.id.clone(),
            name: u.name.clone(),
            arguments: Value::Object(u.arguments.clone()),
        });
        let reply_file = ReplyFile {
            stop: reply.stop.as_str().to_owned(),
            text: reply.text.clone(),
            uses: uses.collect(),
            verbatim: reply.verbatim.as_deref().map(text),
            usage: reply.usage.as_ref().map(UsageFile::of),
        };
        let model = model.as_str().to_owned();
        Self { model, request, reply: Some(reply_file), refused: None, raw: text(&reply.raw) }
    }

    /// What was refused; `None` for what a later attempt or a person may mend, and for a body that is no text, which would
    /// be another one in a file.
    fn of_refused(
        model: &ModelName,
        request: Value,
        failure: &ModelFailure,
        pieces: bool,
    ) -> Option<Self> {
        let judged = failure.raw.is_some() || failure.fault.is_misspoken();
        if failure.fault.disposition() != Disposition::Refuse || !judged {
            return None;
        }
        let raw = std::str::from_utf8(failure.raw.as_deref().unwrap_or_default()).ok()?.to_owned();
        let refused = RefusedFile {
            fault: failure.fault.as_str().to_owned(),
            message: failure.message.clone(),
            usage: failure.usage.as_ref().map(UsageFile::of),
            pieces,
        };
        let model = model.as_str().to_owned();
        Some(Self { model, request, reply: None, refused: Some(refused), raw })
    }

    /// What came of the exchange, judged again: a file is foreign bytes.
    fn outcome(self, name: &str, dialect: Dialect) -> Result<ModelOutcome, TapeError> {
        if self.raw.len() > MAX_REPLY_BYTES {
            return Err(shape(name, "its body is larger than a reply may be"));
        }
        match (self.reply, self.refused) {
            (Some(reply), None) => {
                reply.judged(name, dialect, self.raw.into_bytes()).map(ModelOutcome::Reply)
            }
            (None, Some(refused)) => {
                refused.judged(name, dialect, &self.raw).map(ModelOutcome::Failed)
            }
            _ => Err(shape(name, "it has not one outcome")),
        }
    }
}

impl ReplyFile {
    /// The reply, when it is one that could have come.
    fn judged(self, name: &str, dialect: Dialect, raw: Vec<u8>) -> Result<ModelReply, TapeError> {
        let stop = STOPS.into_iter().find(|stop| stop.as_str() == self.stop);
        let stop = stop.ok_or_else(|| shape(name, "it stops for no known reason"))?;
        if self.text.len() > MAX_REPLY_BYTES {
            return Err(shape(name, "its text is larger than a reply may be"));
        }
        let verbatim = self.verbatim.map(|text| given_back(name, dialect, text)).transpose()?;
        let uses: Vec<(String, String, Option<Object>)> =
            self.uses.into_iter().map(|u| (u.id, u.name, arguments(u.arguments))).collect();
        let draft = Draft {
            stop: Some(stop),
            text: self.text,
            uses: uses
                .iter()
                .cloned()
                .map(|(id, name, arguments)| DraftUse { id: Some(id), name, arguments })
                .collect(),
            verbatim,
            usage: counted(self.usage),
        };
        let reply = draft.finish(raw.into()).map_err(|failure| shape(name, failure.message))?;
        let kept =
            reply.uses.iter().map(|u| (&u.id, &u.name)).eq(uses.iter().map(|u| (&u.0, &u.1)));
        if reply.stop != stop || !kept {
            return Err(shape(name, "its tool uses do not fit its stop"));
        }
        Ok(reply)
    }
}

impl RefusedFile {
    /// The failure, when the body is refused for the same reason today.
    fn judged(self, name: &str, dialect: Dialect, raw: &str) -> Result<ModelFailure, TapeError> {
        let fault = ModelFault::ALL.iter().find(|fault| fault.as_str() == self.fault);
        if raw.is_empty() {
            // Of a model that is no provider there is no body, only what it said of itself.
            let fault = fault.filter(|fault| fault.is_misspoken());
            let fault = fault.ok_or_else(|| shape(name, "it was refused for no known reason"))?;
            return Ok(failure(*fault, &self.message, counted(self.usage).usage()));
        }
        match dialect.judge(raw.as_bytes(), self.pieces) {
            Err(failure) if Some(&failure.fault) == fault => Ok(failure),
            _ => Err(shape(name, "its body is not what it says was refused")),
        }
    }
}

/// Within the bounds of a reply that comes by itself; `None` for what is no object, or too deep.
fn arguments(value: Value) -> Option<Object> {
    let Value::Object(object) = value else { return None };
    let fits = parse(&object.to_canonical(), &Limits::BARE).is_ok();
    fits.then_some(object)
}

/// What goes back to a provider as it came: a list in JSON, where the provider wants any.
fn given_back(name: &str, dialect: Dialect, text: String) -> Result<Arc<[u8]>, TapeError> {
    let limits = Limits::BARE.with_max_bytes(MAX_REPLY_BYTES);
    let list = matches!(parse(text.as_bytes(), &limits), Ok(Value::Array(_)));
    if dialect == Dialect::Anthropic && list {
        return Ok(text.into_bytes().into());
    }
    Err(shape(name, "what it gives back is nothing that its provider wants"))
}
