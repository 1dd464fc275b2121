//! What a host is answered: a word that says how it stands, and prose that a model can follow.
//!
//! Nothing of it names a path, a database, a run, or this product. Foreign text is made safe and cut, but for what a tool
//! gave back, which is the answer itself.

use portcullis_canon::{Value, sanitize};
use portcullis_domain::question::QuestionKind;
use portcullis_domain::refusal::Refusal;
use portcullis_domain::time::Timestamp;
use portcullis_mcp::{HostRefusal, HostReply, NO_SUCH_RESOURCE, Needs};

use super::blocks::{apart, in_words};
use super::shown;

/// The most bytes of a reason or of a person's note.
const MAX_NOTE_BYTES: usize = 500;

/// The most bytes of what an earlier call gave back.
const MAX_QUOTED_BYTES: usize = 64 * 1024;

/// What a model reads once, about all of these tools.
pub(super) const INSTRUCTIONS: &str = "Each call of these tools is checked, and some have to be approved by a person first. \
An answer that begins with a word in capitals (such as PENDING_APPROVAL, DENIED or DUPLICATE) says how the call stands; the \
sentences after it say what to do. Never make another call to get around such an answer. A call that waits is collected by \
making exactly the same call again, once a person has approved it.";

/// How a call stands, where it has no result of its tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    Denied,
    Invalid,
    PendingApproval,
    Rejected,
    Expired,
    InProgress,
    UnknownOutcome,
    Duplicate,
    Blocked,
    Unavailable,
    Status,
}

impl Word {
    /// The word itself.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Denied => "DENIED",
            Self::Invalid => "INVALID",
            Self::PendingApproval => "PENDING_APPROVAL",
            Self::Rejected => "REJECTED",
            Self::Expired => "EXPIRED",
            Self::InProgress => "IN_PROGRESS",
            Self::UnknownOutcome => "UNKNOWN_OUTCOME",
            Self::Duplicate => "DUPLICATE",
            Self::Blocked => "BLOCKED",
            Self::Unavailable => "UNAVAILABLE",
            Self::Status => "STATUS",
        }
    }

    /// Whether the host is told that the call failed. One that only has to wait did not.
    const fn failed(self) -> bool {
        !matches!(
            self,
            Self::PendingApproval | Self::InProgress | Self::UnknownOutcome | Self::Status
        )
    }
}

/// The answer to one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) word: Option<Word>,
    said: Said,
    failed: bool,
    needs: Option<Needs>,
}

/// What is said.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Said {
    /// Prose.
    Prose(String),
    /// What the tool gave back.
    Gave(Value),
    /// There is no such resource.
    Missing,
}

impl Answer {
    /// A word and prose.
    pub(super) fn of(word: Word, prose: &str) -> Self {
        let said = Said::Prose(format!("{}: {prose}", word.as_str()));
        Self { word: Some(word), said, failed: word.failed(), needs: None }
    }

    /// What the tool gave back.
    pub(super) fn result(value: &Value) -> Self {
        Self { word: None, said: Said::Gave(value.clone()), failed: false, needs: None }
    }

    /// The tool failed, and said why.
    pub(super) fn tool_failed(message: &str) -> Self {
        let said = Said::Prose(format!("The tool failed: {message}"));
        Self { word: None, said, failed: true, needs: None }
    }

    /// The server has no such resource.
    pub(super) fn missing() -> Self {
        Self { word: None, said: Said::Missing, failed: true, needs: None }
    }

    /// The tool's server would have to ask the host for something first.
    pub(super) fn needs(needs: Needs) -> Self {
        let prose = format!(
            "whoever makes this call would have to ask this host for something first ({}), which is not let through. Nothing \
             has happened. Do not try it again; tell the user.",
            needs.names()
        );
        Self { needs: Some(needs), ..Self::of(Word::Denied, &prose) }
    }

    /// A question waits.
    pub(super) fn asked(kind: QuestionKind) -> Self {
        match kind {
            QuestionKind::Approval => Self::of(
                Word::PendingApproval,
                "a person has to approve this call before it is made, and is asked. Nothing has happened yet. Tell the user \
                 that it waits, and do not make another call instead. Once they say that it is approved, make exactly the \
                 same call again to get its result.",
            ),
            QuestionKind::UnknownOutcome => Self::of(
                Word::UnknownOutcome,
                "this call was begun and cut off, and it is not known whether it took effect. A person is asked to find out. \
                 It is not made again by itself, and you must not try it in another way. Tell the user; once they say that it \
                 is settled, make exactly the same call again to learn how it ended.",
            ),
        }
    }

    /// Somebody makes the same call just now.
    pub(super) fn in_progress() -> Self {
        Self::of(
            Word::InProgress,
            "the same call is being made just now. Do not make another call instead. Make exactly the same call again in a \
             while to learn how it ended.",
        )
    }

    /// The rules say no.
    pub(super) fn denied(reason: &str) -> Self {
        let reason = note(reason);
        Self::of(
            Word::Denied,
            &format!(
                "the rules do not allow this call ({reason}). Nothing has happened. Do not try it again or in another way; \
                 tell the user."
            ),
        )
    }

    /// The call could not be admitted.
    pub(super) fn invalid(what: &str) -> Self {
        let what = sanitize::clip(&sanitize::line(what), MAX_NOTE_BYTES.saturating_mul(2));
        Self::of(
            Word::Invalid,
            &format!(
                "{what}. Nothing has happened. Correct the call by the tool's schema, and make it again."
            ),
        )
    }

    /// No tool of that name. What the host said is not said again.
    pub(super) fn unknown_tool() -> Self {
        Self::invalid("there is no tool of that name")
    }

    /// What stands in `_meta` cannot be used.
    pub(super) fn bad_meta(key: &str) -> Self {
        Self::invalid(&format!("`{key}` in `_meta` has to be a text of 1 to 128 bytes"))
    }

    /// A person said no.
    pub(super) fn rejected(words: Option<&str>) -> Self {
        let words = words.map_or_else(String::new, |words| format!(" They say: {}.", note(words)));
        Self::of(
            Word::Rejected,
            &format!(
                "a person said no to this call.{words} Nothing has happened. Do not try it again or in another way; tell the \
                 user."
            ),
        )
    }

    /// Nobody said yes in time.
    pub(super) fn expired() -> Self {
        Self::of(
            Word::Expired,
            "nobody approved this call in time, or the approval was not used in time. Nothing has happened. Tell the user, and \
             make it again only if they ask for it.",
        )
    }

    /// The question about an outcome ended without an answer.
    pub(super) fn never_known() -> Self {
        Self::of(
            Word::UnknownOutcome,
            "this call was begun before and cut off, and nobody said whether it took effect before the question about it was \
             closed. It is not made again. Tell the user, who can find out whether it happened and ask for it expressly once \
             more.",
        )
    }

    /// The same change was made just before.
    pub(super) fn duplicate(at: Timestamp, gave: Option<&Value>) -> Self {
        let gave = match gave {
            Some(value) => {
                format!("It gave: {}", sanitize::clip(&shown(&in_words(value)), MAX_QUOTED_BYTES))
            }
            None => "What it gave could not be kept.".to_owned(),
        };
        Self::of(
            Word::Duplicate,
            &format!(
                "exactly this call was made already, at {at}, and is not made a second time. Do not repeat it; if it is \
                 really meant once more, tell the user. {gave}"
            ),
        )
    }

    /// An earlier call of the tool has to be settled first.
    pub(super) fn blocked() -> Self {
        Self::of(
            Word::Blocked,
            "an earlier call of this tool was cut off, and it is not known what it did. Until a person has said so, nothing \
             else is changed with this tool. Nothing has happened. Tell the user.",
        )
    }

    /// So many questions wait that no more are asked.
    pub(super) fn full() -> Self {
        Self::of(
            Word::Blocked,
            "too many calls wait for a person already, so nobody was asked about this one. Nothing has happened. Tell the \
             user, and make it again once some are decided.",
        )
    }

    /// A limit of the whole conversation is met; `until` says for how long, where a window has an end.
    pub(super) fn limited(limit: Refusal, until: Option<&str>) -> Self {
        let until = until.map_or_else(|| "for now".to_owned(), note);
        let met = match limit {
            Refusal::ThreadElapsed => {
                "this conversation is older than it may become, so no call is made in it any more. Nothing has happened. Do \
                 not try it in another way; tell the user, who can begin a new conversation."
                    .to_owned()
            }
            Refusal::ThreadLoop => {
                "this call, or the same few calls in turn, gave the same results again and again, so it is not made once more. \
                 Nothing has happened. Use the results that you have and go on with something else, or tell the user that you \
                 cannot go on."
                    .to_owned()
            }
            Refusal::ThreadDenials => format!(
                "so many calls of this conversation were refused that no other one is made {until}. Nothing has happened. Do not \
                 try it in another way; tell the user which calls were refused. They can wait, or begin a new conversation."
            ),
            Refusal::ThreadChanges => format!(
                "as many changes were made in this conversation as may be {until}. Nothing has happened. Tools that only read \
                 can still be used. Tell the user, who can wait, raise the limit, or begin a new conversation."
            ),
            Refusal::ThreadQuestions => format!(
                "a person was asked as often in this conversation as may be {until}, so nobody was asked about this call. \
                 Nothing has happened. Tell the user, who can wait, raise the limit, or begin a new conversation."
            ),
            _ => format!(
                "as many calls were made in this conversation as may be {until}. Nothing has happened. Do not try it in another \
                 way; tell the user, who can wait, raise the limit, or begin a new conversation."
            ),
        };
        Self::of(Word::Blocked, &met)
    }

    /// It cannot be said how it stands.
    pub(super) fn unavailable() -> Self {
        Self::of(
            Word::Unavailable,
            "the call cannot be handled just now. If it had begun, that is recorded, and it is not made twice. Make exactly the \
             same call again later.",
        )
    }

    /// What a host is told while the call is held.
    pub(super) fn notice(&self) -> &'static str {
        match self.word {
            Some(Word::PendingApproval) => "waiting for a person to approve the call",
            Some(Word::UnknownOutcome) => "waiting for a person to find out what the call did",
            _ => "the call is being made",
        }
    }

    /// What the tool gave back, for whoever asked for that and can be told of nothing else; otherwise the words.
    pub(super) fn given(self) -> Result<Value, HostRefusal> {
        match self.said {
            Said::Gave(value) => Ok(value),
            Said::Prose(words) => Err(HostRefusal::Told(words)),
            Said::Missing => Err(HostRefusal::Unknown),
        }
    }

    /// As the protocol carries it.
    pub(super) fn reply(self) -> HostReply {
        let Self { said, failed, needs, .. } = self;
        let (text, structured, blocks) = match said {
            Said::Prose(text) => (text, None, Vec::new()),
            Said::Missing => (NO_SUCH_RESOURCE.to_owned(), None, Vec::new()),
            Said::Gave(value) => {
                let (value, blocks) = apart(&value);
                let text = shown(&value);
                let structured = match value {
                    Value::Object(object) => Some(object),
                    _ => None,
                };
                (text, structured, blocks)
            }
        };
        HostReply { text, structured, blocks, failed, needs }
    }
}

/// A person's or a rule's words, safe and short.
pub(super) fn note(text: &str) -> String {
    sanitize::clip(&sanitize::line(text), MAX_NOTE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_waits_is_no_error_and_begins_with_its_word() {
        for (answer, word, failed) in [
            (Answer::asked(QuestionKind::Approval), "PENDING_APPROVAL: ", false),
            (Answer::asked(QuestionKind::UnknownOutcome), "UNKNOWN_OUTCOME: ", false),
            (Answer::in_progress(), "IN_PROGRESS: ", false),
            (Answer::denied("class_denied"), "DENIED: ", true),
            (Answer::unknown_tool(), "INVALID: ", true),
            (Answer::rejected(None), "REJECTED: ", true),
            (Answer::expired(), "EXPIRED: ", true),
            (Answer::duplicate(Timestamp::from_micros(0), None), "DUPLICATE: ", true),
            (Answer::blocked(), "BLOCKED: ", true),
            (Answer::limited(Refusal::ThreadCalls, None), "BLOCKED: ", true),
            (Answer::unavailable(), "UNAVAILABLE: ", true),
        ] {
            let reply = answer.reply();
            assert!(reply.text.starts_with(word), "{}", reply.text);
            assert_eq!(reply.failed, failed, "{word}");
        }
    }

    #[test]
    fn a_persons_words_are_made_safe_and_cut() {
        let long = format!("no\u{1b}[2J\nDUPLICATE: {}", "x".repeat(2_000));
        let text = Answer::rejected(Some(&long)).reply().text;
        assert!(!text.contains('\u{1b}') && !text.contains('\n'), "{text}");
        assert!(text.len() < 1_000, "{}", text.len());
    }
}
