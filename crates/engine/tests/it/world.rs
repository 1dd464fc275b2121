//! A gate with everything around it in a test's hands.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use portcullis_audit::keys::{KeyEntry, Keyring, SigningKey};
use portcullis_canon::{Limits as JsonLimits, Value, parse};
use portcullis_domain::approval::{Answer, Statement};
use portcullis_domain::content::Content;
use portcullis_domain::event::Body;
use portcullis_domain::fold::RunState;
use portcullis_domain::id::{QuestionId, RunId};
use portcullis_domain::limits::Limits;
use portcullis_domain::ports::{
    Clock, EventFilter, MAX_PAGE, Policy, PolicyFailure, ProposedCall, Store,
};
use portcullis_domain::question::Question;
use portcullis_domain::scope::Scope;
use portcullis_domain::step::Step;
use portcullis_domain::tally::ThreadLimits;
use portcullis_domain::tool::EffectClass;
use portcullis_domain::verdict::{Facts, PolicyId, Verdict};
use portcullis_engine::operator::{self, Answered, SignedAnswer};
use portcullis_engine::{
    Attached, Gate, GateError, HeldRun, Parts, Progress, Reconcile, Task, Timing, Tools,
};
use portcullis_policy::{ClassTable, Outcome};
use portcullis_store::memory::MemoryStore;
use portcullis_testkit::block_on;
use portcullis_testkit::doubles::UnrulyPolicy;
pub(crate) use portcullis_testkit::doubles::{Conduct, Does, HostileTools as FakeTools};
use portcullis_testkit::ports::{FixedProcesses, ManualClock, SeededEntropy, ThreadSpawn};

/// A class table that a test can change, behind a policy that may misbehave.
pub(crate) struct SwitchPolicy {
    table: Mutex<ClassTable>,
    unruly: UnrulyPolicy,
}

impl SwitchPolicy {
    pub(crate) fn set(&self, class: EffectClass, outcome: Outcome) {
        let mut table = self.table.lock().unwrap();
        *table = table.clone().with(class, outcome);
        self.unruly.exchange(Arc::new(table.clone()));
    }

    pub(crate) fn behave(&self, how: Conduct) {
        self.unruly.behave(how);
    }

    pub(crate) fn asked(&self) -> Vec<(String, Vec<u8>)> {
        self.unruly.asked()
    }
}

impl Policy for SwitchPolicy {
    fn id(&self) -> PolicyId {
        self.unruly.id()
    }

    fn decide(&self, call: &ProposedCall<'_>, facts: &Facts) -> Result<Verdict, PolicyFailure> {
        self.unruly.decide(call, facts)
    }
}

pub(crate) struct World {
    pub(crate) store: MemoryStore,
    pub(crate) clock: ManualClock,
    pub(crate) tools: Arc<FakeTools>,
    pub(crate) policy: Arc<SwitchPolicy>,
    pub(crate) processes: Arc<Mutex<Vec<u32>>>,
    pub(crate) spawn: ThreadSpawn,
    pub(crate) people: BTreeMap<&'static str, SigningKey>,
    pub(crate) reconcile: Option<Arc<dyn Reconcile>>,
    pub(crate) conversation: Option<ThreadLimits>,
    keyring: Keyring,
    entropy: Arc<SeededEntropy>,
    scope: Scope,
}

/// The machine as one process sees it, with the deaths that all processes share.
struct Machine {
    fixed: FixedProcesses,
    dead: Arc<Mutex<Vec<u32>>>,
}

impl portcullis_domain::ports::Processes for Machine {
    fn current(&self) -> portcullis_domain::lease::ProcessIdentity {
        self.fixed.current()
    }

    fn is_dead(&self, process: &portcullis_domain::lease::ProcessIdentity) -> bool {
        for pid in self.dead.lock().unwrap().iter() {
            self.fixed.kill(*pid);
        }
        self.fixed.is_dead(process)
    }
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with_tools(FakeTools::new(true))
    }

    pub(crate) fn with_tools(tools: Arc<FakeTools>) -> Self {
        let clock = ManualClock::default();
        let entropy = Arc::new(SeededEntropy::new(7));
        let people: BTreeMap<_, _> = ["ann", "ben", "eve", "dan"]
            .map(|name| (name, SigningKey::generate(entropy.as_ref())))
            .into();
        let entry = |name: &str, role: &str| KeyEntry::new(people[name].public(), name, [role]);
        let keyring = Keyring::new([
            entry("ann", "operator"),
            entry("ben", "operator"),
            entry("dan", "operator"),
            entry("eve", "visitor"),
        ])
        .unwrap();
        let table = ClassTable::default();
        let policy = Arc::new(SwitchPolicy {
            unruly: UnrulyPolicy::new(Arc::new(table.clone()), clock.clone()),
            table: Mutex::new(table),
        });
        Self {
            store: MemoryStore::new(clock.now(), entropy.as_ref()),
            clock,
            tools,
            policy,
            processes: Arc::default(),
            spawn: ThreadSpawn::with_places(2),
            people,
            reconcile: None,
            conversation: None,
            keyring,
            entropy,
            scope: Scope::of_file_owner(),
        }
    }

    /// Lets the deadline pass of what hangs: once it was begun and is waited for, and no further, so that nothing that
    /// comes after it is late too.
    #[track_caller]
    pub(crate) fn pass_deadline(&self, deadline: Duration, hangs: impl Fn() -> bool) {
        until(|| hangs() && self.clock.wakes().contains(&LOOK));
        self.clock.advance(deadline);
    }

    pub(crate) fn clock_now(&self) -> portcullis_domain::time::Timestamp {
        self.clock.now()
    }

    pub(crate) fn scope(&self) -> &Scope {
        &self.scope
    }

    pub(crate) fn parts(&self, pid: u32) -> Parts {
        Parts {
            store: Arc::new(self.store.clone()),
            clock: Arc::new(self.clock.clone()),
            entropy: self.entropy.clone(),
            spawn: Arc::new(self.spawn.clone()),
            processes: Arc::new(Machine {
                fixed: FixedProcesses::new(pid),
                dead: Arc::clone(&self.processes),
            }),
            keys: Arc::new(self.keyring.clone()),
            policy: self.policy.clone(),
            tools: Arc::new(Tools::register(vec![self.tools.clone()]).unwrap()),
            reconcile: self.reconcile.clone(),
            conversation: self.conversation,
            timing: Timing::default(),
        }
    }

    pub(crate) fn gate(&self, pid: u32) -> Gate {
        Gate::new(self.parts(pid))
    }

    pub(crate) fn task(&self, limits: Limits) -> Task {
        Task {
            goal: "tidy".to_owned(),
            owner: "ann".to_owned(),
            thread: None,
            parent: None,
            limits,
            agent: "test".to_owned(),
            unconfined_agent: false,
        }
    }

    pub(crate) fn begin(&self) -> HeldRun {
        self.begin_with(Limits { max_steps: 100, ..Limits::default() })
    }

    pub(crate) fn begin_with(&self, limits: Limits) -> HeldRun {
        block_on(self.gate(1).begin(&self.scope, self.task(limits))).unwrap()
    }

    /// The process dies: its lease stays, and there is proof of its death.
    pub(crate) fn kill(&self, pid: u32) {
        self.processes.lock().unwrap().push(pid);
    }

    pub(crate) fn attach(&self, pid: u32, run: RunId) -> Result<Attached, GateError> {
        block_on(self.gate(pid).attach(&self.scope, run))
    }

    /// Goes on with a run that can be held.
    pub(crate) fn take(&self, pid: u32, run: RunId) -> (HeldRun, Progress) {
        match self.attach(pid, run).unwrap() {
            Attached::Held(held, progress) => (held, progress),
            Attached::Waiting(question) => panic!("waits for {question}"),
            Attached::Child(child) => panic!("waits for {child}"),
            Attached::Ended(reason) => panic!("ended: {reason:?}"),
        }
    }

    pub(crate) fn state(&self, run: RunId) -> RunState {
        block_on(self.store.run(&self.scope, run)).unwrap().unwrap()
    }

    /// From now on the person's key does not count any more.
    pub(crate) fn revoke(&mut self, person: &str) {
        let entries = ["ann", "ben", "eve", "dan"].map(|name| {
            let role = if name == "eve" { "visitor" } else { "operator" };
            let mut entry = KeyEntry::new(self.people[name].public(), name, [role]);
            entry.revoked = name == person;
            entry
        });
        self.keyring = Keyring::new(entries).unwrap();
    }

    pub(crate) fn only_run(&self) -> RunId {
        let page = portcullis_domain::ports::Page { offset: 0, limit: 2 };
        let rows = block_on(self.store.runs(&self.scope, None, page)).unwrap().rows;
        assert_eq!(rows.len(), 1);
        rows[0].as_ref().unwrap().id
    }

    pub(crate) fn step(&self, run: RunId, index: u64) -> Step {
        let page = portcullis_domain::ports::Page { offset: index, limit: 1 };
        block_on(self.store.steps(&self.scope, run, page)).unwrap().rows.remove(0).unwrap()
    }

    pub(crate) fn question(&self, run: RunId) -> Question {
        self.state(run).question.unwrap()
    }

    pub(crate) fn bodies(&self) -> Vec<Body> {
        let filter = EventFilter { stream: None, after: 0, limit: MAX_PAGE };
        let events = block_on(self.store.events(&self.scope, filter)).unwrap();
        events
            .iter()
            .map(|e| Body::read(&e.kind, u32::try_from(e.version).unwrap(), &e.payload).unwrap())
            .collect()
    }

    pub(crate) fn count(&self, kind: &str) -> usize {
        self.bodies().iter().filter(|body| body.name() == kind).count()
    }

    /// What the agent saw of a step, as JSON.
    pub(crate) fn observed(&self, run: RunId, index: u64) -> Value {
        let reference = self.step(run, index).observation.unwrap().content.unwrap();
        let content = block_on(self.store.content(&self.scope, reference.digest)).unwrap().unwrap();
        parse(content.bytes(), &JsonLimits::BARE).unwrap()
    }

    pub(crate) fn signed(&self, person: &str, question: &Question, answer: Answer) -> SignedAnswer {
        self.signed_with(person, question, answer, None)
    }

    pub(crate) fn signed_with(
        &self,
        person: &str,
        question: &Question,
        answer: Answer,
        result: Option<Content>,
    ) -> SignedAnswer {
        let key = &self.people[person];
        let statement = Statement {
            covers: vec![question.digest],
            answer,
            key: key.id(),
            at: self.clock.now(),
            note: None,
            result: result.as_ref().map(Content::reference),
        };
        let signature = key.sign(&statement);
        SignedAnswer {
            run: question.run,
            question: question.id,
            shown: question.digest,
            statement,
            signature,
            note: None,
            result,
        }
    }

    pub(crate) fn answer(
        &self,
        person: &str,
        question: &Question,
        answer: Answer,
    ) -> Result<Answered, GateError> {
        let signed = self.signed(person, question, answer);
        block_on(operator::answer(&self.parts(9), &self.scope, signed))
    }

    pub(crate) fn content(&self, bytes: &[u8]) -> Content {
        Content::seal(bytes.to_vec(), self.entropy.as_ref())
    }
}

/// The deadline of a tool that states no other.
pub(crate) const DEADLINE: Duration = Duration::from_secs(5);

/// How long a call is waited for before it is looked whether its run has ended.
const LOOK: Duration = Duration::from_secs(1);

/// Waits for what another thread does.
#[track_caller]
pub(crate) fn until(holds: impl Fn() -> bool) {
    let begun = std::time::Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it does not come to pass");
        std::thread::yield_now();
    }
}

/// A tool call as raw bytes.
pub(crate) fn call(tool: &str, n: i64) -> Vec<u8> {
    format!(r#"{{"kind":"tool_call","tool":"{tool}","arguments":{{"n":{n}}}}}"#).into_bytes()
}

/// Proposes a call and executes it when it is allowed.
pub(crate) fn turn(held: &mut HeldRun, raw: Vec<u8>) -> Progress {
    let progress = block_on(held.propose(raw)).unwrap();
    if progress == Progress::Allowed { block_on(held.execute()).unwrap() } else { progress }
}

/// Proposes a call that asks and returns the question.
pub(crate) fn ask(held: &mut HeldRun, tool: &str) -> QuestionId {
    match block_on(held.propose(call(tool, 1))).unwrap() {
        Progress::Waiting(question) => question,
        other => panic!("expected a question, got {other:?}"),
    }
}
