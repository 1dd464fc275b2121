//! What `run` and `resume` share: their flags, and the checks before anything is driven.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use portcullis_domain::ports::Observer;
use portcullis_domain::run::Run;
use portcullis_store::sqlite::open::OpenMode;

use crate::agent::{AgentChoice, Started};
use crate::args::Globals;
use crate::assemble::{self, Gatehouse};
use crate::config::Config;
use crate::failure::{Code, Failure};
use crate::heads::Heads;
use crate::progress::Progress;

/// Flags about the agent and what it governs.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Flags {
    /// The agent: `scripted:FILE` (one proposal a line) or `exec:COMMAND`
    #[arg(long, value_name = "AGENT")]
    pub(crate) agent: Option<String>,
    /// The folder whose files the agent may ask to read and change
    #[arg(long, value_name = "DIR")]
    pub(crate) files: Option<PathBuf>,
    /// Run the agent's program without confinement; the record shows it
    #[arg(long)]
    pub(crate) unconfined_agent: bool,
    /// Let the agent's program use the network
    #[arg(long)]
    pub(crate) agent_network: bool,
    /// Hand a variable of your environment to the agent's program (can be repeated)
    #[arg(long, value_name = "NAME")]
    pub(crate) agent_env: Vec<String>,
    /// Let the agent's program read a file or folder beside its own (can be repeated)
    #[arg(long, value_name = "PATH")]
    pub(crate) agent_reads: Vec<PathBuf>,
    /// Say nothing while it runs
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

impl Flags {
    /// The agent that these flags name; else `usual`, with what the flags add.
    pub(crate) fn agent(&self, usual: Option<AgentChoice>) -> Result<Option<AgentChoice>, Failure> {
        if let Some(name) = self.agent_env.iter().find(|name| name.is_empty() || name.contains('='))
        {
            return Err(Failure::usage(format!("`{name}` is not the name of a variable")));
        }
        let here =
            std::env::current_dir().map_err(|error| Failure::io("find", Path::new("."), &error))?;
        let chosen = match &self.agent {
            Some(text) => Some(AgentChoice::new(text, &here).map_err(|error| {
                Failure::usage(error.to_string())
                    .hint("for instance --agent exec:\"python3 agent.py\"")
            })?),
            None => usual,
        };
        Ok(chosen.map(|mut agent| {
            agent.unconfined |= self.unconfined_agent;
            agent.network |= self.agent_network;
            agent.env.extend(self.agent_env.iter().cloned());
            agent.reads.extend(self.agent_reads.iter().map(|path| here.join(path)));
            agent
        }))
    }

    /// The folder that these flags name, absolute; else `usual`.
    pub(crate) fn files(&self, usual: Option<PathBuf>) -> Result<Option<PathBuf>, Failure> {
        match &self.files {
            None => Ok(usual),
            Some(root) => std::path::absolute(root)
                .map(Some)
                .map_err(|error| Failure::io("find", root, &error)),
        }
    }
}

/// Everything that is open before a run is begun or taken up.
pub(crate) struct Ready {
    /// The gate's parts.
    pub(crate) gatehouse: Gatehouse,
    /// Where heads are kept, if they are.
    pub(crate) heads: Option<Heads>,
    /// Where progress is told, if it is.
    pub(crate) progress: Option<Arc<Progress>>,
}

/// Opens all that a run needs, and compares the database with the head that was kept of it.
pub(crate) fn open(
    globals: &Globals,
    mode: OpenMode,
    config: &Config,
    files: Option<&Path>,
    quiet: bool,
) -> Result<Ready, Failure> {
    let progress = (!quiet && !globals.json).then(Progress::start);
    let observers = progress.iter().map(|p| Arc::clone(p) as Arc<dyn Observer>).collect();
    let heads = config.head.as_deref().map(|file| Heads::open(file, &globals.place)).transpose()?;
    let gatehouse = assemble::gatehouse(globals, mode, config, files, observers)?;
    if let Some(heads) = &heads {
        heads.compare(gatehouse.database.as_ref())?;
    }
    if let Some(progress) = &progress {
        gatehouse.remarks.iter().for_each(|remark| progress.say(&format!("note: {remark}")));
    }
    Ok(Ready { gatehouse, heads, progress })
}

/// Refuses what would make a record untrue: an agent without confinement in a run that says it has one.
pub(crate) fn fits_the_record(agent: &AgentChoice, run: &Run) -> Result<(), Failure> {
    if agent.is_unconfined() && !run.unconfined_agent {
        let sentence = "this run was begun with a confined agent, and its record says so";
        return Err(Failure::new(Code::State, sentence)
            .hint("resume it without `--unconfined-agent`, or begin another run"));
    }
    Ok(())
}

/// Says what is enforced on the agent, where that is less than everything.
pub(crate) fn tell_confinement(
    started: &Started,
    agent: &AgentChoice,
    progress: Option<&Progress>,
) {
    let (Some(progress), Some(confinement)) = (progress, started.confinement) else { return };
    if agent.unconfined {
        progress
            .say("note: the agent runs without confinement; it can reach keys, state and files");
    } else if !confinement.signals_scoped {
        progress.say(
            "note: this kernel does not keep the agent's signals from reaching other processes",
        );
    }
}
