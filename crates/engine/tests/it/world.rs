//! A gate with everything around it in a test's hands.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use portcullis_audit::keys::{KeyEntry, Keyring, SigningKey};
use portcullis_canon::{Limits as JsonLimits, Object, Value, parse};
use portcullis_domain::approval::{Answer, Statement};
use portcullis_domain::content::Content;
use portcullis_domain::event::Body;
use portcullis_domain::fold::RunState;
use portcullis_domain::id::{QuestionId, RunId};
use portcullis_domain::limits::Limits;
use portcullis_domain::permit::Permit;
use portcullis_domain::ports::{
    BoxFuture, Clock, EventFilter, MAX_PAGE, Policy, PolicyFailure, ProposedCall, Store,
    ToolFailure, ToolOutput, ToolSource,
};
use portcullis_domain::question::Question;
use portcullis_domain::scope::Scope;
use portcullis_domain::step::Step;
use portcullis_domain::tool::{EffectClass, ToolSpec};
use portcullis_domain::verdict::{Facts, PolicyId, Verdict};
use portcullis_engine::operator::{self, Answered, SignedAnswer};
use portcullis_engine::{
    Attached, Gate, GateError, HeldRun, Parts, Progress, Reconcile, Task, Timing, Tools,
};
use portcullis_policy::{ClassTable, Outcome};
use portcullis_store::memory::MemoryStore;
use portcullis_testkit::block_on;
use portcullis_testkit::ports::{FixedProcesses, ManualClock, SeededEntropy, ThreadSpawn};

/// What a tool does when it is called.
#[derive(Clone, Debug)]
pub(crate) enum Does {
    /// Answers with these bytes.
    Answer(Vec<u8>),
    /// Fails and changed nothing.
    Fail,
    /// Fails and may have changed something.
    Unknown,
    /// Asks to end the run.
    Abort,
    /// Panics.
    Panic,
    /// Answers when the test lets it.
    Hang,
}

/// Tools named after their class: `look`, `write`, `send`, `burn`, and `end` and `finish`, which complete the run.
pub(crate) struct FakeTools {
    does: Mutex<BTreeMap<String, Does>>,
    /// What the next calls do, before what is set for all of them.
    first: Mutex<BTreeMap<String, VecDeque<Does>>>,
    more: Mutex<Vec<ToolSpec>>,
    effects: Mutex<BTreeMap<String, u32>>,
    seen: Mutex<Vec<Object>>,
    gate: (Mutex<bool>, Condvar),
    blocks: bool,
    description: Mutex<String>,
}

impl FakeTools {
    pub(crate) fn new(blocks: bool) -> Arc<Self> {
        Arc::new(Self {
            does: Mutex::default(),
            first: Mutex::default(),
            more: Mutex::default(),
            effects: Mutex::default(),
            seen: Mutex::default(),
            gate: (Mutex::new(false), Condvar::new()),
            blocks,
            description: Mutex::new("A tool.".to_owned()),
        })
    }

    pub(crate) fn set(&self, tool: &str, does: Does) {
        self.does.lock().unwrap().insert(tool.to_owned(), does);
    }

    /// What the next call does, once.
    pub(crate) fn first(&self, tool: &str, does: Does) {
        self.first.lock().unwrap().entry(tool.to_owned()).or_default().push_back(does);
    }

    /// One more tool.
    pub(crate) fn add(&self, spec: ToolSpec) {
        self.more.lock().unwrap().push(spec);
    }

    /// The tool of that name as it is from now on.
    pub(crate) fn replace(&self, spec: ToolSpec) {
        let mut more = self.more.lock().unwrap();
        more.retain(|known| known.name != spec.name);
        more.push(spec);
    }

    pub(crate) fn describe(&self, text: &str) {
        text.clone_into(&mut self.description.lock().unwrap());
    }

    /// How often the tool was called.
    pub(crate) fn effects(&self, tool: &str) -> u32 {
        self.effects.lock().unwrap().get(tool).copied().unwrap_or(0)
    }

    /// The arguments of every call, in order.
    pub(crate) fn seen(&self) -> Vec<Object> {
        self.seen.lock().unwrap().clone()
    }

    /// Lets every hanging call answer.
    pub(crate) fn let_go(&self) {
        *self.gate.0.lock().unwrap() = true;
        self.gate.1.notify_all();
    }

    fn perform(&self, permit: &Permit) -> Result<ToolOutput, ToolFailure> {
        // Read before the call is counted: whoever waits for the count may then set what the next call does.
        let first = self.first.lock().unwrap().get_mut(permit.tool()).and_then(VecDeque::pop_front);
        let does = first.or_else(|| self.does.lock().unwrap().get(permit.tool()).cloned());
        self.seen.lock().unwrap().push(permit.arguments().clone());
        *self.effects.lock().unwrap().entry(permit.tool().to_owned()).or_insert(0) += 1;
        let message = "as planned".to_owned();
        match does.unwrap_or_else(|| Does::Answer(br#"{"ok":true}"#.to_vec())) {
            Does::Answer(content) => Ok(ToolOutput { content, labels: None }),
            Does::Fail => Err(ToolFailure::NothingHappened { message }),
            Does::Unknown => Err(ToolFailure::Unknown { message }),
            Does::Abort => Err(ToolFailure::Abort { message }),
            Does::Panic => panic!("as planned"),
            Does::Hang => {
                let mut open = self.gate.0.lock().unwrap();
                while !*open {
                    open = self.gate.1.wait(open).unwrap();
                }
                Ok(ToolOutput { content: br#"{"late":true}"#.to_vec(), labels: None })
            }
        }
    }

    pub(crate) fn spec(&self, name: &str, effect: EffectClass, terminal: bool) -> ToolSpec {
        let schema = r#"{"type":"object","additionalProperties":false,"properties":{
            "n":{"type":"integer"},"to":{"type":"string","maxLength":64,"default":"nobody"}}}"#;
        ToolSpec {
            name: name.to_owned(),
            description: self.description.lock().unwrap().clone(),
            input_schema: parse(schema.as_bytes(), &JsonLimits::BARE).unwrap(),
            effect,
            source: true,
            sink: effect.changes_something(),
            authority: vec!["/to".to_owned()],
            deadline_ms: 5_000,
            terminal,
            fixed: Object::new(),
            max_result_bytes: 4_096,
            target: None,
            probe: None,
            idempotency_key: None,
        }
    }
}

impl ToolSource for FakeTools {
    fn specs(&self) -> Vec<ToolSpec> {
        let mut specs = vec![
            self.spec("look", EffectClass::ReadOnly, false),
            self.spec("write", EffectClass::LocalMutation, false),
            self.spec("send", EffectClass::RemoteMutation, false),
            self.spec("burn", EffectClass::Destructive, false),
            self.spec("end", EffectClass::ReadOnly, true),
            self.spec("finish", EffectClass::LocalMutation, true),
        ];
        specs.extend(self.more.lock().unwrap().iter().cloned());
        specs
    }

    fn blocks(&self) -> bool {
        self.blocks
    }

    fn call(&self, permit: Permit) -> BoxFuture<'_, Result<ToolOutput, ToolFailure>> {
        Box::pin(async move { self.perform(&permit) })
    }
}

/// How a policy misbehaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Misbehaves {
    Not,
    Fails,
    Panics,
    Dawdles,
}

/// A policy that a test can exchange, and that keeps what it was asked.
pub(crate) struct SwitchPolicy {
    table: Mutex<ClassTable>,
    misbehaves: Mutex<Misbehaves>,
    clock: ManualClock,
    pub(crate) asked: Mutex<Vec<(String, Vec<u8>)>>,
}

impl SwitchPolicy {
    pub(crate) fn set(&self, class: EffectClass, outcome: Outcome) {
        let mut table = self.table.lock().unwrap();
        *table = table.clone().with(class, outcome);
    }

    pub(crate) fn misbehave(&self, how: Misbehaves) {
        *self.misbehaves.lock().unwrap() = how;
    }
}

impl Policy for SwitchPolicy {
    fn id(&self) -> PolicyId {
        self.table.lock().unwrap().id()
    }

    fn decide(&self, call: &ProposedCall<'_>, facts: &Facts) -> Result<Verdict, PolicyFailure> {
        let arguments = call.arguments.to_canonical();
        self.asked.lock().unwrap().push((call.tool.name.clone(), arguments));
        match *self.misbehaves.lock().unwrap() {
            Misbehaves::Not => {}
            Misbehaves::Fails => {
                return Err(PolicyFailure(portcullis_domain::refusal::Refusal::PolicyFailed));
            }
            Misbehaves::Panics => panic!("as planned"),
            Misbehaves::Dawdles => self.clock.advance(Duration::from_secs(2)),
        }
        self.table.lock().unwrap().decide(call, facts)
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
        let policy = Arc::new(SwitchPolicy {
            table: Mutex::new(ClassTable::default()),
            misbehaves: Mutex::new(Misbehaves::Not),
            clock: clock.clone(),
            asked: Mutex::default(),
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
            keyring,
            entropy,
            scope: Scope::of_file_owner(),
        }
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
