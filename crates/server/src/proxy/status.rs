//! The tool that tells a host what waits and what became of its last calls. It writes nothing.

use portcullis_canon::{Limits, Object, Value, parse, sanitize};
use portcullis_domain::id::ThreadId;
use portcullis_domain::ports::{MAX_PAGE, Page};
use portcullis_domain::refusal::Refusal;
use portcullis_domain::run::{Run, RunStatus};
use portcullis_engine::GateError;
use portcullis_mcp::ServedTool;

use super::answer::{Answer, Word, note};
use super::past::{Ended, Past};
use super::rules::{Came, came};
use super::{AGENT, Proxy, host_name};

/// How far it looks back, in microseconds: one hour.
const BACK_US: u64 = 3_600_000_000;

/// The most calls that are told.
const MAX_TOLD: usize = 50;

/// The most bytes of a call's arguments that are told.
const MAX_ARGUMENTS_BYTES: usize = 160;

/// How the tool is shown.
pub(super) fn tool(name: &str) -> ServedTool {
    let schema = br#"{"type":"object","properties":{},"additionalProperties":false}"#;
    ServedTool {
        name: name.to_owned(),
        description: "Tells which calls of this conversation wait for a person, and what became of those of the last hour. \
                      It changes nothing and approves nothing."
            .to_owned(),
        input_schema: parse(schema, &Limits::BARE).unwrap_or_default(),
        read_only: true,
        destructive: false,
    }
}

impl Proxy {
    /// Answers the tool.
    pub(super) async fn status(&self, thread: ThreadId, arguments: &Object) -> Answer {
        if !arguments.is_empty() {
            return Answer::invalid("this tool takes no arguments");
        }
        match self.told(thread).await {
            Ok(lines) if lines.is_empty() => Answer::of(
                Word::Status,
                "no call of this conversation waits, and none was made in the last hour.",
            ),
            Ok(lines) => Answer::of(Word::Status, &format!("newest first.\n{}", lines.join("\n"))),
            Err(error) => {
                self.notes.fault(&error);
                Answer::unavailable()
            }
        }
    }

    /// A line for each call of the thread that waits or was made in the last hour, of the newest runs of the store.
    async fn told(&self, thread: ThreadId) -> Result<Vec<String>, GateError> {
        let now = self.parts().clock.now();
        let page = Page { offset: 0, limit: MAX_PAGE };
        let rows = self.parts().store.runs(&self.scope, None, page).await?.rows;
        let recent = |run: &Run| {
            let ended = run.finished_at.is_none_or(|at| now.micros_since(at) <= BACK_US);
            run.thread == thread && run.agent == AGENT && ended
        };
        let mut lines = Vec::new();
        for run in rows.into_iter().flatten().filter(recent).take(MAX_TOLD) {
            let Some(past) = self.past(run.id).await? else { continue };
            lines.push(self.line(&past).await?);
        }
        Ok(lines)
    }

    async fn line(&self, past: &Past) -> Result<String, GateError> {
        let call = past.call.as_ref();
        let asked = self.value(call.and_then(|call| call.proposal)).await?;
        let tool = asked.get("tool").and_then(Value::as_str).map_or_else(String::new, host_name);
        let arguments = asked.get("arguments").map_or_else(String::new, Value::to_canonical_string);
        let arguments = sanitize::clip(&sanitize::line(&arguments), MAX_ARGUMENTS_BYTES);
        let stands = match self.ended(past).await? {
            Some(ended) => of_end(&ended),
            None if past.state.run.status == RunStatus::Waiting => of_wait(past),
            None => "is being made".to_owned(),
        };
        Ok(format!("- {tool} {arguments} ({}): {stands}", past.state.run.created_at))
    }
}

fn of_wait(past: &Past) -> String {
    use portcullis_domain::question::{QuestionKind, QuestionStatus};
    let question = past.state.question.as_ref();
    match question.map(|question| (question.kind, question.status)) {
        Some((_, QuestionStatus::Granted)) => {
            "is approved; make exactly the same call again to get its result"
        }
        Some((QuestionKind::UnknownOutcome, _)) => {
            "was cut off; a person has to say whether it happened"
        }
        _ => "waits for a person to approve it",
    }
    .to_owned()
}

fn of_end(ended: &Ended) -> String {
    let said = |what: &str, words: Option<&str>| match words {
        Some(words) => format!("{what}: {}", note(words)),
        None => what.to_owned(),
    };
    match came(ended) {
        Came::Gave(_) => "was made and succeeded".to_owned(),
        Came::Unkept(_) => "was made; what it gave could not be kept".to_owned(),
        Came::Reported(_) => {
            "was made, and its receiver says that it failed; what it changed before is not known"
                .to_owned()
        }
        Came::Failed(_) => "failed and changed nothing".to_owned(),
        Came::Undone => "did not happen".to_owned(),
        Came::NeverKnown => "was cut off, and nobody said whether it happened".to_owned(),
        Came::Expired => "was not approved in time".to_owned(),
        Came::Rejected(words) => said("was rejected by a person", words),
        Came::Stopped(words) => said("was stopped by a person", words),
        Came::Refused(seen) | Came::Invalid(seen) => {
            let refusal = seen.refusal.map_or("no reason is recorded", Refusal::as_str);
            format!("was not made ({refusal})")
        }
        Came::Nothing => "came to nothing".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use portcullis_domain::observation::{Failure, ObservationKind};
    use portcullis_domain::run::EndReason;
    use portcullis_domain::time::Timestamp;

    use super::super::past::Seen;
    use super::*;

    /// A change that was begun.
    fn begun(reason: EndReason, seen: Option<(ObservationKind, Option<Failure>, &str)>) -> Ended {
        let seen = seen.map(|(kind, failure, text)| {
            let value = parse(text.as_bytes(), &Limits::BARE).unwrap();
            Seen { kind, failure, refusal: None, value }
        });
        let at = Timestamp::from_micros(1_000_000);
        Ended { reason, at, changes: true, started: true, seen, note: Some("enough".to_owned()) }
    }

    #[test]
    fn what_is_told_of_an_end_is_what_is_known() {
        use EndReason::{ApprovalExpired, ApprovalRejected, GoalFailed, OperatorCancelled};
        use ObservationKind::ToolError;
        let cut = "was cut off, and nobody said whether it happened";
        let kept = Some((ToolError, Some(Failure::InvalidContent), "{}"));
        let said = Some((ToolError, Some(Failure::Error), r#"{"reported":true}"#));
        let failed = Some((ToolError, Some(Failure::Error), "{}"));
        let undone = Some((ToolError, Some(Failure::DidNotHappen), "{}"));
        for (reason, seen, told) in [
            (ApprovalExpired, None, cut),
            (OperatorCancelled, None, cut),
            (GoalFailed, kept, "was made; what it gave could not be kept"),
            (
                GoalFailed,
                said,
                "was made, and its receiver says that it failed; what it changed before is not known",
            ),
            (GoalFailed, failed, "failed and changed nothing"),
            (GoalFailed, undone, "did not happen"),
        ] {
            assert_eq!(of_end(&begun(reason, seen)), told, "{reason:?}");
        }
        for (reason, told) in [
            (ApprovalExpired, "was not approved in time"),
            (ApprovalRejected, "was rejected by a person: enough"),
            (OperatorCancelled, "was stopped by a person: enough"),
            (GoalFailed, "came to nothing"),
        ] {
            let never_begun = Ended { started: false, ..begun(reason, None) };
            assert_eq!(of_end(&never_begun), told, "{reason:?}");
        }
    }
}
