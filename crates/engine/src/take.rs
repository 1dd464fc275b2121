//! Taking a run up: creating it, or going on where another process stopped.

use std::sync::Arc;

use portcullis_domain::content::Content;
use portcullis_domain::event::{
    Body, LeaseAcquired, LeaseCause, RunCreated, StepOpened, ThreadOpened,
};
use portcullis_domain::fold::RunState;
use portcullis_domain::id::{QuestionId, RunId, StepId, ThreadId};
use portcullis_domain::lease::Epoch;
use portcullis_domain::limits::Limits;
use portcullis_domain::ports::{Append, Condition, Durability, NewEvent, StoreError, TakeLease};
use portcullis_domain::question::QuestionStatus;
use portcullis_domain::run::{EndReason, RunStatus};
use portcullis_domain::scope::Scope;
use portcullis_domain::step::StepStatus;
use portcullis_domain::tally::ThreadLimits;
use portcullis_domain::thread::Thread;
use portcullis_domain::time::Timestamp;

use crate::account;
use crate::admit::Echo;
use crate::advise::Asking;
use crate::child;
use crate::core::{Batch, Core, Progress, content, kept};
use crate::count;
use crate::error::GateError;
use crate::heartbeat::{self, Hold};
use crate::parts::Parts;
use crate::refold;
use crate::step::Granted;
use crate::sweep;
use crate::tools::Described;

/// Bytes of a run's salt.
const SALT_BYTES: usize = 32;

/// How often a run is looked at anew when somebody else recorded something meanwhile.
const MAX_TRIES: u32 = 8;

/// How often a recorded proposal may be judged: a step that ended its process twice ends its run.
const MAX_ATTEMPTS: u32 = 2;

/// What a run is to be.
#[derive(Clone, Debug)]
pub struct Task {
    /// The task, in the owner's words.
    pub goal: String,
    /// Who asks for it.
    pub owner: String,
    /// The conversation that it belongs to; a new one when there is none.
    pub thread: Option<ThreadId>,
    /// The run that starts it.
    pub parent: Option<RunId>,
    /// The bounds.
    pub limits: Limits,
    /// The agent, as the operator names it.
    pub agent: String,
    /// True when the agent's process runs without confinement.
    pub unconfined_agent: bool,
}

/// What an attempt to take a run up found.
pub(crate) enum Taken {
    /// The lease is held here.
    Held(Box<Core>, Progress),
    /// A person has to answer first.
    Waiting(QuestionId),
    /// It waits for a run that it started.
    Child(RunId),
    /// The run has ended.
    Ended(EndReason),
}

/// Creates a run and takes its lease.
pub(crate) async fn begin(parts: &Parts, scope: &Scope, task: Task) -> Result<Core, GateError> {
    let opens = task.thread.is_none();
    create(parts, scope, None, opens, task).await
}

/// Creates the run of this id, and opens its thread where nobody has. It is created by whoever comes first.
pub(crate) async fn begin_as(
    parts: &Parts,
    scope: &Scope,
    run: RunId,
    task: Task,
) -> Result<Core, GateError> {
    let opens = match task.thread {
        Some(thread) => parts.store.thread(scope, thread).await?.is_none(),
        None => true,
    };
    create(parts, scope, Some(run), opens, task).await
}

/// Creates a run on a thread that somebody may have opened before, or may be opening now.
pub(crate) async fn begin_on(
    parts: &Parts,
    scope: &Scope,
    thread: ThreadId,
    task: Task,
) -> Result<Core, GateError> {
    let task = Task { thread: Some(thread), ..task };
    let opens = parts.store.thread(scope, thread).await?.is_none();
    match create(parts, scope, None, opens, task.clone()).await {
        // Somebody else opened it first.
        Err(GateError::Store(StoreError::Stale)) if opens => {
            create(parts, scope, None, false, task).await
        }
        created => created,
    }
}

async fn create(
    parts: &Parts,
    scope: &Scope,
    named: Option<RunId>,
    opens: bool,
    task: Task,
) -> Result<Core, GateError> {
    task.limits.check()?;
    parts.conversation.iter().try_for_each(ThreadLimits::check)?;
    let entropy = parts.entropy.as_ref();
    let run = named.unwrap_or_else(|| RunId::draw(parts.clock.now(), entropy));
    let root = match task.parent {
        None => run,
        Some(parent) => {
            let parent = parts.store.run(scope, parent).await?;
            parent.ok_or(StoreError::NotFound("parent run"))?.run.root
        }
    };
    let mut salt = vec![0_u8; SALT_BYTES];
    entropy.fill(&mut salt);
    let salt = Content::seal(salt, entropy);
    let salt_bytes = salt.bytes().to_vec();
    let goal = task.goal.clone();
    let now = parts.clock.now();
    // Whoever names a run asks again for one that was lost with the power, and then begins it: nothing was done in it that
    // a synced append does not come before.
    let durability = if named.is_some() { Durability::Written } else { Durability::Synced };
    let first = first_append(parts, now, task, (run, root, opens), salt);
    parts.store.append(scope, Append { durability, ..first }).await?;
    let gone = GateError::Bug("a created run is gone");
    let state = parts.store.run(scope, run).await?.ok_or(gone.clone())?;
    // Whoever is stopped here for a whole term finds another's lease, and must not take it for its own.
    if state.run.epoch != Epoch::NONE.next() {
        return Err(StoreError::LeaseLost.into());
    }
    let thread = parts.store.thread(scope, state.run.thread).await?.ok_or(gone)?;
    let mut core = core(parts, scope, state, thread, goal, salt_bytes);
    core.hold = Arc::new(Hold::until(now.after(parts.timing.lease)));
    heartbeat::start(&core)?;
    Ok(core)
}

/// Thread if it is to be opened, run, lease and first step, in one append.
fn first_append(
    parts: &Parts,
    now: Timestamp,
    task: Task,
    (run, root, opens): (RunId, RunId, bool),
    salt: Content,
) -> Append {
    let entropy = parts.entropy.as_ref();
    let thread = task.thread.unwrap_or_else(|| ThreadId::draw(now, entropy));
    let goal = Content::seal(task.goal.into_bytes(), entropy);
    let created = RunCreated {
        owner: task.owner.clone(),
        thread,
        parent: task.parent,
        root,
        goal: goal.reference(),
        salt: salt.reference(),
        limits: task.limits,
        tools: parts.tools.frozen(),
        policy: parts.policy.id(),
        agent: task.agent,
        unconfined_agent: task.unconfined_agent,
    };
    let epoch = Epoch::NONE.next();
    let lease = LeaseAcquired { epoch, holder: parts.holder(), cause: LeaseCause::Begin };
    let opened = StepOpened { index: 0, batch: 1, batch_index: 0 };
    let on_run = |step, body| NewEvent { stream: run.into(), step, at: now, body };
    let mut events = Vec::new();
    if opens {
        let body = Body::ThreadOpened(ThreadOpened { owner: task.owner });
        events.push(NewEvent { stream: thread.into(), step: None, at: now, body });
    }
    events.push(on_run(None, Body::RunCreated(created)));
    events.push(on_run(None, Body::LeaseAcquired(lease)));
    events.push(on_run(Some(StepId::draw(now, entropy)), Body::StepOpened(opened)));
    Append {
        condition: Condition::Driver {
            run,
            seq: 0,
            epoch: Epoch::NONE,
            take: Some(TakeLease { now, until: now.after(parts.timing.lease), holder_dead: false }),
            live_at: None,
            label_seq: None,
        },
        events,
        contents: vec![goal, salt],
        specs: parts.tools.spec_bytes(),
        durability: Durability::Synced,
    }
}

fn core(
    parts: &Parts,
    scope: &Scope,
    state: RunState,
    thread: Thread,
    goal: String,
    salt: Vec<u8>,
) -> Core {
    Core {
        epoch: state.run.epoch,
        active_since: parts.clock.monotonic(),
        parts: parts.clone(),
        scope: scope.clone(),
        advertised: parts.tools.advertised(&state.run.tools),
        state,
        thread,
        goal,
        salt,
        ready: None,
        members: Vec::new(),
        proposed: None,
        last: Vec::new(),
        // Nothing is held yet.
        hold: Arc::new(Hold::until(Timestamp::from_micros(0))),
        probes: 0,
        round: None,
        asking: Asking::Inbox,
    }
}

/// Goes on with a run, if its lease can be had and nobody has to answer first.
pub(crate) async fn attach(parts: &Parts, scope: &Scope, run: RunId) -> Result<Taken, GateError> {
    let mut tries = 0_u32;
    loop {
        tries = tries.saturating_add(1);
        match try_attach(parts, scope, run).await {
            // Somebody was first: what they left is looked at anew.
            Err(GateError::Store(StoreError::Stale)) if tries < MAX_TRIES => {}
            taken => return taken,
        }
    }
}

async fn try_attach(parts: &Parts, scope: &Scope, run: RunId) -> Result<Taken, GateError> {
    let state = parts.store.run(scope, run).await?.ok_or(StoreError::NotFound("run"))?;
    if let Some(reason) = state.run.reason {
        return Ok(Taken::Ended(reason));
    }
    if child::ended_with_parent(parts, scope, &state.run).await? {
        return ended(parts, scope, run).await;
    }
    if let Some(child) = child::awaited(parts, scope, &state).await? {
        return Ok(Taken::Child(child));
    }
    if state.run.status == RunStatus::Waiting
        && state.child().is_none()
        && let Some(taken) = waiting(parts, scope, &state).await?
    {
        return Ok(taken);
    }
    let cause = takeable(parts, scope, &state).await?;
    let unanswered = refold::check(parts.store.as_ref(), scope, &state).await?;
    require_tool(parts, &state)?;
    let salt = content(parts, scope, state.run.salt, "run salt").await?;
    let thread = parts
        .store
        .thread(scope, state.run.thread)
        .await?
        .ok_or(GateError::Bug("a run's thread is gone"))?;
    check_grant(parts, scope, &state, &thread, &salt).await?;
    let goal = String::from_utf8(content(parts, scope, state.run.goal, "goal").await?)
        .map_err(|_| GateError::Content("goal"))?;
    let mut core = core(parts, scope, state, thread, goal, salt);
    core.probes = unanswered.probes;
    core.check_asking_again().await?;
    core.take_lease(cause).await?;
    // Before anything that may take its time: what is found out about an outcome can outlast the term.
    let gone_on = match heartbeat::start(&core) {
        Ok(()) => match account::left::settle_former(&core).await {
            Ok(()) => core.go_on().await,
            Err(error) => Err(error),
        },
        Err(error) => Err(error),
    };
    match gone_on {
        Ok(progress) => Ok(Taken::Held(Box::new(core), progress)),
        Err(error) => {
            crate::held::release(&mut core).await;
            Err(error)
        }
    }
}

/// How a run ended that was just ended.
async fn ended(parts: &Parts, scope: &Scope, run: RunId) -> Result<Taken, GateError> {
    let state = parts.store.run(scope, run).await?.ok_or(StoreError::NotFound("run"))?;
    let reason = state.run.reason.ok_or(GateError::Bug("a run was ended and has not"))?;
    Ok(Taken::Ended(reason))
}

/// What a waiting run waits for; `None` when its question is granted and in time.
async fn waiting(
    parts: &Parts,
    scope: &Scope,
    state: &RunState,
) -> Result<Option<Taken>, GateError> {
    let question =
        state.question.as_ref().ok_or(GateError::Bug("a waiting run has no question"))?;
    if question.is_over(parts.clock.now()) {
        sweep::expire(parts, scope, state.run.id, question).await?;
        return Ok(Some(Taken::Ended(EndReason::ApprovalExpired)));
    }
    match question.status {
        QuestionStatus::Granted => Ok(None),
        _ => Ok(Some(Taken::Waiting(question.id))),
    }
}

/// How the lease can be had, judged before anything is written.
async fn takeable(parts: &Parts, scope: &Scope, state: &RunState) -> Result<LeaseCause, GateError> {
    let Some(holder) = &state.run.holder else { return Ok(LeaseCause::Free) };
    if parts.processes.is_dead(&holder.process) {
        return Ok(LeaseCause::HolderDead);
    }
    let term = parts.store.lease(scope, state.run.id).await?;
    match term {
        Some(term) if term.epoch == state.run.epoch && term.until >= parts.clock.now() => {
            Err(StoreError::Leased { until: term.until }.into())
        }
        _ => Ok(LeaseCause::Expired),
    }
}

/// A granted call needs its tool; without it the grant is kept rather than spent on a refusal.
fn require_tool(parts: &Parts, state: &RunState) -> Result<(), GateError> {
    let waiting = state.step().filter(|step| step.status == StepStatus::Awaiting);
    match waiting.and_then(|step| step.admitted.as_ref()) {
        Some(admitted) if parts.tools.get(&admitted.tool).is_none() => {
            Err(GateError::ToolMissing(admitted.tool.clone()))
        }
        _ => Ok(()),
    }
}

/// What would refuse a granted call, looked at before the lease is taken: taking it is an event, and whoever looks again
/// and again would write one each time.
async fn check_grant(
    parts: &Parts,
    scope: &Scope,
    state: &RunState,
    thread: &Thread,
    salt: &[u8],
) -> Result<(), GateError> {
    let granted = state.question.as_ref().filter(|q| q.status == QuestionStatus::Granted);
    let Some(question) = granted else { return Ok(()) };
    if !Granted::read(parts, scope, state, question, salt).await?.amounts {
        return Ok(());
    }
    if let Some(question) = open_outcome(parts, scope, state).await? {
        return Err(StoreError::OutcomeOpen { question }.into());
    }
    if let Some(limit) = count::bounded(parts, thread, state) {
        return Err(StoreError::ThreadBounded { limit }.into());
    }
    let tool = state.step().and_then(|step| parts.tools.get(&step.admitted.as_ref()?.tool));
    match tool.filter(|tool| tool.source.blocks()) {
        Some(_) => parts.spawn.place().map(drop).map_err(|_| GateError::NoCapacity),
        None => Ok(()),
    }
}

/// The question about another call's outcome that has to be answered before the waiting call may start.
pub(crate) async fn open_outcome(
    parts: &Parts,
    scope: &Scope,
    state: &RunState,
) -> Result<Option<QuestionId>, StoreError> {
    // One that was started before settles an outcome itself.
    let waits = state.step().filter(|step| step.starts == 0);
    let tool = waits.and_then(|step| parts.tools.get(&step.admitted.as_ref()?.tool));
    let tool = tool.map(|tool| &tool.described).filter(|tool| tool.spec.effect.changes_something());
    let Some(tool) = tool else { return Ok(None) };
    let mut open = parts.store.open_outcomes(scope, &state.run.owner).await?;
    open.retain(|open| open.call.tool == tool.spec.name);
    open.sort_by_key(|open| open.question);
    for open in open {
        let same = open.call.spec == tool.digest || {
            let other = parts.store.spec(open.call.spec).await?;
            let other = other.and_then(|bytes| Described::recorded(&bytes));
            // One that cannot be read may point at anything.
            other.is_none_or(|other| other.spec.target == tool.spec.target)
        };
        if same {
            return Ok(Some(open.question));
        }
    }
    Ok(None)
}

impl Core {
    async fn take_lease(&mut self, cause: LeaseCause) -> Result<(), GateError> {
        let now = self.parts.clock.now();
        let epoch = self.state.run.epoch.next();
        let acquired = LeaseAcquired { epoch, holder: self.parts.holder(), cause };
        let condition = Condition::Driver {
            run: self.run_id(),
            seq: self.state.run.seq,
            epoch: self.state.run.epoch,
            take: Some(TakeLease {
                now,
                until: now.after(self.parts.timing.lease),
                holder_dead: cause == LeaseCause::HolderDead,
            }),
            live_at: None,
            label_seq: None,
        };
        let append = Append {
            condition,
            events: vec![self.event(None, Body::LeaseAcquired(acquired))],
            contents: Vec::new(),
            specs: Vec::new(),
            durability: Durability::Synced,
        };
        let committed = self.parts.store.append(&self.scope, append).await?;
        self.fold(&committed).await?;
        self.epoch = epoch;
        self.hold = Arc::new(Hold::until(now.after(self.parts.timing.lease)));
        self.active_since = self.parts.clock.monotonic();
        Ok(())
    }

    /// Brings the step that another process left behind to a point from which the loop goes on.
    async fn go_on(&mut self) -> Result<Progress, GateError> {
        let Some(step) = self.open_step().cloned() else { return self.open_next().await };
        match (step.status, step.proposal) {
            (status, _) if status.is_started() && self.state.child().is_some() => {
                self.end_child().await
            }
            (status, _) if status.is_started() => self.recover(&step).await,
            (StepStatus::Awaiting, _) => self.decide_granted().await,
            (_, Some(_)) if step.attempts > MAX_ATTEMPTS => {
                self.record(|core| {
                    let event =
                        core.event(None, crate::compose::finished(EndReason::DeciderCrashed));
                    Ok(Batch { events: vec![event], ..Batch::default() })
                })
                .await
            }
            (_, Some(proposal)) => {
                match kept(&self.parts, &self.scope, proposal, "proposal").await? {
                    Some(raw) => self.decide(&raw, Echo::Recorded(step.index)).await,
                    None => self.end_erased().await,
                }
            }
            (_, None) => Ok(Progress::Open),
        }
    }

    /// Ends the run when the grant was not used in time.
    pub(crate) async fn expire_grant(
        &mut self,
        grant: Option<QuestionId>,
    ) -> Result<Option<Progress>, GateError> {
        let Some(question) =
            self.state.question.clone().filter(|question| Some(question.id) == grant)
        else {
            return Ok(None);
        };
        if !question.is_over(self.parts.clock.now()) {
            return Ok(None);
        }
        sweep::expire(&self.parts, &self.scope, self.run_id(), &question).await?;
        self.reload().await?;
        Ok(self.ended())
    }
}
