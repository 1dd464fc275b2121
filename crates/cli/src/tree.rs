//! A run and those that it starts, driven one after the other in this process, each with an agent of its own.

use std::path::Path;
use std::sync::Arc;

use portcullis_domain::budget::BudgetScope;
use portcullis_domain::fold::RunState;
use portcullis_domain::id::RunId;
use portcullis_domain::ports::{MAX_PAGE, Page, StoreError};
use portcullis_domain::run::Run;
use portcullis_domain::scope::Scope;
use portcullis_domain::step::Step;
use portcullis_engine::{Attached, Driven, Gate, HeldRun, next_of_tree, spend};

use crate::agent::{AgentChoice, Prepared, Started};
use crate::args::Globals;
use crate::assemble::Database;
use crate::config::Config;
use crate::drive::{self, Rest};
use crate::failure::Failure;
use crate::launch::Launch;
use crate::model;
use crate::progress::{MAX_STEPS, Progress};
use crate::signals::Signals;
use crate::start;

/// What a tree is driven with.
pub(crate) struct Tree<'a> {
    pub(crate) gate: &'a Gate,
    pub(crate) database: &'a dyn Database,
    pub(crate) agent: &'a AgentChoice,
    /// The model that all of its agents ask, when they ask one.
    pub(crate) model: Option<model::Ready>,
    pub(crate) files: Option<&'a Path>,
    pub(crate) config: &'a Config,
    pub(crate) globals: &'a Globals,
    /// Where progress is told, if it is.
    pub(crate) told: Option<&'a Arc<Progress>>,
}

impl<'a> Tree<'a> {
    /// The tree of a run that was just begun.
    pub(crate) fn of(
        gate: &'a Gate,
        database: &'a dyn Database,
        launch: &'a Launch,
        model: Option<model::Ready>,
        config: &'a Config,
        globals: &'a Globals,
        told: Option<&'a Arc<Progress>>,
    ) -> Self {
        let (agent, files) = (&launch.agent, launch.files.as_deref());
        Self { gate, database, agent, model, files, config, globals, told }
    }

    /// Goes on from where a run rests: with the run for which it waits, or with the one that waits for it, up to `top`.
    pub(crate) async fn follow(
        &self,
        top: RunId,
        rest: Rest,
        signals: &mut Signals,
    ) -> Result<Rest, Failure> {
        let Rest { mut run, mut driven } = rest;
        loop {
            let child = match driven {
                Driven::Child(child) => Some(child),
                Driven::Ended(_) => None,
                Driven::Waiting(_) | Driven::Stopped => return Ok(Rest { run, driven }),
            };
            let state = self.database.run(&Scope::of_file_owner(), run).await?;
            let state = state.ok_or(StoreError::NotFound("run"))?;
            let Some(next) = next_of_tree(top, &state.run, child) else {
                return Ok(Rest { run, driven });
            };
            if child.is_some() {
                self.remember(next)?;
            }
            self.tell_of(next, child.is_none()).await?;
            run = next;
            let start = || self.prepare().and_then(Prepared::start);
            let on = self.go_on(run, start, signals).await;
            driven = on.map_err(|failure| failure.about(self.globals, run))?;
        }
    }

    /// Remembers for a child how its tree was started, so that it can be answered for and taken up by itself.
    fn remember(&self, child: RunId) -> Result<(), Failure> {
        let launch = Launch {
            agent: self.agent.clone(),
            files: self.files.map(Path::to_owned),
            config: self.config.path.clone(),
        };
        launch.keep(&self.globals.place.launches(), child)
    }

    /// Lets the progress know the run that is driven from here on; `goes_up` when it waited for the one before.
    async fn tell_of(&self, run: RunId, goes_up: bool) -> Result<(), Failure> {
        let Some(progress) = self.told else { return Ok(()) };
        let scope = Scope::of_file_owner();
        // One that is not there yet tells its own beginning.
        let Some(state) = self.database.run(&scope, run).await? else { return Ok(()) };
        if goes_up {
            recall(progress, self.database, &scope, &state).await?;
            progress.say(&format!("{run} goes on"));
        } else {
            // What its models cost is counted in the run above it already.
            progress.goes_on(&last_steps(self.database, &scope, &state.run).await?, state.question);
        }
        Ok(())
    }

    /// Takes one run up, if anybody can, and drives it with the agent that `start` gives.
    pub(crate) async fn go_on(
        &self,
        run: RunId,
        start: impl FnOnce() -> Result<Started, Failure>,
        signals: &mut Signals,
    ) -> Result<Driven, Failure> {
        match self.gate.attach(&Scope::of_file_owner(), run).await? {
            Attached::Waiting(question) => Ok(Driven::Waiting(question)),
            Attached::Child(child) => Ok(Driven::Child(child)),
            Attached::Ended(reason) => Ok(Driven::Ended(reason)),
            Attached::Held(held, _) => match start() {
                Ok(started) => {
                    let progress = self.told.map(Arc::as_ref);
                    let driven = drive::to_rest(held, started, signals, progress).await;
                    driven.map_err(|failure| failure.about(self.globals, run))
                }
                Err(failure) => give_back(held, failure).await,
            },
        }
    }

    /// An agent of its own for one run of the tree.
    fn prepare(&self) -> Result<Prepared, Failure> {
        let (agent, reads) = (self.agent, self.gate.parts().tools.read_only());
        start::prepare(
            agent,
            self.model.clone(),
            self.globals,
            self.config,
            self.files,
            reads,
            self.told,
        )
    }
}

/// Tells the progress of what was before: the last steps, the question that is open, what models cost.
pub(crate) async fn recall(
    progress: &Progress,
    store: &dyn Database,
    scope: &Scope,
    state: &RunState,
) -> Result<(), Failure> {
    let steps = last_steps(store, scope, &state.run).await?;
    progress.goes_on(&steps, state.question.clone());
    let of = BudgetScope::Run { run: state.run.id };
    if let Some(spend) = spend::spend(store, scope, &of).await? {
        progress.spent_before(spend.budget.spent.plus(spend.budget.excess));
    }
    Ok(())
}

/// The steps that what happens next may speak of.
async fn last_steps(store: &dyn Database, scope: &Scope, run: &Run) -> Result<Vec<Step>, Failure> {
    let kept = u64::try_from(MAX_STEPS).unwrap_or(u64::MAX);
    let page = Page { offset: run.step_count.saturating_sub(kept), limit: MAX_PAGE };
    Ok(store.steps(scope, run.id, page).await?.rows.into_iter().flatten().collect())
}

/// Lets a run go whose agent cannot be started.
async fn give_back(held: HeldRun, failure: Failure) -> Result<Driven, Failure> {
    held.close().await?;
    Err(failure)
}
