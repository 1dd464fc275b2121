//! A run of one's own under crashes: the tools, the policy and the agent or loop of whoever asks, with the process ended
//! before and after each append and each effect, taken up again, and judged by a count of what really happened.
//!
//! The process ends in memory: its store says nothing any more, and all of its tasks are gone. What it leaves is what a
//! killed process leaves, a lease included, and the next process has proof of its death. Time is the process's own: it
//! passes only when nothing else can go on, so that a deadline of a minute takes no minute.
//!
//! ```
//! use std::sync::{Arc, Mutex};
//! use portcullis_canon::{Limits, Object, Value, parse};
//! use portcullis_domain::permit::Permit;
//! use portcullis_domain::ports::{BoxFuture, ToolFailure, ToolOutput, ToolSource};
//! use portcullis_domain::tool::{EffectClass, ToolSpec};
//! use portcullis_policy::ClassTable;
//! use portcullis_store::memory::MemoryStore;
//! use portcullis_testkit::trial::{Kind, Subject, Trial, who_looks, who_runs_again};
//!
//! /// Sends mail, here into a list.
//! struct Mail(Arc<Mutex<Vec<String>>>);
//!
//! impl ToolSource for Mail {
//!     fn specs(&self) -> Vec<ToolSpec> {
//!         let schema = br#"{"type":"object","properties":{"to":{"type":"string"}}}"#;
//!         vec![ToolSpec {
//!             name: "mail.send".to_owned(),
//!             description: "Sends a message.".to_owned(),
//!             input_schema: parse(schema, &Limits::BARE).unwrap(),
//!             effect: EffectClass::RemoteMutation,
//!             source: false,
//!             sink: true,
//!             authority: vec!["/to".to_owned()],
//!             deadline_ms: 5_000,
//!             terminal: false,
//!             fixed: Object::new(),
//!             max_result_bytes: 4_096,
//!             target: None, probe: None, idempotency_key: None,
//!         }]
//!     }
//!     fn blocks(&self) -> bool {
//!         false
//!     }
//!     fn call(&self, permit: Permit) -> BoxFuture<'_, Result<ToolOutput, ToolFailure>> {
//!         Box::pin(async move {
//!             let to = permit.arguments().get("to").and_then(Value::as_str).unwrap_or_default();
//!             self.0.lock().unwrap().push(format!("mail to {to}"));
//!             Ok(ToolOutput { content: b"{}".to_vec(), labels: None })
//!         })
//!     }
//! }
//!
//! let trial = Trial::new(MemoryStore::new, || {
//!     let sent = Arc::new(Mutex::new(Vec::new()));
//!     let counted = Arc::clone(&sent);
//!     Subject::new(vec![Arc::new(Mail(sent))], move || counted.lock().unwrap().clone())
//! })
//! .policy(Arc::new(ClassTable::default()))
//! .script([
//!     r#"{"kind":"tool_call","tool":"mail.send","arguments":{"to":"ann"}}"#,
//!     r#"{"kind":"complete"}"#,
//! ]);
//!
//! // Where the outcome is not known somebody looks, and the mail goes out once at every point.
//! let report = trial.clone().people(who_looks).run();
//! report.assert_kept();
//! assert_eq!(report.undisturbed.effects, ["mail to ann"]);
//!
//! // Who runs it again without looking sends it twice, and the report says where.
//! let report = trial.people(who_runs_again).run();
//! let double = report.of(Kind::Double).next().unwrap();
//! assert_eq!(double.point.to_string(), "after effect 1 (mail.send)");
//! ```

mod crew;
mod life;
mod people;
mod report;
mod script;
mod watch;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use portcullis_domain::approval::Answer;
use portcullis_domain::limits::Limits;
use portcullis_domain::ports::{
    Agent, BoxFuture, Clock as _, Entropy, Policy, ReviewerKeys, Store, ToolSource,
};
use portcullis_domain::time::Timestamp;
use portcullis_engine::{
    Driven, Driving, GateError, HeldRun, Parts, Reconcile, Task, Timing, Tools,
};

use crate::crash::{CrashStore, Moment, Phase};
use crate::ports::{FixedProcesses, ManualClock, SeededEntropy};
use crew::{Crew, Ran};
use life::Life;
use people::People;
pub use people::{Asked, nobody_knows, who_looks, who_runs_again};
pub use report::{Finding, Kind, Point, Report, Rest, Side, Tried};
use script::Script;
use watch::{Shown, Watch, Watched};

/// What tells the effects that happened so far, each by a name of its own, in order.
type Effects = dyn Fn() -> Vec<String> + Send + Sync;
type Rule = dyn Fn(&Asked<'_>) -> Option<Answer> + Send + Sync;
type Loop = dyn Fn(HeldRun) -> BoxFuture<'static, Result<Driven, GateError>> + Send + Sync;
type Fresh<S> = dyn Fn(Timestamp, &dyn Entropy) -> S + Send + Sync;
type Check<S> = dyn Fn(&S, &dyn ReviewerKeys) -> Vec<String> + Send + Sync;

/// What is tried, freshly made for each point. It outlives the process that ends there, as the world outside does.
pub struct Subject {
    tools: Vec<Arc<dyn ToolSource>>,
    effects: Arc<Effects>,
    reconcile: Option<Arc<dyn Reconcile>>,
}

impl Subject {
    /// Tools, and what tells the effects that happened so far: by name and in order, counted where they happen and not
    /// by what the tools answer. An effect that is to happen twice is named twice.
    pub fn new(
        tools: Vec<Arc<dyn ToolSource>>,
        effects: impl Fn() -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        Self { tools, effects: Arc::new(effects), reconcile: None }
    }

    /// Asks this probe before people when an outcome is unknown.
    #[must_use]
    pub fn with_probe(mut self, probe: Arc<dyn Reconcile>) -> Self {
        self.reconcile = Some(probe);
        self
    }
}

/// A run that is done once undisturbed, and once for each point where its process can end.
pub struct Trial<S> {
    fresh: Arc<Fresh<S>>,
    subject: Arc<dyn Fn() -> Subject + Send + Sync>,
    policy: Option<Arc<dyn Policy>>,
    drive: Arc<Loop>,
    people: Arc<Rule>,
    check: Option<Arc<Check<S>>>,
    limits: Limits,
    twice: bool,
}

impl<S> Clone for Trial<S> {
    fn clone(&self) -> Self {
        Self {
            fresh: Arc::clone(&self.fresh),
            subject: Arc::clone(&self.subject),
            policy: self.policy.clone(),
            drive: Arc::clone(&self.drive),
            people: Arc::clone(&self.people),
            check: self.check.clone(),
            limits: self.limits.clone(),
            twice: self.twice,
        }
    }
}

impl<S: Store + 'static> Trial<S> {
    /// A trial over stores that `fresh` makes, of what `subject` makes: one of each for each point.
    ///
    /// Without anything else said the script is empty, people give leave and know nothing of unknown outcomes
    /// ([`nobody_knows`]), and without a policy there is nothing to try.
    pub fn new(
        fresh: impl Fn(Timestamp, &dyn Entropy) -> S + Send + Sync + 'static,
        subject: impl Fn() -> Subject + Send + Sync + 'static,
    ) -> Self {
        Self {
            fresh: Arc::new(fresh),
            subject: Arc::new(subject),
            policy: None,
            drive: driven_by(|| Box::new(Script::new(Vec::new()))),
            people: Arc::new(nobody_knows),
            check: None,
            limits: Limits::default(),
            twice: false,
        }
    }

    /// The policy. It has to answer the same in each process.
    #[must_use]
    pub fn policy(mut self, policy: Arc<dyn Policy>) -> Self {
        self.policy = Some(policy);
        self
    }

    /// An agent that proposes these objects, each with the id of its request put in. What was interrupted, or did not
    /// happen as people say, it proposes again. At most 32 steps, repetitions included.
    #[must_use]
    pub fn script<T: Into<String>>(self, proposals: impl IntoIterator<Item = T>) -> Self {
        let lines: Vec<String> = proposals.into_iter().map(Into::into).collect();
        self.agent(move || Box::new(Script::new(lines.clone())))
    }

    /// An agent of one's own: a fresh one each time that the run is taken up.
    #[must_use]
    pub fn agent(mut self, agent: impl Fn() -> Box<dyn Agent> + Send + Sync + 'static) -> Self {
        self.drive = driven_by(agent);
        self
    }

    /// A loop of one's own: it drives a held run until it waits or ends.
    #[must_use]
    pub fn own_loop<F>(mut self, drive: impl Fn(HeldRun) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Driven, GateError>> + Send + 'static,
    {
        self.drive = Arc::new(move |held| Box::pin(drive(held)));
        self
    }

    /// How people answer; `None` leaves the run waiting. There are sixteen people in every role.
    #[must_use]
    pub fn people(
        mut self,
        rule: impl Fn(&Asked<'_>) -> Option<Answer> + Send + Sync + 'static,
    ) -> Self {
        self.people = Arc::new(rule);
        self
    }

    /// Looks at the record of each point once its run rests, for instance with `audit::verify`; gives what is wrong.
    #[must_use]
    pub fn check(
        mut self,
        check: impl Fn(&S, &dyn ReviewerKeys) -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        self.check = Some(Arc::new(check));
        self
    }

    /// The limits of the run.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Ends the process that takes the run up as well, at each of its points in turn.
    #[must_use]
    pub fn twice(mut self) -> Self {
        self.twice = true;
        self
    }

    /// Tries every point. It takes one run, and two lives of a process for each point; three for each pair of points
    /// where the second process ends as well.
    pub fn run(&self) -> Report {
        let undisturbed = self.attempt(&[]);
        let mut findings = undisturbed.judged(&undisturbed.tried);
        let mut tried = Vec::new();
        for first in undisturbed.points_of(0) {
            let once = self.attempt(std::slice::from_ref(first));
            findings.extend(once.judged(&undisturbed.tried));
            let seconds = if self.twice { once.points_of(1) } else { &[] };
            let again: Vec<Attempt> = seconds
                .iter()
                .map(|second| self.attempt(&[first.clone(), second.clone()]))
                .collect();
            findings.extend(again.iter().flat_map(|twice| twice.judged(&undisturbed.tried)));
            tried.push(once.tried);
            tried.extend(again.into_iter().map(|twice| twice.tried));
        }
        Report { undisturbed: undisturbed.tried, tried, findings }
    }

    /// One run whose processes end at these points, one after another, and the last one nowhere.
    fn attempt(&self, aims: &[Point]) -> Attempt {
        let world = World::new(self);
        let (mut rest, mut passed, mut lies) = (None, Vec::new(), Vec::new());
        for (pid, aim) in (1..).zip(aims.iter().map(Some).chain([None])) {
            let (came_to, watch) = self.live(&world, pid, aim);
            lies.extend(watch.lies());
            passed.push(watch.points());
            rest = came_to;
            if rest.is_some() {
                break;
            }
        }
        let missed = aims.iter().zip(&passed).filter(|(aim, points)| !points.contains(aim));
        lies.extend(missed.map(|(aim, _)| {
            let text = format!("no process came to `{aim}`: something differs between two runs");
            (Kind::Stuck, text)
        }));
        let breaks = self.check.iter().flat_map(|check| check(&world.store, &*world.people));
        lies.extend(breaks.map(|text| (Kind::NotIntact, text)));
        let ended = || Rest::Stuck("the process ended of itself".to_owned());
        let tried = Tried {
            point: Point::of(aims),
            rest: rest.unwrap_or_else(ended),
            effects: (world.subject.effects)(),
            run_again: world.run_again.load(Ordering::Acquire),
        };
        Attempt { tried, passed, lies }
    }

    /// One life of the process with this number; `None` when it was ended.
    fn live(&self, world: &World<S>, pid: u32, aim: Option<&Point>) -> (Option<Rest>, Arc<Watch>) {
        let crew = Crew::default();
        let watch = world.watch(aim);
        let store = Arc::clone(&watch.store);
        let sources = world.subject.tools.iter().map(|tools| -> Arc<dyn ToolSource> {
            Arc::new(Watched::new(Arc::clone(tools), Arc::clone(&watch.watch)))
        });
        let stuck = |why: String| (Some(Rest::Stuck(why)), Arc::clone(&watch.watch));
        let Some(policy) = self.policy.clone() else {
            return stuck("the trial has no policy".to_owned());
        };
        let tools = match Tools::register(sources.collect()) {
            Ok(tools) => Arc::new(tools),
            Err(error) => return stuck(error.to_string()),
        };
        let processes = FixedProcesses::new(pid);
        (1..pid).for_each(|dead| processes.kill(dead));
        let parts = Parts {
            store: store.clone(),
            clock: Arc::new(world.clock.clone()),
            entropy: world.entropy.clone(),
            spawn: Arc::new(crew.clone()),
            processes: Arc::new(processes),
            keys: world.people.clone(),
            policy,
            tools,
            reconcile: world.subject.reconcile.clone(),
            conversation: None,
            timing: Timing::default(),
        };
        let life = Life {
            parts,
            task: self.task(),
            drive: Arc::clone(&self.drive),
            people: Arc::clone(&self.people),
            effects: Arc::clone(&world.subject.effects),
            before: Arc::clone(&world.before),
            shown: Arc::clone(&world.shown),
            run_again: Arc::clone(&world.run_again),
        };
        let rest = match crew.run(life.live(), &world.clock, &|| store.is_dead()) {
            Ran::Done(rest) => Some(rest),
            Ran::Ended => None,
            Ran::Stuck => Some(Rest::Stuck("nothing goes on, however much time passes".to_owned())),
        };
        (rest, watch.watch)
    }

    fn task(&self) -> Task {
        Task {
            goal: "a trial".to_owned(),
            owner: "owner".to_owned(),
            thread: None,
            parent: None,
            limits: self.limits.clone(),
            agent: "trial".to_owned(),
            unconfined_agent: false,
        }
    }
}

fn driven_by(agent: impl Fn() -> Box<dyn Agent> + Send + Sync + 'static) -> Arc<Loop> {
    Arc::new(move |held| {
        let agent = agent();
        Box::pin(async move { Driving::start(held, agent).await?.finished().await })
    })
}

/// What came of one run.
struct Attempt {
    tried: Tried,
    /// The points of each process.
    passed: Vec<Vec<Point>>,
    lies: Vec<(Kind, String)>,
}

impl Attempt {
    fn points_of(&self, process: usize) -> &[Point] {
        self.passed.get(process).map_or(&[], Vec::as_slice)
    }

    fn judged(&self, expected: &Tried) -> Vec<Finding> {
        let point = &self.tried.point;
        let finding = |(kind, text)| Finding { point: point.clone(), kind, text };
        let lies = self.lies.iter().cloned().map(finding);
        lies.chain(self.tried.judge(expected)).collect()
    }
}

/// What outlives the process.
struct World<S> {
    store: Arc<S>,
    clock: ManualClock,
    entropy: Arc<SeededEntropy>,
    people: Arc<People>,
    subject: Subject,
    before: Arc<AtomicUsize>,
    shown: Arc<Shown>,
    run_again: Arc<AtomicU64>,
}

/// A process's store and its watch.
struct Watching {
    store: Arc<CrashStore>,
    watch: Arc<Watch>,
}

impl<S: Store + 'static> World<S> {
    fn new(trial: &Trial<S>) -> Self {
        let clock = ManualClock::default();
        let entropy = Arc::new(SeededEntropy::new(7));
        let store = Arc::new((trial.fresh)(clock.now(), &*entropy));
        let subject = (trial.subject)();
        let (before, shown, run_again) = (Arc::default(), Arc::default(), Arc::default());
        Self { store, clock, entropy, people: Arc::default(), subject, before, shown, run_again }
    }

    /// A store that ends its process at `aim`, and a watch on both.
    fn watch(&self, aim: Option<&Point>) -> Watching {
        let seen: Arc<std::sync::OnceLock<std::sync::Weak<Watch>>> = Arc::default();
        let told = Arc::clone(&seen);
        let inner: Arc<dyn Store> = self.store.clone();
        let mut store = CrashStore::new(inner, || {}).silent().witnessed(move |sight| {
            let watch = told.get().and_then(std::sync::Weak::upgrade);
            if let Some(watch) = watch.filter(|_| is_point(&sight.moment)) {
                watch.append(sight.moment, &sight.events);
            }
        });
        if let Some(Point::Record { moment, .. }) = aim {
            store = store.aimed(*moment);
        }
        let store = Arc::new(store);
        let effects = Arc::clone(&self.subject.effects);
        let watch = Watch::new(
            store.clone(),
            aim.cloned(),
            effects,
            Arc::clone(&self.before),
            Arc::clone(&self.shown),
        );
        let watch = Arc::new(watch);
        // Nobody else has set it.
        let _first = seen.set(Arc::downgrade(&watch));
        Watching { store, watch }
    }
}

/// Appends from outside: what a store writes inside of one is a matter for tests of stores.
fn is_point(moment: &Moment) -> bool {
    moment.act == crate::crash::Act::Append && matches!(moment.phase, Phase::Before | Phase::After)
}

#[cfg(test)]
mod tests;
