//! `portcullis resume`: goes on with runs that stopped, or that a person has answered.

use portcullis_domain::budget::BudgetScope;
use portcullis_domain::child;
use portcullis_domain::fold::RunState;
use portcullis_domain::id::RunId;
use portcullis_domain::limits::Limits;
use portcullis_domain::ports::{MAX_PAGE, Page, Pages};
use portcullis_domain::run::{Run, RunStatus};
use portcullis_domain::scope::Scope;
use portcullis_domain::step::Step;
use portcullis_engine::{Attached, Driven, Gate, spend};
use portcullis_store::sqlite::open::OpenMode;

use crate::args::Globals;
use crate::assemble;
use crate::drive::{self, Rest};
use crate::exit::Exit;
use crate::failure::{Code, Failure};
use crate::launch::{self, Launch};
use crate::lookup::{self, RunArg};
use crate::progress::{MAX_STEPS, Progress};
use crate::signals::Signals;
use crate::start::{self, Flags, Ready};
use crate::tree::Tree;

/// Arguments of `resume`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The run, or the first digits of its id
    #[arg(value_parser = lookup::run_arg, required_unless_present = "all", conflicts_with = "all")]
    run: Option<RunArg>,
    /// Every run that has not ended, oldest first
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    flags: Flags,
}

/// Goes on with one run, or with all.
pub(crate) async fn run(args: Args, globals: &Globals) -> Result<Exit, Failure> {
    let mut signals = Signals::catch()?;
    // Checked before the database is opened.
    args.flags.agent(None)?;
    let scope = Scope::of_file_owner();
    let reader = assemble::reader(globals)?;
    let ids = match &args.run {
        Some(run) => vec![lookup::run_id(reader.as_ref(), &scope, run).await?],
        None => unended(reader.as_ref(), &scope).await?,
    };
    drop(reader);
    let mut worst = Exit::Done;
    for run in &ids {
        let exit = match resume(*run, &args.flags, globals, &mut signals).await {
            Err(failure) if ids.len() > 1 => {
                crate::report(&failure, globals.json);
                failure.exit()
            }
            resumed => resumed?,
        };
        worst = worse(worst, exit);
        if exit == Exit::Stopped {
            break;
        }
    }
    Ok(worst)
}

/// Of several runs, what needs attention most.
fn worse(one: Exit, other: Exit) -> Exit {
    let weight = |exit| match exit {
        Exit::Done => 0,
        Exit::Waiting => 1,
        Exit::Refused | Exit::Usage => 2,
        Exit::Stopped => 3,
    };
    if weight(other) > weight(one) { other } else { one }
}

async fn unended(store: &dyn assemble::Database, scope: &Scope) -> Result<Vec<RunId>, Failure> {
    let mut ids = Vec::new();
    for status in [RunStatus::Running, RunStatus::Waiting] {
        let mut pages = Pages::all();
        while let Some(page) = pages.next_page() {
            let rows = store.runs(scope, Some(status), page).await?.rows;
            // Runs that a call started are gone on with by their tree, from the top.
            let tops = rows.iter().flatten().filter(|run| !child::is_derived(run.id));
            ids.extend(tops.map(|run| (run.created_at, run.id)));
            pages.read(rows.len());
        }
    }
    ids.sort_unstable();
    Ok(ids.into_iter().map(|(_, id)| id).collect())
}

/// Goes on with one run.
pub(crate) async fn resume(
    run: RunId,
    flags: &Flags,
    globals: &Globals,
    signals: &mut Signals,
) -> Result<Exit, Failure> {
    let launch = Launch::recall(&globals.place.launches(), run)?;
    let config = launch::configuration(globals, launch.as_ref())?;
    let (usual, files) = match &launch {
        Some(launch) => (Some(launch.agent.clone()), launch.files.clone()),
        None => (config.agent.clone(), config.files.clone()),
    };
    let agent = flags.agent(usual)?.ok_or_else(|| {
        Failure::new(Code::NoLaunch, format!("it is not remembered how {run} was started"))
            .hint("name --agent, --files and -c again; a run that another host began goes on there")
    })?;
    let files = flags.files(files)?;
    let model = start::model(&agent, globals, &config, &Limits::default())?;
    let tells = flags.tells(&agent, globals);
    let (mode, root, recording) = (OpenMode::Existing, files.as_deref(), agent.recording());
    let ready = start::open(globals, mode, &config, root, recording, tells)?;
    start::sweep(&ready).await;
    let Ready { gatehouse, heads, progress: told } = ready;
    let (scope, progress) = (Scope::of_file_owner(), told.as_deref());
    let state = gatehouse.database.run(&scope, run).await?;
    let state = state.ok_or(portcullis_domain::ports::StoreError::NotFound("run"))?;
    if !state.run.status.is_terminal() {
        start::fits_the_record(&agent, launch.as_ref().map(|launch| &launch.agent), &state.run)?;
        start::rules_are_known(globals, launch.is_some(), &gatehouse, &state.run)?;
    }
    if let Some(progress) = progress {
        recall_into(progress, gatehouse.database.as_ref(), &scope, &state).await?;
        remark_changes(&state.run, &gatehouse, progress);
        // Not refused: people can still be added, and what they said already counts.
        if let Err(short) = assemble::enough_people(globals, &config, &state.run.owner) {
            progress.say(&format!("note: {}", short.sentence()));
        }
    }
    start::tell_denials(&config, &gatehouse, &state.run.owner, progress);
    start::tell_unset(&agent, progress);
    let (reads, told) = (gatehouse.parts.tools.read_only(), told.as_ref());
    let prepared = start::prepare(&agent, model, globals, &config, files.as_deref(), reads, told)?;
    start::warn_of_unset(&agent, globals, flags);
    let gate = Gate::new(gatehouse.parts);
    let driven = match gate.attach(&scope, run).await? {
        Attached::Waiting(question) => Driven::Waiting(question),
        Attached::Child(child) => Driven::Child(child),
        Attached::Ended(reason) => Driven::Ended(reason),
        Attached::Held(held, _) => match prepared.start() {
            Ok(started) => {
                start::tell_confinement(&started, &agent, progress);
                drive::to_rest(held, started, signals, progress)
                    .await
                    .map_err(|failure| failure.about(globals, run))?
            }
            Err(failure) => {
                held.close().await?;
                return Err(failure);
            }
        },
    };
    let tree = Tree {
        gate: &gate,
        database: gatehouse.database.as_ref(),
        agent: &agent,
        files: files.as_deref(),
        config: &config,
        globals,
        told,
    };
    let rest = tree.follow(state.run.root, Rest { run, driven }, signals).await?;
    if start::said_yes(rest.driven, flags, globals, progress).await? {
        drop((gatehouse.database, heads));
        return Box::pin(resume(run, flags, globals, signals)).await;
    }
    drive::conclude(rest, heads.as_ref(), gatehouse.database.as_ref(), globals, progress).await
}

/// Tells the progress of what was before: the last steps, the question that is open, what models cost.
async fn recall_into(
    progress: &Progress,
    store: &dyn assemble::Database,
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
async fn last_steps(
    store: &dyn assemble::Database,
    scope: &Scope,
    run: &Run,
) -> Result<Vec<Step>, Failure> {
    let kept = u64::try_from(MAX_STEPS).unwrap_or(u64::MAX);
    let page = Page { offset: run.step_count.saturating_sub(kept), limit: MAX_PAGE };
    Ok(store.steps(scope, run.id, page).await?.rows.into_iter().flatten().collect())
}

fn remark_changes(run: &Run, gatehouse: &assemble::Gatehouse, progress: &Progress) {
    if run.policy != gatehouse.parts.policy.id() {
        progress.say("note: the rules have changed since this run began; today's rules hold");
    }
}
