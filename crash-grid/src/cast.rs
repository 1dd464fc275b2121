//! Who plays in a story: who drives a run, answers for a person, sweeps or erases.

use std::sync::Arc;

use portcullis::agents::Scripted;
use portcullis::audit::keys::{KeyEntry, Keyring, SigningKey};
use portcullis::canon::{Limits as JsonLimits, Value, parse};
use portcullis::domain::approval::{Answer, Statement};
use portcullis::domain::fold::RunState;
use portcullis::domain::id::RunId;
use portcullis::domain::ports::{Agent, Page, Processes, Store, ToolSource};
use portcullis::domain::question::{Question, QuestionKind, QuestionStatus};
use portcullis::domain::scope::Scope;
use portcullis::domain::step::StepStatus;
use portcullis::domain::tally::ThreadLimits;
use portcullis::domain::tool::EffectClass;
use portcullis::engine::operator::{self, SignedAnswer};
use portcullis::engine::{
    Advised, Attached, Driven, Driving, Gate, HeldRun, Parts, Progress, Task, Timing,
    Tools as ToolSet,
};
use portcullis::system::{OsEntropy, SystemClock, TokioSpawn};
use portcullis::tools::HostTools;
use portcullis_testkit::permit::permit_in_run;
use portcullis_testkit::ports::SeededEntropy;
use portcullis_testkit::stage::Stage;

use super::life::{ACTED, ENDED, LET_GO, PATIENCE, WAITING};
use super::models::{Asking, engaged};
use super::place::Effects;
use super::story::{Reply, Story, Way};
use super::tools::Tools;

/// What the run does that the story of a child starts.
const CHILD: &str = concat!(
    r#"{"kind":"tool_call","tool":"look","arguments":{"n":90}}"#,
    "\n",
    r#"{"kind":"complete","result":"done"}"#,
);

/// More turns than any story needs to end.
const MOST_TURNS: usize = 40;

/// Who a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    /// Begins the run or goes on with it.
    Drive,
    /// Does what the story says about an open question.
    Person,
    /// Erases the goal.
    Eraser,
    /// All of these in a row, to the end of the story.
    Everybody,
    /// Goes on with a run without a look at what its record says: the fault that the judge has to find.
    Naive,
}

impl Role {
    pub(crate) const ALL: [Self; 5] =
        [Self::Drive, Self::Person, Self::Eraser, Self::Everybody, Self::Naive];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Drive => "drive",
            Self::Person => "person",
            Self::Eraser => "eraser",
            Self::Everybody => "everybody",
            Self::Naive => "naive",
        }
    }
}

/// What people say about calls whose outcome is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// `run_again` for the tool that is known for it, otherwise the truth.
    Story,
    /// Whether it happened, found out by looking.
    Truth,
    /// `run_again` once, then the truth.
    Again,
}

impl Mode {
    pub(crate) const ALL: [Self; 3] = [Self::Story, Self::Truth, Self::Again];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Story => "story",
            Self::Truth => "truth",
            Self::Again => "again",
        }
    }
}

/// The people who answer, with the same keys in every process.
fn people() -> [(&'static str, SigningKey); 2] {
    let entropy = SeededEntropy::new(7);
    ["ann", "ben"].map(|name| (name, SigningKey::generate(&entropy)))
}

/// Their public halves.
pub(crate) fn keyring() -> Keyring {
    let entry = |(name, key): &(&str, SigningKey)| KeyEntry::new(key.public(), name, ["operator"]);
    Keyring::new(people().iter().map(entry)).unwrap()
}

/// Bounds that no story meets, so that what is counted of a conversation is killed too.
const BOUNDS: ThreadLimits =
    ThreadLimits { max_calls: Some(1_000), loop_threshold: Some(32), ..ThreadLimits::NONE };

/// Everything that one process works with.
pub(crate) struct Cast {
    story: &'static Story,
    effects: Effects,
    stage: Arc<Stage>,
    tools: Arc<Tools>,
    parts: Parts,
    scope: Scope,
}

impl Cast {
    /// The cast of one process, inside of its runtime.
    pub(crate) fn new(
        story: &'static Story,
        effects: Effects,
        stage: Arc<Stage>,
        store: Arc<dyn Store>,
        processes: Arc<dyn Processes>,
    ) -> Self {
        let desk = Parts {
            store,
            clock: Arc::new(SystemClock::new()),
            entropy: Arc::new(OsEntropy),
            spawn: Arc::new(TokioSpawn::new(tokio::runtime::Handle::current(), 4)),
            processes,
            keys: Arc::new(keyring()),
            policy: Arc::new(story.table()),
            tools: Arc::new(ToolSet::register(Vec::new()).unwrap()),
            reconcile: None,
            conversation: Some(BOUNDS),
            timing: Timing { lease: story.lease, ..Timing::default() },
        };
        let tools = Arc::new(Tools::new(effects.clone(), Arc::clone(&stage), desk.clone()));
        let source: Arc<dyn ToolSource> = match story.way {
            Way::Hooked => Arc::new(HostTools::new([("write", EffectClass::LocalMutation)])),
            Way::Driver | Way::Host => tools.clone(),
        };
        let set = ToolSet::register(vec![source]).unwrap();
        let set = if story.name == "child" { set.with_children().unwrap() } else { set };
        let parts = Parts { tools: Arc::new(set), ..desk };
        Self { story, effects, stage, tools, parts, scope: Scope::of_file_owner() }
    }

    /// Plays a part; gives the exit code.
    pub(crate) async fn play(&self, role: Role, mode: Mode) -> i32 {
        match role {
            Role::Drive => self.drive().await,
            Role::Person => self.person(mode).await,
            Role::Eraser => self.erase().await,
            Role::Everybody => self.to_the_end(mode).await,
            Role::Naive => self.naive().await,
        }
    }

    async fn run(&self) -> Option<RunId> {
        only_run(self.parts.store.as_ref(), &self.scope).await
    }

    async fn state(&self) -> Option<RunState> {
        let run = self.run().await?;
        self.parts.store.run(&self.scope, run).await.unwrap()
    }

    /// Drives the run, and the one that it starts, until it ends or a person is asked.
    async fn drive(&self) -> i32 {
        let gate = Gate::new(self.parts.clone());
        let mut at = self.run().await;
        loop {
            let (held, progress) = match at {
                None => {
                    let mut held = gate.begin(&self.scope, self.task()).await.unwrap();
                    let progress = held.step().await.unwrap();
                    (held, progress)
                }
                Some(run) => match gate.attach(&self.scope, run).await.unwrap() {
                    Attached::Held(held, progress) => (held, progress),
                    Attached::Child(child) => {
                        at = Some(child);
                        continue;
                    }
                    Attached::Waiting(_) => return WAITING,
                    Attached::Ended(_) => match self.parent_of(run).await {
                        None => return ENDED,
                        parent => {
                            at = parent;
                            continue;
                        }
                    },
                },
            };
            let run = held.run();
            at = match self.story.way {
                Way::Driver => match self.to_rest(held).await {
                    Driven::Waiting(_) => return WAITING,
                    Driven::Stopped => return LET_GO,
                    Driven::Child(child) => Some(child),
                    Driven::Ended(_) => match self.parent_of(run).await {
                        None => return ENDED,
                        parent => parent,
                    },
                },
                Way::Host | Way::Hooked => return self.one_step(held, progress).await,
            };
        }
    }

    async fn parent_of(&self, run: RunId) -> Option<RunId> {
        self.parts.store.run(&self.scope, run).await.unwrap().unwrap().run.parent
    }

    async fn to_the_end(&self, mode: Mode) -> i32 {
        for _ in 0..MOST_TURNS {
            match self.drive().await {
                WAITING => self.person(mode).await,
                LET_GO => LET_GO,
                ended if self.story.erases => {
                    self.erase().await;
                    return ended;
                }
                ended => return ended,
            };
        }
        panic!("{} does not end", self.story.name)
    }

    fn task(&self) -> Task {
        Task {
            goal: "tidy".to_owned(),
            owner: "owner".to_owned(),
            thread: None,
            parent: None,
            limits: self.story.limits(),
            agent: "scripted".to_owned(),
            unconfined_agent: false,
        }
    }

    async fn to_rest(&self, held: HeldRun) -> Driven {
        let text = match self.parent_of(held.run()).await {
            None => self.story.text(),
            Some(_) => CHILD.to_owned(),
        };
        let agent = Scripted::read(text.as_bytes()).unwrap();
        let (agent, engaged): (Box<dyn Agent>, _) = if self.story.name == "models" {
            (Box::new(Asking(Box::new(agent))), Some(engaged()))
        } else {
            (Box::new(agent), None)
        };
        let mut driving = Driving::start_with(held, agent, engaged).await.unwrap();
        let driven = driving.finished().await.unwrap();
        if self.outlived() {
            assert!(self.stage.wait_for("outcome.late", 1, PATIENCE), "no late outcome");
        }
        driven
    }

    /// Whether a call of this process answers after its deadline: then its outcome is still to be recorded.
    fn outlived(&self) -> bool {
        self.story.name == "late" && self.stage.has_done("question.asked") && self.tools.was_slow()
    }

    /// A loop of one's own, for one step.
    async fn one_step(&self, mut held: HeldRun, mut progress: Progress) -> i32 {
        let text = self.story.text();
        let lines: Vec<&str> = text.lines().collect();
        loop {
            progress = match progress {
                Progress::Open => {
                    let index = held.state().await.unwrap().step().unwrap().index;
                    let line = lines[usize::try_from(index).unwrap()];
                    held.propose(line.as_bytes().to_vec()).await.unwrap()
                }
                Progress::Allowed if self.story.way == Way::Hooked => {
                    match held.advise().await.unwrap() {
                        Advised::Told(_) => return ENDED,
                        Advised::Not(progress) => progress,
                    }
                }
                Progress::Allowed => held.execute().await.unwrap(),
                Progress::Observed => {
                    held.close().await.unwrap();
                    return LET_GO;
                }
                Progress::Waiting(_) => return WAITING,
                Progress::Child(child) => panic!("a host starts no run, and waits for {child}"),
                Progress::Ended(_) => return ENDED,
            };
        }
    }

    async fn person(&self, mode: Mode) -> i32 {
        let state = self.state().await.unwrap();
        let open = state.question.clone().filter(|q| q.status == QuestionStatus::Open);
        // Another process may have answered before it was killed.
        let Some(question) = open else { return ACTED };
        let step = state.step().unwrap().clone();
        let answer = match question.kind {
            QuestionKind::UnknownOutcome => {
                let tool = &step.admitted.as_ref().unwrap().tool;
                let first = step.starts == 1;
                let again =
                    first && (mode == Mode::Again || (mode == Mode::Story && tool == "flaky"));
                let happened = match tool.as_str() {
                    "keyed" => self.effects.ever_happened(step.index),
                    _ => self.effects.happened(step.index, &step.id.to_string(), step.starts),
                };
                match (again, happened) {
                    (true, _) => Answer::RunAgain,
                    (false, true) => Answer::Happened,
                    (false, false) => Answer::DidNotHappen,
                }
            }
            QuestionKind::Approval => match self.story.reply(step.index) {
                Reply::Approve => Answer::Approve,
                Reply::Reject => Answer::Reject,
                Reply::Cancel => {
                    operator::cancel(&self.parts, &self.scope, state.run.id, "ann", Some("enough"))
                        .await
                        .unwrap();
                    return ACTED;
                }
                Reply::Sweep => {
                    let swept = operator::sweep_due(&self.parts, &self.scope).await.unwrap();
                    assert_eq!(swept, 1, "the question is due");
                    return ACTED;
                }
            },
        };
        self.answer(&question, answer).await;
        ACTED
    }

    /// Signs and records an answer of the first person who has not answered yet.
    async fn answer(&self, question: &Question, answer: Answer) {
        let given = self.parts.store.approvals(&self.scope, question.id).await.unwrap();
        let (_, key) = people()
            .into_iter()
            .find(|(name, _)| given.iter().all(|approval| approval.person != *name))
            .unwrap();
        let statement = Statement {
            covers: vec![question.digest],
            answer,
            key: key.id(),
            at: self.parts.clock.now(),
            note: None,
            result: None,
        };
        let signature = key.sign(&statement);
        let signed = SignedAnswer {
            run: question.run,
            question: question.id,
            shown: question.digest,
            statement,
            signature,
            note: None,
            result: None,
        };
        operator::answer(&self.parts, &self.scope, signed).await.unwrap();
    }

    async fn erase(&self) -> i32 {
        let store = self.parts.store.as_ref();
        let goal = self.state().await.unwrap().run.goal.digest;
        if store.content(&self.scope, goal).await.unwrap().is_some() {
            store.erase(&self.scope, goal, "ann", self.parts.clock.now()).await.unwrap();
        }
        ACTED
    }

    /// Runs a call again that was started, because no outcome is recorded.
    async fn naive(&self) -> i32 {
        let state = self.state().await.unwrap();
        let step = state.step().filter(|step| step.status == StepStatus::Executing).unwrap();
        let digest = step.proposal.unwrap().digest;
        let raw = self.parts.store.content(&self.scope, digest).await.unwrap().unwrap();
        let proposal = parse(raw.bytes(), &JsonLimits::ENVELOPE).unwrap();
        let arguments = proposal.get("arguments").and_then(Value::as_object).unwrap().clone();
        let tool = step.admitted.as_ref().unwrap().tool.clone();
        let permit = permit_in_run(state.run.id, &tool, arguments);
        self.tools.call(permit).await.unwrap();
        LET_GO
    }
}

/// The run of a place, if it was begun: the one that no other started, of which there is one at most.
pub(crate) async fn only_run(store: &dyn Store, scope: &Scope) -> Option<RunId> {
    let rows = store.runs(scope, None, Page { offset: 0, limit: 10 }).await.unwrap();
    let runs: Vec<_> = rows.rows.into_iter().map(Result::unwrap).collect();
    let mut tops = runs.iter().filter(|run| run.parent.is_none()).map(|run| run.id);
    let top = tops.next();
    assert!(tops.next().is_none(), "one place has one run");
    assert!(runs.len() <= 2, "the run starts one other, once");
    top
}
