//! What processes do: begin a run, resume one, cancel one, sweep. One act, one process.

use futures_util::future::{Either, select};
use portcullis_domain::id::{RunId, ThreadId};
use portcullis_domain::limits::Limits;
use portcullis_domain::ports::{Agent, AgentFailure, BoxFuture, Disposition, StoreError, View};
use portcullis_domain::run::EndReason;
use portcullis_engine::{
    Attached, Driven, Driving, Gate, GateError, HeldRun, Progress, Task, operator,
};

use crate::executor::{Pid, pause};
use crate::oracle::rule;
use crate::world::{Site, World};

/// What an agent is after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Will {
    /// Whatever comes to its mind.
    Anything,
    /// To end its run.
    End,
}

/// Takes a note of an error, and of a rule that it breaks.
pub(crate) fn judge_error(world: &World, what: &str, error: &GateError) {
    match error {
        GateError::Store(StoreError::Leased { .. }) => world.count("lease held by another"),
        GateError::Store(StoreError::LeaseLost) => world.count("lease lost"),
        GateError::NoCapacity => world.count("no place for a blocking call"),
        GateError::Store(StoreError::OutcomeOpen { .. }) => {
            world.count("grant kept while an outcome is open");
        }
        GateError::Uncovered => world.count("call not started without cover"),
        _ => {}
    }
    if error.disposition() == Disposition::Bug {
        world.broke(rule::NO_BUG, format!("{what}: {error}"));
    }
}

/// What a run is asked to do.
pub(crate) fn task(thread: Option<ThreadId>, limits: Limits) -> Task {
    Task {
        goal: "tidy".to_owned(),
        owner: "ann".to_owned(),
        thread,
        parent: None,
        limits,
        agent: "simulated".to_owned(),
        unconfined_agent: false,
    }
}

/// Begins a run and drives it.
pub(crate) async fn begin(site: Site, pid: Pid, thread: Option<ThreadId>, limits: Limits) {
    let world = &site.world;
    let task = task(thread, limits);
    match Gate::new(site.parts(pid)).begin(&world.scope, task).await {
        Ok(held) => drive(&site, held, Progress::Open, Will::Anything).await,
        Err(error) => failed(world, "beginning", &error),
    }
}

/// Goes on with a run, if that is possible.
pub(crate) async fn resume(site: Site, pid: Pid, run: RunId, will: Will) {
    let world = &site.world;
    world.note(format!("tries to resume {}", world.name(run)));
    match Gate::new(site.parts(pid)).attach(&world.scope, run).await {
        Ok(Attached::Held(held, progress)) => drive(&site, held, progress, will).await,
        Ok(Attached::Waiting(_)) => world.note("it waits for a person"),
        Ok(Attached::Ended(reason)) => world.note(format!("it has ended: {}", reason.as_str())),
        Err(error) => failed(world, "resuming", &error),
    }
}

/// Ends a run by an operator's word.
pub(crate) async fn cancel(site: Site, pid: Pid, run: RunId) {
    let world = &site.world;
    match operator::cancel(&site.parts(pid), &world.scope, run, "ann", Some("enough")).await {
        Ok(()) => {}
        Err(error) => failed(world, "cancelling", &error),
    }
}

/// Ends what is past its time.
pub(crate) async fn sweep(site: Site, pid: Pid) {
    let world = &site.world;
    match operator::sweep_due(&site.parts(pid), &world.scope).await {
        Ok(0) => {}
        Ok(closed) => {
            world.count("sweep closed something");
            world.note(format!("the sweep closed {closed}"));
        }
        Err(error) => failed(world, "sweeping", &error),
    }
}

fn failed(world: &World, what: &str, error: &GateError) {
    world.note(format!("{what} fails: {error}"));
    judge_error(world, what, error);
}

async fn drive(site: &Site, held: HeldRun, progress: Progress, will: Will) {
    let world = &site.world;
    let driven = if world.chance(500) {
        by_driver(site, held, will).await
    } else {
        by_host(site, held, progress, will).await
    };
    match driven {
        Ok(Rest::Waiting) => world.note("rests: a person is asked"),
        Ok(Rest::Stopped) => world.note("rests: it was told to stop"),
        Ok(Rest::Ended(reason)) => world.note(format!("rests: ended, {}", reason.as_str())),
        Err(error) => failed(world, "driving", &error),
    }
}

/// The engine's own loop.
async fn by_driver(site: &Site, held: HeldRun, will: Will) -> Result<Rest, GateError> {
    let agent = Box::new(SimAgent { site: site.clone(), will });
    let mut driving = Driving::start(held, agent).await?;
    if site.world.chance(100) {
        let ms = site.world.draw(|draw| draw.below(8_000));
        let finished = match select(Box::pin(driving.finished()), Box::pin(site.sleep(ms))).await {
            Either::Left((driven, _)) => Some(driven),
            Either::Right(_) => None,
        };
        if let Some(driven) = finished {
            return driven.map(Rest::of);
        }
        site.world.note("the driver is told to stop");
        driving.stop();
    }
    driving.finished().await.map(Rest::of)
}

/// Where a driven run came to rest.
#[derive(Clone, Copy, Debug)]
enum Rest {
    Waiting,
    Ended(EndReason),
    Stopped,
}

impl Rest {
    const fn of(driven: Driven) -> Self {
        match driven {
            Driven::Waiting(_) => Self::Waiting,
            Driven::Ended(reason) => Self::Ended(reason),
            Driven::Stopped => Self::Stopped,
        }
    }
}

/// A host that keeps its own loop, and that abandons some of its waits.
async fn by_host(
    site: &Site,
    mut held: HeldRun,
    mut progress: Progress,
    will: Will,
) -> Result<Rest, GateError> {
    let world = &site.world;
    loop {
        let abandons = world.chance(world.mood().abandon);
        let next = match progress {
            Progress::Waiting(_) => return Ok(Rest::Waiting),
            Progress::Ended(reason) => return Ok(Rest::Ended(reason)),
            Progress::Open => {
                let raw = proposal(site, will, None).await;
                patient(world, abandons, held.propose(raw)).await
            }
            Progress::Allowed => patient(world, abandons, held.execute()).await,
            Progress::Observed => patient(world, abandons, held.step()).await,
        };
        world.note(format!("host {progress:?} -> {next:?}"));
        progress = match next {
            Some(next) => next?,
            // The wait was abandoned: what the operation did is found out by the next one.
            None => held.step().await?,
        };
    }
}

/// Waits for an operation, or gives up after a few polls.
async fn patient<T>(
    world: &World,
    abandons: bool,
    operation: impl Future<Output = Result<T, GateError>>,
) -> Option<Result<T, GateError>> {
    if !abandons {
        return Some(operation.await);
    }
    let polls = world.draw(|draw| draw.below(4));
    match select(Box::pin(operation), Box::pin(pause(polls))).await {
        Either::Left((result, _)) => Some(result),
        Either::Right(_) => {
            world.count("wait abandoned");
            world.note("a wait is abandoned");
            None
        }
    }
}

pub(crate) struct SimAgent {
    pub(crate) site: Site,
    pub(crate) will: Will,
}

impl Agent for SimAgent {
    fn propose(&mut self, view: View) -> BoxFuture<'_, Result<Vec<u8>, AgentFailure>> {
        Box::pin(async move {
            if self.will == Will::Anything && self.site.world.chance(5) {
                let message = "as planned".to_owned();
                return Err(AgentFailure { reason: EndReason::AgentError, message });
            }
            Ok(proposal(&self.site, self.will, Some(view.request)).await)
        })
    }
}

/// The raw bytes of a proposal.
async fn proposal(site: &Site, will: Will, request: Option<u64>) -> Vec<u8> {
    let world = &site.world;
    if will == Will::Anything && world.chance(300) {
        let ms = world.draw(|draw| draw.below(2_000));
        site.sleep(ms).await;
    }
    let echo = request.map(|request| format!(r#""request":{request},"#)).unwrap_or_default();
    let complete = format!(r#"{{{echo}"kind":"complete","result":null}}"#);
    if will == Will::End {
        return complete.into_bytes();
    }
    let text = world.draw(|draw| {
        let words = [
            (18, "look"),
            (12, "peek"),
            (24, "note"),
            (30, "send"),
            (12, "wipe"),
            (26, "keyed"),
            (22, "probed"),
            (3, "seen"),
            (2, "forged"),
            (4, "finish"),
            (4, "complete"),
            (2, "fail"),
            (5, "garbled"),
            (3, "unknown"),
            (14, "batch"),
        ];
        let word = draw.weighted(&words).unwrap_or("look");
        let n = draw.below(4);
        match word {
            "complete" => complete,
            "fail" => format!(r#"{{{echo}"kind":"fail","message":"no way"}}"#),
            "batch" => {
                let tools = [(10, "look"), (6, "peek"), (2, "note"), (1, "send"), (1, "wipe")];
                let size = 2 + draw.below(3);
                let calls: Vec<String> = (0..size)
                    .map(|n| {
                        let tool = draw.weighted(&tools).unwrap_or("look");
                        format!(r#"{{"tool":"{tool}","arguments":{{"n":{n}}}}}"#)
                    })
                    .collect();
                format!(r#"{{{echo}"kind":"tool_calls","calls":[{}]}}"#, calls.join(","))
            }
            "garbled" => "{\"kind\":".to_owned(),
            // Only the gate gives a call its key.
            "forged" => format!(
                r#"{{{echo}"kind":"tool_call","tool":"keyed","arguments":{{"n":{n},"key":"mine"}}}}"#
            ),
            tool => {
                format!(r#"{{{echo}"kind":"tool_call","tool":"{tool}","arguments":{{"n":{n}}}}}"#)
            }
        }
    });
    text.into_bytes()
}
