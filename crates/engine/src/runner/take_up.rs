//! Finding what can go on and nobody drives.

use std::sync::Arc;

use portcullis_domain::id::RunId;
use portcullis_domain::ports::{Pages, StoreError};
use portcullis_domain::question::QuestionStatus;
use portcullis_domain::run::RunStatus;

use super::line::Entry;
use super::{Inner, Job, TakenUp, Unserved};
use crate::error::GateError;
use crate::{operator, take};

/// How many runs one look takes up at most.
pub(super) const MAX_TAKEN_UP: usize = 10_000;

impl Inner {
    pub(super) async fn take_up(self: &Arc<Self>) -> Result<TakenUp, Unserved> {
        let (parts, scope) = (self.gate.parts(), &self.scope);
        let expired = operator::sweep_due(parts, scope).await?;
        let mut found = self.granted().await?;
        found.extend(self.left_behind().await?);
        found.extend(self.awaited().await?);
        let mut runs = 0_u64;
        for (owner, run) in found {
            self.enter(owner, Entry { job: Job::GoOn(run), tell: Vec::new() }).await?;
            runs = runs.saturating_add(1);
        }
        Ok(TakenUp { expired, runs })
    }

    /// Waiting runs whose question was granted, with their owners. One whose call may not start yet is left alone.
    async fn granted(&self) -> Result<Vec<(String, RunId)>, GateError> {
        let parts = self.gate.parts();
        let mut found = Vec::new();
        let mut pages = Pages::all();
        while let Some(page) = pages.next_page().filter(|_| found.len() < MAX_TAKEN_UP) {
            let status = Some(QuestionStatus::Granted);
            let questions = parts.store.questions(&self.scope, None, status, page).await?.rows;
            for question in questions.iter().flatten().filter(|question| self.is_new(question.run))
            {
                let run = question.run;
                let state = readable(run, parts.store.run(&self.scope, run).await)?.flatten();
                let Some(state) = state.filter(|state| state.run.status == RunStatus::Waiting)
                else {
                    continue;
                };
                match take::open_outcome(parts, &self.scope, &state).await {
                    Ok(None) => found.push((state.run.owner, run)),
                    Ok(Some(question)) => self.lock().refused.waits_for(run, question),
                    Err(error) => drop(readable::<()>(run, Err(error))?),
                }
            }
            pages.read(questions.len());
        }
        Ok(found)
    }

    /// Running runs that nobody holds, with their owners.
    async fn left_behind(&self) -> Result<Vec<(String, RunId)>, GateError> {
        let parts = self.gate.parts();
        let mut found = Vec::new();
        let mut pages = Pages::all();
        while let Some(page) = pages.next_page().filter(|_| found.len() < MAX_TAKEN_UP) {
            let status = Some(RunStatus::Running);
            let runs = parts.store.runs(&self.scope, status, page).await?.rows;
            let read = runs.len();
            for run in runs.into_iter().flatten().filter(|run| self.is_new(run.id)) {
                let term = readable(run.id, parts.store.lease(&self.scope, run.id).await)?;
                let Some(term) = term else { continue };
                let live = term.is_some_and(|term| term.until > parts.clock.now());
                let holder = run.holder.as_ref().filter(|_| live);
                if holder.is_none_or(|holder| parts.processes.is_dead(&holder.process)) {
                    found.push((run.owner, run.id));
                }
            }
            pages.read(read);
        }
        Ok(found)
    }

    /// Whether the run is neither at a place here nor in line, and may be tried.
    pub(super) fn is_new(&self, run: RunId) -> bool {
        let now = self.gate.parts().clock.monotonic();
        let state = self.lock();
        !state.driven.contains_key(&run)
            && !state.line.holds(run)
            && !state.refused.is_early(run, now)
    }
}

/// What was read of a run; nothing of one that cannot be read, which keeps no other from going on.
pub(super) fn readable<T>(
    run: RunId,
    read: Result<T, StoreError>,
) -> Result<Option<T>, StoreError> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(StoreError::Damaged { table }) => {
            tracing::warn!(%run, table, "a run cannot be read, and is not taken up");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
