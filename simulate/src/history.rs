//! One history: what the scheduler draws until it is enough, and then the end, which has to be reached.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use portcullis_domain::fold::RunState;
use portcullis_domain::id::RunId;
use portcullis_domain::limits::Limits;
use portcullis_domain::ports::{Clock as _, MAX_PAGE, Page, Store as _};
use portcullis_domain::question::{Question, QuestionStatus};
use portcullis_domain::run::RunStatus;
use portcullis_domain::step::StepStatus;
use portcullis_domain::tool::EffectClass;
use portcullis_engine::{Job, RegisterError};
use portcullis_policy::{ClassTable, Outcome};
use portcullis_testkit::block_on;

use crate::acts::{self, Will};
use crate::crew;
use crate::draw::Draw;
use crate::executor::{Pid, Step};
use crate::log::What;
use crate::oracle::{self, rule};
use crate::people;
use crate::planted::Planted;
use crate::store::SimStore;
use crate::world::{Left, ROLE, Site, TIMING, World};

/// Runs that one history begins at most.
const MAX_RUNS: usize = 4;

/// Processes that live at once at most; with more of them each gets too little done.
const MAX_ALIVE: usize = 6;

/// How often the end may try to bring each run on.
const MAX_ROUNDS: usize = 60;

/// Plays the history of a seed.
pub(crate) fn play(seed: u64, planted: Option<Planted>) -> Result<Left, RegisterError> {
    let site = Site::new(World::new(seed, planted))?;
    let mut player = Player { site, next: 1, stops: Vec::new() };
    player.chaos();
    player.end();
    let world = Arc::clone(&player.site.world);
    let mut left = world.take();
    let mut broken = oracle::judge(&world, &left.log, &mut left.seen);
    broken.append(&mut left.broken);
    left.broken = broken;
    world.executor.clear();
    Ok(left)
}

/// A policy: who is asked for what.
pub(crate) fn draw_rules(draw: &mut Draw) -> ClassTable {
    let ask = |count: u32, observes: bool| {
        // The role is a name, and the count is in range.
        let asked = Outcome::ask(ROLE, count).unwrap_or(Outcome::Deny);
        if observes { asked.observing_rejection() } else { asked }
    };
    let observes = draw.chance(500);
    let local = [(5, 0), (3, 1), (1, 2)];
    let remote = [(2, 0), (6, 1), (3, 2)];
    let destroys = [(3, 3), (3, 1), (1, 4)];
    let mut outcome = |weights: &[(u64, u32)]| match draw.weighted(weights) {
        Some(0) => Outcome::Allow,
        Some(count @ 1..=2) => ask(count, observes),
        Some(4) => Outcome::Abort,
        _ => Outcome::Deny,
    };
    ClassTable::empty()
        .with(EffectClass::ReadOnly, Outcome::Allow)
        .with(EffectClass::LocalMutation, outcome(&local))
        .with(EffectClass::RemoteMutation, outcome(&remote))
        .with(EffectClass::Destructive, outcome(&destroys))
}

fn draw_limits(draw: &mut Draw) -> Limits {
    Limits {
        max_steps: draw.between(3, 8),
        max_consecutive_failures: draw.between(2, 4),
        max_denials: draw.between(1, 4),
        loop_threshold: 3,
        max_active_ms: None,
        max_elapsed_ms: draw.chance(150).then_some(120_000),
        question_ttl_ms: draw.chance(400).then(|| draw.between(4_000, 40_000)),
        grant_ttl_ms: draw.chance(400).then(|| draw.between(2_000, 20_000)),
        // No agent of a history has a model.
        ..Limits::default()
    }
}

/// All runs as the record has them, in the order in which they were begun.
fn runs(world: &World) -> Vec<RunState> {
    let page = Page { offset: 0, limit: MAX_PAGE };
    let rows = block_on(world.record.runs(&world.scope, None, page));
    let mut ids: Vec<RunId> =
        rows.into_iter().flat_map(|rows| rows.rows).flatten().map(|run| run.id).collect();
    ids.reverse();
    ids.into_iter()
        .filter_map(|id| block_on(world.record.run(&world.scope, id)).ok().flatten())
        .collect()
}

/// Runs that have not ended.
fn open_runs(world: &World) -> Vec<RunState> {
    runs(world).into_iter().filter(|state| !state.run.status.is_terminal()).collect()
}

/// What the scheduler can do.
#[derive(Clone, Copy, Debug)]
enum Move {
    Run,
    Wait,
    Begin,
    Resume,
    ResumeTwice,
    Crew,
    Answer,
    Cancel,
    Sweep,
    Policy,
    Fill,
    Crash,
    Stop,
    GoOn,
    Jump,
    Mail,
}

struct Player {
    site: Site,
    next: Pid,
    /// Stopped processes, and since when.
    stops: Vec<(Pid, u64)>,
}

impl Player {
    fn world(&self) -> &World {
        &self.site.world
    }

    /// All runs as the record has them.
    fn runs(&self) -> Vec<RunState> {
        runs(self.world())
    }

    /// Runs that have not ended.
    fn open(&self) -> Vec<RunState> {
        open_runs(self.world())
    }
    /// Starts an act in a process of its own.
    fn spawn<F>(&mut self, act: impl FnOnce(Site, Pid) -> F) -> Pid
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let pid = self.next;
        self.next += 1;
        let world = &self.site.world;
        world.executor.begin(pid);
        let (site, work) = (self.site.clone(), act(self.site.clone(), pid));
        let task = async move {
            work.await;
            // Some processes stay when their work is done, and hear of calls that were overdue.
            if site.world.chance(500) {
                site.world.doom(pid, false);
            }
        };
        let spawned =
            portcullis_domain::ports::Spawn::spawn(&world.executor.of(pid), Box::pin(task));
        debug_assert!(spawned.is_ok(), "a process that just began");
        pid
    }

    /// Draws and does one thing after the other.
    fn chaos(&mut self) {
        let moves = self.world().draw(|draw| draw.between(120, 420));
        for _ in 0..moves {
            self.bury();
            let choices = self.choices();
            if let Some(chosen) = self.world().draw(|draw| draw.weighted(&choices)) {
                self.make(chosen);
            }
        }
        oracle::waits(self.world(), &self.runs());
    }

    /// What can be done, with how often it is.
    fn choices(&self) -> Vec<(u64, Move)> {
        let world = self.world();
        let (mood, ready) = (world.mood(), world.executor.ready().len());
        let alive = world.executor.alive().len();
        let runs = self.runs();
        let open = runs.iter().filter(|state| !state.run.status.is_terminal()).count();
        let waiting = runs.iter().filter(|state| state.run.question.is_some()).count();
        let room = |weight: u64| if alive < MAX_ALIVE { weight } else { 0 };
        let some = |count: usize, weight: u64| if count > 0 { weight } else { 0 };
        vec![
            (some(ready, 700), Move::Run),
            (if ready == 0 { 120 } else { 14 }, Move::Wait),
            (
                if runs.len() < MAX_RUNS { room(if open == 0 { 400 } else { 8 }) } else { 0 },
                Move::Begin,
            ),
            (room(some(open, if ready == 0 { 60 } else { 8 })), Move::Resume),
            (room(some(open, 3)), Move::ResumeTwice),
            (room(if runs.len() < MAX_RUNS { 6 } else { some(open, 2) }), Move::Crew),
            (room(some(waiting, 40)), Move::Answer),
            (room(some(open, 1)), Move::Cancel),
            (room(some(runs.len(), 3)), Move::Sweep),
            (3, Move::Policy),
            (if world.executor.is_full() { 15 } else { 2 }, Move::Fill),
            (some(alive, mood.crash), Move::Crash),
            (some(alive, mood.stop), Move::Stop),
            (some(self.stops.len(), 12), Move::GoOn),
            (mood.jump, Move::Jump),
            (if mood.twice > 0 { 10 } else { 0 }, Move::Mail),
        ]
    }

    fn make(&mut self, chosen: Move) {
        match chosen {
            Move::Run => self.run_one(),
            Move::Wait => self.wait(),
            Move::Begin => self.begin(),
            Move::Resume => self.resume(1),
            Move::ResumeTwice => self.resume(2),
            Move::Crew => self.crew(),
            Move::Answer => self.answer(),
            Move::Cancel => self.cancel(),
            Move::Sweep => {
                self.spawn(acts::sweep);
            }
            Move::Policy => {
                let rules = self.world().draw(draw_rules);
                *crate::world::lock(&self.world().rules.0) = rules;
                self.world().count("policy changed");
                self.world().world_note("the policy is another one from now on");
            }
            Move::Fill => {
                let full = !self.world().executor.is_full();
                self.world().executor.fill(full);
                let word = if full { "no" } else { "again a" };
                self.world().world_note(format!("there is {word} place for blocking calls"));
            }
            Move::Crash => self.crash(),
            Move::Stop => self.stop(),
            Move::GoOn => self.go_on(),
            Move::Jump => self.jump(),
            Move::Mail => self.mail(),
        }
    }

    fn run_one(&self) {
        let ready = self.world().executor.ready();
        if let Some(step) = self.world().draw(|draw| draw.pick(&ready).copied()) {
            if matches!(step, Step::Work(_)) {
                self.world().world_note("a blocking call gets its thread");
            }
            self.world().executor.run(step);
        }
    }

    /// Time passes: to what somebody waits for, or some other time.
    fn wait(&self) {
        let world = self.world();
        let wake = world.clock.next_wake();
        let by = world.draw(|draw| match draw.below(10) {
            0..=5 => wake.unwrap_or(Duration::from_millis(100)),
            6..=7 => Duration::from_millis(draw.below(1_500)),
            8 => Duration::from_millis(draw.below(6_000)),
            _ => Duration::from_millis(draw.below(30_000)),
        });
        world.clock.advance(by.min(Duration::from_secs(40)));
    }

    fn begin(&mut self) {
        let thread = self.runs().last().map(|state| state.run.thread);
        let (thread, limits) =
            self.world().draw(|draw| (thread.filter(|_| draw.chance(500)), draw_limits(draw)));
        let kind =
            if thread.is_some() { "run begun in a thread that has one" } else { "run begun" };
        self.world().count(kind);
        self.spawn(|site, pid| acts::begin(site, pid, thread, limits));
    }

    /// Several runs with one runner: some that it begins, and perhaps one that is there.
    fn crew(&mut self) {
        let (runs, open) = (self.runs(), self.open());
        let left = u64::try_from(MAX_RUNS.saturating_sub(runs.len())).unwrap_or(0);
        let mut jobs = Vec::new();
        for _ in 0..self.world().draw(|draw| draw.between(1, 3)).min(left) {
            let limits = self.world().draw(draw_limits);
            self.world().count("run begun");
            jobs.push(Job::Begin(acts::task(None, limits)));
        }
        let known = self.world().draw(|draw| draw.pick(&open).map(|state| state.run.id));
        jobs.extend(known.filter(|_| self.world().chance(500)).map(Job::GoOn));
        let world = Arc::clone(&self.site.world);
        self.spawn(|site, pid| crew::work(site, pid, jobs, move || open_runs(&world)));
    }

    fn resume(&mut self, times: u64) {
        let open = self.open();
        let Some(run) = self.world().draw(|draw| draw.pick(&open).map(|state| state.run.id)) else {
            return;
        };
        if times > 1 {
            self.world().count("resumed by two at once");
        }
        for _ in 0..times {
            self.spawn(|site, pid| acts::resume(site, pid, run, Will::Anything));
        }
    }

    /// Somebody is shown a question of a run; not always the latest state of it.
    fn answer(&mut self) {
        let asked: Vec<Question> = self.open().into_iter().filter_map(|s| s.question).collect();
        if let Some(question) = self.world().draw(|draw| draw.pick(&asked).cloned()) {
            self.spawn(|site, pid| people::answer(site, pid, question, false));
        }
    }

    fn cancel(&mut self) {
        let open = self.open();
        let Some(state) = self.world().draw(|draw| draw.pick(&open).cloned()) else { return };
        if state.step().is_some_and(|step| step.status == StepStatus::Executing) {
            self.world().count("cancelled with a call open");
        }
        self.spawn(|site, pid| acts::cancel(site, pid, state.run.id));
    }

    /// Kills the processes that are to die.
    fn bury(&mut self) {
        while let Some((pid, crashes)) = self.world().take_doomed() {
            if self.world().executor.alive().contains(&pid) {
                self.kill(pid, crashes);
            }
        }
    }

    fn crash(&mut self) {
        let alive = self.world().executor.alive();
        if let Some(pid) = self.world().draw(|draw| draw.pick(&alive).copied()) {
            self.kill(pid, true);
        }
    }

    fn kill(&mut self, pid: Pid, crashes: bool) {
        let world = Arc::clone(&self.site.world);
        if crashes {
            self.count_crash(pid);
        }
        let how = if crashes { "crashes" } else { "ends" };
        world.log_as(pid, What::Note(format!("the process {how}")));
        world.executor.kill(pid);
        self.stops.retain(|(stopped, _)| *stopped != pid);
        // Of some deaths there is no proof: another machine, another boot.
        if !crashes || world.chance(600) {
            world.prove_dead(pid);
        }
    }

    /// Counts what a crash cuts off.
    fn count_crash(&self, pid: Pid) {
        let world = self.world();
        world.count("process crashed");
        if world.unheard(pid) {
            world.count("process crashed between commit and answer");
        }
        let holds = self.open().into_iter().filter(|state| {
            state.run.holder.as_ref().is_some_and(|holder| holder.process.pid == pid)
        });
        for state in holds {
            if state.step().is_some_and(|step| step.status == StepStatus::Probing) {
                world.count("process crashed with a probe open");
            }
            if let Some(step) = state.step().filter(|s| s.status == StepStatus::Executing) {
                world.count("process crashed with a call open");
                let done = world.with_log(|log| {
                    log.iter().any(|entry| match &entry.what {
                        What::Effect(effect) => {
                            effect.step == step.id && effect.start == step.starts
                        }
                        _ => false,
                    })
                });
                if done {
                    world.count("process crashed between effect and record");
                }
            }
        }
    }

    fn stop(&mut self) {
        let stopped: BTreeSet<Pid> = self.world().executor.stopped().into_iter().collect();
        let alive = self.world().executor.alive();
        let goes: Vec<Pid> = alive.into_iter().filter(|pid| !stopped.contains(pid)).collect();
        if let Some(pid) = self.world().draw(|draw| draw.pick(&goes).copied()) {
            self.world().executor.stop(pid);
            self.stops.push((pid, self.world().clock.monotonic().0));
            self.world().log_as(pid, What::Note("the process is stopped".to_owned()));
        }
    }

    fn go_on(&mut self) {
        let count = u64::try_from(self.stops.len()).unwrap_or(0);
        let at = usize::try_from(self.world().draw(|draw| draw.below(count))).unwrap_or(0);
        if at >= self.stops.len() {
            return;
        }
        let (pid, since) = self.stops.swap_remove(at);
        let world = self.world();
        // Half of them only go on when whatever they held is long over.
        if world.chance(500) {
            world.clock.advance(TIMING.lease + Duration::from_secs(1));
        }
        let us = u128::from(world.clock.monotonic().0.saturating_sub(since));
        if us > TIMING.lease.as_micros() {
            world.count("process stopped longer than a lease");
        }
        world.executor.go_on(pid);
        world.log_as(pid, What::Note("the process goes on".to_owned()));
    }

    fn jump(&self) {
        let world = self.world();
        let (ahead, ms) = world.draw(|draw| (draw.chance(500), draw.between(500, 40_000)));
        let by = i64::try_from(ms * 1_000).unwrap_or(0);
        let now = world.clock.now().micros();
        let to = if ahead { now.saturating_add(by) } else { now.saturating_sub(by) };
        world.count(if ahead { "clock jumped ahead" } else { "clock jumped back" });
        let way = if ahead { "ahead" } else { "back" };
        world.world_note(format!("the wall clock jumps {way} by {ms} ms"));
        world.clock.jump(portcullis_domain::time::Timestamp::from_micros(to));
    }

    fn mail(&self) {
        let Some((pid, append)) = self.world().take_mail() else { return };
        let store = SimStore::new(Arc::clone(&self.site.world), pid, None);
        block_on(store.redeliver(&self.world().scope, append));
    }
}

/// The end: nothing goes wrong any more, and every run has to come to its own.
impl Player {
    fn end(&mut self) {
        let world = Arc::clone(&self.site.world);
        world.world_note("from here on nothing goes wrong");
        world.calm();
        world.executor.fill(false);
        // Some are still alive and finish what they do; the others are gone.
        for pid in world.executor.alive() {
            if world.executor.stopped().contains(&pid) || world.chance(500) {
                self.kill(pid, true);
            }
        }
        self.stops.clear();
        // The clock is put right: no earlier than anything that was recorded.
        let latest = world.with_log(|log| log.iter().map(|entry| entry.wall).max());
        world.clock.jump(latest.unwrap_or_else(|| world.clock.now()).max(world.clock.now()));
        self.bring_to_an_end();
        self.settle();
        oracle::waits(&world, &self.runs());
    }

    /// Lets everything run that can, until nothing waits any more but for time far ahead.
    fn settle(&mut self) {
        for _ in 0..4_000 {
            self.bury();
            let ready = self.world().executor.ready();
            let drawn = self.world().draw(|draw| draw.pick(&ready).copied());
            match (drawn, self.world().clock.next_wake()) {
                (Some(step), _) => self.world().executor.run(step),
                (None, Some(by)) if by <= Duration::from_secs(5) => self.world().clock.advance(by),
                (None, _) => return,
            }
        }
    }

    /// All of them in turn: what one waits for may be said in another.
    fn bring_to_an_end(&mut self) {
        for _ in 0..MAX_ROUNDS {
            let open = self.open();
            if open.is_empty() {
                return;
            }
            for state in open {
                self.bring_on(state.run.id);
            }
        }
        let world = Arc::clone(&self.site.world);
        for state in self.open() {
            let name = world.name(state.run.id);
            world.broke(rule::ENDS, format!("{name} does not end, whoever resumes and answers it"));
        }
    }

    /// Answers a run's question, or resumes it.
    fn bring_on(&mut self, run: RunId) {
        let world = Arc::clone(&self.site.world);
        self.settle();
        let Ok(Some(state)) = block_on(world.record.run(&world.scope, run)) else { return };
        if state.run.status.is_terminal() {
            return;
        }
        let question = state.question.filter(|_| state.run.status == RunStatus::Waiting);
        match question {
            Some(question) if question.status == QuestionStatus::Open => {
                self.spawn(|site, pid| people::answer(site, pid, question, true));
            }
            _ if world.chance(300) => {
                self.spawn(|site, pid| crew::bring_on(site, pid, run));
            }
            _ => {
                self.spawn(|site, pid| acts::resume(site, pid, run, Will::End));
            }
        }
        self.settle();
        // A lease whose holder died without proof has to end, and what was overdue has to expire.
        world.clock.advance(TIMING.lease / 2);
    }
}
