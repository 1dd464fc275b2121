//! The rules across calls, as functions of what is recorded: what whoever made a call is told of its end, and what whoever
//! makes it again.

use std::time::Duration;

use portcullis_canon::Value;
use portcullis_domain::observation::{Failure, ObservationKind};
use portcullis_domain::ports::Lack;
use portcullis_domain::refusal::Refusal;
use portcullis_domain::run::EndReason;
use portcullis_domain::time::Timestamp;
use portcullis_mcp::Needs;

use super::answer::Answer;
use super::past::{Ended, Seen};

/// What is next for a call.
pub(super) enum Next {
    /// The host is told this.
    Answer(Answer),
    /// It is for others to do something first; when the host cannot be held any longer, it is told this.
    Wait(Answer),
    /// Something changed meanwhile: look anew.
    Again,
}

/// What became of a call whose run has ended. All that is told of an end is told from this.
pub(super) enum Came<'a> {
    /// It was made, and gave this.
    Gave(&'a Value),
    /// It was made, and what it gave could not be kept.
    Unkept(&'a Seen),
    /// It was made, and the receiver says that it failed: what it changed before is not said.
    Reported(&'a Seen),
    /// It failed and changed nothing.
    Failed(&'a Seen),
    /// It did not happen.
    Undone,
    /// It was begun, and nobody ever said what it did.
    NeverKnown,
    /// Nobody said yes in time.
    Expired,
    /// A person said no, with these words.
    Rejected(Option<&'a str>),
    /// A person ended it, with these words.
    Stopped(Option<&'a str>),
    /// It was not made, for a reason that is recorded.
    Refused(&'a Seen),
    /// It did not fit its tool.
    Invalid(&'a Seen),
    /// It was not made, and no reason is recorded.
    Nothing,
}

/// Reads an end. What is known to have happened comes before why the run ended, and that before the rest.
pub(super) fn came(ended: &Ended) -> Came<'_> {
    if is_never_known(ended) {
        return Came::NeverKnown;
    }
    let seen = ended.seen.as_ref();
    let words = || seen.and_then(|seen| seen.text("note")).or(ended.note.as_deref());
    match (seen.map(|seen| (seen, seen.kind, seen.failure)), ended.reason) {
        (Some((seen, ObservationKind::ToolResult, _)), _) => Came::Gave(&seen.value),
        (Some((seen, ObservationKind::ToolError, Some(Failure::InvalidContent))), _) => {
            Came::Unkept(seen)
        }
        (Some((seen, ObservationKind::ToolError, Some(Failure::Error))), _)
            if may_have_changed(seen) =>
        {
            Came::Reported(seen)
        }
        (_, EndReason::ApprovalExpired) => Came::Expired,
        (_, EndReason::ApprovalRejected) => Came::Rejected(words()),
        (_, EndReason::OperatorCancelled) => Came::Stopped(words()),
        (Some((_, ObservationKind::Interrupted, _) | (_, _, Some(Failure::DidNotHappen))), _) => {
            Came::Undone
        }
        (Some((seen, ObservationKind::ToolError, _)), _) => Came::Failed(seen),
        (Some((seen, ObservationKind::Denied, _)), _)
            if seen.refusal == Some(Refusal::Rejected) =>
        {
            Came::Rejected(words())
        }
        (Some((seen, ObservationKind::Denied, _)), _) => Came::Refused(seen),
        (Some((seen, ObservationKind::InvalidProposal, _)), _) => Came::Invalid(seen),
        (None, _) => Came::Nothing,
    }
}

/// What whoever made the call is told of its end; nothing when it is to be made anew, since nothing happened.
pub(super) fn first(ended: &Ended) -> Option<Answer> {
    Some(match came(ended) {
        Came::Gave(value) => Answer::result(value),
        Came::Unkept(seen) | Came::Reported(seen) | Came::Failed(seen) => failed(seen),
        Came::Undone => return None,
        Came::NeverKnown => Answer::never_known(),
        Came::Expired => Answer::expired(),
        Came::Rejected(words) | Came::Stopped(words) => Answer::rejected(words),
        Came::Refused(seen) => denied(seen),
        Came::Invalid(seen) => invalid(seen),
        Came::Nothing => Answer::unavailable(),
    })
}

/// What whoever makes the call again is told, since it is not made; nothing when it is.
pub(super) fn again(ended: &Ended, now: Timestamp, window: Duration) -> Option<Answer> {
    let window_us = u64::try_from(window.as_micros()).unwrap_or(u64::MAX);
    let in_window = now.micros_since(ended.at) < window_us;
    match came(ended) {
        Came::NeverKnown => Some(Answer::never_known()),
        _ if !in_window => None,
        Came::Expired => Some(Answer::expired()),
        Came::Rejected(words) | Came::Stopped(words) => Some(Answer::rejected(words)),
        _ if !ended.changes => None,
        Came::Gave(value) => Some(Answer::duplicate(ended.at, Some(value))),
        Came::Unkept(_) => Some(Answer::duplicate(ended.at, None)),
        Came::Reported(seen) => Some(Answer::duplicate(ended.at, Some(&seen.value))),
        Came::Failed(_) | Came::Undone | Came::Refused(_) | Came::Invalid(_) | Came::Nothing => {
            None
        }
    }
}

/// A change that was begun, and of which nobody ever said what it did.
fn is_never_known(ended: &Ended) -> bool {
    let known =
        |seen: &Seen| ended.reason != EndReason::ReconcileConflict || seen.failure.is_none();
    ended.changes && ended.started && !ended.seen.as_ref().is_some_and(known)
}

/// The receiver itself said that the call failed, and not that it changed nothing; or what was said is erased.
fn may_have_changed(seen: &Seen) -> bool {
    seen.value.is_null() || seen.value.get("reported").and_then(Value::as_bool) == Some(true)
}

/// The tool failed. What the receiver says of it in its own words is never taken for a sentence of ours.
fn failed(seen: &Seen) -> Answer {
    let message = seen.text("message").unwrap_or("it did not say why");
    let needs = match seen.value.get("lacks").and_then(Lack::read) {
        Some(Lack::Subject) => return Answer::missing(),
        Some(Lack::Caller(names)) => Needs::of_names(&names),
        None => None,
    };
    needs.map_or_else(|| Answer::tool_failed(message), Answer::needs)
}

fn denied(seen: &Seen) -> Answer {
    match seen.refusal {
        Some(Refusal::OutcomeUnknown) => Answer::blocked(),
        Some(Refusal::NoCapacity) => Answer::unavailable(),
        Some(refusal) if refusal.bounds_a_conversation() => {
            Answer::limited(refusal, seen.text("note"))
        }
        refusal => Answer::denied(refusal.map_or("no reason is recorded", Refusal::as_str)),
    }
}

fn invalid(seen: &Seen) -> Answer {
    let refusal = seen.refusal.map_or("invalid", Refusal::as_str);
    let place = seen.text("path").zip(seen.text("rule"));
    match place {
        Some((path, rule)) => {
            let path = if path.is_empty() { "the whole" } else { path };
            Answer::invalid(&format!(
                "the arguments do not fit the tool's schema: {rule} at {path}"
            ))
        }
        None => Answer::invalid(&format!("the call cannot be read ({refusal})")),
    }
}

#[cfg(test)]
mod tests {
    use portcullis_canon::{Limits, parse};
    use portcullis_mcp::{HostRefusal, NO_SUCH_RESOURCE};

    use super::super::answer::Word;
    use super::*;

    const WINDOW: Duration = Duration::from_secs(600);

    fn seen(kind: ObservationKind, text: &str) -> Seen {
        let value = parse(text.as_bytes(), &Limits::BARE).unwrap();
        Seen { kind, failure: None, refusal: None, value }
    }

    fn ended(reason: EndReason, seen: Option<Seen>) -> Ended {
        let at = Timestamp::from_micros(1_000_000);
        Ended { reason, at, changes: true, started: true, seen, note: None }
    }

    #[track_caller]
    fn check(ended: &Ended, after: Duration, expected: Option<Word>) {
        let told = again(ended, ended.at.after(after), WINDOW);
        assert_eq!(told.and_then(|answer| answer.word), expected, "{ended:?}");
    }

    #[test]
    fn a_change_is_repeated_only_after_the_window() {
        let done = ended(EndReason::GoalCompleted, Some(seen(ObservationKind::ToolResult, "7")));
        check(&done, Duration::ZERO, Some(Word::Duplicate));
        check(&done, WINDOW.saturating_sub(Duration::from_micros(1)), Some(Word::Duplicate));
        check(&done, WINDOW, None);
        let read = Ended { changes: false, ..done.clone() };
        check(&read, Duration::ZERO, None);
        assert_eq!(
            again(&done, done.at, Duration::ZERO),
            None,
            "a window of zero lets all through"
        );
    }

    #[test]
    fn what_changed_nothing_may_be_tried_again() {
        let error = |failure| Seen {
            failure: Some(failure),
            ..seen(ObservationKind::ToolError, r#"{"message":"no"}"#)
        };
        for failure in [Failure::Error, Failure::DidNotHappen, Failure::Abort] {
            check(&ended(EndReason::GoalFailed, Some(error(failure))), Duration::ZERO, None);
        }
        let unkept = ended(EndReason::GoalFailed, Some(error(Failure::InvalidContent)));
        check(&unkept, Duration::ZERO, Some(Word::Duplicate));
        let invalid =
            ended(EndReason::GoalFailed, Some(seen(ObservationKind::InvalidProposal, "{}")));
        check(&Ended { started: false, ..invalid }, Duration::ZERO, None);
    }

    #[test]
    fn what_the_receiver_itself_says_failed_is_not_made_again() {
        for said in [r#"{"message":"declined","reported":true}"#, "null"] {
            let error =
                Seen { failure: Some(Failure::Error), ..seen(ObservationKind::ToolError, said) };
            let error = ended(EndReason::GoalFailed, Some(error));
            check(&error, Duration::ZERO, Some(Word::Duplicate));
            check(&error, WINDOW, None);
            check(&Ended { changes: false, ..error }, Duration::ZERO, None);
        }
    }

    #[test]
    fn a_no_holds_for_the_window_with_its_words() {
        let no = Seen {
            refusal: Some(Refusal::Rejected),
            ..seen(ObservationKind::Denied, r#"{"note":"not today"}"#)
        };
        let no = Ended { started: false, ..ended(EndReason::ApprovalRejected, Some(no)) };
        check(&no, Duration::ZERO, Some(Word::Rejected));
        check(&no, WINDOW, None);
        let told = again(&no, no.at, WINDOW).unwrap().reply().text;
        assert!(told.contains("not today"), "{told}");
        let late = Ended { started: false, ..ended(EndReason::ApprovalExpired, None) };
        check(&late, Duration::ZERO, Some(Word::Expired));
        check(&late, WINDOW, None);
    }

    #[test]
    fn what_happened_is_told_before_why_the_run_ended() {
        let made =
            ended(EndReason::OperatorCancelled, Some(seen(ObservationKind::ToolResult, "7")));
        check(&made, Duration::ZERO, Some(Word::Duplicate));
        assert_eq!(first(&made).unwrap().word, None);
        let unmade = Seen {
            failure: Some(Failure::Error),
            ..seen(ObservationKind::ToolError, r#"{"message":"no"}"#)
        };
        let unmade = ended(EndReason::OperatorCancelled, Some(unmade));
        check(&unmade, Duration::ZERO, Some(Word::Rejected));
        let cut =
            ended(EndReason::OperatorCancelled, Some(seen(ObservationKind::Interrupted, "{}")));
        let cut = Ended { changes: false, ..cut };
        assert_eq!(first(&cut).unwrap().word, Some(Word::Rejected), "it is not made anew");
    }

    #[test]
    fn what_was_never_known_is_not_made_again_at_any_age() {
        for reason in [EndReason::OperatorCancelled, EndReason::ApprovalExpired] {
            let cut = ended(reason, None);
            check(&cut, WINDOW.saturating_mul(100), Some(Word::UnknownOutcome));
            check(&Ended { changes: false, ..cut }, WINDOW, None);
        }
    }

    #[test]
    fn whoever_made_the_call_is_told_its_outcome() {
        let done =
            ended(EndReason::GoalCompleted, Some(seen(ObservationKind::ToolResult, r#"{"id":7}"#)));
        let reply = first(&done).unwrap().reply();
        assert_eq!((reply.text.as_str(), reply.failed), (r#"{"id":7}"#, false));
        assert_eq!(reply.structured.unwrap().get("id"), Some(&Value::from(7_i64)));
        let cut = ended(EndReason::GoalFailed, Some(seen(ObservationKind::Interrupted, "{}")));
        assert_eq!(first(&cut), None);
    }

    #[test]
    fn what_a_call_lacked_is_known_from_the_record_and_never_from_words() {
        let told = |message: &str, more: &str| {
            let text = format!(r#"{{"failure":"error","message":"{message}"{more}}}"#);
            let error =
                Seen { failure: Some(Failure::Error), ..seen(ObservationKind::ToolError, &text) };
            first(&ended(EndReason::GoalFailed, Some(error))).unwrap()
        };
        let words = "the server needs what no server is let ask a host for: sampling";
        let no = told(words, r#","lacks":["sampling"]"#);
        assert_eq!(no.word, Some(Word::Denied));
        let reply = no.reply();
        assert_eq!(reply.needs.map(|needs| needs.names()), Some("sampling".to_owned()));
        assert!(reply.failed && reply.text.contains("(sampling)"), "{}", reply.text);
        let missing = told("", r#","lacks":"subject""#).given();
        assert_eq!(missing, Err(HostRefusal::Unknown));
        for words in [words, NO_SUCH_RESOURCE] {
            for more in ["", r#","reported":true"#, r#","lacks":["all"]"#, r#","lacks":7"#] {
                let said = told(words, more);
                assert_eq!((said.word, said.clone().reply().needs), (None, None), "{more}");
                assert!(matches!(said.given(), Err(HostRefusal::Told(_))), "{more}");
            }
        }
    }
}
