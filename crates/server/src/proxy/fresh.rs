//! A new run of a request, and what keeps one from beginning.

use std::panic::{AssertUnwindSafe, catch_unwind};

use portcullis_domain::id::RunId;
use portcullis_domain::label::Labels;
use portcullis_domain::ports::{Pages, ProposedCall, StoreError};
use portcullis_domain::proposal::ProposalOrigin;
use portcullis_domain::row::Row as _;
use portcullis_domain::run::{Run, RunStatus};
use portcullis_domain::tool::ToolSpec;
use portcullis_domain::verdict::{Facts, Verdict};
use portcullis_engine::{Attached, GateError, Progress, Task};

use super::answer::Answer;
use super::drive::{end, is_others};
use super::rules::Next;
use super::{AGENT, Asked, Proxy};

impl Proxy {
    /// Begins the run of this number, unless something has to be decided first or nobody may be asked.
    pub(super) async fn fresh(&self, asked: &Asked<'_>, number: u64) -> Result<Next, GateError> {
        if self.is_closing() {
            return Ok(Next::Answer(Answer::unavailable()));
        }
        let spec = self.parts().tools.specs().find(|spec| spec.name == asked.tool);
        let spec = spec.ok_or_else(|| GateError::ToolMissing(asked.tool.clone()))?;
        if spec.effect.changes_something() {
            self.take_up_left(spec).await?;
            if self.is_blocked(spec).await? {
                return Ok(Next::Answer(Answer::blocked()));
            }
        }
        let asks = self.would_ask(asked, spec).await?;
        // Until the question is recorded: of calls side by side not all may find the same room.
        let _alone = if asks { Some(self.asking.lock().await) } else { None };
        if asks && self.is_full(asked).await? {
            return Ok(Next::Answer(Answer::full()));
        }
        let task = Task {
            goal: format!("call {}", asked.tool),
            owner: self.settings.owner.clone(),
            thread: Some(asked.thread),
            parent: None,
            limits: self.settings.limits(),
            agent: AGENT.to_owned(),
            unconfined_agent: false,
        };
        match self.gate.begin_as(&self.scope, asked.run(number), task).await {
            Ok(held) => self.conclude(asked, held, Progress::Open).await,
            // Somebody else began it, or opened the thread.
            Err(GateError::Store(StoreError::Stale)) => Ok(Next::Again),
            Err(error) => Err(error),
        }
    }

    /// Takes up what was left in the middle of a call of this tool, by a process that is gone or by this one when it could
    /// not record what came of it, so that there is a question about each before anything else is changed with it.
    async fn take_up_left(&self, spec: &ToolSpec) -> Result<(), GateError> {
        for run in self.runs(RunStatus::Running).await? {
            let ours = run.agent == AGENT && run.owner == self.settings.owner;
            if !ours || !self.is_left(run.id, spec).await? {
                continue;
            }
            match self.gate.attach(&self.scope, run.id).await {
                Ok(Attached::Waiting(_)) => self.tell_asked(run.id).await?,
                Ok(Attached::Held(held, progress)) => end(held, progress).await?,
                Ok(Attached::Ended(_) | Attached::Child(_)) => {}
                Err(error) if is_others(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whether a run has begun a call of this tool and no outcome of it is recorded.
    async fn is_left(&self, run: RunId, spec: &ToolSpec) -> Result<bool, GateError> {
        let state = self.state(run).await?;
        let step = state.as_ref().and_then(|state| state.step());
        Ok(step.is_some_and(|step| {
            let tool = step.admitted.as_ref().map(|admitted| admitted.tool.as_str());
            step.status.is_started() && tool == Some(spec.name.as_str())
        }))
    }

    /// Whether it waits for a person what an earlier call of this tool did. The store says so at the start of each call
    /// too; here nobody is asked to approve a call that could not be made.
    async fn is_blocked(&self, spec: &ToolSpec) -> Result<bool, GateError> {
        let open = self.parts().store.open_outcomes(&self.scope, &self.settings.owner).await?;
        let digest = spec.digest();
        Ok(open.iter().any(|open| open.call.tool == spec.name && open.call.spec == digest))
    }

    async fn is_full(&self, asked: &Asked<'_>) -> Result<bool, GateError> {
        let waiting = self.runs(RunStatus::Waiting).await?;
        let of_thread = waiting.iter().filter(|run| run.thread == asked.thread).count();
        Ok(u64::try_from(of_thread).unwrap_or(u64::MAX) >= self.settings.max_pending)
    }

    /// Whether the rules would ask a person about the call. What cannot be said is taken for a yes.
    async fn would_ask(&self, asked: &Asked<'_>, spec: &ToolSpec) -> Result<bool, GateError> {
        let thread = self.parts().store.thread(&self.scope, asked.thread).await?;
        let facts = Facts {
            tenant: self.scope.tenant().clone(),
            owner: self.settings.owner.clone(),
            origin: ProposalOrigin::Model,
            steps: 0,
            failures: 0,
            denials: 0,
            active_us: 0,
            labels: thread.as_ref().map_or_else(Labels::none, |thread| thread.labels.clone()),
            label_seq: thread.map_or(0, |thread| thread.label_seq),
        };
        let call = ProposedCall { tool: spec, arguments: &asked.arguments };
        let policy = &self.parts().policy;
        let judged = catch_unwind(AssertUnwindSafe(|| policy.decide(&call, &facts)));
        Ok(!matches!(
            judged,
            Ok(Ok(Verdict::Allow { .. } | Verdict::Deny { .. } | Verdict::Abort { .. }))
        ))
    }

    /// All runs of a status. One that cannot be read may be the one that matters.
    async fn runs(&self, status: RunStatus) -> Result<Vec<Run>, GateError> {
        let (mut runs, mut pages) = (Vec::new(), Pages::all());
        while let Some(page) = pages.next_page() {
            let rows = self.parts().store.runs(&self.scope, Some(status), page).await?.rows;
            pages.read(rows.len());
            let rows: Result<Vec<Run>, _> = rows.into_iter().collect();
            runs.extend(rows.map_err(|_| StoreError::Damaged { table: Run::TABLE })?);
        }
        Ok(runs)
    }
}
