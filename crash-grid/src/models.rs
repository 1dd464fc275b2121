//! An agent that asks a model before each proposal, and a model that fails at every other attempt: what the budgets of a
//! story are about.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use portcullis::domain::budget::Caps;
use portcullis::domain::label::Labels;
use portcullis::domain::ports::{
    Agent, AgentFailure, BoxFuture, Model, ModelCall, ModelFailure, ModelFault, ModelHandle,
    ModelName, ModelOutcome, ModelReply, Price, Projection, Rates, Stop, Usage, View,
};
use portcullis::engine::{Engaged, Retry};

/// A model that replies to every second attempt.
struct Flaky {
    name: ModelName,
    marked_for: BTreeSet<String>,
    attempts: AtomicU64,
}

impl Model for Flaky {
    fn name(&self) -> &ModelName {
        &self.name
    }

    fn price(&self) -> Price {
        Price::Priced(Rates { input: 1_000_000, output: 4_000_000, ..Rates::default() })
    }

    fn marked_for(&self) -> &BTreeSet<String> {
        &self.marked_for
    }

    fn attempt(&self, _: ModelCall) -> BoxFuture<'_, ModelOutcome> {
        Box::pin(async move {
            if self.attempts.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) {
                return ModelOutcome::Failed(ModelFailure {
                    fault: ModelFault::Throttled,
                    message: "too many at once".to_owned(),
                    retry_after: None,
                    usage: None,
                    raw: None,
                });
            }
            let usage = Usage { input_tokens: 40, output_tokens: 9, ..Usage::default() };
            ModelOutcome::Reply(ModelReply {
                stop: Stop::EndTurn,
                text: "go on".to_owned(),
                uses: Vec::new(),
                verbatim: None,
                usage: Some(usage),
                raw: Arc::from([]),
            })
        })
    }
}

/// The model of a story, within a day's caps that no story reaches.
pub(crate) fn engaged() -> Engaged {
    let model = Flaky {
        name: ModelName::read("fake:flaky").unwrap(),
        marked_for: BTreeSet::new(),
        attempts: AtomicU64::new(0),
    };
    let retry = Retry { backoff: Duration::ZERO, ..Retry::default() };
    let day = Caps { calls: Some(1_000), ..Caps::default() };
    Engaged { model: Arc::new(model), day, retry }
}

/// An agent that asks the model first and proposes what the inner one does.
pub(crate) struct Asking(pub(crate) Box<dyn Agent>);

impl Agent for Asking {
    fn propose(&mut self, view: View) -> BoxFuture<'_, Result<Vec<u8>, AgentFailure>> {
        self.0.propose(view)
    }

    fn propose_with<'a>(
        &'a mut self,
        view: View,
        model: &'a dyn ModelHandle,
    ) -> BoxFuture<'a, Result<Vec<u8>, AgentFailure>> {
        Box::pin(async move {
            let call = ModelCall {
                request: view.request,
                body: Arc::from([]),
                projection: Projection::of(120, 20),
                labels: Labels::none(),
                watch: None,
            };
            let outcome = model.call(call).await;
            assert!(matches!(outcome, ModelOutcome::Reply(_)), "{outcome:?}");
            self.0.propose(view).await
        })
    }
}
