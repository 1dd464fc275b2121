//! The port of the agent: it sees a view and answers with raw bytes.

use std::sync::Arc;

use portcullis_canon::Value;

use crate::label::Labels;
use crate::ports::{BoxFuture, ModelHandle};
use crate::run::EndReason;

/// One tool as the agent sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdvertisedTool {
    /// The name.
    pub name: String,
    /// The description.
    pub description: String,
    /// The schema of the arguments, without those that the operator fixed.
    pub input_schema: Value,
}

/// What came of an earlier step, as the agent sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenStep {
    /// The request that it answered.
    pub request: u64,
    /// The tool, if one was called.
    pub tool: Option<String>,
    /// The arguments as they were proposed, if they could be read.
    pub arguments: Option<Value>,
    /// The kind of observation, in its stable name.
    pub outcome: String,
    /// What came back.
    pub content: Value,
    /// True when the content comes from outside.
    pub external: bool,
}

/// What the agent is shown before it proposes: copies, and tools that are shared and do not change, so that nothing it
/// does changes what others see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// The id that the reply has to echo.
    pub request: u64,
    /// The task.
    pub goal: String,
    /// The tools that can be called.
    pub tools: Arc<[AdvertisedTool]>,
    /// Earlier steps, oldest first: after a start the last few, then only the last one.
    pub history: Vec<SeenStep>,
    /// How many earlier steps are not in `history`.
    pub omitted: u64,
    /// Labels of all that the run's conversation has read: whoever hands the view on hands these on too.
    pub labels: Labels,
    /// Steps that may still be opened, this one included.
    pub steps_left: u64,
}

/// How an agent failed, in the reason that ends the run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct AgentFailure {
    /// One of the `agent_…` reasons, [`EndReason::ModelUnavailable`], or what a handle stopped for.
    pub reason: EndReason,
    /// One sentence for the operator.
    pub message: String,
}

/// Proposes, one step at a time.
pub trait Agent: Send {
    /// The raw bytes of the next proposal.
    fn propose(&mut self, view: View) -> BoxFuture<'_, Result<Vec<u8>, AgentFailure>>;

    /// The same, with a handle on a model that is good for this proposal only: what is called through it is charged to
    /// this run and this step. An agent that needs no model does not implement it. When the handle stops for a limit, the
    /// run ends for that limit, whatever is proposed.
    fn propose_with<'a>(
        &'a mut self,
        view: View,
        model: &'a dyn ModelHandle,
    ) -> BoxFuture<'a, Result<Vec<u8>, AgentFailure>> {
        let _unused = model;
        self.propose(view)
    }
}
