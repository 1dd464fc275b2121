//! An agent that reads its proposals from a script: one JSON object a line.
//!
//! Request N is answered with proposal N, so that a run which is taken up again goes on where it stopped. A batch has as many
//! numbers as it has calls, unless the history shows that it was refused: then it has one.

use std::collections::BTreeSet;
use std::future;

use portcullis_canon::{Limits, Value, parse};
use portcullis_domain::ports::{Agent, AgentFailure, BoxFuture, View};
use portcullis_domain::proposal::{Ask, MAX_PROPOSAL_BYTES, Proposal};
use portcullis_domain::run::EndReason;

/// Why bytes are not a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScriptError {
    /// Nothing but blank lines.
    #[error("the script holds no proposal: write one JSON object a line")]
    Empty,
    /// A line over [`MAX_PROPOSAL_BYTES`].
    #[error(
        "line {line} of the script has {bytes} bytes, and a proposal may have {MAX_PROPOSAL_BYTES}"
    )]
    LineTooLong {
        /// Counted from one, blank lines included.
        line: usize,
        /// Without the line end.
        bytes: usize,
    },
}

/// Proposals in a row.
///
/// Blank lines do not count; there are no comments. A line that is not a strict JSON object is passed on as it is, so
/// that a script can also play an agent that talks nonsense; the gate records it and says why it is refused.
#[derive(Clone, Debug)]
pub struct Scripted {
    proposals: Vec<Line>,
    /// Whether any of them is a batch.
    batches: bool,
    /// The requests whose proposal was refused, as far as they were shown; only kept where there is a batch.
    refused: BTreeSet<u64>,
}

#[derive(Clone, Debug)]
struct Line {
    bytes: Vec<u8>,
    /// Where the request id goes; `None` when the line carries one, or is no object.
    gap: Option<Gap>,
    /// How many steps it comes to when it is taken: the calls of a batch, else one.
    steps: u64,
}

#[derive(Clone, Copy, Debug)]
struct Gap {
    /// Just behind the opening brace.
    at: usize,
    /// Whether a member follows.
    comma: bool,
}

impl Scripted {
    /// Reads a script.
    ///
    /// # Errors
    /// [`ScriptError`].
    pub fn read(bytes: &[u8]) -> Result<Self, ScriptError> {
        let mut proposals = Vec::new();
        for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
            let line = line.trim_ascii();
            if line.len() > MAX_PROPOSAL_BYTES {
                return Err(ScriptError::LineTooLong { line: index + 1, bytes: line.len() });
            }
            if !line.is_empty() {
                proposals.push(Line::of(line));
            }
        }
        if proposals.is_empty() {
            Err(ScriptError::Empty)
        } else {
            let batches = proposals.iter().any(|line| line.steps > 1);
            Ok(Self { proposals, batches, refused: BTreeSet::new() })
        }
    }

    /// How many proposals there are: never zero.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a script is never empty")]
    pub fn len(&self) -> usize {
        self.proposals.len()
    }

    fn reply(&self, request: u64) -> Result<Vec<u8>, AgentFailure> {
        let line = if self.batches {
            self.counted(request)
        } else {
            usize::try_from(request).ok().and_then(|index| self.proposals.get(index))
        };
        line.map(|line| line.with(request)).ok_or_else(|| AgentFailure {
            reason: EndReason::AgentExited,
            message: format!(
                "the script ends after {} proposals, before request {request}",
                self.len()
            ),
        })
    }
}

impl Scripted {
    /// The first line whose number is this one or more: the lines before it have theirs.
    fn counted(&self, request: u64) -> Option<&Line> {
        let mut number = 0_u64;
        self.proposals.iter().find(|line| {
            let own = number;
            let steps = if self.refused.contains(&own) { 1 } else { line.steps };
            number = number.saturating_add(steps);
            own >= request
        })
    }
}

impl Line {
    fn of(line: &[u8]) -> Self {
        let gap = gap(line);
        let request = if gap.is_some() { None } else { echoed(line) };
        let steps = match Proposal::read(line, request).map(|proposal| proposal.ask) {
            Ok(Ask::ToolCalls { calls }) => u64::try_from(calls.len()).unwrap_or(1),
            _ => 1,
        };
        Self { bytes: line.to_vec(), gap, steps }
    }

    fn with(&self, request: u64) -> Vec<u8> {
        let Some((gap, (head, tail))) =
            self.gap.and_then(|gap| Some((gap, self.bytes.split_at_checked(gap.at)?)))
        else {
            return self.bytes.clone();
        };
        let comma = if gap.comma { "," } else { "" };
        [head, format!("\"request\":{request}{comma}").as_bytes(), tail].concat()
    }
}

/// The request that a line names by itself.
fn echoed(line: &[u8]) -> Option<u64> {
    let limits = Limits::ENVELOPE.with_max_bytes(MAX_PROPOSAL_BYTES);
    parse(line, &limits).ok()?.get("request")?.as_u64()
}

/// The id is put into the text, so that everything else stays as it was written.
fn gap(line: &[u8]) -> Option<Gap> {
    let Ok(Value::Object(object)) =
        parse(line, &Limits::ENVELOPE.with_max_bytes(MAX_PROPOSAL_BYTES))
    else {
        return None;
    };
    (!object.contains_key("request")).then_some(Gap { at: 1, comma: !object.is_empty() })
}

impl Agent for Scripted {
    fn propose(&mut self, view: View) -> BoxFuture<'_, Result<Vec<u8>, AgentFailure>> {
        if self.batches {
            let refused = |outcome: &str| matches!(outcome, "denied" | "invalid_proposal");
            let seen = view.history.iter().filter(|step| refused(&step.outcome));
            self.refused.extend(seen.map(|step| step.request));
        }
        Box::pin(future::ready(self.reply(view.request)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

    use super::*;

    #[track_caller]
    fn check(script: &str, request: u64, expected: &str) {
        let reply = Scripted::read(script.as_bytes()).unwrap().reply(request).unwrap();
        assert_eq!(String::from_utf8(reply).unwrap(), expected);
    }

    #[test]
    fn the_request_goes_in_where_it_is_missing() {
        check(r#"{"kind":"fail"}"#, 0, r#"{"request":0,"kind":"fail"}"#);
        check("  { \"kind\" : 1e0 }\r\n", 0, "{\"request\":0, \"kind\" : 1e0 }");
        check("{}", 0, r#"{"request":0}"#);
        check("{ }", 0, r#"{"request":0 }"#);
        check(r#"{"kind":"fail","request":9}"#, 0, r#"{"kind":"fail","request":9}"#);
    }

    #[test]
    fn what_is_no_object_is_passed_on_as_it_is() {
        for nonsense in ["{", "[1]", "# a remark", "7", r#"{"a":1,"a":2}"#] {
            check(nonsense, 0, nonsense);
        }
    }

    #[test]
    fn request_n_is_answered_with_proposal_n() {
        let script = "\n{\"a\":0}\n\n\n{\"a\":1}\n   \n{\"a\":2}";
        check(script, 2, r#"{"request":2,"a":2}"#);
        check(script, 0, r#"{"request":0,"a":0}"#);
        let script = Scripted::read(script.as_bytes()).unwrap();
        assert_eq!(script.len(), 3);
        for request in [3, u64::MAX] {
            assert_eq!(script.reply(request).unwrap_err().reason, EndReason::AgentExited);
        }
    }

    #[test]
    fn a_batch_has_a_number_for_each_call_unless_it_was_refused() {
        let script = "{\"kind\":\"tool_calls\",\"calls\":[{\"tool\":\"t\"},{\"tool\":\"t\"},{\"tool\":\"t\"}]}\n{\"a\":1}\n{\"a\":2}";
        check(script, 3, r#"{"request":3,"a":1}"#);
        check(script, 4, r#"{"request":4,"a":2}"#);
        let mut refused = Scripted::read(script.as_bytes()).unwrap();
        refused.refused.insert(0);
        let reply = |request| String::from_utf8(refused.reply(request).unwrap()).unwrap();
        assert_eq!(reply(1), r#"{"request":1,"a":1}"#);
        assert_eq!(reply(2), r#"{"request":2,"a":2}"#);
        assert!(refused.reply(3).is_err());
    }

    #[test]
    fn a_script_without_proposals_or_with_a_long_line_is_refused() {
        assert_eq!(Scripted::read(b"").unwrap_err(), ScriptError::Empty);
        assert_eq!(Scripted::read(b" \n\r\n\t\n").unwrap_err(), ScriptError::Empty);
        let fits = "7".repeat(MAX_PROPOSAL_BYTES);
        assert_eq!(Scripted::read(fits.as_bytes()).unwrap().len(), 1);
        let bytes = MAX_PROPOSAL_BYTES + 1;
        let long = format!("{{}}\n{fits}7\n");
        assert_eq!(
            Scripted::read(long.as_bytes()).unwrap_err(),
            ScriptError::LineTooLong { line: 2, bytes }
        );
    }
}
