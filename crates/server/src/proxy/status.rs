//! The tool that tells a host what waits and what became of its last calls. It writes nothing.

use portcullis_canon::{Limits, Object, Value, parse, sanitize};
use portcullis_domain::id::ThreadId;
use portcullis_domain::ports::{MAX_PAGE, Page};
use portcullis_domain::run::{EndReason, Run, RunStatus};
use portcullis_engine::GateError;
use portcullis_mcp::ServedTool;

use super::answer::{Answer, Word, note};
use super::past::{Ended, Past};
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
    let words = ended.seen.as_ref().and_then(|seen| seen.text("note")).or(ended.note.as_deref());
    let said = |what: &str| match words {
        Some(words) => format!("{what}: {}", note(words)),
        None => what.to_owned(),
    };
    match ended.reason {
        EndReason::GoalCompleted => "was made and succeeded".to_owned(),
        EndReason::ApprovalRejected => said("was rejected by a person"),
        EndReason::ApprovalExpired => "was not approved in time".to_owned(),
        EndReason::OperatorCancelled => said("was stopped by a person"),
        _ => {
            let refusal = ended.seen.as_ref().and_then(|seen| seen.refusal);
            match refusal {
                Some(refusal) => format!("was not made ({})", refusal.as_str()),
                None => "failed".to_owned(),
            }
        }
    }
}
