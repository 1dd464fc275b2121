//! The agent's view: what it may see, bounded. Its tools are shared and do not change, the rest are copies.

use std::sync::Arc;

use portcullis_canon::Value;
use portcullis_domain::ports::{MAX_PAGE, Page, SeenStep, View};
use portcullis_domain::proposal::MAX_BATCH;
use portcullis_domain::scope::Scope;
use portcullis_domain::step::Step;

use crate::core::{Core, content_value};
use crate::error::GateError;
use crate::parts::Parts;

/// How many earlier steps an agent sees after it was started.
const HISTORY: u64 = 32;

/// How many bytes of proposals and results they may have together, looked at before they are read.
const HISTORY_BYTES: u64 = 4 * 1024 * 1024;

impl Core {
    /// The view for the open step. `fresh` asks for the last few steps instead of only the last one.
    pub(crate) async fn view(&mut self, fresh: bool) -> Result<View, GateError> {
        let request = self.open_step().map_or(self.state.run.step_count, |step| step.index);
        // Handed out once; whoever looks again is shown what is recorded.
        let mut history = std::mem::take(&mut self.last);
        if fresh || history.last().is_none_or(|last| last.request.saturating_add(1) != request) {
            history.clear();
        }
        let (parts, scope, run) = (&self.parts, &self.scope, &self.state.run);
        let shown = match (fresh, history.is_empty()) {
            (true, _) => HISTORY,
            (false, true) => u64::from(MAX_BATCH),
            (false, false) => 0,
        };
        let first = request.saturating_sub(shown);
        let limit = u32::try_from(request.saturating_sub(first)).unwrap_or(MAX_PAGE);
        if limit > 0 {
            let page = Page { offset: first, limit };
            let rows = parts.store.steps(scope, self.run_id(), page).await?;
            let mut steps: Vec<Step> =
                rows.rows.into_iter().flatten().filter(|step| step.index < request).collect();
            // Without a start only the last step, or the whole of the last batch.
            let answered = steps.last().map(Step::request);
            steps.retain(|step| fresh || Some(step.request()) == answered);
            for step in within_budget(steps) {
                history.push(seen(parts, scope, &step).await?);
            }
        }
        Ok(View {
            request,
            goal: self.goal.clone(),
            tools: Arc::clone(&self.advertised),
            omitted: request.saturating_sub(u64::try_from(history.len()).unwrap_or(0)),
            history,
            labels: self.thread.labels.clone(),
            steps_left: run.limits.max_steps.saturating_sub(request),
        })
    }
}

/// The latest steps whose texts fit together, oldest first; the very last one always.
fn within_budget(steps: Vec<Step>) -> Vec<Step> {
    let bytes = |step: &Step| {
        let observed = step.observation.as_ref().and_then(|observation| observation.content);
        observed.iter().chain(&step.proposal).map(|content| content.size).sum::<u64>()
    };
    let mut left = HISTORY_BYTES;
    let mut kept: Vec<Step> = Vec::new();
    for step in steps.into_iter().rev() {
        let fits = left.checked_sub(bytes(&step));
        if fits.is_none() && !kept.is_empty() {
            break;
        }
        left = fits.unwrap_or(0);
        kept.push(step);
    }
    kept.reverse();
    kept
}

/// What of a proposal is the step's own: one of several calls, or the whole. Nothing of several that were refused.
fn asked_of<'a>(proposal: &'a Value, step: &Step) -> Option<&'a Value> {
    match proposal.get("calls").and_then(Value::as_array) {
        None => Some(proposal),
        Some([only]) => Some(only),
        Some(_) if step.batch == 1 => None,
        Some(calls) => calls.get(usize::try_from(step.batch_index).ok()?),
    }
}

async fn seen(parts: &Parts, scope: &Scope, step: &Step) -> Result<SeenStep, GateError> {
    let content = match step.observation.as_ref().and_then(|observation| observation.content) {
        Some(reference) => content_value(parts, scope, reference.digest).await?,
        None => None,
    };
    let proposal = match step.proposal {
        Some(reference) => content_value(parts, scope, reference.digest).await?,
        None => None,
    };
    let asked = proposal.as_ref().and_then(|proposal| asked_of(proposal, step));
    let tool = step.admitted.as_ref().map(|admitted| admitted.tool.clone());
    Ok(SeenStep {
        request: step.index,
        tool: tool.filter(|_| proposal.is_none() || asked.is_some()),
        arguments: asked.and_then(|asked| asked.get("arguments")).cloned(),
        outcome: step
            .observation
            .as_ref()
            .map_or(step.status.as_str(), |o| o.kind.as_str())
            .to_owned(),
        content: content.unwrap_or(Value::Null),
        external: step.observation.as_ref().is_some_and(|o| o.labels.is_external()),
    })
}
