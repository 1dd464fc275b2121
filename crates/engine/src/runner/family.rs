//! Runs that wait for runs that they started: each is driven at a place of its own, one after the other.

use std::sync::Arc;

use portcullis_domain::id::RunId;
use portcullis_domain::ports::{Pages, StoreError};
use portcullis_domain::run::{Run, RunStatus};
use portcullis_domain::wait::Wait;

use super::line::{Entry, Lane};
use super::take_up::{MAX_TAKEN_UP, readable};
use super::{Inner, Job, Outcome, Rest};
use crate::driver::Driven;
use crate::error::GateError;

impl Inner {
    /// The run that goes on because this one rests: its child, or the parent that waits for it. What cannot be read now is
    /// found by the next look.
    pub(super) async fn next_of(&self, outcome: &Outcome) -> Option<RunId> {
        match outcome {
            Ok(Rest { driven: Driven::Child(child), .. }) => Some(*child),
            Ok(Rest { run, driven: Driven::Ended(_) }) => self.parent_of(*run).await.ok().flatten(),
            _ => None,
        }
    }

    async fn parent_of(&self, run: RunId) -> Result<Option<RunId>, StoreError> {
        let store = &self.gate.parts().store;
        let state = store.run(&self.scope, run).await?;
        let Some(parent) = state.and_then(|state| state.run.parent) else { return Ok(None) };
        let parent = store.run(&self.scope, parent).await?;
        let waits = parent.filter(|parent| parent.child().is_some_and(|(_, child)| child == run));
        Ok(waits.map(|parent| parent.run.id))
    }

    /// Puts a run in line, whether there is room or not: the record has it anyway.
    pub(super) fn go_on_with(self: &Arc<Self>, run: Option<RunId>) {
        let Some(run) = run else { return };
        let state = self.lock();
        if state.stopping {
            return;
        }
        let entry = Entry { job: Job::GoOn(run), tell: Vec::new() };
        if self.put(state, Lane::Answered, entry).is_err() {
            tracing::warn!(%run, "a run of a tree has to wait for the next look");
        }
    }

    /// Runs that wait for a run that has ended, or that was never begun, with their owners.
    pub(super) async fn awaited(&self) -> Result<Vec<(String, RunId)>, GateError> {
        let parts = self.gate.parts();
        let mut found = Vec::new();
        let mut pages = Pages::all();
        while let Some(page) = pages.next_page().filter(|_| found.len() < MAX_TAKEN_UP) {
            let status = Some(RunStatus::Waiting);
            let runs = parts.store.runs(&self.scope, status, page).await?.rows;
            pages.read(runs.len());
            let waits = |run: &Run| run.waits == Some(Wait::Child) && self.is_new(run.id);
            for run in runs.into_iter().flatten().filter(waits) {
                let state = readable(run.id, parts.store.run(&self.scope, run.id).await)?.flatten();
                let child = state.and_then(|state| state.child().map(|(_, child)| child));
                let Some(child) = child else { continue };
                let child = readable(child, parts.store.run(&self.scope, child).await)?;
                let over = |child: Option<portcullis_domain::fold::RunState>| {
                    child.is_none_or(|child| child.run.status.is_terminal())
                };
                if child.is_some_and(over) {
                    found.push((run.owner, run.id));
                }
            }
        }
        Ok(found)
    }
}
