//! The ports of the model: the handle that an agent calls, and one attempt at one provider behind it.
//!
//! An agent holds a [`ModelHandle`] and nothing else. Whoever accounts stands between: before an attempt it reserves what
//! [`Projection`] says, after it charges what [`ModelOutcome::charge`] says, and it alone retries, by
//! [`ModelFault::disposition`]. A [`Model`] makes exactly one attempt and never retries.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use portcullis_canon::Object;

use crate::label::Labels;
use crate::ports::{BoxFuture, Disposition};
use crate::run::EndReason;

/// The most tokens that one count of a plausible usage can have.
pub const MAX_PLAUSIBLE_TOKENS: u64 = 1_000_000_000;

/// The most tool uses that one reply may hold.
pub const MAX_TOOL_USES: usize = 64;

/// A model as the operator names it: `provider:name`, at most 256 bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelName {
    text: String,
    colon: usize,
}

/// A text that names no model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a model is named PROVIDER:NAME, in at most 256 printable ASCII characters without spaces")]
pub struct ModelNameError;

impl ModelName {
    /// Reads `provider:name`; only the first colon divides, so that names such as `llama3.2:1b` can be given.
    ///
    /// # Errors
    /// [`ModelNameError`] when a half is missing, or a character is not printable ASCII.
    pub fn read(text: &str) -> Result<Self, ModelNameError> {
        let (provider, name) = text.split_once(':').ok_or(ModelNameError)?;
        let fits = text.len() <= 256 && text.bytes().all(|b| b.is_ascii_graphic());
        if !fits || provider.is_empty() || name.is_empty() {
            return Err(ModelNameError);
        }
        Ok(Self { text: text.to_owned(), colon: provider.len() })
    }

    /// The provider, as the operator configured it.
    #[must_use]
    pub fn provider(&self) -> &str {
        self.text.get(..self.colon).unwrap_or_default()
    }

    /// The name at that provider.
    #[must_use]
    pub fn name(&self) -> &str {
        self.text.get(self.colon.saturating_add(1)..).unwrap_or_default()
    }

    /// The whole text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for ModelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// What a call may cost at most, said before it is made. Reserve it, and charge it where nobody knows better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Projection {
    /// The bytes of the request.
    pub input_bytes: u64,
    /// An upper estimate of the tokens in them: one for three bytes, and one. Who accounts may raise it by what it learned.
    pub input_tokens: u64,
    /// The cap on the reply's tokens, which the provider is told.
    pub output_tokens: u64,
}

impl Projection {
    /// For a request of so many bytes and an output cap in tokens.
    #[must_use]
    pub const fn of(input_bytes: u64, output_tokens: u64) -> Self {
        Self { input_bytes, input_tokens: (input_bytes / 3).saturating_add(1), output_tokens }
    }

    /// As a usage, to be charged in place of one that is not known.
    #[must_use]
    pub fn usage(&self) -> Usage {
        Usage {
            input_tokens: self.input_tokens,
            output_tokens: self.output_tokens,
            ..Usage::default()
        }
    }
}

/// What a provider says that it counted, in tokens. Each token stands in one field only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Usage {
    /// Input that was read anew and put into no cache.
    pub input_tokens: u64,
    /// Input that came out of a cache.
    pub cache_read_tokens: u64,
    /// Input that was put into a cache that lives for minutes.
    pub cache_write_tokens: u64,
    /// Input that was put into a cache that lives for an hour.
    pub cache_write_long_tokens: u64,
    /// Output, thinking included.
    pub output_tokens: u64,
}

impl Usage {
    /// All input, saturating.
    #[must_use]
    pub const fn all_input(&self) -> u64 {
        self.input_tokens
            .saturating_add(self.cache_read_tokens)
            .saturating_add(self.cache_write_tokens)
            .saturating_add(self.cache_write_long_tokens)
    }

    /// Input and output, saturating.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.all_input().saturating_add(self.output_tokens)
    }
}

/// Prices in micros (millionths of the currency's unit) for a million tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rates {
    /// Input read anew.
    pub input: u64,
    /// Input out of a cache.
    pub cache_read: u64,
    /// Input put into a cache that lives for minutes.
    pub cache_write: u64,
    /// Input put into a cache that lives for an hour.
    pub cache_write_long: u64,
    /// Output.
    pub output: u64,
}

impl Rates {
    /// The cost of `usage` in micros: the sum of all parts in 128 bits, rounded up once, saturating.
    #[must_use]
    pub fn cost(&self, usage: &Usage) -> u64 {
        let parts = [
            (usage.input_tokens, self.input),
            (usage.cache_read_tokens, self.cache_read),
            (usage.cache_write_tokens, self.cache_write),
            (usage.cache_write_long_tokens, self.cache_write_long),
            (usage.output_tokens, self.output),
        ];
        let sum = parts.iter().fold(0_u128, |sum, (tokens, rate)| {
            sum.saturating_add(u128::from(*tokens).saturating_mul(u128::from(*rate)))
        });
        u64::try_from(sum.div_ceil(1_000_000)).unwrap_or(u64::MAX)
    }
}

/// What is known of a model's price. There is no default: a cost limit refuses what is unpriced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Price {
    /// It costs this.
    Priced(Rates),
    /// Free on purpose: it runs on the operator's own machine, or replays.
    Free,
    /// Nobody said.
    Unpriced,
}

/// One piece of a reply while it is being made. For eyes only: nothing is decided on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown<'a> {
    /// Text of the answer.
    Text(&'a str),
    /// Text of the model's thinking.
    Thinking(&'a str),
    /// A tool use begins.
    Tool(&'a str),
}

/// Is shown a reply while it is made. Foreign text: whoever prints it makes it safe first.
#[derive(Clone)]
pub struct Watch(Arc<dyn Fn(Shown<'_>) + Send + Sync>);

impl Watch {
    /// Calls `see` with each piece. It must not block.
    pub fn new(see: impl Fn(Shown<'_>) + Send + Sync + 'static) -> Self {
        Self(Arc::new(see))
    }

    /// Shows one piece.
    pub fn show(&self, piece: Shown<'_>) {
        (self.0)(piece);
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watch")
    }
}

/// One call of a model.
#[derive(Clone, Debug)]
pub struct ModelCall {
    /// The step that it is made for.
    pub request: u64,
    /// The whole request in the provider's own JSON, without what only says how it travels. Holds no key.
    pub body: Arc<[u8]>,
    /// What it may cost at most.
    pub projection: Projection,
    /// Labels of all that the body was made from. A model call is a sink: see [`ModelFault::NotMarked`].
    pub labels: Labels,
    /// Who watches the reply being made, if anybody does.
    pub watch: Option<Watch>,
}

/// One tool use in a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolUse {
    /// The id in the reply, which the result has to name; unique in it.
    pub id: String,
    /// The tool as the model spelled it.
    pub name: String,
    /// The arguments.
    pub arguments: Object,
}

/// Why a reply ends where it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stop {
    /// It asks for tools.
    ToolUse,
    /// It is done.
    EndTurn,
    /// The output cap cut it off. It carries no tool use.
    MaxTokens,
    /// The model or its provider refused. It carries no tool use.
    Refusal,
    /// There was no room left for it. It carries no tool use.
    ContextFull,
}

impl Stop {
    /// The stable name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ToolUse => "tool_use",
            Self::EndTurn => "end_turn",
            Self::MaxTokens => "max_tokens",
            Self::Refusal => "refusal",
            Self::ContextFull => "context_full",
        }
    }

    /// True when the reply may have been cut inside of what it was going to say.
    #[must_use]
    pub const fn is_cut(self) -> bool {
        !matches!(self, Self::ToolUse | Self::EndTurn)
    }
}

/// A whole reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelReply {
    /// Why it ends.
    pub stop: Stop,
    /// What it says in words, thinking left out.
    pub text: String,
    /// The tools it asks for, in order; none in a reply that was cut off or refused.
    pub uses: Vec<ToolUse>,
    /// The JSON that the next request has to give back as it came, such as signed thinking.
    pub verbatim: Option<Arc<[u8]>>,
    /// What was counted. `None`, when the provider does not say, is charged as the projection.
    pub usage: Option<Usage>,
    /// The whole body, as it came.
    pub raw: Arc<[u8]>,
}

/// What an attempt is charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Charge {
    /// Nothing was served.
    Nothing,
    /// What the provider said it served; where it did not say, the projection.
    Served,
    /// Nobody knows what was served, so all that was projected.
    Projection,
}

macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $disposition:ident, $charge:ident;)*) => {
        /// How an attempt failed: the complete set, each with what to do and what it is charged.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum ModelFault {
            $($(#[$doc])* $name,)*
        }

        impl ModelFault {
            /// Every fault.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The stable name.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// What it asks of whoever made the attempt. Only [`Disposition::Retry`] may be tried again.
            #[must_use]
            pub const fn disposition(self) -> Disposition {
                match self { $(Self::$name => Disposition::$disposition,)* }
            }

            /// What the attempt is charged.
            #[must_use]
            pub const fn charge(self) -> Charge {
                match self { $(Self::$name => Charge::$charge,)* }
            }
        }
    };
}

faults! {
    /// The labels of the call carry a tag that the operator does not let this provider see.
    NotMarked = "not_marked", Refuse, Nothing;
    /// Replaying, and nobody recorded this request.
    NotRecorded = "not_recorded", Refuse, Nothing;
    /// The recording could not be read, or the reply was served and could not be written.
    RecordingFailed = "recording_failed", Operator, Served;
    /// No connection could be made; nothing was sent.
    Unreachable = "unreachable", Retry, Nothing;
    /// The address, the certificate or the rules for outgoing connections forbid it; nothing was sent.
    EndpointRefused = "endpoint_refused", Operator, Nothing;
    /// The key is missing and nothing was sent, or the provider does not take it (401, 403).
    KeyRefused = "key_refused", Operator, Nothing;
    /// The account has no money left (402).
    OutOfCredit = "out_of_credit", Operator, Nothing;
    /// The provider has no such model, or the address is wrong (404).
    UnknownModel = "unknown_model", Operator, Nothing;
    /// The provider does not take this request (another 4xx).
    RequestRefused = "request_refused", Refuse, Nothing;
    /// The provider sends elsewhere, which is never followed (3xx).
    Redirected = "redirected", Operator, Nothing;
    /// Too many requests (429).
    Throttled = "throttled", Retry, Nothing;
    /// Too many requests, and the provider asks to wait for longer than anybody should.
    ThrottledTooLong = "throttled_too_long", Operator, Nothing;
    /// The provider is overloaded (503, 529).
    Overloaded = "overloaded", Retry, Nothing;
    /// The provider failed before it answered (408, 409, 425, another 5xx).
    ServerError = "server_error", Retry, Nothing;
    /// No answer within the deadline, or within that of a proxy (504, 524).
    TimedOut = "timed_out", Retry, Projection;
    /// The connection was lost after something may have been sent, or a proxy got nothing usable (502, 520).
    ConnectionLost = "connection_lost", Retry, Projection;
    /// The stream ended without saying that it is whole.
    CutShort = "cut_short", Retry, Projection;
    /// The reply is larger than a reply may be.
    TooLarge = "too_large", Refuse, Projection;
    /// The reply is not in the encoding that it names.
    BadEncoding = "bad_encoding", Refuse, Projection;
    /// The reply is no JSON: half of it, or the page of a proxy.
    NotJson = "not_json", Refuse, Projection;
    /// The reply is JSON and no reply.
    WrongShape = "wrong_shape", Refuse, Projection;
    /// The counts cannot be true: negative, no integers, huge, or more from a cache than there was.
    UsageImplausible = "usage_implausible", Refuse, Projection;
    /// The provider answered with an error inside of a reply.
    ProviderError = "provider_error", Refuse, Served;
    /// The reply stopped for a reason that is not known here, so that it may not be whole.
    UnknownStop = "unknown_stop", Refuse, Served;
    /// The arguments of a tool use are no JSON object.
    ArgumentsNotObject = "arguments_not_object", Refuse, Served;
    /// Two tool uses of one reply have one id.
    RepeatedId = "repeated_id", Refuse, Served;
    /// More than [`MAX_TOOL_USES`] tool uses in one reply.
    TooManyUses = "too_many_uses", Refuse, Served;
    /// The reply says nothing and asks for nothing.
    EmptyReply = "empty_reply", Refuse, Served;
}

impl ModelFault {
    /// True when the model itself misspoke: an agent may tell it so and go on, at the cost of a step.
    #[must_use]
    pub const fn is_misspoken(self) -> bool {
        matches!(
            self,
            Self::ArgumentsNotObject | Self::RepeatedId | Self::TooManyUses | Self::EmptyReply
        )
    }
}

/// One attempt that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the model's reply could not be had ({}): {message}", .fault.as_str())]
pub struct ModelFailure {
    /// How.
    pub fault: ModelFault,
    /// One sentence for the operator: printable, at most 512 bytes, without keys or bodies.
    pub message: String,
    /// How long the provider asks to wait.
    pub retry_after: Option<Duration>,
    /// What the provider said it served, where that is plausible.
    pub usage: Option<Usage>,
    /// The body that was judged so, as far as it came, where one was; for a recording, and for whoever looks.
    pub raw: Option<Arc<[u8]>>,
}

/// What came of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelOutcome {
    /// A whole reply.
    Reply(ModelReply),
    /// It failed, after all attempts that are allowed.
    Failed(ModelFailure),
    /// No attempt was made, or no other one: a limit or a budget ends the run with this reason. Never retried.
    Stopped {
        /// A `limit_…` reason, which ends the run; or `model_unavailable`, where a call could not be made or its charge not recorded.
        reason: EndReason,
        /// One sentence for the operator.
        message: String,
    },
}

impl ModelOutcome {
    /// What is charged for the attempt that ended so, in tokens.
    #[must_use]
    pub fn charge(&self, projection: &Projection) -> Usage {
        match self {
            Self::Reply(reply) => reply.usage.unwrap_or_else(|| projection.usage()),
            Self::Failed(failure) => match failure.fault.charge() {
                Charge::Nothing => Usage::default(),
                Charge::Served => failure.usage.unwrap_or_else(|| projection.usage()),
                Charge::Projection => projection.usage(),
            },
            Self::Stopped { .. } => Usage::default(),
        }
    }
}

/// An agent's only handle to a model: accounted, limited and retried by whoever implements it.
pub trait ModelHandle: Send + Sync {
    /// Makes the call, in as many attempts as the limits allow. Dropping the future leaves its charge to the handle.
    fn call(&self, call: ModelCall) -> BoxFuture<'_, ModelOutcome>;

    /// The most output tokens that one call may ask for; `None` where the run has no such limit. What asks for more is
    /// not made.
    fn output_cap(&self) -> Option<u64> {
        None
    }
}

/// One model at one provider. Each attempt is one exchange and is never retried here.
pub trait Model: Send + Sync {
    /// How the operator names it.
    fn name(&self) -> &ModelName;

    /// What it costs.
    fn price(&self) -> Price;

    /// Whether nothing that it is sent leaves this process, as where a recording is played: then no label keeps a call back.
    fn stays_here(&self) -> bool {
        false
    }

    /// The confidentiality tags that it may see. A call that carries another one is not made.
    fn marked_for(&self) -> &BTreeSet<String>;

    /// Makes one attempt: [`ModelOutcome::Reply`] or [`ModelOutcome::Failed`]. Nothing is sent before the first poll.
    fn attempt(&self, call: ModelCall) -> BoxFuture<'_, ModelOutcome>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_name(text: &str, expected: Option<(&str, &str)>) {
        let read = ModelName::read(text).ok();
        let halves = read.as_ref().map(|name| (name.provider(), name.name()));
        assert_eq!(halves, expected, "{text}");
    }

    #[test]
    fn a_model_is_named_with_its_provider() {
        check_name("openai:gpt-x", Some(("openai", "gpt-x")));
        check_name("ollama:llama3.2:1b", Some(("ollama", "llama3.2:1b")));
        check_name("gpt-x", None);
        check_name(":x", None);
        check_name("x:", None);
        check_name("a:b c", None);
        check_name("a:\u{202e}", None);
        check_name(&format!("a:{}", "b".repeat(255)), None);
    }

    #[test]
    fn a_cost_is_rounded_up_once_and_saturates() {
        let rates = Rates {
            input: 3_000_000,
            cache_read: 300_000,
            cache_write: 3_750_000,
            cache_write_long: 6_000_000,
            output: 15_000_000,
        };
        let usage = Usage {
            input_tokens: 1,
            cache_read_tokens: 1,
            cache_write_tokens: 1,
            cache_write_long_tokens: 1,
            output_tokens: 1,
        };
        // 3 + 0.3 + 3.75 + 6 + 15 = 28.05 micros.
        assert_eq!(rates.cost(&usage), 29);
        assert_eq!(rates.cost(&Usage::default()), 0);
        let most = Usage { input_tokens: u64::MAX, output_tokens: u64::MAX, ..Usage::default() };
        let dear = Rates { input: u64::MAX, output: u64::MAX, ..rates };
        assert_eq!(dear.cost(&most), u64::MAX);
        assert_eq!(most.total(), u64::MAX);
    }

    #[test]
    fn what_may_have_been_served_is_never_charged_nothing() {
        let projection = Projection::of(299, 50);
        assert_eq!((projection.input_tokens, projection.output_tokens), (100, 50));
        let served = Usage { input_tokens: 7, output_tokens: 3, ..Usage::default() };
        let failed = |fault, usage| {
            let failure =
                ModelFailure { fault, message: String::new(), retry_after: None, usage, raw: None };
            ModelOutcome::Failed(failure).charge(&projection)
        };
        for fault in ModelFault::ALL {
            let expected = match fault.charge() {
                Charge::Nothing => (Usage::default(), Usage::default()),
                Charge::Served => (served, projection.usage()),
                Charge::Projection => (projection.usage(), projection.usage()),
            };
            let charged = (failed(*fault, Some(served)), failed(*fault, None));
            assert_eq!(charged, expected, "{}", fault.as_str());
        }
        let ambiguous = [ModelFault::TimedOut, ModelFault::ConnectionLost, ModelFault::CutShort];
        assert!(ambiguous.iter().all(|fault| failed(*fault, None) == projection.usage()));
        let reply = |usage| ModelReply {
            stop: Stop::EndTurn,
            text: String::new(),
            uses: Vec::new(),
            verbatim: None,
            usage,
            raw: Arc::from([]),
        };
        assert_eq!(ModelOutcome::Reply(reply(Some(served))).charge(&projection), served);
        assert_eq!(ModelOutcome::Reply(reply(None)).charge(&projection), projection.usage());
    }

    #[test]
    fn what_was_served_is_never_tried_again() {
        let retried = ModelFault::ALL.iter().filter(|f| f.disposition() == Disposition::Retry);
        assert!(retried.clone().all(|fault| fault.charge() != Charge::Served));
        assert_eq!(retried.count(), 7);
        let names: BTreeSet<&str> = ModelFault::ALL.iter().map(|f| f.as_str()).collect();
        assert_eq!(names.len(), ModelFault::ALL.len());
    }
}
