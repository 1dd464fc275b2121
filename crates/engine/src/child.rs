//! Runs that a run starts by the tool `spawn`: what they may be, how they begin once, and how they end with each other.
//!
//! The call's intent and the wait for the child are one append. The child is created after it, under an id that follows
//! from the call, by whoever finds that it is missing: so it begins once, whichever process dies. While it runs nobody
//! holds its parent, and nothing of the parent is in memory.

use std::collections::BTreeSet;

use portcullis_canon::{Limits as JsonLimits, Object, Value, parse};
use portcullis_domain::child::{self, MAX_CHILDREN, MAX_DEPTH};
use portcullis_domain::content::Content;
use portcullis_domain::event::{Body, ChildAwaited, RunCreated, RunFinished};
use portcullis_domain::fold::RunState;
use portcullis_domain::id::RunId;
use portcullis_domain::label::{Labels, Origin};
use portcullis_domain::lease::Epoch;
use portcullis_domain::limits::Limits;
use portcullis_domain::observation::Failure;
use portcullis_domain::permit::Permit;
use portcullis_domain::ports::{
    Append, Condition, Durability, NewEvent, Page, Pages, StoreError, ToolOutput,
};
use portcullis_domain::refusal::Refusal;
use portcullis_domain::run::{EndReason, FrozenTool, Run, RunStatus};
use portcullis_domain::scope::Scope;
use portcullis_domain::time::Timestamp;

use crate::admit::{admit_recorded, card};
use crate::core::{Core, Ending, Progress, content, kept};
use crate::error::GateError;
use crate::observe::Outcome;
use crate::operator;
use crate::parts::Parts;
use crate::refold;
use crate::spawn;
use crate::step::Judgement;
use crate::tools::Described;

/// Bytes of a child's salt.
const SALT_BYTES: usize = 32;

/// How much of the words with which a child ended its parent is shown, in bytes.
const MAX_NOTE_BYTES: usize = 4096;

/// What a child is to be.
struct Plan {
    goal: String,
    tools: Vec<FrozenTool>,
    limits: Limits,
}

impl Plan {
    /// Reads the arguments of a call: what they leave out is as the parent has it, and nothing is wider.
    fn read(parent: &Run, arguments: &Object, now: Timestamp) -> Result<Self, Refusal> {
        let goal =
            arguments.get("goal").and_then(Value::as_str).ok_or(Refusal::ArgumentsInvalid)?;
        let limits = limits(parent, arguments, now)?;
        Ok(Self { goal: goal.to_owned(), tools: tools(parent, arguments)?, limits })
    }
}

/// The tools that a child is to have: all of its parent's, or those of them that are named.
fn tools(parent: &Run, arguments: &Object) -> Result<Vec<FrozenTool>, Refusal> {
    let Some(named) = arguments.get("tools").and_then(Value::as_array) else {
        return Ok(parent.tools.clone());
    };
    let named: BTreeSet<&str> = named.iter().filter_map(Value::as_str).collect();
    let tools: Vec<_> =
        parent.tools.iter().filter(|tool| named.contains(tool.name.as_str())).cloned().collect();
    if tools.len() == named.len() { Ok(tools) } else { Err(Refusal::ChildWider) }
}

fn limits(parent: &Run, arguments: &Object, now: Timestamp) -> Result<Limits, Refusal> {
    let own = &parent.limits;
    let asked = |name: &str| arguments.get(name).and_then(Value::as_u64);
    let narrower = |name: &str, own: Option<u64>| match (asked(name), own) {
        (Some(asked), Some(own)) if asked > own => Err(Refusal::ChildWider),
        (asked, own) => Ok(asked.or(own)),
    };
    // Time that the parent has used is not its child's; a child that has none left still begins, and ends by that limit.
    let left = |bound_ms: Option<u64>, used_us: u64, own_ms: Option<u64>| {
        let left = own_ms.map(|own| own.saturating_sub(used_us / 1_000).max(1));
        bound_ms.map(|bound| left.map_or(bound, |left| bound.min(left)))
    };
    let active_ms = narrower("max_active_ms", own.max_active_ms)?;
    let elapsed_ms = narrower("max_elapsed_ms", own.max_elapsed_ms)?;
    let cost = narrower("max_estimated_cost_micros", own.max_estimated_cost_micros)?;
    Ok(Limits {
        max_steps: narrower("max_steps", Some(own.max_steps))?.unwrap_or(own.max_steps),
        max_active_ms: left(active_ms, parent.active_us, own.max_active_ms),
        max_elapsed_ms: left(elapsed_ms, now.micros_since(parent.created_at), own.max_elapsed_ms),
        max_model_calls: narrower("max_model_calls", own.max_model_calls)?,
        max_total_tokens: narrower("max_total_tokens", own.max_total_tokens)?,
        max_estimated_cost_micros: cost,
        ..own.clone()
    })
}

/// Creates the child; one that is there already is left as it is.
///
/// # Errors
/// [`StoreError::ParentEnded`], or what the store says.
async fn create(
    parts: &Parts,
    scope: &Scope,
    parent: &RunState,
    plan: Plan,
) -> Result<(), StoreError> {
    let Some((_, run)) = parent.child() else { return Ok(()) };
    let entropy = parts.entropy.as_ref();
    let mut salt = vec![0_u8; SALT_BYTES];
    entropy.fill(&mut salt);
    let salt = Content::seal(salt, entropy);
    let goal = Content::seal(plan.goal.into_bytes(), entropy);
    let above = &parent.run;
    let created = RunCreated {
        owner: above.owner.clone(),
        thread: above.thread,
        parent: Some(above.id),
        root: above.root,
        goal: goal.reference(),
        salt: salt.reference(),
        limits: plan.limits,
        tools: plan.tools,
        policy: parts.policy.id(),
        agent: above.agent.clone(),
        unconfined_agent: above.unconfined_agent,
    };
    let body = Body::RunCreated(created);
    let event = NewEvent { stream: run.into(), step: None, at: parts.clock.now(), body };
    let condition = Condition::Driver {
        run,
        seq: 0,
        epoch: Epoch::NONE,
        take: None,
        live_at: None,
        label_seq: None,
    };
    let append = Append {
        condition,
        events: vec![event],
        contents: vec![goal, salt],
        specs: Vec::new(),
        durability: Durability::Synced,
    };
    match parts.store.append(scope, append).await {
        Ok(_) | Err(StoreError::Stale) => Ok(()),
        Err(error) => Err(error),
    }
}

/// The child for which a run waits, as long as it has not ended. One that is missing is created: who made the call died
/// before. Nothing when the run can go on.
pub(crate) async fn awaited(
    parts: &Parts,
    scope: &Scope,
    state: &RunState,
) -> Result<Option<RunId>, GateError> {
    let Some((_, child)) = state.child() else { return Ok(None) };
    match parts.store.run(scope, child).await? {
        Some(found) if found.run.status.is_terminal() => Ok(None),
        Some(_) => Ok(Some(child)),
        None => begin_again(parts, scope, state).await.map(|begun| begun.then_some(child)),
    }
}

/// Creates a child from the record of its call; false when that was erased, and there can be none.
async fn begin_again(parts: &Parts, scope: &Scope, state: &RunState) -> Result<bool, GateError> {
    refold::check(parts.store.as_ref(), scope, state).await?;
    let gone = GateError::Content("proposal");
    let (step, _) = state.child().ok_or(GateError::Bug("a run waits for no child"))?;
    let Some(raw) = kept(parts, scope, step.proposal.ok_or(gone.clone())?, "proposal").await?
    else {
        return Ok(false);
    };
    let salt = content(parts, scope, state.run.salt, "run salt").await?;
    let admitted = step.admitted.as_ref().ok_or(gone.clone())?;
    let spec = parts.store.spec(admitted.spec).await?.ok_or(GateError::Content("tool spec"))?;
    let described = Described::recorded(&spec).ok_or(GateError::Content("tool spec"))?;
    let call = admit_recorded(&raw, step.id, step.index, &described, &salt).ok_or(gone.clone())?;
    let verdict = step.verdict.as_ref().ok_or(gone.clone())?;
    // What is recorded of the call has to be the call that was started.
    if card(&call, &described, verdict).call_digest(&salt) != admitted.call {
        return Err(gone);
    }
    let plan = Plan::read(&state.run, &call.arguments, parts.clock.now()).map_err(|_| gone)?;
    match create(parts, scope, state, plan).await {
        Ok(()) => Ok(true),
        // Looked at anew, the run has ended.
        Err(StoreError::ParentEnded) => Err(StoreError::Stale.into()),
        Err(error) => Err(error.into()),
    }
}

/// Ends a run that goes on though one above it has ended; whether it has.
pub(crate) async fn ended_with_parent(
    parts: &Parts,
    scope: &Scope,
    run: &Run,
) -> Result<bool, GateError> {
    let mut next = run.parent;
    for _ in 0..=MAX_ABOVE {
        let Some(above) = next else { return Ok(false) };
        let state = parts.store.run(scope, above).await?;
        let state = state.ok_or(StoreError::NotFound("parent run"))?;
        if state.run.status.is_terminal() {
            end_below(parts, scope, above).await?;
            return Ok(true);
        }
        next = state.run.parent;
    }
    Err(GateError::TooDeep)
}

/// The most runs that are looked at above one, as a store does.
const MAX_ABOVE: usize = 64;

/// Ends whatever has not ended below a run that has, from the top. Cut short, it is gone on with by the next pass over what
/// is due, or by whoever wants to take one of them up. One that cannot be ended keeps no other from its end. Returns how many
/// it ended.
///
/// # Errors
/// What the store says; what was ended before it stays ended.
pub(crate) async fn end_below(parts: &Parts, scope: &Scope, run: RunId) -> Result<u64, GateError> {
    let mut ended = 0_u64;
    let mut above = vec![run];
    while let Some(parent) = above.pop() {
        let mut pages = Pages::all();
        while let Some(page) = pages.next_page() {
            let rows = parts.store.children(scope, parent, page).await?.rows;
            pages.read(rows.len());
            for child in rows.into_iter().flatten().filter(|run| !run.status.is_terminal()) {
                match end(parts, scope, child.id).await {
                    Ok(done) => ended = ended.saturating_add(u64::from(done)),
                    Err(error) if is_of_one_run(&error) => cannot_be_ended(child.id, &error),
                    Err(error) => return Err(error),
                }
                above.push(child.id);
            }
        }
    }
    Ok(ended)
}

/// What is wrong with one run, and says nothing of others.
const fn is_of_one_run(error: &GateError) -> bool {
    matches!(
        error,
        GateError::Store(
            StoreError::Damaged { .. } | StoreError::NotFound(_) | StoreError::NotAdmitted
        )
    )
}

fn cannot_be_ended(run: RunId, error: &GateError) {
    tracing::warn!(%run, %error, "a run whose parent ended cannot be ended");
}

/// Ends one run because its parent has ended; false when it had ended by itself.
async fn end(parts: &Parts, scope: &Scope, run: RunId) -> Result<bool, GateError> {
    let reason = EndReason::ParentEnded;
    let body = RunFinished { reason, note: None, result: None, by: None };
    match operator::end(parts, scope, run, body, None).await {
        Ok(()) => Ok(true),
        Err(GateError::Store(StoreError::RunState { .. })) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Ends every run that goes on though the one that started it has ended; returns how many.
///
/// # Errors
/// What the store says. A run that cannot be read keeps no other from its end.
pub(crate) async fn end_orphans(parts: &Parts, scope: &Scope) -> Result<u64, GateError> {
    let mut ended = 0_u64;
    let mut pages = Pages::all();
    while let Some(page) = pages.next_page() {
        let rows = parts.store.orphans(scope, page).await?.rows;
        let (read, before) = (rows.len(), ended);
        for orphan in rows.into_iter().flatten() {
            let Some(parent) = orphan.parent else { continue };
            match end_below(parts, scope, parent).await {
                Ok(done) => ended = ended.saturating_add(done),
                Err(error) if is_of_one_run(&error) => cannot_be_ended(orphan.id, &error),
                Err(error) => return Err(error),
            }
        }
        pages.read_and_shed(
            read,
            ended.saturating_sub(before).min(u64::try_from(read).unwrap_or(0)),
        );
    }
    Ok(ended)
}

impl Core {
    /// Why the allowed call may start no run, if it would start one.
    pub(crate) async fn refuses_child(
        &self,
        judgement: &Judgement,
    ) -> Result<Option<Refusal>, GateError> {
        if !self.starts_run(judgement) {
            return Ok(None);
        }
        let run = &self.state.run;
        if let Err(refusal) = Plan::read(run, &judgement.call.arguments, self.parts.clock.now()) {
            return Ok(Some(refusal));
        }
        if self.depth().await? >= MAX_DEPTH {
            return Ok(Some(Refusal::ChildTooDeep));
        }
        let page = Page { offset: 0, limit: 1 };
        let started = self.parts.store.children(&self.scope, run.id, page).await?.total;
        Ok((started >= MAX_CHILDREN).then_some(Refusal::ChildTooMany))
    }

    /// How many runs stand above this one; more than may are not counted.
    async fn depth(&self) -> Result<usize, GateError> {
        let (mut depth, mut next) = (0_usize, self.state.run.parent);
        while let Some(above) = next.filter(|_| depth < MAX_DEPTH) {
            depth = depth.saturating_add(1);
            let state = self.parts.store.run(&self.scope, above).await?;
            next = state.ok_or(StoreError::NotFound("parent run"))?.run.parent;
        }
        Ok(depth)
    }

    fn starts_run(&self, judgement: &Judgement) -> bool {
        self.parts.tools.get(&judgement.call.tool).is_some_and(|tool| tool.starts_run)
    }

    /// What follows the intent of a call that is a run, in the same append.
    pub(crate) fn child_awaited(
        &self,
        judgement: &Judgement,
    ) -> Result<Option<NewEvent>, GateError> {
        if !self.starts_run(judgement) {
            return Ok(None);
        }
        let step = self.open_step_id()?;
        let child = child::id(self.run_id(), step);
        let active_us = self.parts.clock.monotonic().micros_since(self.active_since);
        let body = Body::ChildAwaited(ChildAwaited { child, epoch: self.epoch, active_us });
        Ok(Some(self.event(Some(step), body)))
    }

    /// Creates the run that a permitted call is. What keeps it from being created now is mended by whoever takes this run up.
    pub(crate) async fn begin_child(&mut self, permit: Permit) -> Result<Progress, GateError> {
        let now = self.parts.clock.now();
        let plan = Plan::read(&self.state.run, permit.arguments(), now)
            .map_err(|_| GateError::Bug("a call that was admitted starts no run"))?;
        match create(&self.parts, &self.scope, &self.state, plan).await {
            Ok(()) => Ok(self.progress()),
            Err(StoreError::ParentEnded) => self.ended_with_parent().await,
            Err(error) => Err(error.into()),
        }
    }

    /// How the run ended, since one above it did, or was ended itself.
    pub(crate) async fn ended_with_parent(&mut self) -> Result<Progress, GateError> {
        ended_with_parent(&self.parts, &self.scope, &self.state.run).await?;
        self.ended_meanwhile().await
    }

    /// Ends the step whose call was a run, with how that ended.
    pub(crate) async fn end_child(&mut self) -> Result<Progress, GateError> {
        let (_, child) = self.state.child().ok_or(GateError::Bug("a run waits for no child"))?;
        let outcome = match self.parts.store.run(&self.scope, child).await? {
            Some(ended) => self.child_outcome(&ended.run).await?,
            None => {
                let message =
                    "the run could not be started, since what it was asked for was erased";
                self.observer().failed(Failure::Error, message, Labels::none())
            }
        };
        self.end_step(Ending::observed(outcome).under_lease()).await
    }

    /// What a run makes of the end of its child. All that the child has read lies in the labels of the thread that both share.
    async fn child_outcome(&self, child: &Run) -> Result<Outcome, GateError> {
        let labels = self.thread.labels.clone().join(&Labels::of(Origin::Agent));
        let text = |reference, what| kept(&self.parts, &self.scope, reference, what);
        if child.status == RunStatus::Completed {
            let result = match child.result {
                Some(reference) => text(reference, "result").await?,
                None => None,
            };
            let result = result.and_then(|bytes| parse(&bytes, &JsonLimits::ENVELOPE).ok());
            let mut object = Object::new();
            object.insert("status", child.status.as_str());
            object.insert("result", result.unwrap_or(Value::Null));
            let output = ToolOutput { content: object.to_canonical(), labels: Some(labels) };
            return Ok(self.observer().output(spawn::NAME, spawn::MAX_RESULT_BYTES, output));
        }
        let note = match child.note {
            Some(reference) => text(reference, "note").await?,
            None => None,
        };
        let note = note.map(|mut note| {
            note.truncate(MAX_NOTE_BYTES);
            String::from_utf8_lossy(&note).into_owned()
        });
        let reason = child.reason.map_or("unknown", EndReason::as_str);
        Ok(self.observer().child_failed(child.status.as_str(), reason, note.as_deref(), labels))
    }
}

/// Which run of a tree is to be driven next, when this one rests and `top` is what is wanted: the run for which it waits, or
/// the one that waits for it. Nothing where the tree rests.
#[must_use]
pub fn next_of_tree(top: RunId, run: &Run, child: Option<RunId>) -> Option<RunId> {
    match child {
        Some(child) => Some(child),
        None if run.id != top && run.status.is_terminal() => run.parent,
        None => None,
    }
}
