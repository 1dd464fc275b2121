//! Approvals: a person's signed answer to a question.

use portcullis_canon::{Digest, Kind, Object, Value};
use serde::{Deserialize, Serialize};

use crate::content::ContentRef;
use crate::id::QuestionId;
use crate::time::Timestamp;

/// What a person can say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// It may happen.
    Approve,
    /// It may not.
    Reject,
    /// It did happen.
    Happened,
    /// It did not happen.
    DidNotHappen,
    /// Whether it happened or not: run it again, once.
    RunAgain,
}

impl Answer {
    /// The stable name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::Reject => "reject",
            Self::Happened => "happened",
            Self::DidNotHappen => "did_not_happen",
            Self::RunAgain => "run_again",
        }
    }

    /// True when the answer lets the call run.
    #[must_use]
    pub const fn grants(self) -> bool {
        matches!(self, Self::Approve | Self::RunAgain)
    }
}

/// A public key's name: digest of the key, so that it can name no other.
pub type KeyId = Digest;

/// An Ed25519 signature.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Signature(pub [u8; 64]);

impl std::fmt::Debug for Signature {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Signature({})", self.hex())
    }
}

impl Signature {
    /// 128 hexadecimal digits.
    #[must_use]
    pub fn hex(&self) -> String {
        self.0.iter().fold(String::with_capacity(128), |mut text, byte| {
            for digit in [byte >> 4, byte & 15] {
                text.push(char::from_digit(u32::from(digit), 16).unwrap_or('0'));
            }
            text
        })
    }

    /// Reads 128 lower-case hexadecimal digits.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        let mut bytes = [0_u8; 64];
        if text.len() != 128 || !text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(Self(bytes))
    }
}

impl Serialize for Signature {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.hex())
    }
}

impl<'de> Deserialize<'de> for Signature {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::from_hex(&text).ok_or_else(|| {
            serde::de::Error::custom("not a signature: expected 128 hexadecimal digits")
        })
    }
}

/// What a person signs: an answer to the questions that were put together before them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Statement {
    /// The question digests, as shown, in order.
    pub covers: Vec<Digest>,
    /// The answer.
    pub answer: Answer,
    /// The key that signs.
    pub key: KeyId,
    /// When.
    pub at: Timestamp,
    /// The note.
    pub note: Option<ContentRef>,
    /// What came back, when the answer says that it happened.
    pub result: Option<ContentRef>,
}

impl Statement {
    /// The bytes that are signed.
    #[must_use]
    pub fn message(&self) -> Vec<u8> {
        let content =
            |c: Option<ContentRef>| c.map_or(Value::Null, |c| Value::from(c.digest.to_string()));
        let mut object = Object::new();
        object.insert(
            "covers",
            self.covers.iter().map(|d| Value::from(d.to_string())).collect::<Vec<_>>(),
        );
        object.insert("answer", self.answer.as_str());
        object.insert("key", self.key.to_string());
        object.insert("at", self.at.to_string());
        object.insert("note", content(self.note));
        object.insert("result", content(self.result));
        let mut message = b"portcullis/answer/v1\0".to_vec();
        message
            .extend_from_slice(Digest::of_value(Kind::Answer, &Value::Object(object)).as_bytes());
        message
    }
}

/// The row of one answer. Every field is named by the fold and compared by `verify`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approval {
    /// The question.
    pub question: QuestionId,
    /// Who answered, as the operator's configuration names the key's owner.
    pub person: String,
    /// What was signed.
    pub statement: Statement,
    /// The signature.
    pub signature: Signature,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_changes_the_message() {
        let base = Statement {
            covers: vec![Digest::ZERO],
            answer: Answer::Approve,
            key: Digest::ZERO,
            at: Timestamp::from_micros(0),
            note: None,
            result: None,
        };
        let content = ContentRef { digest: Digest::of(Kind::Content, b"x"), size: 1 };
        let changed = [
            Statement { covers: vec![], ..base.clone() },
            Statement { covers: vec![Digest::ZERO; 2], ..base.clone() },
            Statement { answer: Answer::Reject, ..base.clone() },
            Statement { key: Digest::of(Kind::Answer, b"k"), ..base.clone() },
            Statement { at: Timestamp::from_micros(1), ..base.clone() },
            Statement { note: Some(content), ..base.clone() },
            Statement { result: Some(content), ..base.clone() },
        ];
        let messages: std::collections::BTreeSet<_> =
            changed.iter().chain([&base]).map(Statement::message).collect();
        assert_eq!(messages.len(), changed.len() + 1);
    }

    #[test]
    fn signatures_have_one_spelling() {
        let signature = Signature([0xa5; 64]);
        assert_eq!(Signature::from_hex(&signature.hex()), Some(signature));
        assert_eq!(Signature::from_hex(&signature.hex().to_uppercase()), None);
        assert_eq!(Signature::from_hex("a5"), None);
    }
}
