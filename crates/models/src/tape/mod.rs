//! Recordings of models: made beside a live one, played without any.
//!
//! A recording is a private folder. `recording.json` says whose it is and how requests were rendered; each exchange is a
//! file named by the digest of model and canonical request, `<digest>.json`, and for equal requests in sequence
//! `<digest>.2.json` and so on. Whole replies stand in it; failures do not.

mod folder;
mod record;
mod replay;
mod scripted;

use portcullis_canon::{Digest, Kind, Limits, Object, Value, from_slice, parse, sanitize, to_vec};
use portcullis_domain::ports::{MAX_TOOL_USES, ModelName, ModelReply, Stop, ToolUse, Usage};
use serde::{Deserialize, Serialize};

use crate::dialect::Dialect;
use crate::render::{FenceSeed, Profile};

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
    reply: ReplyFile,
    /// The provider's body as text, for whoever looks; nothing is read from it.
    raw: String,
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

impl ExchangeFile {
    fn of(model: &ModelName, request: Value, reply: &ModelReply) -> Self {
        let uses = reply.uses.iter().map(|u| UseFile {
            id: u.id.clone(),
            name: u.name.clone(),
            arguments: Value::Object(u.arguments.clone()),
        });
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self {
            model: model.as_str().to_owned(),
            request,
            reply: ReplyFile {
                stop: reply.stop.as_str().to_owned(),
                text: reply.text.clone(),
                uses: uses.collect(),
                verbatim: reply.verbatim.as_deref().map(text),
                usage: reply.usage.map(|u| UsageFile {
                    input: u.input_tokens,
                    cache_read: u.cache_read_tokens,
                    cache_write: u.cache_write_tokens,
                    cache_write_long: u.cache_write_long_tokens,
                    output: u.output_tokens,
                }),
            },
            raw: text(&reply.raw),
        }
    }

    /// Held to what a live reply is held to: a file is foreign bytes.
    fn reply(self, name: &str) -> Result<ModelReply, TapeError> {
        let file = self.reply;
        let stop = STOPS.into_iter().find(|stop| stop.as_str() == file.stop);
        let stop = stop.ok_or_else(|| shape(name, "it stops for no known reason"))?;
        let uses: Option<Vec<ToolUse>> = file
            .uses
            .into_iter()
            .map(|u| match u.arguments {
                Value::Object(arguments) => Some(ToolUse { id: u.id, name: u.name, arguments }),
                _ => None,
            })
            .collect();
        let uses = uses.ok_or_else(|| shape(name, "a tool use has no object as arguments"))?;
        if uses.len() > MAX_TOOL_USES || uses.is_empty() == (stop == Stop::ToolUse) {
            return Err(shape(name, "its tool uses do not fit its stop"));
        }
        let usage = file.usage.map(|u| Usage {
            input_tokens: u.input,
            cache_read_tokens: u.cache_read,
            cache_write_tokens: u.cache_write,
            cache_write_long_tokens: u.cache_write_long,
            output_tokens: u.output,
        });
        let verbatim = file.verbatim.map(|text| text.into_bytes().into());
        Ok(ModelReply {
            stop,
            text: file.text,
            uses,
            verbatim,
            usage,
            raw: self.raw.into_bytes().into(),
        })
    }
}
