//! A run and those that it starts, driven one after the other in this process, each with an agent of its own.

use std::path::Path;
use std::sync::Arc;

use portcullis_domain::id::RunId;
use portcullis_domain::limits::Limits;
use portcullis_domain::ports::StoreError;
use portcullis_domain::scope::Scope;
use portcullis_engine::{Attached, Driven, Gate, HeldRun, next_of_tree};

use crate::agent::{AgentChoice, Prepared};
use crate::args::Globals;
use crate::assemble::Database;
use crate::config::Config;
use crate::drive::{self, Rest};
use crate::failure::Failure;
use crate::launch::Launch;
use crate::progress::Progress;
use crate::signals::Signals;
use crate::start;

/// What a tree is driven with.
pub(crate) struct Tree<'a> {
    pub(crate) gate: &'a Gate,
    pub(crate) database: &'a dyn Database,
    pub(crate) agent: &'a AgentChoice,
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
        config: &'a Config,
        globals: &'a Globals,
        told: Option<&'a Arc<Progress>>,
    ) -> Self {
        let (agent, files) = (&launch.agent, launch.files.as_deref());
        Self { gate, database, agent, files, config, globals, told }
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
            run = next;
            driven = self.go_on(run, signals).await.map_err(|f| f.about(self.globals, run))?;
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

    async fn go_on(&self, run: RunId, signals: &mut Signals) -> Result<Driven, Failure> {
        match self.gate.attach(&Scope::of_file_owner(), run).await? {
            Attached::Waiting(question) => Ok(Driven::Waiting(question)),
            Attached::Child(child) => Ok(Driven::Child(child)),
            Attached::Ended(reason) => Ok(Driven::Ended(reason)),
            Attached::Held(held, _) => match self.prepare().and_then(Prepared::start) {
                Ok(started) => {
                    let progress = self.told.map(Arc::as_ref);
                    drive::to_rest(held, started, signals, progress).await
                }
                Err(failure) => give_back(held, failure).await,
            },
        }
    }

    /// An agent of its own for one run of the tree.
    fn prepare(&self) -> Result<Prepared, Failure> {
        let model = start::model(self.agent, self.globals, self.config, &Limits::default())?;
        let (agent, reads) = (self.agent, self.gate.parts().tools.read_only());
        start::prepare(agent, model, self.globals, self.config, self.files, reads, self.told)
    }
}

/// Lets a run go whose agent cannot be started.
async fn give_back(held: HeldRun, failure: Failure) -> Result<Driven, Failure> {
    held.close().await?;
    Err(failure)
}
