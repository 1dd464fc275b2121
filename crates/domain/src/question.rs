//! Questions to a person, and the two digests that bind an answer.
//!
//! The **call digest** says what: everything on the card, keyed by the run's salt. The **question digest**
//! says where and until when. A person's signature covers question digests; see [`crate::approval`].

use std::time::Duration;

use portcullis_canon::{BridgeError, Digest, Kind, Object, Value, to_vec};
use serde::{Deserialize, Serialize};

use crate::content::ContentRef;
use crate::id::{InstanceId, QuestionId, RunId, StepId};
use crate::observation::Failure;
use crate::scope::Tenant;
use crate::time::Timestamp;
use crate::tool::EffectClass;
use crate::verdict::{OnRejection, Reviewers};

/// The role that answers for outcomes of calls that nobody had to approve.
pub const OUTCOME_ROLE: &str = "operator";

/// What a question is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuestionKind {
    /// May this call happen?
    Approval,
    /// Did this call happen?
    UnknownOutcome,
}

impl QuestionKind {
    /// The stable name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Approval => "approval",
            Self::UnknownOutcome => "unknown_outcome",
        }
    }
}

/// Where a question stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuestionStatus {
    /// Open.
    Open,
    /// Enough people said yes, or `run again`; the grant is not used yet.
    Granted,
    /// The grant was used, with the intent that it covers.
    Used,
    /// A person said no.
    Rejected,
    /// A person said whether it happened.
    Settled,
    /// Too late.
    Expired,
    /// A later question of the same step, or the end of the run, took its place.
    Withdrawn,
}

impl QuestionStatus {
    /// The stable name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Granted => "granted",
            Self::Used => "used",
            Self::Rejected => "rejected",
            Self::Settled => "settled",
            Self::Expired => "expired",
            Self::Withdrawn => "withdrawn",
        }
    }
}

/// Everything that a person is shown about a call, and that will run if they say yes.
///
/// ```
/// use portcullis_canon::{Object, Value};
/// use portcullis_domain::{question::Card, tool::EffectClass};
/// # use portcullis_canon::Digest;
/// let mut card = Card {
///     capability: "files.create".to_owned(),
///     tool: "files.create".to_owned(),
///     arguments: Object::new(),
///     spec: Digest::ZERO,
///     effect: EffectClass::LocalMutation,
///     source: false,
///     sink: true,
///     authority: vec![],
///     target: None,
///     sandbox: None,
///     rules: vec![],
///     reviewers: None,
/// };
/// let before = card.call_digest(b"salt");
/// card.arguments.insert("path", Value::from("a.txt"));
/// assert_ne!(card.call_digest(b"salt"), before);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Card {
    /// What is asked for, in the policy's words: the tool's name unless a rule names something narrower.
    pub capability: String,
    /// The tool.
    pub tool: String,
    /// The canonical arguments: defaults filled in, fixed values included.
    pub arguments: Object,
    /// Digest of the tool's whole spec.
    pub spec: Digest,
    /// The tool's class.
    pub effect: EffectClass,
    /// True when the result carries content from outside.
    pub source: bool,
    /// True when the call sends or changes something.
    pub sink: bool,
    /// JSON pointers of the arguments that carry authority.
    pub authority: Vec<String>,
    /// What the operator pointed the tool at.
    pub target: Option<String>,
    /// Digest of the sandbox's spec; absent, and written as absent, while a tool runs in our own process.
    pub sandbox: Option<Digest>,
    /// The decisive rules in normal form.
    pub rules: Vec<String>,
    /// Who has to answer; absent for a call that is simply allowed.
    pub reviewers: Option<Reviewers>,
}

impl Card {
    /// The canonical value, as it is stored and shown.
    #[must_use]
    pub fn value(&self) -> Value {
        let texts =
            |items: &[String]| items.iter().map(|t| Value::from(t.as_str())).collect::<Vec<_>>();
        let mut object = Object::new();
        object.insert("capability", self.capability.as_str());
        object.insert("tool", self.tool.as_str());
        object.insert("arguments", self.arguments.clone());
        object.insert("spec", self.spec.to_string());
        object.insert("effect", self.effect.as_str());
        object.insert("source", self.source);
        object.insert("sink", self.sink);
        object.insert("authority", texts(&self.authority));
        object.insert("target", self.target.as_deref().map_or(Value::Null, Value::from));
        object.insert("sandbox", self.sandbox.map_or(Value::Null, |d| Value::from(d.to_string())));
        object.insert("rules", texts(&self.rules));
        object.insert("reviewers", self.reviewers.as_ref().map_or(Value::Null, reviewers_value));
        Value::Object(object)
    }

    /// The canonical bytes of [`Card::value`].
    #[must_use]
    pub fn to_canonical(&self) -> Vec<u8> {
        to_vec(self).unwrap_or_else(|error| {
            // Only what is nested deeper than any admitted call takes the longer way; `value` is what defines the bytes.
            debug_assert_eq!(error, BridgeError::TooDeep, "a card that serde refuses");
            self.value().to_canonical()
        })
    }

    /// The call digest, keyed by the run's salt.
    #[must_use]
    pub fn call_digest(&self, run_salt: &[u8]) -> Digest {
        call_digest(&self.to_canonical(), run_salt)
    }

    /// Who has to answer a question of this kind about the card. An outcome is asked of those who had to approve
    /// the call, or of the operator where nobody had to; an approval without reviewers is no question.
    #[must_use]
    pub fn asks(&self, kind: QuestionKind) -> Option<Reviewers> {
        match kind {
            QuestionKind::Approval => self.reviewers.clone(),
            QuestionKind::UnknownOutcome => Some(
                self.reviewers
                    .clone()
                    .unwrap_or_else(|| Reviewers { role: OUTCOME_ROLE.to_owned(), count: 1 }),
            ),
        }
    }

    /// True when `other` is the same call of the same tool: all but the rules and the reviewers.
    #[must_use]
    pub fn same_call(&self, other: &Self) -> bool {
        let bare = |card: &Self| Self { rules: Vec::new(), reviewers: None, ..card.clone() };
        bare(self) == bare(other)
    }
}

/// The call digest over a card's canonical bytes.
#[must_use]
pub fn call_digest(card: &[u8], run_salt: &[u8]) -> Digest {
    Digest::of_parts(Kind::Call, &[run_salt, card])
}

fn reviewers_value(reviewers: &Reviewers) -> Value {
    let mut object = Object::new();
    object.insert("role", reviewers.role.as_str());
    object.insert("count", i64::from(reviewers.count));
    Value::Object(object)
}

/// Where and until when an answer holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms<'a> {
    /// The installation.
    pub instance: InstanceId,
    /// The tenant.
    pub tenant: &'a Tenant,
    /// The run.
    pub run: RunId,
    /// The step.
    pub step: StepId,
    /// The question.
    pub question: QuestionId,
    /// What it is about.
    pub kind: QuestionKind,
    /// What exactly.
    pub call: Digest,
    /// Until when it can be answered.
    pub expires_at: Option<Timestamp>,
    /// Who has to answer.
    pub reviewers: &'a Reviewers,
    /// How often a yes can be used.
    pub uses: u32,
    /// How long a yes can be used once enough people have said it, in milliseconds.
    pub grant_ttl_ms: Option<u64>,
}

impl Terms<'_> {
    /// The question digest.
    #[must_use]
    pub fn digest(&self) -> Digest {
        let expiry = self.expires_at.map_or_else(Vec::new, |at| at.micros().to_be_bytes().to_vec());
        let grant_ttl = self.grant_ttl_ms.map_or_else(Vec::new, |ms| ms.to_be_bytes().to_vec());
        Digest::of_parts(
            Kind::Question,
            &[
                self.instance.as_bytes(),
                self.tenant.as_str().as_bytes(),
                self.run.as_bytes(),
                self.step.as_bytes(),
                self.question.as_bytes(),
                self.kind.as_str().as_bytes(),
                self.call.as_bytes(),
                &expiry,
                self.reviewers.role.as_bytes(),
                &self.reviewers.count.to_be_bytes(),
                &self.uses.to_be_bytes(),
                &grant_ttl,
            ],
        )
    }
}

/// The row of one question. Every field is named by the fold and compared by `verify`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The question.
    pub id: QuestionId,
    /// Its run.
    pub run: RunId,
    /// Its step.
    pub step: StepId,
    /// What it is about.
    pub kind: QuestionKind,
    /// Where it stands.
    pub status: QuestionStatus,
    /// The question digest.
    pub digest: Digest,
    /// The call digest.
    pub call: Digest,
    /// The card, as shown.
    pub card: ContentRef,
    /// Who has to answer.
    pub reviewers: Reviewers,
    /// What a no does.
    pub on_rejection: OnRejection,
    /// How often a yes can be used.
    pub uses: u32,
    /// How long a yes can be used once enough people have said it, in milliseconds.
    pub grant_ttl_ms: Option<u64>,
    /// Why the outcome is not known, for a question about one.
    pub cause: Option<Failure>,
    /// What is known of it: one sentence.
    pub detail: Option<ContentRef>,
    /// How often it was.
    pub used: u32,
    /// How many people said yes.
    pub yes: u32,
    /// Until when it can be answered; still in time at exactly this instant.
    pub expires_at: Option<Timestamp>,
    /// When it was asked.
    pub asked_at: Timestamp,
    /// When enough people had said yes.
    pub granted_at: Option<Timestamp>,
    /// When it left `open` and `granted`.
    pub closed_at: Option<Timestamp>,
}

impl Question {
    /// What the question digest was made from.
    #[must_use]
    pub fn terms<'a>(&'a self, instance: InstanceId, tenant: &'a Tenant) -> Terms<'a> {
        Terms {
            instance,
            tenant,
            run: self.run,
            step: self.step,
            question: self.id,
            kind: self.kind,
            call: self.call,
            expires_at: self.expires_at,
            reviewers: &self.reviewers,
            uses: self.uses,
            grant_ttl_ms: self.grant_ttl_ms,
        }
    }

    /// When the question, or its grant, ends by itself; nothing once it is closed.
    #[must_use]
    pub fn ends_at(&self) -> Option<Timestamp> {
        match self.status {
            QuestionStatus::Open => self.expires_at,
            QuestionStatus::Granted => {
                let ttl = self.grant_ttl_ms.map(Duration::from_millis);
                self.granted_at.zip(ttl).map(|(granted, ttl)| granted.after(ttl))
            }
            _ => None,
        }
    }

    /// True when its time is over at `now`. At that very instant it still holds.
    #[must_use]
    pub fn is_over(&self, now: Timestamp) -> bool {
        self.ends_at().is_some_and(|end| now > end)
    }
}

#[cfg(test)]
mod tests {
    use portcullis_canon::Limits;
    use proptest::prelude::*;
    use proptest::strategy::ValueTree as _;

    use super::*;

    /// Texts in which most characters need an escape, or sort otherwise in UTF-8 than in UTF-16.
    const TEXT: &str = "[\"\\\\/\u{0}-\u{1f}\u{7f}a\u{e9}\u{2028}\u{ff61}\u{1f600}]{0,8}";

    prop_compose! {
        /// Arguments with `depth` arrays in one another.
        fn arguments(depth: usize)(
            texts in prop::collection::btree_map(TEXT, TEXT, 0..4),
            number in any::<i64>(),
        ) -> Object {
            let mut object = Object::new();
            for (key, text) in texts {
                object.insert(key, Value::from(text));
            }
            let leaf = Value::from(number);
            object.insert("nested", (0..depth).fold(leaf, |inner, _| Value::from(vec![inner])));
            object
        }
    }

    fn reviewers() -> impl Strategy<Value = Option<Reviewers>> {
        prop::option::of((TEXT, any::<u32>()).prop_map(|(role, count)| Reviewers { role, count }))
    }

    prop_compose! {
        fn cards(depth: usize)(
            (capability, tool, arguments) in (TEXT, TEXT, arguments(depth)),
            spec in any::<[u8; 8]>(),
            effect in prop::sample::select(EffectClass::ALL.to_vec()),
            (source, sink) in any::<(bool, bool)>(),
            authority in prop::collection::vec(TEXT, 0..3),
            target in prop::option::of(TEXT),
            sandbox in prop::option::of(any::<[u8; 8]>()),
            rules in prop::collection::vec(TEXT, 0..3),
            reviewers in reviewers(),
        ) -> Card {
            let spec = Digest::of(Kind::ToolSpec, &spec);
            let sandbox = sandbox.map(|bytes| Digest::of(Kind::ToolSpec, &bytes));
            Card {
                capability, tool, arguments, spec, effect, source, sink, authority, target, sandbox, rules, reviewers,
            }
        }
    }

    /// The deepest nesting of an argument in a card that serde writes: the card and the arguments are two more.
    const DEEPEST: usize = Limits::ENVELOPE.max_depth as usize - 2;

    #[test]
    fn the_nesting_of_the_property_is_on_both_sides_of_the_limit() {
        let mut runner = proptest::test_runner::TestRunner::deterministic();
        let mut written = |depth: usize| {
            let card = cards(depth).new_tree(&mut runner).unwrap().current();
            to_vec(&card).map(drop)
        };
        assert_eq!(written(DEEPEST), Ok(()));
        assert_eq!(written(DEEPEST + 1), Err(BridgeError::TooDeep));
    }

    proptest! {
        /// The two ways to a card's bytes, of which the call digest is made, never differ.
        #[test]
        fn a_card_has_the_bytes_of_its_value(
            card in prop::sample::select(vec![0, 1, 3, DEEPEST - 1, DEEPEST, DEEPEST + 1, DEEPEST + 9])
                .prop_flat_map(cards),
        ) {
            prop_assert_eq!(card.to_canonical(), card.value().to_canonical());
        }
    }

    fn terms<'a>(tenant: &'a Tenant, reviewers: &'a Reviewers) -> Terms<'a> {
        Terms {
            instance: InstanceId::from_bytes([1; 16]),
            tenant,
            run: RunId::from_bytes([2; 16]),
            step: StepId::from_bytes([3; 16]),
            question: QuestionId::from_bytes([4; 16]),
            kind: QuestionKind::Approval,
            call: Digest::ZERO,
            expires_at: None,
            reviewers,
            uses: 1,
            grant_ttl_ms: None,
        }
    }

    #[test]
    fn each_term_changes_the_question_digest() {
        let tenant = Tenant::local();
        let one = Reviewers { role: "operator".to_owned(), count: 1 };
        let (two, other) =
            (Reviewers { count: 2, ..one.clone() }, Reviewers { role: "x".to_owned(), count: 1 });
        let base = terms(&tenant, &one);
        let changed = [
            Terms { instance: InstanceId::from_bytes([9; 16]), ..base.clone() },
            Terms { run: RunId::from_bytes([9; 16]), ..base.clone() },
            Terms { step: StepId::from_bytes([9; 16]), ..base.clone() },
            Terms { question: QuestionId::from_bytes([9; 16]), ..base.clone() },
            Terms { kind: QuestionKind::UnknownOutcome, ..base.clone() },
            Terms { call: Digest::of(Kind::Call, b"other"), ..base.clone() },
            Terms { expires_at: Some(Timestamp::from_micros(0)), ..base.clone() },
            Terms { uses: 2, ..base.clone() },
            Terms { reviewers: &two, ..base.clone() },
            Terms { reviewers: &other, ..base.clone() },
            Terms { grant_ttl_ms: Some(1), ..base.clone() },
        ];
        let digests: std::collections::BTreeSet<_> =
            changed.iter().chain([&base]).map(Terms::digest).collect();
        assert_eq!(digests.len(), changed.len() + 1);
    }
}
