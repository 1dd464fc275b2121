//! Digests with a domain of their own: every kind of thing that is ever hashed stands here.
//!
//! A digest is SHA-256 over `portcullis/<kind>/v1`, a zero byte, and the content. Two kinds can
//! therefore never share a digest, and a signature over one cannot pass as one over another.

use crate::value::Value;
use sha2::{Digest as _, Sha256};
use std::fmt;
use std::str::FromStr;

/// What a digest is a digest of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Text or bytes in the content table, with their salt.
    Content,
    /// A canonical call: tool, arguments after defaults and fixed values.
    Call,
    /// A question that waits for a person.
    Question,
    /// A person's answer to a question.
    Answer,
    /// A tool's name, schema, class, marks and limits.
    ToolSpec,
    /// The tools that a run was given, frozen.
    ToolSet,
    /// A compiled policy.
    Policy,
    /// An event with its place in stream and journal.
    Event,
    /// An event's payload.
    Payload,
    /// A journal's head.
    Head,
    /// An observation.
    Observation,
    /// A call's arguments alone.
    Arguments,
    /// A proposal as it came, before anything read it.
    Proposal,
    /// A file's bytes.
    File,
    /// A configuration.
    Config,
    /// A JSON Schema.
    Schema,
    /// A public key.
    Key,
    /// What makes two starts of one step one call for its receiver.
    IdempotencyKey,
    /// A model's name and the canonical request that it was sent.
    ModelRequest,
    /// The mark around outside content in a request to a model: a secret, a place, the content.
    Fence,
    /// Whose budget of which day it is.
    Budget,
    /// The run that a call starts: the id of the one follows from the other.
    ChildRun,
    /// One part of a tool as a server advertised it: the part's name, then its canonical bytes if it is there.
    Pin,
    /// A call as a host asks for it.
    Request,
    /// A run of a request, by its number.
    RequestRun,
    /// A conversation that a host names: the id of its thread follows from it.
    Conversation,
    /// A host's token, and what follows from it: what for, the token, and what else belongs to it.
    HostToken,
}

impl Kind {
    /// Every kind, in the order of the enum.
    pub const ALL: [Self; 27] = [
        Self::Content,
        Self::Call,
        Self::Question,
        Self::Answer,
        Self::ToolSpec,
        Self::ToolSet,
        Self::Policy,
        Self::Event,
        Self::Payload,
        Self::Head,
        Self::Observation,
        Self::Arguments,
        Self::Proposal,
        Self::File,
        Self::Config,
        Self::Schema,
        Self::Key,
        Self::IdempotencyKey,
        Self::ModelRequest,
        Self::Fence,
        Self::Budget,
        Self::ChildRun,
        Self::Pin,
        Self::Request,
        Self::RequestRun,
        Self::Conversation,
        Self::HostToken,
    ];

    /// The name inside the prefix. Never changes: a new meaning is a new kind.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Content => "content",
            Self::Call => "call",
            Self::Question => "question",
            Self::Answer => "answer",
            Self::ToolSpec => "tool-spec",
            Self::ToolSet => "tool-set",
            Self::Policy => "policy",
            Self::Event => "event",
            Self::Payload => "payload",
            Self::Head => "head",
            Self::Observation => "observation",
            Self::Arguments => "arguments",
            Self::Proposal => "proposal",
            Self::File => "file",
            Self::Config => "config",
            Self::Schema => "schema",
            Self::Key => "key",
            Self::IdempotencyKey => "idempotency-key",
            Self::ModelRequest => "model-request",
            Self::Fence => "fence",
            Self::Budget => "budget",
            Self::ChildRun => "child-run",
            Self::Pin => "pin",
            Self::Request => "request",
            Self::RequestRun => "request-run",
            Self::Conversation => "conversation",
            Self::HostToken => "host-token",
        }
    }
}

/// A SHA-256 digest, written `sha256:` and 64 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

const SCHEME: &str = "sha256:";

/// A digest in the making, for bytes that come in pieces: the same as [`Digest::of`] over all of them.
#[derive(Clone, Debug)]
pub struct Hasher(Sha256);

impl Hasher {
    /// Of no bytes yet.
    #[must_use]
    pub fn new(kind: Kind) -> Self {
        Self(begin(kind))
    }

    /// Adds the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of all of them.
    #[must_use]
    pub fn finish(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

/// Text that is no digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a digest is written sha256: and 64 lower-case hex digits")]
pub struct DigestError;

impl Digest {
    /// Thirty-two zero bytes: stands before the first link of a chain.
    pub const ZERO: Self = Self([0; 32]);

    /// The digest of bytes.
    #[must_use]
    pub fn of(kind: Kind, bytes: &[u8]) -> Self {
        let mut hash = begin(kind);
        hash.update(bytes);
        Self(hash.finalize().into())
    }

    /// The digest of a value's canonical bytes.
    #[must_use]
    pub fn of_value(kind: Kind, value: &Value) -> Self {
        Self::of(kind, value.to_canonical_string().as_bytes())
    }

    /// The digest of parts, each preceded by its length as eight bytes, big-endian, so that no
    /// byte can move from one part to the next.
    #[must_use]
    pub fn of_parts(kind: Kind, parts: &[&[u8]]) -> Self {
        let mut hash = begin(kind);
        for part in parts {
            // A slice is never longer than u64 counts.
            hash.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
            hash.update(part);
        }
        Self(hash.finalize().into())
    }

    /// The digest with these bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The thirty-two bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The 64 hex digits without the scheme.
    #[must_use]
    pub fn hex(&self) -> String {
        let mut out = String::with_capacity(64);
        self.push_hex(&mut out);
        out
    }

    fn push_hex(&self, out: &mut String) {
        const DIGITS: [char; 16] =
            ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
        for byte in self.0 {
            for half in [byte >> 4, byte & 0xF] {
                // A half byte is one of sixteen.
                out.push(DIGITS.get(usize::from(half)).copied().unwrap_or('0'));
            }
        }
    }
}

fn begin(kind: Kind) -> Sha256 {
    let mut hash = Sha256::new();
    hash.update(b"portcullis/");
    hash.update(kind.name());
    hash.update(b"/v1\0");
    hash
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::with_capacity(SCHEME.len() + 64);
        text.push_str(SCHEME);
        self.push_hex(&mut text);
        f.pad(&text)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        let hex = text.strip_prefix(SCHEME).ok_or(DigestError)?.as_bytes();
        if hex.len() != 64 {
            return Err(DigestError);
        }
        let mut bytes = [0_u8; 32];
        for (byte, pair) in bytes.iter_mut().zip(hex.chunks_exact(2)) {
            *byte = pair.iter().try_fold(0, |sum, digit| Ok(sum << 4 | hex_digit(*digit)?))?;
        }
        Ok(Self(bytes))
    }
}

/// Upper case is refused: one digest has one spelling.
fn hex_digit(digit: u8) -> Result<u8, DigestError> {
    match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        _ => Err(DigestError),
    }
}

impl serde::Serialize for Digest {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Digest {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl serde::de::Visitor<'_> for Text {
            type Value = Digest;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a digest")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Digest, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Text)
    }
}
