//! The port of everything that can be called.

use std::collections::BTreeSet;

use portcullis_canon::Value;

use crate::label::Labels;
use crate::permit::Permit;
use crate::ports::BoxFuture;
use crate::tool::ToolSpec;

/// What a tool gives back: JSON bytes that the gate reads under the same strict rules as a proposal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolOutput {
    /// One JSON value. Empty means `{}`.
    pub content: Vec<u8>,
    /// Where the content comes from; `None` means external, from this tool.
    pub labels: Option<Labels>,
}

/// How a call failed. Which variant it is decides what happens next, so a source may claim that nothing
/// happened only when it knows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ToolFailure {
    /// It failed and changed nothing.
    #[error("{message}")]
    NothingHappened {
        /// What happened, for the agent: one sentence.
        message: String,
    },
    /// It changed nothing, since something that the call needs is not there.
    #[error("{message}")]
    Lacking {
        /// What is not there.
        lack: Lack,
        /// What happened, for the agent: one sentence.
        message: String,
    },
    /// The receiver answered that it failed. That is known and nobody is asked; what it changed before it failed is its own
    /// to say, and is not claimed to be nothing.
    #[error("{message}")]
    Failed {
        /// What the receiver said, for the agent. From outside, and as long as a result may be.
        message: String,
    },
    /// It may have happened: a lost connection, a failed sync, an answer that never came.
    #[error("{message}")]
    Unknown {
        /// What is known: one sentence.
        message: String,
    },
    /// It failed, changed nothing, and the run should end.
    #[error("{message}")]
    Abort {
        /// Why: one sentence.
        message: String,
    },
}

/// What a call needs that is not there. It is recorded beside the sentence, so that nobody has to know it from words, which
/// a stranger may have written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lack {
    /// What the call is about.
    Subject,
    /// What the receiver would have to ask of whoever calls, by the names of its protocol.
    Caller(BTreeSet<String>),
}

impl Lack {
    const SUBJECT: &str = "subject";

    /// As it is recorded: `"subject"`, or the list of names.
    #[must_use]
    pub fn to_value(&self) -> Value {
        match self {
            Self::Subject => Value::from(Self::SUBJECT),
            Self::Caller(names) => {
                Value::from(names.iter().map(|name| Value::from(name.as_str())).collect::<Vec<_>>())
            }
        }
    }

    /// What is recorded; nothing where it says nothing of the kind.
    #[must_use]
    pub fn read(value: &Value) -> Option<Self> {
        match value {
            Value::String(word) if word == Self::SUBJECT => Some(Self::Subject),
            Value::Array(names) => {
                let names = names.iter().map(|name| name.as_str().map(str::to_owned));
                names.collect::<Option<_>>().map(Self::Caller)
            }
            _ => None,
        }
    }
}

/// Tools that can be called with a [`Permit`].
pub trait ToolSource: Send + Sync {
    /// The tools, each with its whole spec.
    fn specs(&self) -> Vec<ToolSpec>;

    /// True when [`ToolSource::call`] blocks a thread; the gate then polls it on its bounded pool. Otherwise it is
    /// polled in the run's own task, where a poll that does not return keeps its deadline from being seen: one term of
    /// the lease later the run is left to whoever takes it up, and the outcome is unknown.
    fn blocks(&self) -> bool;

    /// False for tools that a host carries out by itself: a call is then only judged, and the gate never makes it.
    fn performs(&self) -> bool {
        true
    }

    /// Performs exactly the call that the permit names.
    fn call(&self, permit: Permit) -> BoxFuture<'_, Result<ToolOutput, ToolFailure>>;
}

#[cfg(test)]
mod tests {
    use portcullis_canon::{Limits, parse};

    use super::*;

    #[test]
    fn what_was_lacking_is_read_again_as_it_is_recorded() {
        let names = ["roots", "sampling"].map(str::to_owned);
        for (lack, text) in [
            (Lack::Subject, r#""subject""#),
            (Lack::Caller(names.into()), r#"["roots","sampling"]"#),
        ] {
            assert_eq!(lack.to_value().to_canonical_string(), text);
            assert_eq!(Lack::read(&lack.to_value()), Some(lack));
        }
        for other in [r#""Subject""#, "7", "null", "{}", r#"["roots",7]"#] {
            let value = parse(other.as_bytes(), &Limits::BARE).unwrap();
            assert_eq!(Lack::read(&value), None, "{other}");
        }
    }
}
