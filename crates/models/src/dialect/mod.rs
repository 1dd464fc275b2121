//! What providers speak, as pure functions: turns to bytes, bytes to a reply. No exchange happens here.
//!
//! A request is a [`Frame`] (what stays the same: model, system text, tools, caps) around turns that were each encoded
//! once. So a request of a long run is put together by copying, and its bytes are the same however it came about.

mod anthropic;
mod lines;
mod ollama;
mod openai;

use std::sync::Arc;

use portcullis_canon::{Object, Value};
use portcullis_domain::ports::{
    AdvertisedTool, ModelFailure, ModelFault, ModelReply, Stop, ToolUse, Watch,
};

use crate::names::wire_name;
use crate::reply::found_in;
use crate::strict::NotStrict;
use crate::transport::{KeyHeader, KeyUse};

/// Which provider's JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// Chat completions as OpenAI has them, and vLLM, llama.cpp, LM Studio, OpenRouter after it.
    OpenAi,
    /// Anthropic's Messages.
    Anthropic,
    /// Ollama's own.
    Ollama,
}

/// One turn of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The task, or a remark of ours.
    User(String),
    /// What the model said.
    Assistant {
        /// In words; empty when it said none.
        text: String,
        /// What it asked for, with the ids that results name and wire names.
        uses: Vec<ToolUse>,
        /// What has to be given back as it came, in place of all else.
        verbatim: Option<Arc<[u8]>>,
    },
    /// What came of the tool uses of the turn before, all of them, in order.
    Results(Vec<TurnResult>),
}

/// What came of one tool use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnResult {
    /// The id of the tool use.
    pub id: String,
    /// The tool's wire name.
    pub name: String,
    /// What the model is told.
    pub text: String,
    /// True when it did not do what was asked.
    pub failed: bool,
}

/// What stays the same in the requests of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The model's name at its provider.
    pub model: String,
    /// The system text.
    pub system: String,
    /// The tools.
    pub tools: Arc<[AdvertisedTool]>,
    /// The cap on the reply, in tokens. The provider is always told.
    pub max_output_tokens: u64,
    /// Whether the provider is to enforce the schemas while the model writes.
    pub strict_tools: bool,
    /// Further members of the request, by the operator: `temperature`, `thinking` and such. What is ours wins.
    pub extra: Object,
}

/// Why a head cannot be encoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// Strict tools were asked for, and one cannot be.
    #[error(transparent)]
    NotStrict(#[from] NotStrict),
    /// The provider has no strict tools.
    #[error("this provider has no strict tools")]
    NoStrictTools,
}

/// A request without its turns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    before: String,
    after: String,
    /// Whether a message stands in `before` already.
    begun: bool,
}

impl Frame {
    /// Canonical JSON around `messages`; `first` are messages that always stand first.
    fn new(members: &Object, first: &[String]) -> Self {
        let (mut before, mut after) = (String::from("{"), String::new());
        for (key, value) in members {
            if key == "messages" {
                continue;
            }
            let side = if key < "messages" { &mut before } else { &mut after };
            side_comma(side);
            side.push_str(&Value::from(key).to_canonical_string());
            side.push(':');
            side.push_str(&value.to_canonical_string());
        }
        side_comma(&mut before);
        before.push_str("\"messages\":[");
        before.push_str(&first.join(","));
        let after = if after.is_empty() { "]}".to_owned() } else { format!("],{after}}}") };
        Self { before, after, begun: !first.is_empty() }
    }

    /// The whole request around these turns, each as [`Dialect::turn`] wrote it or several joined by commas.
    #[must_use]
    pub fn around(&self, turns: &[&str]) -> Vec<u8> {
        let length = turns.iter().map(|turn| turn.len().saturating_add(1)).sum::<usize>();
        let mut out = Vec::with_capacity(
            self.before.len().saturating_add(self.after.len()).saturating_add(length),
        );
        out.extend_from_slice(self.before.as_bytes());
        let mut begun = self.begun;
        for turn in turns.iter().filter(|turn| !turn.is_empty()) {
            if begun {
                out.push(b',');
            }
            out.extend_from_slice(turn.as_bytes());
            begun = true;
        }
        out.extend_from_slice(self.after.as_bytes());
        out
    }
}

fn side_comma(side: &mut String) {
    if !side.is_empty() && !side.ends_with('{') {
        side.push(',');
    }
}

impl Dialect {
    /// Every dialect.
    pub const ALL: [Self; 3] = [Self::OpenAi, Self::Anthropic, Self::Ollama];

    /// The stable name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Anthropic => "anthropic",
            Self::Ollama => "ollama",
        }
    }

    /// The dialect of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dialect| dialect.as_str() == name)
    }

    /// Where the provider itself is, when the operator names no other place.
    #[must_use]
    pub const fn default_base(self) -> &'static str {
        match self {
            Self::OpenAi => "https://api.openai.com/v1",
            Self::Anthropic => "https://api.anthropic.com/v1",
            Self::Ollama => "http://127.0.0.1:11434/api",
        }
    }

    /// What is put behind the base.
    #[must_use]
    pub const fn path(self) -> &'static str {
        match self {
            Self::OpenAi => "/chat/completions",
            Self::Anthropic => "/messages",
            Self::Ollama => "/chat",
        }
    }

    /// Headers that every exchange carries.
    #[must_use]
    pub fn headers(self) -> Vec<(&'static str, String)> {
        match self {
            Self::Anthropic => vec![("anthropic-version", "2023-06-01".to_owned())],
            Self::OpenAi | Self::Ollama => Vec::new(),
        }
    }

    /// How a credential of that name travels.
    #[must_use]
    pub fn key(self, credential: &str) -> KeyUse {
        let header = match self {
            Self::Anthropic => KeyHeader::ApiKey,
            Self::OpenAi | Self::Ollama => KeyHeader::Bearer,
        };
        KeyUse { credential: credential.to_owned(), header }
    }

    /// The frame of requests with this head.
    ///
    /// # Errors
    /// [`HeadError`] when strict tools are asked for and cannot be had; it names the tool.
    pub fn frame(self, head: &Head) -> Result<Frame, HeadError> {
        match self {
            Self::OpenAi => openai::frame(head),
            Self::Anthropic => anthropic::frame(head),
            Self::Ollama => ollama::frame(head),
        }
    }

    /// One turn as messages in canonical JSON, joined by commas.
    #[must_use]
    pub fn turn(self, turn: &Turn) -> String {
        match self {
            Self::OpenAi => openai::turn(turn),
            Self::Anthropic => anthropic::turn(turn),
            Self::Ollama => ollama::turn(turn),
        }
    }

    /// The bytes that travel: the request, and whether its reply comes in pieces.
    #[must_use]
    pub fn travelling(self, body: &[u8], stream: bool) -> Vec<u8> {
        let says: &[u8] = match (self, stream) {
            (Self::OpenAi, true) => {
                b",\"stream\":true,\"stream_options\":{\"include_usage\":true}}"
            }
            (Self::Anthropic, true) => b",\"stream\":true}",
            (Self::OpenAi | Self::Anthropic, false) => return body.to_vec(),
            (Self::Ollama, true) => b",\"stream\":true}",
            (Self::Ollama, false) => b",\"stream\":false}",
        };
        let inner = body.strip_suffix(b"}").unwrap_or(body);
        [inner, says].concat()
    }

    /// A whole body as a reply.
    ///
    /// # Errors
    /// [`ModelFailure`] names what is wrong with it.
    pub fn read(self, raw: &[u8]) -> Result<ModelReply, ModelFailure> {
        let read = match self {
            Self::OpenAi => openai::read(raw),
            Self::Anthropic => anthropic::read(raw),
            Self::Ollama => ollama::read(raw),
        };
        read.map_err(|failure| found_in(failure, raw.into()))
    }

    /// A body that was kept, judged as when it came: whole or in pieces.
    pub(crate) fn judge(self, raw: &[u8], pieces: bool) -> Result<ModelReply, ModelFailure> {
        if !pieces {
            return self.read(raw);
        }
        let mut assembler = self.assembler();
        assembler.push(raw, None)?;
        assembler.finish()
    }

    /// Puts a reply together that comes in pieces.
    #[must_use]
    pub fn assembler(self) -> Assembler {
        let inner: Box<dyn Piecewise> = match self {
            Self::OpenAi => Box::new(openai::Stream::default()),
            Self::Anthropic => Box::new(anthropic::Stream::default()),
            Self::Ollama => Box::new(ollama::Stream::default()),
        };
        let lines = lines::Lines::new(self != Self::Ollama);
        Assembler { dialect: self, lines, raw: Vec::new(), begun: false, inner }
    }
}

/// Takes one event after the other, and says at the end what it makes.
trait Piecewise: Send {
    /// One event's data.
    fn event(&mut self, data: &[u8], watch: Option<&Watch>) -> Result<(), ModelFailure>;
    /// The reply, when its end was seen.
    fn finish(self: Box<Self>, raw: Arc<[u8]>) -> Result<ModelReply, ModelFailure>;
}

/// A reply under way. What it shows on the way is for eyes; what counts is [`Assembler::finish`].
pub struct Assembler {
    dialect: Dialect,
    lines: lines::Lines,
    raw: Vec<u8>,
    /// Whether an event was seen.
    begun: bool,
    inner: Box<dyn Piecewise>,
}

impl Assembler {
    /// Takes a piece of the body.
    ///
    /// # Errors
    /// [`ModelFailure`]: the reply cannot become one any more.
    pub fn push(&mut self, piece: &[u8], watch: Option<&Watch>) -> Result<(), ModelFailure> {
        self.raw.extend_from_slice(piece);
        if self.raw.len() > crate::transport::MAX_REPLY_BYTES {
            let message = "the reply is larger than a reply may be";
            return Err(crate::reply::failure(ModelFault::TooLarge, message, None));
        }
        self.lines.push(piece);
        while let Some(data) = self.lines.next_event() {
            self.begun = true;
            let taken = self.inner.event(&data, watch);
            taken.map_err(|failure| found_in(failure, self.raw.as_slice().into()))?;
        }
        Ok(())
    }

    /// The whole reply, after the body's last piece.
    ///
    /// # Errors
    /// [`ModelFailure`], `cut_short` when the stream did not say that it is whole.
    pub fn finish(mut self) -> Result<ModelReply, ModelFailure> {
        // A server that does not stream, or a proxy with a page, answers with one whole body.
        let first = self.raw.trim_ascii_start().first();
        if !self.begun && matches!(first, None | Some(b'{' | b'[' | b'<')) {
            return self.dialect.read(&self.raw);
        }
        let raw: Arc<[u8]> = self.raw.into();
        if let Some(data) = self.lines.last_event() {
            // An event without its end that cannot be read is where the stream was cut.
            self.inner.event(&data, None).map_err(|failure| match failure.fault {
                ModelFault::NotJson => cut_short(),
                _ => found_in(failure, Arc::clone(&raw)),
            })?;
        }
        self.inner.finish(Arc::clone(&raw)).map_err(|failure| found_in(failure, raw))
    }
}

/// The stream ended too early.
fn cut_short() -> ModelFailure {
    let fault = ModelFault::CutShort;
    crate::reply::failure(fault, "the stream ended before the reply was whole", None)
}

/// A tool use of an assistant turn: its wire name is made where the turn is made.
#[must_use]
pub fn named_use(id: String, tool: &str, arguments: Object) -> ToolUse {
    ToolUse { id, name: wire_name(tool), arguments }
}

/// Finish reasons that more than one provider has.
fn stop_of(reason: &str) -> Option<Stop> {
    match reason {
        "tool_calls" | "tool_use" | "function_call" => Some(Stop::ToolUse),
        "stop" | "end_turn" | "stop_sequence" => Some(Stop::EndTurn),
        "length" | "max_tokens" => Some(Stop::MaxTokens),
        "content_filter" | "refusal" => Some(Stop::Refusal),
        "model_context_window_exceeded" => Some(Stop::ContextFull),
        _ => None,
    }
}
