//! A process that drives several runs at once with a `Runner`, is asked for more meanwhile, and stops somehow.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use portcullis_domain::fold::RunState;
use portcullis_domain::id::RunId;
use portcullis_domain::ports::{Agent, AgentFailure, BoxFuture};
use portcullis_domain::run::{EndReason, Run};
use portcullis_engine::{Agents, Answers, Driven, Gate, Job, Rest, Room, Runner, Ticket, Unserved};

use crate::acts::{self, SimAgent, Will};
use crate::executor::Pid;
use crate::people;
use crate::world::{Site, World};

/// How long somebody waits for a job to rest, or for a runner to stop, in milliseconds.
const PATIENCE_MS: u64 = 30_000;

/// Makes agents, and does not always.
struct SimAgents {
    site: Site,
    will: Will,
}

impl Agents for SimAgents {
    fn agent<'a>(&'a self, _: &'a Run) -> BoxFuture<'a, Result<Box<dyn Agent>, AgentFailure>> {
        Box::pin(async move {
            let world = &self.site.world;
            let rate = if self.will == Will::End { 0 } else { world.mood().tool / 20 };
            if world.chance(rate) {
                world.count("agent could not be made");
                if world.chance(500) {
                    std::panic::resume_unwind(Box::new("as planned"));
                }
                let message = "as planned".to_owned();
                return Err(AgentFailure { reason: EndReason::AgentError, message });
            }
            if world.chance(rate.saturating_mul(4)) {
                let ms = world.draw(|draw| draw.below(8_000));
                self.site.sleep(ms).await;
            }
            Ok(Box::new(SimAgent { site: self.site.clone(), will: self.will }) as Box<dyn Agent>)
        })
    }
}

/// What somebody does with a runner while it works.
#[derive(Clone, Copy, Debug)]
enum Deed {
    Wait,
    Cancel,
    Answer,
    TakeUp,
    GoOn,
    Forget,
}

/// Drives jobs with a runner. `open` tells which runs have not ended.
pub(crate) async fn work(
    mut site: Site,
    pid: Pid,
    jobs: Vec<Job>,
    open: impl Fn() -> Vec<RunState> + Send,
) {
    let world = Arc::clone(&site.world);
    world.count("runner began");
    let answers = Arc::new(Answers::default());
    site.answers = Some(Arc::clone(&answers));
    let (places, line, hears) = world.draw(|draw| (draw.below(3), draw.below(3), draw.chance(700)));
    let room = Room { places: one_and(places), line: one_and(line) };
    let agents = Arc::new(SimAgents { site: site.clone(), will: Will::Anything });
    let (gate, hears) = (Gate::new(site.parts(pid)), hears.then_some(&*answers));
    let runner = Runner::new(gate, world.scope.clone(), agents, room, hears);
    if world.chance(300) {
        let every = Duration::from_millis(world.draw(|draw| draw.between(1_000, 15_000)));
        if runner.watch(every).is_err() {
            world.note("the runner cannot watch");
        }
    }
    let mut tickets = Vec::new();
    for job in jobs {
        tickets.extend(submitted(&site, &runner, job).await);
    }
    let deeds = world.draw(|draw| draw.below(7));
    for _ in 0..deeds {
        let kinds = [
            (6, Deed::Wait),
            (1, Deed::Cancel),
            (4, Deed::Answer),
            (2, Deed::TakeUp),
            (3, Deed::GoOn),
            (1, Deed::Forget),
        ];
        let deed = world.draw(|draw| draw.weighted(&kinds)).unwrap_or(Deed::Wait);
        let runs = open();
        let state = world.draw(|draw| draw.pick(&runs).cloned());
        match (deed, state) {
            (Deed::Cancel, Some(state)) => acts::cancel(site.clone(), pid, state.run.id).await,
            (Deed::Answer, Some(RunState { question: Some(question), .. })) => {
                people::answer(site.clone(), pid, question, false).await;
            }
            (Deed::TakeUp, _) => {
                let looked = select(Box::pin(runner.take_up()), Box::pin(site.sleep(PATIENCE_MS)));
                if let Either::Left((looked, _)) = looked.await {
                    match looked {
                        Ok(taken) if taken.runs > 0 => world.count("runner took up a run"),
                        Ok(_) => {}
                        Err(error) => unserved(&world, "taking up", &error),
                    }
                }
            }
            (Deed::GoOn, Some(state)) => {
                tickets.extend(submitted(&site, &runner, Job::GoOn(state.run.id)).await);
            }
            (Deed::Forget, _) => drop(tickets.pop()),
            _ => {
                let ms = world.draw(|draw| draw.below(4_000));
                site.sleep(ms).await;
            }
        }
    }
    end(&site, runner, tickets).await;
}

/// The runner is stopped, dropped, or first heard out.
async fn end(site: &Site, runner: Runner, tickets: Vec<Ticket>) {
    let world = &site.world;
    if world.chance(600) {
        for ticket in tickets {
            rest(site, ticket).await;
        }
    }
    let load = runner.load();
    if load.driven > 0 || load.in_line > 0 {
        world.count("runner stopped with runs at hand");
    }
    if world.chance(500) {
        world.note("the runner is dropped");
        return drop(runner);
    }
    world.note("the runner is told to stop");
    let stopped = select(Box::pin(runner.stop()), Box::pin(site.sleep(PATIENCE_MS))).await;
    if matches!(stopped, Either::Right(_)) {
        world.note("nobody waits for the runner any longer");
    }
}

/// Brings one run on with a runner of its own, as far as it goes.
pub(crate) async fn bring_on(site: Site, pid: Pid, run: RunId) {
    let agents = Arc::new(SimAgents { site: site.clone(), will: Will::End });
    let room = Room { places: one_and(0), line: one_and(0) };
    let gate = Gate::new(site.parts(pid));
    let runner = Runner::new(gate, site.world.scope.clone(), agents, room, None);
    let ticket = submitted(&site, &runner, Job::GoOn(run)).await;
    if let Some(ticket) = ticket {
        rest(&site, ticket).await;
    }
    runner.stop().await;
}

/// One and so many more.
fn one_and(more: u64) -> NonZeroUsize {
    NonZeroUsize::MIN.saturating_add(usize::try_from(more).unwrap_or(0))
}

async fn submitted(site: &Site, runner: &Runner, job: Job) -> Option<Ticket> {
    let world = &site.world;
    let submitted = select(Box::pin(runner.submit(job)), Box::pin(site.sleep(PATIENCE_MS)));
    match submitted.await {
        Either::Left((Ok(ticket), _)) => Some(ticket),
        Either::Left((Err(error), _)) => {
            unserved(world, "submitting", &error);
            None
        }
        Either::Right(_) => {
            world.count("nobody waits any longer for room in a line");
            None
        }
    }
}

async fn rest(site: &Site, ticket: Ticket) {
    let world = &site.world;
    match select(Box::pin(ticket.rest()), Box::pin(site.sleep(PATIENCE_MS))).await {
        Either::Left((Ok(Rest { run, driven }), _)) => {
            world.count("run rested at a runner");
            let word = match driven {
                Driven::Waiting(_) => "a person is asked",
                Driven::Child(_) => "it waits for a run that it started",
                Driven::Stopped => "it was told to stop",
                Driven::Ended(reason) => reason.as_str(),
            };
            world.note(format!("{} rests: {word}", world.name(run)));
        }
        Either::Left((Err(error), _)) => unserved(world, "a job", &error),
        Either::Right(_) => world.note("nobody waits for a job any longer"),
    }
}

fn unserved(world: &World, what: &str, error: &Unserved) {
    world.note(format!("{what} fails: {error}"));
    if let Unserved::Gate(error) = error {
        acts::judge_error(world, what, error);
    }
}
