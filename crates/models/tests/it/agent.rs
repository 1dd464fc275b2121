//! The agent: from views to requests and from replies to proposals, before a gate that the test plays.

use std::collections::BTreeSet;
use std::sync::Arc;

use portcullis_canon::{Limits, Object, Value, from_slice, parse};
use portcullis_domain::label::Labels;
use portcullis_domain::ports::{
    AdvertisedTool, Agent as _, AgentFailure, BoxFuture, Model, ModelCall, ModelFailure,
    ModelFault, ModelHandle, ModelName, ModelOutcome, ModelReply, SeenStep, Stop, ToolUse, View,
};
use portcullis_domain::proposal::{Ask, Proposal, ProposalOrigin};
use portcullis_domain::run::EndReason;
use portcullis_models::{
    AgentSetup, Dialect, FenceSeed, Manifest, ModelAgent, Profile, Recorder, Replayer,
    ScriptedModel,
};
use portcullis_testkit::block_on;
use portcullis_testkit::ports::SeededEntropy;

/// A run whose gate is this test: it keeps the steps and shows the last ones, as the gate does.
struct Scene {
    model: Arc<ScriptedModel>,
    agent: ModelAgent,
    tools: Arc<[AdvertisedTool]>,
    request: u64,
    news: Vec<SeenStep>,
    labels: Labels,
}

fn setup(dialect: Dialect, extra: Object) -> AgentSetup {
    AgentSetup {
        dialect,
        model: "m".to_owned(),
        profile: Profile::LATEST,
        seed: FenceSeed::draw(&SeededEntropy::new(1)),
        system: None,
        max_output_tokens: 100,
        strict_tools: false,
        extra,
        read_only: BTreeSet::from(["files.read".to_owned(), "files.list".to_owned()]),
        watch: None,
    }
}

fn tool(name: &str) -> AdvertisedTool {
    AdvertisedTool {
        name: name.to_owned(),
        description: "Does.".to_owned(),
        input_schema: Value::Object(Object::from_iter([("type", "object")])),
    }
}

fn tool_use(id: &str, name: &str, path: &str) -> ToolUse {
    let arguments = Object::from_iter([("path", path)]);
    ToolUse { id: id.to_owned(), name: name.to_owned(), arguments }
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

fn asks(uses: Vec<ToolUse>) -> ModelOutcome {
    reply(Stop::ToolUse, "I go on.", uses)
}

fn failed(fault: ModelFault) -> ModelOutcome {
    ModelOutcome::Failed(ModelFailure {
        fault,
        message: "it went wrong".to_owned(),
        retry_after: None,
        usage: None,
    })
}

impl Scene {
    fn new(outcomes: Vec<ModelOutcome>) -> Self {
        Self::with(outcomes, Dialect::OpenAi, Object::new())
    }

    fn with(outcomes: Vec<ModelOutcome>, dialect: Dialect, extra: Object) -> Self {
        let model = Arc::new(ScriptedModel::new(ModelName::read("p:m").unwrap(), outcomes));
        let setup = setup(dialect, extra);
        let tools = ["files.read", "files.list", "files.delete"].map(tool);
        Self {
            agent: ModelAgent::new(Arc::<ScriptedModel>::clone(&model), setup),
            model,
            tools: Arc::new(tools),
            request: 0,
            news: Vec::new(),
            labels: Labels::none(),
        }
    }

    fn view(&self) -> View {
        View {
            request: self.request,
            goal: "tidy up".to_owned(),
            tools: Arc::clone(&self.tools),
            history: self.news.clone(),
            omitted: 0,
            labels: self.labels.clone(),
            steps_left: 50,
        }
    }

    fn propose(&mut self) -> Result<Vec<u8>, AgentFailure> {
        let view = self.view();
        block_on(self.agent.propose(view))
    }

    /// The next proposal, as the gate reads it.
    #[track_caller]
    fn proposal(&mut self) -> Proposal {
        let raw = self.propose().unwrap();
        Proposal::read(&raw, Some(self.request)).unwrap()
    }

    #[track_caller]
    fn call(&mut self, tool: &str, path: &str) {
        let proposal = self.proposal();
        assert_eq!(proposal.origin, ProposalOrigin::Model);
        let Ask::ToolCall { tool: asked, arguments } = proposal.ask else { panic!("{proposal:?}") };
        assert_eq!(asked, tool);
        assert_eq!(arguments.get("path").and_then(Value::as_str), Some(path));
    }

    /// What came of the open step, in place of what was shown before.
    fn came(&mut self, outcome: &str, content: &str) {
        self.news = vec![seen(self.request, outcome, content)];
        self.request += 1;
    }

    /// The latest request to the model, as text.
    fn asked(&self) -> String {
        let asked = self.model.asked();
        let body = &asked.last().unwrap().body;
        parse(body, &Limits::BARE).expect("a request is strict JSON");
        String::from_utf8(body.to_vec()).unwrap()
    }

    fn times_asked(&self) -> usize {
        self.model.asked().len()
    }
}

fn seen(request: u64, outcome: &str, content: &str) -> SeenStep {
    SeenStep {
        request,
        tool: Some("files.read".to_owned()),
        arguments: None,
        outcome: outcome.to_owned(),
        content: Value::from(content),
        external: true,
    }
}

#[test]
fn a_reply_becomes_a_proposal_and_its_result_goes_back() {
    let mut scene = Scene::new(vec![
        asks(vec![tool_use("x", "files__read", "a")]),
        reply(Stop::EndTurn, "All tidy.", Vec::new()),
    ]);
    let raw = String::from_utf8(scene.propose().unwrap()).unwrap();
    assert_eq!(
        raw,
        r#"{"arguments":{"path":"a"},"kind":"tool_call","origin":"model","reason":"I go on.","request":0,"tool":"files.read"}"#
    );
    assert!(scene.asked().contains("tidy up"));
    scene.came("tool_result", "text of a");
    let Ask::Complete { result } = scene.proposal().ask else { panic!("not complete") };
    assert_eq!(result, Value::from("All tidy."));
    let asked = scene.asked();
    assert!(asked.contains("text of a") && asked.contains("step_0_0"), "{asked}");
    assert!(asked.contains("<<outside "), "{asked}");
}

#[test]
fn the_same_view_is_answered_with_the_same_bytes_and_asks_once() {
    let mut scene = Scene::new(vec![asks(vec![tool_use("x", "files__read", "a")])]);
    let first = scene.propose().unwrap();
    assert_eq!(scene.propose().unwrap(), first);
    assert_eq!(scene.times_asked(), 1);
}

#[test]
fn calls_that_only_read_go_together() {
    let uses = vec![tool_use("x", "files__read", "a"), tool_use("y", "files__list", "b")];
    let mut scene = Scene::new(vec![asks(uses), reply(Stop::EndTurn, "Done.", Vec::new())]);
    let raw = parse(&scene.propose().unwrap(), &Limits::BARE).unwrap();
    assert_eq!(raw.get("kind").and_then(Value::as_str), Some("tool_calls"));
    assert_eq!(raw.pointer("/calls/0/tool").and_then(Value::as_str), Some("files.read"));
    assert_eq!(raw.pointer("/calls/1/tool").and_then(Value::as_str), Some("files.list"));
    assert_eq!(raw.pointer("/calls/1/arguments/path").and_then(Value::as_str), Some("b"));
    assert!(raw.pointer("/calls/0/reason").is_some() && raw.pointer("/calls/1/reason").is_none());
    // One failed beside the other: both are told.
    scene.news = vec![seen(0, "tool_result", "of a"), seen(1, "tool_error", "of b")];
    scene.request = 2;
    scene.proposal();
    let asked = scene.asked();
    let places = ["step_0_0", "of a", "step_0_1", "of b"].map(|text| asked.rfind(text));
    assert!(places.iter().all(Option::is_some) && asked.contains("[tool_error]"), "{asked}");
    assert_eq!(scene.times_asked(), 2);
}

#[test]
fn a_batch_that_is_refused_as_a_whole_is_made_one_by_one() {
    let uses = vec![tool_use("x", "files__read", "a"), tool_use("y", "files__list", "b")];
    let mut scene = Scene::new(vec![asks(uses), reply(Stop::EndTurn, "Done.", Vec::new())]);
    scene.propose().unwrap();
    scene.came("denied", "batch_denied");
    scene.call("files.read", "a");
    scene.came("tool_result", "of a");
    scene.call("files.list", "b");
    assert_eq!(scene.times_asked(), 1);
    scene.came("tool_result", "of b");
    scene.proposal();
    let asked = scene.asked();
    assert!(asked.contains("of a") && asked.contains("of b"), "{asked}");
}

#[test]
fn calls_that_change_something_are_made_in_order_without_asking_in_between() {
    let uses = vec![
        tool_use("x", "files__read", "a"),
        tool_use("y", "files__delete", "b"),
        tool_use("z", "files__list", "c"),
    ];
    let mut scene = Scene::new(vec![asks(uses), reply(Stop::EndTurn, "Done.", Vec::new())]);
    for (tool, path) in [("files.read", "a"), ("files.delete", "b"), ("files.list", "c")] {
        scene.call(tool, path);
        assert_eq!(scene.times_asked(), 1);
        scene.came("tool_result", &format!("of {path}"));
    }
    scene.proposal();
    let asked = scene.asked();
    let at = |text: &str| asked.rfind(text).unwrap_or_else(|| panic!("{text}: {asked}"));
    assert!(at("of a") < at("of b") && at("of b") < at("of c"));
    assert_eq!(asked.matches("\"role\":\"tool\"").count(), 3);
}

#[test]
fn what_does_not_succeed_stops_the_rest() {
    for outcome in ["denied", "tool_error", "invalid_proposal", "interrupted"] {
        let uses = vec![
            tool_use("x", "files__delete", "a"),
            tool_use("y", "files__delete", "b"),
            tool_use("z", "files__read", "c"),
        ];
        let mut scene = Scene::new(vec![asks(uses), reply(Stop::EndTurn, "Done.", Vec::new())]);
        scene.call("files.delete", "a");
        scene.came("tool_result", "of a");
        scene.call("files.delete", "b");
        scene.came(outcome, "not so");
        // The third is never proposed: the model is asked.
        assert!(matches!(scene.proposal().ask, Ask::Complete { .. }), "{outcome}");
        let asked = scene.asked();
        assert_eq!(asked.matches("[not_attempted]").count(), 1, "{asked}");
        assert_eq!(asked.matches("\"role\":\"tool\"").count(), 3, "{asked}");
        assert!(asked.contains(&format!("[{outcome}]")), "{asked}");
    }
}

#[test]
fn replies_that_are_no_calls_end_the_run_or_are_told() {
    let mut scene = Scene::new(vec![reply(Stop::Refusal, "I must not.", Vec::new())]);
    let Ask::Fail { message } = scene.proposal().ask else { panic!("no fail") };
    assert_eq!(message, "the model refused: I must not.");
    let mut scene = Scene::new(vec![reply(Stop::ContextFull, "", Vec::new())]);
    assert!(matches!(scene.proposal().ask, Ask::Fail { .. }));
    let mut give_up = tool_use("x", "give_up", "");
    give_up.arguments = Object::from_iter([("message", "no way")]);
    let mut scene = Scene::new(vec![asks(vec![give_up])]);
    let Ask::Fail { message } = scene.proposal().ask else { panic!("no fail") };
    assert_eq!(message, "no way");
    assert!(scene.asked().contains("give_up"));
}

#[test]
fn a_reply_that_cannot_be_used_costs_a_step_and_the_model_is_told() {
    let misspoken = [
        (reply(Stop::MaxTokens, "I was about", Vec::new()), "[max_tokens]"),
        (failed(ModelFault::ArgumentsNotObject), "[arguments_not_object]"),
        (failed(ModelFault::RepeatedId), "[repeated_id]"),
        (failed(ModelFault::EmptyReply), "[empty_reply]"),
        (failed(ModelFault::TooManyUses), "[too_many_uses]"),
    ];
    for (outcome, told) in misspoken {
        let mut scene = Scene::new(vec![outcome, reply(Stop::EndTurn, "Better.", Vec::new())]);
        let raw = scene.propose().unwrap();
        // The gate does not know the kind, so that it is recorded, counted and refused.
        let refusal = Proposal::read(&raw, Some(0)).unwrap_err();
        assert_eq!(refusal.as_str(), "unknown_kind");
        scene.came("invalid_proposal", "unknown_kind");
        assert!(matches!(scene.proposal().ask, Ask::Complete { .. }));
        assert!(scene.asked().contains(told), "{}", scene.asked());
    }
}

#[test]
fn what_is_nobodys_words_ends_the_run_with_its_reason() {
    for fault in ModelFault::ALL.iter().filter(|fault| !fault.is_misspoken()) {
        let failure = Scene::new(vec![failed(*fault)]).propose().unwrap_err();
        assert_eq!(failure.reason, EndReason::ModelUnavailable);
        assert!(failure.message.contains(fault.as_str()), "{failure}");
    }
    let message = "the budget is spent".to_owned();
    let stopped = ModelOutcome::Stopped { reason: EndReason::LimitCost, message };
    let failure = Scene::new(vec![stopped]).propose().unwrap_err();
    assert_eq!(failure.reason, EndReason::LimitCost);
}

#[test]
fn a_tool_that_nobody_advertised_is_passed_on_as_it_is() {
    let mut scene = Scene::new(vec![asks(vec![tool_use("x", "files.read", "a")])]);
    // The model spelled the name that is not on the wire; the gate will say what it thinks of it.
    scene.call("files.read", "a");
    let mut scene = Scene::new(vec![asks(vec![tool_use("x", "rm__rf", "a")])]);
    scene.call("rm__rf", "a");
}

#[test]
fn labels_of_the_conversation_go_with_each_call() {
    let mut scene = Scene::new(vec![asks(vec![tool_use("x", "files__read", "a")])]);
    let text = br#"{"origins":["external(files.read)","owner"],"tags":["secret"]}"#;
    scene.labels = from_slice(text, &Limits::BARE).unwrap();
    scene.propose().unwrap();
    let asked = scene.model.asked();
    assert_eq!(asked[0].labels, scene.labels);
    assert_eq!(asked[0].projection.output_tokens, 100);
    assert_eq!(asked[0].projection.input_bytes, asked[0].body.len() as u64);
}

/// A handle without accounts.
struct Direct(Arc<dyn Model>);

impl ModelHandle for Direct {
    fn call(&self, call: ModelCall) -> BoxFuture<'_, ModelOutcome> {
        self.0.attempt(call)
    }
}

/// Plays a run of three replies, and gives its proposals.
fn played(model: Arc<dyn Model>, manifest: &Manifest) -> Vec<Vec<u8>> {
    let mut scene = Scene::new(Vec::new());
    let setup = AgentSetup {
        dialect: manifest.dialect,
        model: manifest.model.name().to_owned(),
        profile: manifest.profile,
        seed: manifest.seed.clone(),
        ..setup(Dialect::OpenAi, Object::new())
    };
    scene.agent = ModelAgent::new(Arc::new(Direct(model)), setup);
    let mut proposals = Vec::new();
    for (outcome, content) in
        [("tool_result", "of a"), ("denied", "no"), ("tool_result", "of c"), ("", "")]
    {
        proposals.push(scene.propose().unwrap());
        scene.came(outcome, content);
    }
    proposals
}

#[test]
fn a_whole_run_replays_byte_for_byte() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("tape");
    let model = ModelName::read("p:m").unwrap();
    let seed = FenceSeed::draw(&SeededEntropy::new(77));
    let manifest = Manifest {
        model: model.clone(),
        dialect: Dialect::Anthropic,
        profile: Profile::V1,
        seed,
        max_output_tokens: Some(100),
        extra: Object::new(),
    };
    let outcomes = vec![
        asks(vec![tool_use("x", "files__read", "a"), tool_use("y", "files__delete", "b")]),
        asks(vec![tool_use("z", "files__read", "c")]),
        reply(Stop::EndTurn, "Done.", Vec::new()),
    ];
    let live = Arc::new(ScriptedModel::new(model, outcomes));
    let recorder = Recorder::open(live.clone(), &path, manifest.clone()).unwrap();
    let recorded = played(Arc::new(recorder), &manifest);
    assert_eq!((recorded.len(), live.asked().len()), (4, 3));

    let replayer = Replayer::open(&path).unwrap();
    let kept = replayer.manifest().clone();
    assert_eq!(played(Arc::new(replayer), &kept), recorded);
    // With another seed the fences are others, and so is the request: it is in no recording.
    let other = Manifest { seed: FenceSeed::draw(&SeededEntropy::new(78)), ..kept };
    let again =
        std::panic::catch_unwind(|| played(Arc::new(Replayer::open(&path).unwrap()), &other));
    assert!(again.is_err());
}

#[test]
fn a_run_that_is_taken_up_again_tells_what_it_was_shown() {
    let thinking = Object::from_iter([("thinking", Object::from_iter([("type", "enabled")]))]);
    for (dialect, extra) in [
        (Dialect::OpenAi, Object::new()),
        (Dialect::Ollama, Object::new()),
        (Dialect::Anthropic, Object::new()),
        (Dialect::Anthropic, thinking),
    ] {
        let signed = extra.contains_key("thinking");
        let mut scene =
            Scene::with(vec![reply(Stop::EndTurn, "Done.", Vec::new())], dialect, extra);
        scene.request = 9;
        let unread = SeenStep { tool: None, ..seen(7, "invalid_proposal", "unknown_kind") };
        scene.news = vec![unread, seen(8, "tool_result", "of eight")];
        let view = View { omitted: 7, ..scene.view() };
        block_on(scene.agent.propose(view)).unwrap();
        let asked = scene.asked();
        assert!(asked.contains("7 earlier steps"), "{asked}");
        assert!(asked.contains("of eight") && asked.contains("[invalid_proposal]"), "{asked}");
        // Where thinking is signed, no message of the model is made up.
        assert_eq!(asked.contains("\"role\":\"assistant\""), !signed, "{asked}");
    }
}
