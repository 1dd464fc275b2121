//! What all processes of one history share: the machine, its clock, the record, people, and the log of what happened.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use portcullis_audit::keys::{KeyEntry, Keyring, SigningKey};
use portcullis_domain::approval::{Signature, Statement};
use portcullis_domain::id::RunId;
use portcullis_domain::lease::ProcessIdentity;
use portcullis_domain::ports::{
    Append, Clock as _, KeyRefusal, Policy, PolicyFailure, Processes, ProposedCall, Reviewer,
    ReviewerKeys,
};
use portcullis_domain::scope::Scope;
use portcullis_domain::verdict::{Facts, PolicyId, Verdict};
use portcullis_engine::{Answers, Parts, Reconcile, RegisterError, Timing, Tools};
use portcullis_policy::ClassTable;
use portcullis_store::memory::MemoryStore;
use portcullis_testkit::ports::{FixedProcesses, ManualClock, SeededEntropy};

use crate::draw::Draw;
use crate::executor::{Executor, Pid};
use crate::host::Host;
use crate::log::{Entry, Names, What};
use crate::oracle::Broken;
use crate::planted::Planted;
use crate::seen::Seen;
use crate::store::SimStore;
use crate::tools::{Reading, Writing};

/// Who can answer, with the role of each. The first one owns all runs.
pub(crate) const PEOPLE: [(&str, &str); 4] =
    [("ann", "operator"), ("ben", "operator"), ("dan", "operator"), ("eve", "visitor")];

/// The role that is asked.
pub(crate) const ROLE: &str = "operator";

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How often what goes wrong in one history, per mille of the occasions.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mood {
    /// An append that fails, or whose answer is lost.
    pub(crate) store: u64,
    /// A renewal that fails.
    pub(crate) renewal: u64,
    /// An append that is delivered twice.
    pub(crate) twice: u64,
    /// A process that dies, at each step of the scheduler.
    pub(crate) crash: u64,
    /// A process that is stopped, at each step of the scheduler.
    pub(crate) stop: u64,
    /// A wall clock that jumps, at each step of the scheduler.
    pub(crate) jump: u64,
    /// A tool that does not simply answer.
    pub(crate) tool: u64,
    /// A wait that is abandoned.
    pub(crate) abandon: u64,
}

impl Mood {
    /// The mood of a history: some are calm, so that runs get far; others fail all the time.
    pub(crate) fn draw(draw: &mut Draw) -> Self {
        let mut rate = |most: &[u64]| draw.pick(most).copied().unwrap_or(0);
        Self {
            store: rate(&[0, 20, 60, 150]),
            renewal: rate(&[0, 50, 500]),
            twice: rate(&[0, 30, 150]),
            crash: rate(&[0, 2, 6, 15]),
            stop: rate(&[0, 2, 6]),
            jump: rate(&[0, 0, 3, 8]),
            tool: rate(&[0, 200, 500]),
            abandon: rate(&[0, 100, 300]),
        }
    }
}

/// The policy of a history, which may be another one from some moment on.
pub(crate) struct Rules(pub(crate) Mutex<ClassTable>);

impl Policy for Rules {
    fn id(&self) -> PolicyId {
        lock(&self.0).id()
    }

    fn decide(&self, call: &ProposedCall<'_>, facts: &Facts) -> Result<Verdict, PolicyFailure> {
        lock(&self.0).decide(call, facts)
    }
}

/// The configured keys, or a key ring that is wrong.
struct Keys {
    ring: Keyring,
    anybody: bool,
}

impl ReviewerKeys for Keys {
    fn verify(&self, statement: &Statement, signature: &Signature) -> Result<Reviewer, KeyRefusal> {
        match self.ring.verify(statement, signature) {
            Ok(reviewer) if self.anybody => {
                Ok(Reviewer { roles: vec![ROLE.to_owned()], ..reviewer })
            }
            verified => verified,
        }
    }

    fn people(&self, role: &str) -> BTreeSet<String> {
        self.ring.people(role)
    }
}

/// One history's world.
pub(crate) struct World {
    pub(crate) clock: ManualClock,
    pub(crate) executor: Executor,
    pub(crate) record: MemoryStore,
    pub(crate) rules: Arc<Rules>,
    pub(crate) people: BTreeMap<&'static str, SigningKey>,
    pub(crate) ring: Keyring,
    pub(crate) planted: Option<Planted>,
    pub(crate) scope: Scope,
    /// Whether hosts can look outside.
    has_hook: bool,
    entropy: Arc<SeededEntropy>,
    inner: Mutex<Inner>,
}

struct Inner {
    draw: Draw,
    mood: Mood,
    log: Vec<Entry>,
    names: Names,
    seen: Seen,
    /// Processes with proof that they are dead.
    proven_dead: BTreeSet<Pid>,
    /// Processes that are to end before anything else happens; true for those that crash.
    doomed: BTreeMap<Pid, bool>,
    /// Appends that were stored and are going to be delivered once more.
    mail: Vec<(Pid, Append)>,
    /// Appends that were stored and whose caller has not heard.
    unheard: BTreeMap<Pid, u32>,
    /// What broke a rule while the history ran.
    broken: Vec<Broken>,
}

impl World {
    pub(crate) fn new(seed: u64, planted: Option<Planted>) -> Self {
        let mut draw = Draw::new(seed);
        let entropy = Arc::new(SeededEntropy::new(draw.below(u64::MAX)));
        let clock = ManualClock::default();
        let people: BTreeMap<_, _> =
            PEOPLE.map(|(name, _)| (name, SigningKey::generate(entropy.as_ref()))).into();
        let entries = PEOPLE.iter().filter_map(|(name, role)| {
            Some(KeyEntry::new(people.get(name)?.public(), name, [*role]))
        });
        // Four different keys can always be put together.
        let ring = Keyring::new(entries).unwrap_or_default();
        let rules = crate::history::draw_rules(&mut draw);
        let mood = Mood::draw(&mut draw);
        let has_hook = draw.chance(500);
        Self {
            has_hook,
            record: MemoryStore::new(clock.now(), entropy.as_ref()),
            clock,
            executor: Executor::default(),
            rules: Arc::new(Rules(Mutex::new(rules))),
            people,
            ring,
            planted,
            scope: Scope::of_file_owner(),
            entropy,
            inner: Mutex::new(Inner {
                draw,
                mood,
                log: Vec::new(),
                names: Names::default(),
                seen: Seen::default(),
                proven_dead: BTreeSet::new(),
                doomed: BTreeMap::new(),
                mail: Vec::new(),
                unheard: BTreeMap::new(),
                broken: Vec::new(),
            }),
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }

    /// Draws something.
    pub(crate) fn draw<T>(&self, with: impl FnOnce(&mut Draw) -> T) -> T {
        with(&mut self.inner().draw)
    }

    pub(crate) fn chance(&self, per_mille: u64) -> bool {
        self.draw(|draw| draw.chance(per_mille))
    }

    pub(crate) fn mood(&self) -> Mood {
        self.inner().mood
    }

    /// From now on nothing goes wrong any more.
    pub(crate) fn calm(&self) {
        let mut inner = self.inner();
        inner.mood = Mood::default();
        inner.mail.clear();
    }

    pub(crate) fn count(&self, kind: &'static str) {
        self.inner().seen.count(kind);
    }

    pub(crate) fn log(&self, what: What) {
        self.log_as(self.executor.current(), what);
    }

    pub(crate) fn log_as(&self, pid: Pid, what: What) {
        let entry = Entry { at: self.clock.monotonic().0, wall: self.clock.now(), pid, what };
        self.inner().log.push(entry);
    }

    pub(crate) fn note(&self, text: impl Into<String>) {
        self.log(What::Note(text.into()));
    }

    /// Takes a note of the world itself.
    pub(crate) fn world_note(&self, text: impl Into<String>) {
        self.log_as(0, What::Note(text.into()));
    }

    /// A rule is broken, as somebody saw while the history ran.
    pub(crate) fn broke(&self, rule: &'static str, text: String) {
        self.inner().broken.push((rule, text));
    }

    pub(crate) fn name(&self, run: RunId) -> String {
        self.inner().names.of('r', run.as_bytes())
    }

    /// The process ends before anything else happens, by itself or by a crash.
    pub(crate) fn doom(&self, pid: Pid, crashes: bool) {
        self.inner().doomed.entry(pid).or_insert(crashes);
    }

    pub(crate) fn take_doomed(&self) -> Option<(Pid, bool)> {
        self.inner().doomed.pop_first()
    }

    pub(crate) fn prove_dead(&self, pid: Pid) {
        self.inner().proven_dead.insert(pid);
    }

    pub(crate) fn post(&self, pid: Pid, append: Append) {
        self.inner().mail.push((pid, append));
    }

    pub(crate) fn take_mail(&self) -> Option<(Pid, Append)> {
        let mut inner = self.inner();
        let count = u64::try_from(inner.mail.len()).unwrap_or(0);
        let at = usize::try_from(inner.draw.below(count)).unwrap_or(0);
        (count > 0).then(|| inner.mail.swap_remove(at))
    }

    /// Whether a caller of the process waits for the answer to an append that is stored.
    pub(crate) fn unheard(&self, pid: Pid) -> bool {
        self.inner().unheard.get(&pid).is_some_and(|count| *count > 0)
    }

    pub(crate) fn hear(&self, pid: Pid, heard: bool) {
        let mut inner = self.inner();
        let count = inner.unheard.entry(pid).or_insert(0);
        *count = if heard { count.saturating_sub(1) } else { *count + 1 };
    }

    /// What the history left behind.
    pub(crate) fn take(&self) -> Left {
        let mut inner = self.inner();
        Left {
            log: std::mem::take(&mut inner.log),
            names: inner.names.clone(),
            seen: std::mem::take(&mut inner.seen),
            broken: std::mem::take(&mut inner.broken),
        }
    }

    /// The log so far, lent.
    pub(crate) fn with_log<T>(&self, look: impl FnOnce(&[Entry]) -> T) -> T {
        look(&self.inner().log)
    }
}

/// What a history left behind.
pub(crate) struct Left {
    pub(crate) log: Vec<Entry>,
    pub(crate) names: Names,
    pub(crate) seen: Seen,
    pub(crate) broken: Vec<Broken>,
}

/// The machine as one process sees it.
struct Machine {
    world: Arc<World>,
    pid: Pid,
}

impl Processes for Machine {
    fn current(&self) -> ProcessIdentity {
        FixedProcesses::identity(self.pid)
    }

    fn is_dead(&self, process: &ProcessIdentity) -> bool {
        *process == FixedProcesses::identity(process.pid)
            && self.world.inner().proven_dead.contains(&process.pid)
    }
}

/// A world with its tools: what a process is put together from.
#[derive(Clone)]
pub(crate) struct Site {
    pub(crate) world: Arc<World>,
    tools: Arc<Tools>,
    /// What hears of answers in a process that has a runner.
    pub(crate) answers: Option<Arc<Answers>>,
}

impl Site {
    pub(crate) fn new(world: World) -> Result<Self, RegisterError> {
        let world = Arc::new(world);
        let reading = Arc::new(Reading(Arc::clone(&world)));
        let writing = Arc::new(Writing(Arc::clone(&world)));
        let tools = Arc::new(Tools::register(vec![reading, writing])?);
        Ok(Self { world, tools, answers: None })
    }

    /// The parts of a gate in one process.
    pub(crate) fn parts(&self, pid: Pid) -> Parts {
        let world = &self.world;
        Parts {
            store: Arc::new(SimStore::new(Arc::clone(world), pid, self.answers.clone())),
            clock: Arc::new(world.clock.clone()),
            entropy: world.entropy.clone(),
            spawn: Arc::new(world.executor.of(pid)),
            processes: Arc::new(Machine { world: Arc::clone(world), pid }),
            keys: Arc::new(Keys {
                ring: world.ring.clone(),
                anybody: world.planted == Some(Planted::AnySignatureCounts),
            }),
            policy: world.rules.clone(),
            tools: Arc::clone(&self.tools),
            reconcile: world
                .has_hook
                .then(|| Arc::new(Host { world: Arc::clone(world), pid }) as Arc<dyn Reconcile>),
            conversation: None,
            timing: TIMING,
        }
    }

    /// Sleeps on the world's clock.
    pub(crate) async fn sleep(&self, ms: u64) {
        use portcullis_domain::ports::Clock as _;
        self.world.clock.sleep(Duration::from_millis(ms)).await;
    }
}

/// How long things may take in a history.
pub(crate) const TIMING: Timing = Timing {
    lease: Duration::from_secs(12),
    policy: Duration::from_secs(1),
    record: Duration::from_secs(10),
};
