//! The rules across calls, as functions of what is recorded: what whoever made a call is told of its end, and what whoever
//! makes it again.

use std::time::Duration;

use portcullis_canon::Value;
use portcullis_domain::observation::{Failure, ObservationKind};
use portcullis_domain::refusal::Refusal;
use portcullis_domain::run::EndReason;
use portcullis_domain::time::Timestamp;
use portcullis_mcp::{NO_SUCH_RESOURCE, Needs};

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

/// What whoever made the call is told of its end; nothing when it is to be made anew, since nothing happened.
pub(super) fn first(ended: &Ended) -> Option<Answer> {
    let Some(seen) = &ended.seen else { return ended_without(ended) };
    Some(match seen.kind {
        ObservationKind::ToolResult => Answer::result(&seen.value),
        ObservationKind::ToolError if is_undone(seen) => return None,
        ObservationKind::ToolError => failed(seen),
        ObservationKind::Denied => denied(seen),
        ObservationKind::InvalidProposal => invalid(seen),
        ObservationKind::Interrupted => return None,
    })
}

/// What whoever makes the call again is told, since it is not made; nothing when it is.
pub(super) fn again(ended: &Ended, now: Timestamp, window: Duration) -> Option<Answer> {
    if is_never_known(ended) {
        return Some(Answer::never_known());
    }
    let window_us = u64::try_from(window.as_micros()).unwrap_or(u64::MAX);
    if now.micros_since(ended.at) >= window_us {
        return None;
    }
    match (&ended.seen, ended.reason) {
        (_, EndReason::ApprovalExpired) => Some(Answer::expired()),
        (_, EndReason::ApprovalRejected | EndReason::OperatorCancelled) => {
            let words = ended.seen.as_ref().and_then(|seen| seen.text("note"));
            Some(Answer::rejected(words.or(ended.note.as_deref())))
        }
        (Some(seen), _) if seen.refusal == Some(Refusal::Rejected) => {
            Some(Answer::rejected(seen.text("note")))
        }
        (Some(seen), _) if ended.changes => match (seen.kind, seen.failure) {
            (ObservationKind::ToolResult, _) => {
                Some(Answer::duplicate(ended.at, Some(&seen.value)))
            }
            // It ran; only what it gave could not be kept.
            (ObservationKind::ToolError, Some(Failure::InvalidContent)) => {
                Some(Answer::duplicate(ended.at, None))
            }
            (ObservationKind::ToolError, Some(Failure::Error)) if may_have_changed(seen) => {
                Some(Answer::duplicate(ended.at, Some(&seen.value)))
            }
            _ => None,
        },
        _ => None,
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
    if seen.value.get("reported").is_some() {
        return Answer::tool_failed(message);
    }
    match Needs::read(message) {
        Some(needs) => Answer::needs(needs),
        None if message == NO_SUCH_RESOURCE => Answer::missing(),
        None => Answer::tool_failed(message),
    }
}

/// A person, or a probe, found that it did not happen.
fn is_undone(seen: &Seen) -> bool {
    seen.failure == Some(Failure::DidNotHappen)
}

/// The end of a run whose call has no outcome.
fn ended_without(ended: &Ended) -> Option<Answer> {
    Some(match ended.reason {
        _ if is_never_known(ended) => Answer::never_known(),
        EndReason::ApprovalExpired => Answer::expired(),
        EndReason::ApprovalRejected | EndReason::OperatorCancelled => {
            Answer::rejected(ended.note.as_deref())
        }
        _ => Answer::unavailable(),
    })
}

fn denied(seen: &Seen) -> Answer {
    match seen.refusal {
        Some(Refusal::Rejected) => Answer::rejected(seen.text("note")),
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
    use portcullis_mcp::HostRefusal;

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
    fn what_a_server_would_have_to_ask_for_is_a_no_and_not_its_own_word() {
        let told = |more: &str| {
            let text = format!(
                r#"{{"message":"the server needs what no server is let ask a host for: sampling"{more}}}"#
            );
            let error =
                Seen { failure: Some(Failure::Error), ..seen(ObservationKind::ToolError, &text) };
            first(&ended(EndReason::GoalFailed, Some(error))).unwrap()
        };
        let no = told("");
        assert_eq!(no.word, Some(Word::Denied));
        let reply = no.reply();
        assert_eq!(reply.needs.map(|needs| needs.names()), Some("sampling".to_owned()));
        assert!(reply.failed && reply.text.contains("(sampling)"), "{}", reply.text);
        let missing = |more: &str| {
            let text = format!(r#"{{"message":"{NO_SUCH_RESOURCE}"{more}}}"#);
            let error =
                Seen { failure: Some(Failure::Error), ..seen(ObservationKind::ToolError, &text) };
            first(&ended(EndReason::GoalFailed, Some(error))).unwrap().given()
        };
        assert_eq!(missing(""), Err(HostRefusal::Unknown));
        assert!(matches!(missing(r#","reported":true"#), Err(HostRefusal::Told(_))));
        let said = told(r#","reported":true"#);
        assert_eq!((said.word, said.reply().needs), (None, None));
    }
}
