//! The agent before the real gate: what a model asks for in one reply is one batch, or is made one call at a time.

use std::collections::BTreeSet;
use std::sync::Arc;

use portcullis_canon::Object;
use portcullis_domain::approval::{Signature, Statement};
use portcullis_domain::id::RunId;
use portcullis_domain::limits::Limits;
use portcullis_domain::observation::ObservationKind;
use portcullis_domain::ports::{
    Clock, EventFilter, KeyRefusal, MAX_PAGE, ModelName, ModelOutcome, ModelReply, Page, Reviewer,
    ReviewerKeys, Stop, Store, ToolUse,
};
use portcullis_domain::refusal::Refusal;
use portcullis_domain::run::EndReason;
use portcullis_domain::scope::Scope;
use portcullis_domain::step::{Step, StepStatus};
use portcullis_domain::tool::EffectClass;
use portcullis_engine::{Driven, Driving, Gate, Parts, Task, Timing, Tools};
use portcullis_models::{AgentSetup, Dialect, FenceSeed, ModelAgent, Profile, ScriptedModel};
use portcullis_policy::{ClassTable, Outcome};
use portcullis_store::memory::MemoryStore;
use portcullis_testkit::block_on;
use portcullis_testkit::doubles::HostileTools;
use portcullis_testkit::ports::{FixedProcesses, ManualClock, SeededEntropy, ThreadSpawn};

/// Reads and local changes happen.
fn table() -> ClassTable {
    let allowed = [EffectClass::ReadOnly, EffectClass::LocalMutation];
    allowed
        .into_iter()
        .fold(ClassTable::default(), |table, class| table.with(class, Outcome::Allow))
}

/// Nobody is asked anything here.
struct NoKeys;

impl ReviewerKeys for NoKeys {
    fn verify(&self, _: &Statement, _: &Signature) -> Result<Reviewer, KeyRefusal> {
        Err(KeyRefusal::UnknownKey)
    }

    fn people(&self, _: &str) -> BTreeSet<String> {
        BTreeSet::new()
    }
}

fn asks(uses: &[(&str, i64)]) -> ModelOutcome {
    let tool_use = |(name, n): &(&str, i64)| ToolUse {
        id: format!("use_{n}"),
        name: (*name).to_owned(),
        arguments: Object::from_iter([("n", *n)]),
    };
    reply(Stop::ToolUse, "I look first.", uses.iter().map(tool_use).collect())
}

fn reply(stop: Stop, text: &str, uses: Vec<ToolUse>) -> ModelOutcome {
    ModelOutcome::Reply(ModelReply {
        stop,
        text: text.to_owned(),
        uses,
        verbatim: None,
        usage: None,
        raw: Arc::from([]),
    })
}

/// A whole run, as it is recorded.
struct Played {
    store: MemoryStore,
    run: RunId,
    tools: Arc<HostileTools>,
    model: Arc<ScriptedModel>,
}

/// Plays a run whose model asks for these in its first reply and is done with its second. The agent takes the tools of
/// `read_only` for those that only read.
fn play(uses: &[(&str, i64)], read_only: &[&str]) -> Played {
    let (clock, entropy) = (ManualClock::default(), Arc::new(SeededEntropy::new(5)));
    let store = MemoryStore::new(clock.now(), entropy.as_ref());
    let tools = HostileTools::new(false);
    let gate = Gate::new(Parts {
        store: Arc::new(store.clone()),
        clock: Arc::new(clock),
        entropy: Arc::<SeededEntropy>::clone(&entropy),
        spawn: Arc::new(ThreadSpawn::with_places(2)),
        processes: Arc::new(FixedProcesses::new(1)),
        keys: Arc::new(NoKeys),
        policy: Arc::new(table()),
        tools: Arc::new(Tools::register(vec![Arc::<HostileTools>::clone(&tools)]).unwrap()),
        reconcile: None,
        conversation: None,
        timing: Timing::default(),
    });
    let outcomes = [asks(uses), reply(Stop::EndTurn, "Done.", Vec::new())];
    let model = Arc::new(ScriptedModel::new(ModelName::read("p:m").unwrap(), outcomes));
    let setup = AgentSetup {
        dialect: Dialect::OpenAi,
        model: "m".to_owned(),
        profile: Profile::LATEST,
        seed: FenceSeed::draw(entropy.as_ref()),
        system: None,
        max_output_tokens: 100,
        strict_tools: false,
        extra: Object::new(),
        read_only: read_only.iter().map(|name| (*name).to_owned()).collect(),
        watch: None,
    };
    let agent = Box::new(ModelAgent::new(Arc::<ScriptedModel>::clone(&model), setup));
    let task = Task {
        goal: "look around".to_owned(),
        owner: "ann".to_owned(),
        thread: None,
        parent: None,
        limits: Limits::default(),
        agent: "model".to_owned(),
        unconfined_agent: false,
    };
    let held = block_on(gate.begin(&Scope::of_file_owner(), task)).unwrap();
    let run = held.run();
    let driven = block_on(async { Driving::start(held, agent).await?.finished().await });
    assert!(matches!(driven, Ok(Driven::Ended(EndReason::GoalCompleted))), "{driven:?}");
    Played { store, run, tools, model }
}

impl Played {
    /// Its steps, but for the last word.
    fn steps(&self) -> Vec<Step> {
        let page = Page { offset: 0, limit: MAX_PAGE };
        let read = block_on(self.store.steps(&Scope::of_file_owner(), self.run, page)).unwrap();
        let mut steps: Vec<Step> = read.rows.into_iter().map(Result::unwrap).collect();
        steps.pop();
        steps
    }

    /// How the steps came to be: each proposal and each start, in the order of the record.
    fn begun(&self) -> Vec<&'static str> {
        let filter = EventFilter { stream: Some(self.run.into()), after: 0, limit: MAX_PAGE };
        let events = block_on(self.store.events(&Scope::of_file_owner(), filter)).unwrap();
        let bodies = events.iter().map(|event| event.event(self.store.instance()).unwrap().body);
        let names = bodies.map(|body| body.name());
        names.filter(|name| matches!(*name, "step.proposed" | "step.started")).collect()
    }

    /// What the model was told last.
    fn told(&self) -> String {
        let asked = self.model.asked();
        assert_eq!(asked.len(), 2, "the model is not asked in between");
        String::from_utf8(asked[1].body.to_vec()).unwrap()
    }
}

#[test]
fn two_reads_of_one_reply_are_one_batch_of_the_gate() {
    let played = play(&[("look", 1), ("look", 2)], &["look"]);
    let steps = played.steps();
    let places: Vec<_> =
        steps.iter().map(|step| (step.batch, step.batch_index, step.status)).collect();
    assert_eq!(places, [(2, 0, StepStatus::Done), (2, 1, StepStatus::Done)]);
    assert_eq!(steps[0].proposal, steps[1].proposal);
    let expected = ["step.proposed", "step.proposed", "step.started", "step.started"];
    assert_eq!(played.begun(), [expected.as_slice(), &["step.proposed"]].concat());
    assert_eq!(played.tools.effects("look"), 2);
    let told = played.told();
    assert_eq!(told.matches(r#"{\"ok\":true}"#).count(), 2, "{told}");
}

#[test]
fn a_change_among_them_refuses_all_and_the_agent_makes_them_one_at_a_time() {
    // The host told the agent wrongly: only the gate knows what a tool is.
    let played = play(&[("look", 1), ("write", 2)], &["look", "write"]);
    let steps = played.steps();
    let [refused, look, write] = steps.as_slice() else { panic!("{steps:?}") };
    let observation = refused.observation.as_ref().unwrap();
    assert_eq!(observation.kind, ObservationKind::Denied);
    assert_eq!(observation.refusal, Some(Refusal::BatchNotReadOnly));
    assert_eq!((refused.batch, refused.starts), (1, 0));
    for (step, tool) in [(look, "look"), (write, "write")] {
        assert_eq!((step.batch, step.status), (1, StepStatus::Done));
        assert_eq!(step.admitted.as_ref().map(|admitted| admitted.tool.as_str()), Some(tool));
    }
    assert_eq!((played.tools.effects("look"), played.tools.effects("write")), (1, 1));
    let told = played.told();
    assert_eq!(told.matches(r#"{\"ok\":true}"#).count(), 2, "{told}");
}

#[test]
fn what_the_agent_knows_to_change_something_it_never_puts_beside_others() {
    let played = play(&[("look", 1), ("write", 2)], &["look"]);
    let steps = played.steps();
    assert!(steps.iter().all(|step| (step.batch, step.status) == (1, StepStatus::Done)));
    assert_eq!(steps.len(), 2);
    assert_eq!((played.tools.effects("look"), played.tools.effects("write")), (1, 1));
    played.told();
}
