//! What `run` and `resume` share: their flags, and the checks before anything is driven.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use portcullis_domain::limits::Limits;
use portcullis_domain::ports::Observer;
use portcullis_domain::run::Run;
use portcullis_domain::scope::Scope;
use portcullis_engine::{Driven, operator};
use portcullis_store::sqlite::open::OpenMode;

use crate::agent::{AgentChoice, ChoiceError, Prepared, Started};
use crate::args::{self, Globals};
use crate::assemble::{self, Gatehouse};
use crate::commands::decide;
use crate::config::Config;
use crate::failure::{Code, Failure};
use crate::heads::Heads;
use crate::model;
use crate::people;
use crate::progress::Progress;

/// Flags about the agent and what it governs.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Flags {
    /// The agent: `scripted:FILE` (one proposal a line), `exec:COMMAND`, or `model:MODEL`
    #[arg(long, value_name = "AGENT", conflicts_with = "model")]
    pub(crate) agent: Option<String>,
    /// The model that is asked what to do: `PROVIDER:NAME`, or `replay:DIR` for a recording
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// Record what the model is asked and says into a folder, for `--model replay:DIR`
    #[arg(long, value_name = "DIR")]
    pub(crate) record: Option<PathBuf>,
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
    /// Say yes by yourself to questions about calls of this class, signed with your key; nothing else than reading can be
    /// named
    #[arg(long, value_name = "CLASS")]
    pub(crate) yes_to: Option<YesTo>,
    /// Say nothing while it runs
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

/// The calls that an operator can say yes to before they are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum YesTo {
    /// Those that only read.
    #[value(name = "read_only")]
    ReadOnly,
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
        let named = self.model.as_ref().map(|model| format!("model:{model}"));
        let named = named.or_else(|| self.agent.clone());
        let chosen = match &named {
            // Named again as it is known: relative to where it was named first.
            Some(text) if usual.as_ref().is_some_and(|usual| usual.text == *text) => usual,
            Some(text) => Some(AgentChoice::new(text, &here).map_err(|error| {
                Failure::usage(error.to_string()).hint(match error {
                    ChoiceError::Model => "for instance --model openai:gpt-5",
                    _ => "for instance --agent exec:\"python3 agent.py\"",
                })
            })?),
            None => usual,
        };
        let recorded = self.record.as_ref().map(|folder| here.join(folder));
        let chosen = self.recorded(chosen, recorded)?;
        Ok(chosen.map(|mut agent| {
            agent.unconfined |= self.unconfined_agent;
            agent.network |= self.agent_network;
            agent.env.extend(self.agent_env.iter().cloned());
            agent.reads.extend(self.agent_reads.iter().map(|path| here.join(path)));
            agent
        }))
    }

    /// Whether it is told what happens: to a person, and to a program where a model is asked.
    pub(crate) fn tells(&self, agent: &AgentChoice, globals: &Globals) -> bool {
        !self.quiet && (!globals.json || agent.model().is_some())
    }

    /// The agent, with the folder that its model is recorded into.
    fn recorded(
        &self,
        agent: Option<AgentChoice>,
        folder: Option<PathBuf>,
    ) -> Result<Option<AgentChoice>, Failure> {
        let (Some(folder), Some(mut agent)) = (folder, agent.clone()) else { return Ok(agent) };
        if agent.record_into(folder) {
            return Ok(Some(agent));
        }
        Err(Failure::usage("only what a model of a provider says can be recorded")
            .hint("name one, for instance --model openai:gpt-5"))
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

/// Opens the model that the agent asks, if it asks one, before the database is opened.
pub(crate) fn model(
    agent: &AgentChoice,
    globals: &Globals,
    config: &Config,
    limits: &Limits,
) -> Result<Option<model::Ready>, Failure> {
    let Some(choice) = agent.model() else { return Ok(None) };
    let ready = model::open(choice, globals, config, limits.max_output_tokens_per_call)?;
    ready.fits(limits, config)?;
    Ok(Some(ready))
}

/// Says what the operator should know of the model.
pub(crate) fn tell_of_model(model: Option<&model::Ready>, progress: Option<&Progress>) {
    let remarks = model.iter().flat_map(|model| &model.remarks);
    if let Some(progress) = progress {
        remarks.for_each(|remark| progress.say(&format!("note: {remark}")));
    }
}

/// Finds the agent, or makes the one that asks the model and knows the tools that only read. Nothing of it runs yet.
pub(crate) fn prepare(
    agent: &AgentChoice,
    model: Option<model::Ready>,
    globals: &Globals,
    config: &Config,
    files: Option<&Path>,
    reads: BTreeSet<String>,
    progress: Option<&Arc<Progress>>,
) -> Result<Prepared, Failure> {
    let Some(model) = model else {
        return assemble::prepare_agent(agent, globals, config, files);
    };
    let watch = progress.map(Progress::watch);
    let (asker, engaged) = model.engage(reads, watch, config);
    Ok(Prepared::Asker(Box::new(asker), engaged))
}

/// A configuration in the current folder counts only when it is named.
const HERE: &str = "portcullis.toml";

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
pub(crate) async fn open(
    globals: &Globals,
    mode: OpenMode,
    config: &Config,
    files: Option<&Path>,
    recording: Option<&Path>,
    tells: bool,
) -> Result<Ready, Failure> {
    let progress = tells.then(|| Progress::start(globals.json));
    let observers = progress.iter().map(|p| Arc::clone(p) as Arc<dyn Observer>).collect();
    let heads = Heads::of(globals, config)?;
    let gatehouse = assemble::gatehouse(globals, mode, config, files, recording, observers);
    let gatehouse = gatehouse.await?;
    if let Some(heads) = &heads {
        heads.compare(gatehouse.database.as_ref())?;
        // Before the first run begins, so that a process that is killed leaves a file that knows of its database.
        heads.keep(gatehouse.database.as_ref())?;
    }
    if let Some(progress) = &progress {
        progress.reads(&gatehouse.database);
        gatehouse.remarks.iter().for_each(|remark| progress.say(&format!("note: {remark}")));
        if files.is_none() && config.http.is_none() && config.mcp.is_empty() {
            progress.say("note: no folder is named (--files), so the agent has no tools");
        }
    }
    Ok(Ready { gatehouse, heads, progress })
}

/// Says which calls nobody could allow in a run of this owner, by the rules that the operator did not write.
pub(crate) fn tell_denials(
    config: &Config,
    gatehouse: &Gatehouse,
    owner: &str,
    progress: Option<&Progress>,
) {
    let Some(progress) = progress else { return };
    for denial in people::denials(config, gatehouse.parts.keys.as_ref(), owner) {
        progress.say(&format!("note: {denial}"));
    }
}

/// Refuses what would make a record untrue: another agent than the one that the run was begun with, one without
/// confinement in a run that says it has one, and one that is given more than it was when the run began.
pub(crate) fn fits_the_record(
    agent: &AgentChoice,
    began: Option<&AgentChoice>,
    run: &Run,
) -> Result<(), Failure> {
    let refused = |sentence: String| {
        Err(Failure::new(Code::State, sentence)
            .hint("resume it without that, or begin another run with `portcullis run`"))
    };
    if agent.text != run.agent {
        return refused(format!(
            "this run was begun with the agent `{}`, and its record says so; `{}` is another one",
            run.agent, agent.text
        ));
    }
    if agent.is_unconfined() && !run.unconfined_agent {
        return refused(
            "this run was begun with a confined agent, and its record says so".to_owned(),
        );
    }
    match began.and_then(|began| agent.given_beyond(began)) {
        Some(flag) => {
            refused(format!("this run was begun without this `{flag}`, and its agent stays so"))
        }
        None => Ok(()),
    }
}

/// Refuses to go on under other rules than a run was begun with, when nobody chose them: how it was started is
/// forgotten, and no configuration was named.
pub(crate) fn rules_are_known(
    globals: &Globals,
    remembered: bool,
    gatehouse: &Gatehouse,
    run: &Run,
) -> Result<(), Failure> {
    if remembered || globals.config_path.is_some() || gatehouse.parts.policy.id() == run.policy {
        return Ok(());
    }
    let sentence = format!(
        "it is not remembered how {} was started, and the usual rules are not those that it began with",
        run.id
    );
    Err(Failure::new(Code::NoLaunch, sentence).hint("name its configuration with -c"))
}

/// Says yes to what a run waits for, where the operator said so beforehand. Nothing is said for a run that rests otherwise.
pub(crate) async fn said_yes(
    driven: Driven,
    flags: &Flags,
    globals: &Globals,
    progress: Option<&Progress>,
) -> Result<bool, Failure> {
    let (Driven::Waiting(question), Some(YesTo::ReadOnly)) = (driven, flags.yes_to) else {
        return Ok(false);
    };
    let said = decide::yes_to_reading(question, globals).await?;
    if let (true, Some(progress)) = (said, progress) {
        progress.say(&format!("{question}: you said yes beforehand (--yes-to read_only)"));
        progress.settle();
    }
    Ok(said)
}

/// Closes what waited longer than it may, of all runs. A run that cannot be read hinders no other one.
pub(crate) async fn sweep(ready: &Ready) {
    let swept = operator::sweep_due(&ready.gatehouse.parts, &Scope::of_file_owner()).await;
    let Some(progress) = &ready.progress else { return };
    match swept {
        Ok(0) => {}
        Ok(1) => progress.say("note: one run had waited longer than it may, and has ended"),
        Ok(ended) => {
            progress.say(&format!(
                "note: {ended} runs had waited longer than they may, and have ended"
            ));
        }
        Err(error) => {
            progress.say(&format!("note: not every overdue question was closed: {error}"))
        }
    }
}

/// Says that a configuration in the current folder is not used, where a run begins without it.
pub(crate) fn tell_unnamed(config: &Config, globals: &Globals, progress: Option<&Progress>) {
    let whole = |path: &Path| path.canonicalize().ok();
    let (Some(progress), Some(here)) = (progress, whole(Path::new(HERE))) else { return };
    if globals.config_path.is_none() && config.path.as_deref().and_then(whole) != Some(here) {
        progress
            .say("note: ./portcullis.toml is not used, since it is not named: -c portcullis.toml");
    }
}

/// Names the variables that the agent is to be given and that are not set.
pub(crate) fn tell_unset(agent: &AgentChoice, progress: Option<&Progress>) {
    let Some(progress) = progress else { return };
    for note in unset(agent) {
        progress.say(&format!("note: {note}"));
    }
}

/// The same to a program, and what there is to know of the tools where no progress is told: an object a line, on standard
/// error.
pub(crate) fn warn(
    agent: &AgentChoice,
    gatehouse: &Gatehouse,
    globals: &Globals,
    flags: &Flags,
    progress: Option<&Progress>,
) {
    if !globals.json || flags.quiet {
        return;
    }
    unset(agent).for_each(|note| crate::warn_json(&note));
    if progress.is_none() {
        gatehouse.remarks.iter().for_each(|remark| crate::warn_json(remark));
    }
}

fn unset(agent: &AgentChoice) -> impl Iterator<Item = String> {
    let names = agent.env.iter().filter(|name| args::variable(name).is_none());
    names.map(|name| format!("the variable {name} is not set, so the agent does not get it"))
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
    } else if !confinement.fully_enforced && confinement.signals_scoped {
        progress.say("note: this kernel confines the agent as is required, and no further");
    } else if !confinement.signals_scoped {
        progress.say(
            "note: this kernel does not keep the agent's signals from reaching other processes",
        );
    }
}
