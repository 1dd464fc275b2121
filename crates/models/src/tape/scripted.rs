//! A model that answers what it was told to, and remembers what it was asked.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use portcullis_domain::ports::{
    BoxFuture, Model, ModelCall, ModelFault, ModelHandle, ModelName, ModelOutcome, Price,
};

use crate::reply::failure;

/// Outcomes in a row, for tests of hosts. After the last one it fails.
pub struct ScriptedModel {
    name: ModelName,
    nothing: BTreeSet<String>,
    outcomes: Mutex<VecDeque<ModelOutcome>>,
    asked: Mutex<Vec<ModelCall>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ScriptedModel {
    /// Answers with these, in order.
    #[must_use]
    pub fn new(name: ModelName, outcomes: impl IntoIterator<Item = ModelOutcome>) -> Self {
        let outcomes = Mutex::new(outcomes.into_iter().collect());
        Self { name, nothing: BTreeSet::new(), outcomes, asked: Mutex::default() }
    }

    /// What it was asked, in order.
    #[must_use]
    pub fn asked(&self) -> Vec<ModelCall> {
        lock(&self.asked).clone()
    }

    fn answer(&self, call: ModelCall) -> ModelOutcome {
        lock(&self.asked).push(call);
        lock(&self.outcomes).pop_front().unwrap_or_else(|| {
            let message = "the script of the model is at its end";
            ModelOutcome::Failed(failure(ModelFault::NotRecorded, message, None))
        })
    }
}

impl Model for ScriptedModel {
    fn name(&self) -> &ModelName {
        &self.name
    }

    fn price(&self) -> Price {
        Price::Free
    }

    fn marked_for(&self) -> &BTreeSet<String> {
        &self.nothing
    }

    fn attempt(&self, call: ModelCall) -> BoxFuture<'_, ModelOutcome> {
        Box::pin(async move { self.answer(call) })
    }
}

impl ModelHandle for ScriptedModel {
    fn call(&self, call: ModelCall) -> BoxFuture<'_, ModelOutcome> {
        Box::pin(async move { self.answer(call) })
    }
}
