//! An agent with a script that asks again for what did not come to pass, as a model does.

use portcullis_canon::{Limits, Value, parse};
use portcullis_domain::ports::{Agent, AgentFailure, BoxFuture, SeenStep, View};
use portcullis_domain::run::EndReason;

/// Proposes one line after another, and one again whose call was interrupted or, as people said, did not happen.
pub(super) struct Script {
    lines: Vec<String>,
    /// Steps that were asked for again.
    again: u64,
}

impl Script {
    pub(super) const fn new(lines: Vec<String>) -> Self {
        Self { lines, again: 0 }
    }

    fn reply(&mut self, view: &View) -> Result<Vec<u8>, AgentFailure> {
        let failed = |reason, message: &str| AgentFailure { reason, message: message.to_owned() };
        let again = view.history.iter().filter(|step| came_to_nothing(step)).count();
        self.again = self.again.saturating_add(u64::try_from(again).unwrap_or(u64::MAX));
        let place = usize::try_from(view.request.saturating_sub(self.again)).ok();
        let line = place
            .and_then(|place| self.lines.get(place))
            .ok_or_else(|| failed(EndReason::AgentExited, "the script has no further proposal"))?;
        // What is no object goes as it is: a script can also play an agent that talks nonsense.
        Ok(match parse(line.as_bytes(), &Limits::BARE) {
            Ok(Value::Object(mut object)) => {
                object.insert("request", view.request);
                Value::Object(object).to_canonical()
            }
            _ => line.clone().into_bytes(),
        })
    }
}

fn came_to_nothing(step: &SeenStep) -> bool {
    let failure = step.content.get("failure").and_then(Value::as_str);
    step.outcome == "interrupted"
        || (step.outcome == "tool_error" && failure == Some("did_not_happen"))
}

impl Agent for Script {
    fn propose(&mut self, view: View) -> BoxFuture<'_, Result<Vec<u8>, AgentFailure>> {
        let reply = self.reply(&view);
        Box::pin(std::future::ready(reply))
    }
}
