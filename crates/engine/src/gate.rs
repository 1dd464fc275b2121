//! The gate: the only passage from a proposal to an effect.

use portcullis_domain::id::{QuestionId, RunId, ThreadId};
use portcullis_domain::run::EndReason;
use portcullis_domain::scope::Scope;

use crate::core::Progress;
use crate::error::GateError;
use crate::held::HeldRun;
use crate::parts::Parts;
use crate::take::{self, Taken, Task};

/// The gate over one store, one policy and one set of tools.
#[derive(Clone)]
pub struct Gate {
    parts: Parts,
}

/// What an attempt to go on with a run found.
pub enum Attached {
    /// The lease is held here, and this can be done now.
    Held(HeldRun, Progress),
    /// A person has to answer first. Nothing was written.
    Waiting(QuestionId),
    /// It waits for this run, which it started: drive that one first.
    Child(RunId),
    /// The run has ended.
    Ended(EndReason),
}

impl Gate {
    /// A gate over these parts.
    #[must_use]
    pub const fn new(parts: Parts) -> Self {
        Self { parts }
    }

    /// The parts, for whoever answers questions beside the gate.
    #[must_use]
    pub const fn parts(&self) -> &Parts {
        &self.parts
    }

    /// Creates a run, takes its lease and opens its first step, in one synced append.
    ///
    /// # Errors
    /// [`GateError::Limits`] for a limit that no run can have, or what the store says.
    pub async fn begin(&self, scope: &Scope, task: Task) -> Result<HeldRun, GateError> {
        let (parts, scope) = (self.parts.clone(), scope.clone());
        crate::owned::run(&self.parts.spawn, async move {
            Ok(HeldRun::new(Box::new(take::begin(&parts, &scope, task).await?)))
        })
        .await
    }

    /// Creates the run that has this id, as [`Gate::begin`] does; the task's thread is opened where there is none yet. Of
    /// several that begin it at once, one does. This append is written, and synced by the next one that is: a run that
    /// nothing was done in may be lost with the power, and whoever has its id begins it again.
    ///
    /// # Errors
    /// [`portcullis_domain::ports::StoreError::Stale`] when somebody else began the run, or opened the thread, first: look
    /// again. Else as [`Gate::begin`].
    pub async fn begin_as(
        &self,
        scope: &Scope,
        run: RunId,
        task: Task,
    ) -> Result<HeldRun, GateError> {
        let (parts, scope) = (self.parts.clone(), scope.clone());
        crate::owned::run(&self.parts.spawn, async move {
            Ok(HeldRun::new(Box::new(take::begin_as(&parts, &scope, run, task).await?)))
        })
        .await
    }

    /// The same on this thread, which is opened when it is not there: for conversations that a host names.
    ///
    /// # Errors
    /// As [`Gate::begin`]; [`portcullis_domain::ports::StoreError::NotAdmitted`] when the thread is another owner's.
    pub async fn begin_on(
        &self,
        scope: &Scope,
        thread: ThreadId,
        task: Task,
    ) -> Result<HeldRun, GateError> {
        let (parts, scope) = (self.parts.clone(), scope.clone());
        crate::owned::run(&self.parts.spawn, async move {
            Ok(HeldRun::new(Box::new(take::begin_on(&parts, &scope, thread, task).await?)))
        })
        .await
    }

    /// Goes on with a run where another process stopped.
    ///
    /// A granted step is judged again with today's rules and tools. A step whose outcome is not known is resolved by what
    /// its tool declares or the host finds, or becomes a question; one whose tool only reads is interrupted.
    ///
    /// # Errors
    /// [`portcullis_domain::ports::StoreError::Leased`] while another driver holds it,
    /// [`GateError::ToolMissing`] and [`GateError::Approval`] without a change, or what the store says.
    pub async fn attach(&self, scope: &Scope, run: RunId) -> Result<Attached, GateError> {
        let (parts, scope) = (self.parts.clone(), scope.clone());
        crate::owned::run(&self.parts.spawn, async move {
            Ok(match take::attach(&parts, &scope, run).await? {
                Taken::Waiting(question) => Attached::Waiting(question),
                Taken::Child(child) => Attached::Child(child),
                Taken::Ended(reason) => Attached::Ended(reason),
                Taken::Held(core, progress) => match progress {
                    Progress::Waiting(question) => Attached::Waiting(question),
                    Progress::Child(child) => Attached::Child(child),
                    Progress::Ended(reason) => Attached::Ended(reason),
                    progress => Attached::Held(HeldRun::new(core), progress),
                },
            })
        })
        .await
    }
}
