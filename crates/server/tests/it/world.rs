//! A proxy with everything around it in a test's hands.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use portcullis_audit::keys::{KeyEntry, Keyring, SigningKey};
use portcullis_canon::{Limits, Object, Value, parse};
use portcullis_domain::approval::{Answer, Statement};
use portcullis_domain::content::Content;
use portcullis_domain::event::Body;
use portcullis_domain::id::QuestionId;
use portcullis_domain::lease::ProcessIdentity;
use portcullis_domain::ports::{
    BoxFuture, Clock as _, EventFilter, MAX_PAGE, Page, Processes, Store as _, ToolSource,
};
use portcullis_domain::question::{Question, QuestionKind, QuestionStatus};
use portcullis_domain::run::Run;
use portcullis_domain::scope::Scope;
use portcullis_domain::tally::ThreadLimits;
use portcullis_engine::operator::{self, Answered, SignedAnswer};
use portcullis_engine::{GateError, Parts, Timing, Tools};
use portcullis_mcp::{Board, Hearing, HostCall, HostProgress, HostReply, McpOffers, Served as _};
use portcullis_policy::ClassTable;
use portcullis_server::proxy::{
    Completing, Notes, Proxy, ProxyError, REPEAT_KEY, Servers, Settings, THREAD_KEY, Wakes,
};
use portcullis_store::memory::MemoryStore;
use portcullis_testkit::block_on;
pub(crate) use portcullis_testkit::doubles::{Does, HostileTools};
use portcullis_testkit::ports::{FixedProcesses, ManualClock, SeededEntropy, ThreadSpawn};

pub(crate) struct World {
    pub(crate) store: MemoryStore,
    pub(crate) clock: ManualClock,
    pub(crate) tools: Arc<HostileTools>,
    pub(crate) told: Arc<Told>,
    /// What MCP servers offer beside tools.
    pub(crate) offers: Vec<Arc<McpOffers>>,
    /// Where their calls say how far they are.
    pub(crate) board: Arc<Board>,
    pub(crate) classes: ClassTable,
    /// The bounds of the conversation, for proxies that are opened from now on.
    pub(crate) conversation: Option<ThreadLimits>,
    dead: Arc<Mutex<Vec<u32>>>,
    person: SigningKey,
    entropy: Arc<SeededEntropy>,
    spawn: ThreadSpawn,
    scope: Scope,
}

/// What the operator was told.
#[derive(Default)]
pub(crate) struct Told {
    pub(crate) asked: Mutex<Vec<(QuestionId, QuestionKind, String)>>,
    pub(crate) faults: Mutex<Vec<String>>,
}

impl Notes for Told {
    fn asked(&self, question: QuestionId, kind: QuestionKind, tool: &str) {
        self.asked.lock().unwrap().push((question, kind, tool.to_owned()));
    }

    fn fault(&self, error: &GateError) {
        self.faults.lock().unwrap().push(error.to_string());
    }
}

/// A host that waits to the end, and counts what it is told meanwhile.
#[derive(Default)]
pub(crate) struct Ear {
    pub(crate) notices: Mutex<Vec<HostProgress>>,
}

impl Hearing for Ear {
    fn progress(&self, progress: HostProgress) -> BoxFuture<'_, ()> {
        self.notices.lock().unwrap().push(progress);
        Box::pin(std::future::ready(()))
    }

    fn cancelled(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }
}

/// A host that has given up already.
pub(crate) struct Gone;

impl Hearing for Gone {
    fn progress(&self, _: HostProgress) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    fn cancelled(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// The machine as one process sees it, with the deaths that all processes share.
struct Machine {
    fixed: FixedProcesses,
    dead: Arc<Mutex<Vec<u32>>>,
}

impl Processes for Machine {
    fn current(&self) -> ProcessIdentity {
        self.fixed.current()
    }

    fn is_dead(&self, process: &ProcessIdentity) -> bool {
        for pid in self.dead.lock().unwrap().iter() {
            self.fixed.kill(*pid);
        }
        self.fixed.is_dead(process)
    }
}

impl World {
    pub(crate) fn new() -> Self {
        let clock = ManualClock::default();
        let entropy = Arc::new(SeededEntropy::new(11));
        Self {
            store: MemoryStore::new(clock.now(), entropy.as_ref()),
            clock,
            tools: HostileTools::new(false),
            told: Arc::default(),
            offers: Vec::new(),
            board: Arc::default(),
            classes: ClassTable::default(),
            conversation: None,
            dead: Arc::default(),
            person: SigningKey::generate(entropy.as_ref()),
            entropy,
            spawn: ThreadSpawn::with_places(2),
            scope: Scope::of_file_owner(),
        }
    }

    fn parts(&self, pid: u32, wakes: &Arc<Wakes>) -> Parts {
        let keys =
            Keyring::new([KeyEntry::new(self.person.public(), "ann", ["operator"])]).unwrap();
        let offers = self.offers.iter().cloned().map(|offers| offers as Arc<dyn ToolSource>);
        let sources = [self.tools.clone() as Arc<dyn ToolSource>].into_iter().chain(offers);
        let completing = |source| Arc::new(Completing::new(source)) as Arc<dyn ToolSource>;
        Parts {
            store: Arc::new(self.store.handle(vec![wakes.clone()])),
            clock: Arc::new(self.clock.clone()),
            entropy: self.entropy.clone(),
            spawn: Arc::new(self.spawn.clone()),
            processes: Arc::new(Machine {
                fixed: FixedProcesses::new(pid),
                dead: Arc::clone(&self.dead),
            }),
            keys: Arc::new(keys),
            policy: Arc::new(self.classes.clone()),
            tools: Arc::new(Tools::register(sources.map(completing).collect()).unwrap()),
            reconcile: None,
            conversation: self.conversation,
            timing: Timing::default(),
        }
    }

    /// Settings that hold no call, for a conversation that all proxies share.
    pub(crate) fn settings(&self) -> Settings {
        Settings { thread: Some("editor".to_owned()), hold: Duration::ZERO, ..Settings::of("ann") }
    }

    fn servers(&self) -> Servers {
        Servers { offers: self.offers.clone(), board: Arc::clone(&self.board) }
    }

    /// The proxy of one process.
    pub(crate) fn proxy_with(&self, pid: u32, settings: Settings) -> Arc<Proxy> {
        Arc::new(self.open(pid, settings).unwrap())
    }

    pub(crate) fn try_proxy(&self, settings: Settings) -> Result<Proxy, ProxyError> {
        self.open(1, settings)
    }

    fn open(&self, pid: u32, settings: Settings) -> Result<Proxy, ProxyError> {
        let wakes = Arc::new(Wakes::default());
        let parts = self.parts(pid, &wakes);
        Proxy::open(parts, settings, wakes, self.told.clone(), self.servers())
    }

    pub(crate) fn proxy(&self, pid: u32) -> Arc<Proxy> {
        self.proxy_with(pid, self.settings())
    }

    /// The process dies: its leases stay, and there is proof of its death.
    pub(crate) fn kill(&self, pid: u32) {
        self.dead.lock().unwrap().push(pid);
    }

    /// The questions that wait for a person.
    pub(crate) fn open_questions(&self) -> Vec<Question> {
        let page = Page { offset: 0, limit: MAX_PAGE };
        let open = Some(QuestionStatus::Open);
        let rows = block_on(self.store.questions(&self.scope, None, open, page)).unwrap().rows;
        rows.into_iter().map(Result::unwrap).collect()
    }

    /// The one question that waits.
    #[track_caller]
    pub(crate) fn question(&self) -> Question {
        let mut open = self.open_questions();
        assert_eq!(open.len(), 1, "{open:?}");
        open.remove(0)
    }

    /// A person answers, in a process of their own.
    pub(crate) fn answer(
        &self,
        question: &Question,
        answer: Answer,
        note: Option<&str>,
    ) -> Answered {
        let note = note.map(|note| Content::seal(note.as_bytes().to_vec(), self.entropy.as_ref()));
        let statement = Statement {
            covers: vec![question.digest],
            answer,
            key: self.person.id(),
            at: self.clock.now(),
            note: note.as_ref().map(Content::reference),
            result: None,
        };
        let signature = self.person.sign(&statement);
        let signed = SignedAnswer {
            run: question.run,
            question: question.id,
            shown: question.digest,
            statement,
            signature,
            note,
            result: None,
        };
        let parts = self.parts(99, &Arc::new(Wakes::default()));
        block_on(operator::answer(&parts, &self.scope, signed)).unwrap()
    }

    /// Where all that was read in the conversation of these proxies comes from.
    pub(crate) fn origins(&self) -> Vec<String> {
        let thread = self.runs().last().map(|run| run.thread).unwrap();
        let thread = block_on(self.store.thread(&self.scope, thread)).unwrap().unwrap();
        thread.labels.origins().iter().map(ToString::to_string).collect()
    }

    pub(crate) fn runs(&self) -> Vec<Run> {
        let page = Page { offset: 0, limit: MAX_PAGE };
        let rows = block_on(self.store.runs(&self.scope, None, page)).unwrap().rows;
        rows.into_iter().map(Result::unwrap).collect()
    }

    pub(crate) fn count(&self, kind: &str) -> usize {
        self.bodies().iter().filter(|body| body.name() == kind).count()
    }

    /// Everything that is recorded.
    pub(crate) fn bodies(&self) -> Vec<Body> {
        let (mut bodies, mut after) = (Vec::new(), 0);
        loop {
            let filter = EventFilter { stream: None, after, limit: MAX_PAGE };
            let events = block_on(self.store.events(&self.scope, filter)).unwrap();
            let Some(last) = events.last() else { return bodies };
            after = u64::try_from(last.journal_seq).unwrap();
            bodies.extend(events.iter().map(|e| {
                Body::read(&e.kind, u32::try_from(e.version).unwrap(), &e.payload).unwrap()
            }));
        }
    }
}

pub(crate) fn object(text: &str) -> Object {
    let Value::Object(object) = parse(text.as_bytes(), &Limits::BARE).unwrap() else {
        panic!("{text}")
    };
    object
}

/// A call as a host makes it.
pub(crate) fn host_call(tool: &str, n: i64) -> HostCall {
    let arguments = object(&format!(r#"{{"n":{n}}}"#));
    HostCall { tool: tool.to_owned(), arguments, meta: Object::new(), connection: None }
}

/// The same, meant once more.
pub(crate) fn repeated(tool: &str, n: i64, key: &str) -> HostCall {
    let mut call = host_call(tool, n);
    call.meta.insert(REPEAT_KEY, key);
    call
}

/// The same, in a conversation that the host names.
pub(crate) fn in_thread(tool: &str, n: i64, name: &str) -> HostCall {
    let mut call = host_call(tool, n);
    call.meta.insert(THREAD_KEY, name);
    call
}

pub(crate) fn made(proxy: &Proxy, call: HostCall) -> HostReply {
    block_on(proxy.call(call, &Ear::default()))
}

pub(crate) fn make(proxy: &Proxy, tool: &str, n: i64) -> HostReply {
    made(proxy, host_call(tool, n))
}

/// The word with which an answer begins; `-` for what the tool itself gave.
pub(crate) fn word(reply: &HostReply) -> &str {
    let first = reply.text.split(": ").next().unwrap();
    let is_word = !first.is_empty() && first.bytes().all(|b| b.is_ascii_uppercase() || b == b'_');
    if is_word { first } else { "-" }
}

/// Waits until something holds, and not for ever.
#[track_caller]
pub(crate) fn until(mut holds: impl FnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it does not come to pass");
        std::thread::yield_now();
    }
}
