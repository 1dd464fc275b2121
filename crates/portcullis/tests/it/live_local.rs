//! A real model server on this machine: its tool calls pass the gate, and what is recorded as used is what it counted.
//!
//! `cargo xtask test --live-local` starts the server (llama.cpp, with random weights and a grammar) and names it in a variable;
//! without it there is nothing to ask. The model answers at random, so nothing here rests on what it says.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use portcullis::audit::keys::Keyring;
use portcullis::audit::{Options, verify};
use portcullis::canon::{Limits as JsonLimits, Object, Value, parse};
use portcullis::domain::budget::{Amounts, BudgetScope};
use portcullis::domain::event::Body;
use portcullis::domain::id::RunId;
use portcullis::domain::limits::Limits;
use portcullis::domain::ports::{
    Clock, EventFilter, Ledgers as _, MAX_PAGE, ModelName, Page, Price, ReviewerKeys, Store as _,
    Watch,
};
use portcullis::domain::run::EndReason;
use portcullis::domain::scope::Scope;
use portcullis::domain::step::{Step, StepStatus};
use portcullis::engine::spend::spend;
use portcullis::engine::{Driven, Driving, Engaged, Gate, Parts, Task, Timing, Tools};
use portcullis::policy::ClassTable;
use portcullis::sandbox::identity::LinuxProcesses;
use portcullis::store::sqlite::open::OpenMode;
use portcullis::store::sqlite::{Committing, Opening, SqliteStore};
use portcullis::system::{OsEntropy, SystemClock, TokioSpawn};
use portcullis::tools::Files;
use portcullis_egress::{Credentials, Egress, EgressRules, Method, Request, Target};
use portcullis_models::{
    AgentSetup, Dialect, FenceSeed, ModelAgent, OverEgress, Profile, Provider, ProviderConfig,
};

/// Names the server, as `http://127.0.0.1:PORT`.
const SERVER: &str = "PORTCULLIS_LIVE_LOCAL";

/// How many tools are called before the model has words.
const CALLS: usize = 4;

/// The tools that the grammar admits: those that succeed whatever a model writes into their arguments.
const CALLABLE: [&str; 3] = ["files.list", "files.search", "files.make_folder"];

/// The server, and the one client that goes there.
struct Server {
    base: String,
    egress: Egress,
    clock: Arc<dyn Clock>,
}

impl Server {
    /// The server that was named, if one was.
    fn named() -> Option<Self> {
        let Ok(base) = std::env::var(SERVER) else {
            let reason =
                "no model server on this machine: `cargo xtask test --live-local` starts one";
            portcullis_testkit::skip::skip(reason);
            return None;
        };
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let rules = EgressRules::closed().loopback_port(Target::parse(&base).unwrap().port());
        let egress = Egress::new(rules, Credentials::none(), Arc::clone(&clock)).unwrap();
        Some(Self { base, egress, clock })
    }

    fn model(&self) -> Engaged {
        let config = ProviderConfig {
            name: ModelName::read("local:tiny").unwrap(),
            dialect: Dialect::OpenAi,
            base: format!("{}/v1", self.base),
            credential: None,
            marked_for: std::collections::BTreeSet::new(),
            price: Price::Free,
        };
        let transport = OverEgress::new(self.egress.clone(), Arc::clone(&self.clock));
        Engaged::new(Arc::new(Provider::new(config, Arc::new(transport)).unwrap()))
    }

    /// What the server counted, one entry for each call that it served.
    async fn counted(&self) -> Vec<Amounts> {
        let target = Target::parse(&format!("{}/usage", self.base)).unwrap();
        let answer = self.egress.send(Request::new(Method::Get, target)).await.unwrap();
        let served = parse(&answer.body, &JsonLimits::BARE).unwrap();
        let amounts = |usage: &Value| {
            let tokens = |key| usage.get(key).and_then(Value::as_u64).unwrap();
            let (input_tokens, output_tokens) =
                (tokens("prompt_tokens"), tokens("completion_tokens"));
            Amounts { calls: 1, input_tokens, output_tokens, cost_micros: 0 }
        };
        served.as_array().unwrap().iter().map(amounts).collect()
    }
}

/// How the model is asked. The last members are the server's own.
fn setup(watch: Option<Watch>) -> AgentSetup {
    let callable: Value =
        CALLABLE.map(portcullis_models::wire_name).iter().map(String::as_str).collect();
    AgentSetup {
        dialect: Dialect::OpenAi,
        model: "tiny".to_owned(),
        profile: Profile::LATEST,
        seed: FenceSeed::draw(&OsEntropy),
        system: None,
        max_output_tokens: 512,
        strict_tools: false,
        extra: Object::from_iter([
            ("callable", callable),
            ("calls", Value::from(CALLS)),
            ("seed", Value::from(7_u64)),
        ]),
        read_only: std::collections::BTreeSet::new(),
        watch,
    }
}

/// A gate over a database and a folder of its own.
struct House {
    _folder: tempfile::TempDir,
    files: std::path::PathBuf,
    store: Arc<SqliteStore>,
    parts: Parts,
}

impl House {
    fn new(clock: &Arc<dyn Clock>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (files, state) = (folder.path().join("files"), folder.path().join("state"));
        for made in [&files, &state] {
            std::fs::create_dir(made).unwrap();
        }
        let opening = Opening {
            now: clock.now(),
            entropy: &OsEntropy,
            observers: Vec::new(),
            committing: Committing::Caller,
        };
        let database = state.join("portcullis.db");
        let store = SqliteStore::open(&database, OpenMode::CreateOrOpen, opening).unwrap();
        let store = Arc::new(store);
        let tools = vec![Arc::new(Files::open(&files, &[state]).unwrap()) as Arc<_>];
        let parts = Parts {
            store: Arc::clone(&store) as Arc<_>,
            keys: Arc::new(Keyring::default()),
            clock: Arc::clone(clock),
            entropy: Arc::new(OsEntropy),
            spawn: Arc::new(TokioSpawn::new(tokio::runtime::Handle::current(), 4)),
            processes: Arc::new(LinuxProcesses::new().unwrap()),
            policy: Arc::new(ClassTable::default()),
            tools: Arc::new(Tools::register(tools).unwrap()),
            reconcile: None,
            conversation: None,
            timing: Timing::default(),
        };
        Self { _folder: folder, files, store, parts }
    }

    /// Drives one run to its end and gives its steps.
    async fn run(&self, server: &Server, watch: Option<Watch>) -> (RunId, Vec<Step>) {
        let scope = Scope::of_file_owner();
        let task = Task {
            goal: "look around and make a folder".to_owned(),
            owner: "ann".to_owned(),
            thread: None,
            parent: None,
            limits: Limits::default(),
            agent: "model:local:tiny".to_owned(),
            unconfined_agent: false,
        };
        let held = Gate::new(self.parts.clone()).begin(&scope, task).await.unwrap();
        let run = held.run();
        let agent = Box::new(ModelAgent::driven(setup(watch)));
        let mut driving = Driving::start_with(held, agent, Some(server.model())).await.unwrap();
        let driven = driving.finished().await.unwrap();
        let page = Page { offset: 0, limit: MAX_PAGE };
        let steps = self.store.steps(&scope, run, page).await.unwrap();
        let steps: Vec<Step> = steps.rows.into_iter().map(Result::unwrap).collect();
        assert_eq!(driven, Driven::Ended(EndReason::GoalCompleted), "{steps:#?}");
        (run, steps)
    }

    /// Each folder that a recorded call made is there, and no other.
    async fn assert_made(&self, run: RunId, steps: &[Step]) {
        let named = |step: &&Step| step.admitted.as_ref().unwrap().tool == "files.make_folder";
        let calls = &steps[..CALLS];
        let asked = calls.iter().filter(named).count();
        assert_eq!(folders(&self.files), asked, "{run}");
    }
}

fn folders(folder: &Path) -> usize {
    std::fs::read_dir(folder).unwrap().count()
}

async fn asks_calls_and_is_counted(server: &Server, watch: Option<Watch>) {
    let house = House::new(&server.clock);
    let before = server.counted().await.len();
    let (run, steps) = house.run(server, watch).await;

    // Every call that the model asked for was recorded, started once, done, and is of a tool that it was offered.
    assert_eq!(steps.len(), CALLS + 1, "{steps:#?}");
    for step in &steps[..CALLS] {
        let admitted = step.admitted.as_ref().unwrap();
        assert!(CALLABLE.contains(&admitted.tool.as_str()), "{}", admitted.tool);
        assert_eq!((step.status, step.starts), (StepStatus::Done, 1), "{step:#?}");
    }
    house.assert_made(run, &steps).await;

    // What is recorded of each attempt, and in the budget, is what the server counted.
    let counted = server.counted().await.split_off(before);
    assert_eq!(counted.len(), CALLS + 1);
    let scope = Scope::of_file_owner();
    let of = BudgetScope::Run { run };
    let spent = spend(house.store.as_ref(), &scope, &of).await.unwrap().unwrap();
    let total = counted.iter().fold(Amounts::NONE, |sum, one| sum.plus(*one));
    assert!(total.input_tokens > 1_000 && total.output_tokens > 50, "{total:?}");
    assert_eq!(spent.budget.spent.plus(spent.budget.excess), total);
    assert_eq!(spent.by_model.get("local:tiny"), Some(&total));
    assert!(spent.budget.holds.is_empty());
    let filter = EventFilter { stream: Some(spent.budget.id.into()), after: 0, limit: MAX_PAGE };
    let events = house.store.events(&scope, filter).await.unwrap();
    let settled = events.iter().filter_map(|stored| {
        match stored.event(house.store.instance()).unwrap().body {
            Body::BudgetSettled(body) => Some(body.charged.plus(body.excess)),
            _ => None,
        }
    });
    assert!(settled.eq(counted), "attempt by attempt");

    let keys: &dyn ReviewerKeys = house.parts.keys.as_ref();
    let options = Options { keys: &[keys], ..Options::default() };
    assert!(verify(house.store.begin().unwrap().as_mut(), options).unwrap().intact);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_server_is_asked_and_its_calls_pass_the_gate() {
    let Some(server) = Server::named() else { return };
    // Whole replies, then the same in pieces for somebody who watches. One after the other: the server counts in one list.
    asks_calls_and_is_counted(&server, None).await;
    let pieces = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&pieces);
    let watch = Watch::new(move |_| {
        seen.fetch_add(1, Ordering::Relaxed);
    });
    asks_calls_and_is_counted(&server, Some(watch)).await;
    assert!(pieces.load(Ordering::Relaxed) > CALLS, "each reply was shown while it came");
}
