//! Typed ids: UUID v7, 16 bytes in tables, `run_…` text outside.
//!
//! Order never comes from an id, only from sequence numbers. A run id cannot be passed as a step id.

use std::fmt;
use std::str::FromStr;

use portcullis_canon::Digest;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use uuid::{Uuid, Variant, Version};

use crate::ports::Entropy;
use crate::time::Timestamp;

/// A text that is not an id of the kind that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a {kind} id: expected `{kind}_` and 32 hexadecimal digits")]
pub struct ParseIdError {
    kind: &'static str,
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident = $prefix:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; 16]);

        impl $name {
            /// The prefix of the text form, without the underscore.
            pub const PREFIX: &'static str = $prefix;

            /// Draws a new id: the time in milliseconds, then 74 random bits.
            pub fn draw(now: Timestamp, entropy: &dyn Entropy) -> Self {
                Self(draw(now, entropy))
            }

            /// The id with exactly these bytes, as a table or a fixture holds them.
            #[must_use]
            pub const fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(bytes)
            }

            /// The 16 bytes that tables hold.
            #[must_use]
            pub const fn as_bytes(&self) -> &[u8; 16] {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}_{}", $prefix, Uuid::from_bytes(self.0).simple())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;

            fn from_str(text: &str) -> Result<Self, ParseIdError> {
                parse(text, $prefix).map(Self)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
            }
        }
    )*};
}

ids! {
    /// One run.
    RunId = "run";
    /// One step of a run.
    StepId = "step";
    /// One thread: runs that share an owner, labels and history.
    ThreadId = "thread";
    /// One budget: a run's own has the bytes of the run's id.
    BudgetId = "bud";
    /// One attempt at a call of a model.
    AttemptId = "att";
    /// One question to a person.
    QuestionId = "q";
    /// One installation: the state that shares a set of journals.
    InstanceId = "inst";
    /// One journal: a chain of events in commit order.
    JournalId = "jrn";
}

fn draw(now: Timestamp, entropy: &dyn Entropy) -> [u8; 16] {
    let mut random = [0_u8; 10];
    entropy.fill(&mut random);
    let millis = u64::try_from(now.micros() / 1_000).unwrap_or(0);
    uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid().into_bytes()
}

/// The bytes of an id that follows from what the digest is of, with the mark of this version: never 7, which ids that are
/// drawn have.
pub(crate) fn following(digest: Digest, version: Version) -> [u8; 16] {
    let mut bytes = [0_u8; 16];
    for (byte, from) in bytes.iter_mut().zip(digest.as_bytes()) {
        *byte = *from;
    }
    let id = uuid::Builder::from_bytes(bytes).with_variant(Variant::RFC4122).with_version(version);
    id.into_uuid().into_bytes()
}

fn parse(text: &str, kind: &'static str) -> Result<[u8; 16], ParseIdError> {
    let error = ParseIdError { kind };
    let digits =
        text.strip_prefix(kind).and_then(|rest| rest.strip_prefix('_')).ok_or(error.clone())?;
    let plain =
        digits.len() == 32 && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if !plain {
        return Err(error);
    }
    Uuid::try_parse(digits).map(Uuid::into_bytes).map_err(|_| error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips_and_kinds_do_not_mix() {
        let run = RunId::from_bytes([0xab; 16]);
        assert_eq!(run.to_string(), format!("run_{}", "ab".repeat(16)));
        assert_eq!(run.to_string().parse::<RunId>(), Ok(run));
        assert!(run.to_string().parse::<StepId>().is_err());
    }

    #[test]
    fn odd_spellings_are_refused() {
        for text in [
            "",
            "run_",
            "run_AB",
            &format!("run_{}", "AB".repeat(16)),
            &format!("run-{}", "ab".repeat(16)),
        ] {
            assert!(text.parse::<RunId>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_follows_from_a_digest_has_its_bytes_but_for_the_marks() {
        let digest = Digest::of(portcullis_canon::Kind::Content, b"x");
        for (version, mark) in [(Version::Custom, 0x80), (Version::Sha1, 0x50)] {
            let mut expected = [0_u8; 16];
            expected.copy_from_slice(&digest.as_bytes()[..16]);
            expected[6] = expected[6] & 0x0f | mark;
            expected[8] = expected[8] & 0x3f | 0x80;
            assert_eq!(following(digest, version), expected);
        }
    }
}
