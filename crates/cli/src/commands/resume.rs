//! `portcullis resume`: goes on with runs that stopped, or that a person has answered.

use portcullis_domain::child;
use portcullis_domain::id::RunId;
use portcullis_domain::limits::Limits;
use portcullis_domain::ports::Pages;
use portcullis_domain::run::{Run, RunStatus};
use portcullis_domain::scope::Scope;
use portcullis_engine::Gate;
use portcullis_server::proxy::AGENT as PROXY;
use portcullis_store::sqlite::open::OpenMode;

use crate::args::Globals;
use crate::assemble;
use crate::drive::{self, Rest};
use crate::exit::Exit;
use crate::failure::{Code, Failure};
use crate::hooks;
use crate::launch::{self, Launch};
use crate::lookup::{self, RunArg};
use crate::progress::Progress;
use crate::signals::Signals;
use crate::start::{self, Flags, Ready};
use crate::tree::{self, Tree};

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
    let mut worst = Exit::Done;
    let ids = match &args.run {
        Some(run) => {
            let run = lookup::run_id(reader.as_ref(), &scope, run).await?;
            let state = reader.run(&scope, run).await?;
            if state.is_some_and(|state| is_of_host(&state.run)) {
                return Err(Failure::new(Code::NoLaunch, of_host(run)).hint(of_host_hint(run)));
            }
            vec![run]
        }
        None => {
            let (of_hosts, ours): (Vec<Run>, Vec<Run>) =
                unended(reader.as_ref(), &scope).await?.into_iter().partition(is_of_host);
            for run in of_hosts {
                let note = format!("{}; {}", of_host(run.id), of_host_hint(run.id));
                crate::note(&note, globals.json);
                if run.status == RunStatus::Waiting {
                    worst = worse(worst, Exit::Waiting);
                }
            }
            ours.into_iter().map(|run| run.id).collect()
        }
    };
    drop(reader);
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

/// Whether a run that has not ended is one call of a host, which makes it by way of the proxy or of a hook.
fn is_of_host(run: &Run) -> bool {
    !run.status.is_terminal() && (run.agent == PROXY || hooks::is_host(&run.agent))
}

fn of_host(run: RunId) -> String {
    format!(
        "{run} is a call of a host, and goes on when the host makes exactly the same call again"
    )
}

fn of_host_hint(run: RunId) -> String {
    format!("it ends when its question does, or by `portcullis cancel {run}`")
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

async fn unended(store: &dyn assemble::Database, scope: &Scope) -> Result<Vec<Run>, Failure> {
    let mut runs = Vec::new();
    for status in [RunStatus::Running, RunStatus::Waiting] {
        let mut pages = Pages::all();
        while let Some(page) = pages.next_page() {
            let rows = store.runs(scope, Some(status), page).await?.rows;
            // Runs that a call started are gone on with by their tree, from the top.
            pages.read(rows.len());
            let tops = rows.into_iter().flatten().filter(|run| !child::is_derived(run.id));
            runs.extend(tops);
        }
    }
    runs.sort_unstable_by_key(|run| (run.created_at, run.id));
    Ok(runs)
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
    let ready = start::open(globals, mode, &config, root, recording, tells).await?;
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
        tree::recall(progress, gatehouse.database.as_ref(), &scope, &state).await?;
        remark_changes(&state.run, &gatehouse, progress);
        // Not refused: people can still be added, and what they said already counts.
        if let Err(short) = assemble::enough_people(globals, &config, &state.run.owner) {
            progress.say(&format!("note: {}", short.sentence()));
        }
    }
    start::tell_denials(&config, &gatehouse, &state.run.owner, progress);
    start::tell_unset(&agent, progress);
    let (reads, told) = (gatehouse.parts.tools.read_only(), told.as_ref());
    start::tell_of_model(model.as_ref(), progress);
    let own = model.clone();
    let prepared = start::prepare(&agent, own, globals, &config, files.as_deref(), reads, told)?;
    start::warn(&agent, &gatehouse, globals, flags, progress);
    let gate = Gate::new(gatehouse.parts);
    let tree = Tree {
        gate: &gate,
        database: gatehouse.database.as_ref(),
        agent: &agent,
        model,
        files: files.as_deref(),
        config: &config,
        globals,
        told,
    };
    let begin = || {
        let started = prepared.start()?;
        start::tell_confinement(&started, &agent, progress);
        Ok(started)
    };
    let driven = tree.go_on(run, begin, signals).await?;
    let rest = tree.follow(state.run.root, Rest { run, driven }, signals).await?;
    if start::said_yes(rest.driven, flags, globals, progress).await? {
        drop((gatehouse.database, heads));
        return Box::pin(resume(run, flags, globals, signals)).await;
    }
    drive::conclude(rest, heads.as_ref(), gatehouse.database.as_ref(), globals, progress).await
}

fn remark_changes(run: &Run, gatehouse: &assemble::Gatehouse, progress: &Progress) {
    if run.policy != gatehouse.parts.policy.id() {
        progress.say("note: the rules have changed since this run began; today's rules hold");
    }
}
