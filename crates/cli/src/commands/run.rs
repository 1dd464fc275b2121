//! `portcullis run`: begins a run and drives it until it rests.

use portcullis_domain::label::Name;
use portcullis_domain::limits::Limits;
use portcullis_domain::scope::Scope;
use portcullis_engine::{Gate, Task};
use portcullis_store::sqlite::open::OpenMode;

use super::resume;
use crate::agent::Started;
use crate::args::Globals;
use crate::assemble;
use crate::config;
use crate::drive::{self, Rest};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::launch::Launch;
use crate::signals::Signals;
use crate::start::{self, Flags};
use crate::tree::Tree;

/// The longest goal, in bytes.
const MAX_GOAL: usize = 64 * 1024;

/// Arguments of `run`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The task, in your words
    goal: String,
    #[command(flatten)]
    flags: Flags,
    #[command(flatten)]
    limits: LimitFlags,
    /// Whose run it is, as a label [default: the person of your key, else your user name]
    #[arg(long, value_name = "NAME")]
    owner: Option<String>,
}

/// Bounds of this run, before those of the configuration.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Limits")]
struct LimitFlags {
    /// Steps that may be opened
    #[arg(long, value_name = "N")]
    max_steps: Option<u64>,
    /// Failures in a row that end the run
    #[arg(long, value_name = "N")]
    max_consecutive_failures: Option<u64>,
    /// Denials that end the run
    #[arg(long, value_name = "N")]
    max_denials: Option<u64>,
    /// How often the same calls may come back with the same results
    #[arg(long, value_name = "N")]
    loop_threshold: Option<u64>,
    /// Time for deciding and executing, in milliseconds
    #[arg(long, value_name = "MS")]
    max_active_ms: Option<u64>,
    /// Time since its beginning, in milliseconds
    #[arg(long, value_name = "MS")]
    max_elapsed_ms: Option<u64>,
    /// How long a question stays open, in milliseconds
    #[arg(long, value_name = "MS")]
    question_ttl_ms: Option<u64>,
    /// How long a granted approval stays usable, in milliseconds
    #[arg(long, value_name = "MS")]
    grant_ttl_ms: Option<u64>,
    /// Calls of models, retries and those of the runs that it starts included
    #[arg(long, value_name = "N")]
    max_model_calls: Option<u64>,
    /// Tokens that one reply of a model may have
    #[arg(long, value_name = "N")]
    max_output_tokens_per_call: Option<u64>,
    /// Tokens of models, input and output together
    #[arg(long, value_name = "N")]
    max_total_tokens: Option<u64>,
    /// Estimated cost of models, such as '$0.50'
    #[arg(long, value_name = "AMOUNT", value_parser = amount)]
    max_cost: Option<u64>,
    /// The same, in millionths of the unit of money
    #[arg(long, value_name = "MICROS", conflicts_with = "max_cost")]
    max_estimated_cost_micros: Option<u64>,
}

fn amount(text: &str) -> Result<u64, String> {
    portcullis_models::parse_amount(text).map_err(|error| error.to_string())
}

impl LimitFlags {
    fn over(&self, configured: &Limits) -> Result<Limits, Failure> {
        let limits = Limits {
            max_steps: self.max_steps.unwrap_or(configured.max_steps),
            max_consecutive_failures: self
                .max_consecutive_failures
                .unwrap_or(configured.max_consecutive_failures),
            max_denials: self.max_denials.unwrap_or(configured.max_denials),
            loop_threshold: self.loop_threshold.unwrap_or(configured.loop_threshold),
            max_active_ms: self.max_active_ms.or(configured.max_active_ms),
            max_elapsed_ms: self.max_elapsed_ms.or(configured.max_elapsed_ms),
            question_ttl_ms: self.question_ttl_ms.or(configured.question_ttl_ms),
            grant_ttl_ms: self.grant_ttl_ms.or(configured.grant_ttl_ms),
            max_model_calls: self.max_model_calls.or(configured.max_model_calls),
            max_output_tokens_per_call: self
                .max_output_tokens_per_call
                .or(configured.max_output_tokens_per_call),
            max_total_tokens: self.max_total_tokens.or(configured.max_total_tokens),
            max_estimated_cost_micros: self
                .max_cost
                .or(self.max_estimated_cost_micros)
                .or(configured.max_estimated_cost_micros),
        };
        limits.check()?;
        Ok(limits)
    }
}

impl Args {
    fn check(&self) -> Result<(), Failure> {
        if self.owner.as_deref().is_some_and(|owner| Name::new(owner).is_err()) {
            return Err(Failure::usage("the owner has to be 1 to 128 plain bytes"));
        }
        if self.goal.trim().is_empty() || self.goal.len() > MAX_GOAL {
            return Err(Failure::usage(format!(
                "the task has to be 1 to {MAX_GOAL} bytes of text"
            )));
        }
        Ok(())
    }
}

/// Begins a run. Everything that can be refused is refused before the database is opened.
pub(crate) async fn run(args: Args, globals: &Globals) -> Result<Exit, Failure> {
    args.check()?;
    let config = config::load(globals)?;
    let limits = args.limits.over(&config.limits)?;
    let agent = args.flags.agent(config.agent.clone())?.ok_or_else(|| {
        Failure::usage("no agent is named")
            .hint("for instance --model openai:gpt-5, or --agent exec:\"python3 agent.py\"")
    })?;
    let files = args.flags.files(config.files.clone())?;
    let owner = args.owner.unwrap_or_else(|| assemble::own_person(globals, &config));
    assemble::enough_people(globals, &config, &owner)?;
    let model = start::model(&agent, globals, &config, &limits)?;

    let mut signals = Signals::catch()?;
    let tells = args.flags.tells(&agent, globals);
    let (mode, root, recording) = (OpenMode::CreateOrOpen, files.as_deref(), agent.recording());
    let ready = start::open(globals, mode, &config, root, recording, tells).await?;
    start::sweep(&ready).await;
    start::tell_denials(&config, &ready.gatehouse, &owner, ready.progress.as_deref());
    start::tell_unset(&agent, ready.progress.as_deref());
    let (reads, told) = (ready.gatehouse.parts.tools.read_only(), ready.progress.as_ref());
    let progress = ready.progress.as_deref();
    start::tell_of_model(model.as_ref(), progress);
    let own = model.clone();
    let prepared = start::prepare(&agent, own, globals, &config, files.as_deref(), reads, told)?;
    start::warn(&agent, &ready.gatehouse, globals, &args.flags, progress);
    start::tell_unnamed(&config, globals, progress);
    let task = Task {
        goal: args.goal,
        owner,
        thread: None,
        parent: None,
        limits,
        agent: agent.text.clone(),
        unconfined_agent: agent.is_unconfined(),
    };
    let database = ready.gatehouse.database.as_ref();
    let gate = Gate::new(ready.gatehouse.parts);
    let held = gate.begin(&Scope::of_file_owner(), task).await?;
    let run = held.run();
    let launch = Launch { agent, files, config: config.path.clone() };
    if let Err(failure) = launch.keep(&globals.place.launches(), run) {
        held.close().await?;
        let again = drive::command(globals, &format!("resume {run} --agent … --files … -c …"));
        return Err(failure.hint(format!(
            "{run} is begun and nothing of it was done; go on with `{again}`, or cancel it"
        )));
    }
    // The record says that the run began before anything of the agent runs.
    let (started, not_started) = match prepared.start() {
        Ok(started) => (started, None),
        Err(failure) => (Started::failed(&failure), Some(failure)),
    };
    start::tell_confinement(&started, &launch.agent, progress);
    let driven = drive::to_rest(held, started, &mut signals, progress)
        .await
        .map_err(|failure| failure.about(globals, run))?;
    if let Some(failure) = not_started {
        if let Some(heads) = &ready.heads {
            heads.keep(database)?;
        }
        return Err(failure.hint(format!("{run} is begun and has ended: agent_error")));
    }
    let tree = Tree::of(&gate, database, &launch, model, &config, globals, told);
    let rest = tree.follow(run, Rest { run, driven }, &mut signals).await?;
    if start::said_yes(rest.driven, &args.flags, globals, progress).await? {
        drop((ready.gatehouse.database, ready.heads));
        return resume::resume(run, &args.flags, globals, &mut signals).await;
    }
    drive::conclude(rest, ready.heads.as_ref(), database, globals, progress).await
}
