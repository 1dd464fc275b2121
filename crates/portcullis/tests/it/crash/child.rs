//! A process with a part: it drives a run, answers for a person, sweeps or erases, and ends where it is told to.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use portcullis::agents::Scripted;
use portcullis::audit::keys::{KeyEntry, Keyring, SigningKey};
use portcullis::canon::{Limits as JsonLimits, Value, parse};
use portcullis::domain::approval::{Answer, Statement};
use portcullis::domain::fold::RunState;
use portcullis::domain::id::RunId;
use portcullis::domain::ports::{Clock as _, Page, Store, ToolSource as _};
use portcullis::domain::question::{Question, QuestionKind, QuestionStatus};
use portcullis::domain::scope::Scope;
use portcullis::domain::step::StepStatus;
use portcullis::engine::operator::{self, SignedAnswer};
use portcullis::engine::{
    Attached, Driven, Driving, Gate, HeldRun, Parts, Progress, Task, Timing, Tools as ToolSet,
};
use portcullis::sandbox::identity::LinuxProcesses;
use portcullis::store::sqlite::open::OpenMode;
use portcullis::store::sqlite::{Committing, Opening, SqliteStore};
use portcullis::system::{OsEntropy, SystemClock, TokioSpawn};
use portcullis_testkit::crash::{Act, CrashStore, Moment, Phase};
use portcullis_testkit::permit::permit_in_run;
use portcullis_testkit::ports::SeededEntropy;

use super::place::{Place, Sighted};
use super::story::{Reply, Story, Way};
use super::tools::Tools;

/// What the child shall do: `<role> <story> <mode> <aim or -> <folder>`.
pub const TASK: &str = "PORTCULLIS_CRASH_TEST_TASK";

/// The run ended.
pub const ENDED: i32 = 10;
/// A person has to answer.
pub const WAITING: i32 = 11;
/// The run was let go and can be taken up.
pub const LET_GO: i32 = 12;
/// A person or the sweep is done.
pub const ACTED: i32 = 13;

/// How long one process waits for what another thread of it does.
const PATIENCE: Duration = Duration::from_secs(20);

/// More turns than any story needs to end.
const MOST_TURNS: usize = 40;

/// Who a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
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
    const ALL: [Self; 5] = [Self::Drive, Self::Person, Self::Eraser, Self::Everybody, Self::Naive];

    pub const fn name(self) -> &'static str {
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
pub enum Mode {
    /// `run_again` for the tool that is known for it, otherwise the truth.
    Story,
    /// Whether it happened, found out by looking.
    Truth,
    /// `run_again` once, then the truth.
    Again,
}

impl Mode {
    const ALL: [Self; 3] = [Self::Story, Self::Truth, Self::Again];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Story => "story",
            Self::Truth => "truth",
            Self::Again => "again",
        }
    }
}

/// Where a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Aim {
    /// In the store.
    Store(Moment),
    /// In a tool, at its n-th call in this process, before or after its effect.
    Effect(u64, Phase),
}

impl fmt::Display for Aim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(moment) => write!(f, "{moment}"),
            Self::Effect(number, Phase::Before) => write!(f, "effect:{number}:before"),
            Self::Effect(number, Phase::After) => write!(f, "effect:{number}:after"),
        }
    }
}

impl Aim {
    pub fn from_text(text: &str) -> Option<Self> {
        let Some(rest) = text.strip_prefix("effect:") else {
            return Moment::from_text(text).map(Self::Store);
        };
        let (number, phase) = rest.split_once(':')?;
        let phase = if phase == "before" { Phase::Before } else { Phase::After };
        Some(Self::Effect(number.parse().ok()?, phase))
    }
}

/// What a process has gone through: it writes the log, and ends the process where it is aimed at.
pub struct Stage {
    aim: Option<Aim>,
    log: Mutex<File>,
    done: Mutex<BTreeMap<String, u64>>,
    more: Condvar,
}

impl Stage {
    fn new(place: &Place, aim: Option<Aim>) -> Self {
        let log = OpenOptions::new().create(true).append(true).open(place.log()).unwrap();
        Self { aim, log: Mutex::new(log), done: Mutex::default(), more: Condvar::new() }
    }

    /// Logs a moment, and ends the process when it is the one.
    pub fn reach(&self, aim: Aim, stored: Option<bool>, what: &str) {
        let line = Sighted::line(aim, stored, what);
        self.log.lock().unwrap().write_all(line.as_bytes()).unwrap();
        if self.aim == Some(aim) {
            end();
        }
        if stored == Some(true) {
            let mut done = self.done.lock().unwrap();
            for what in what.split(',') {
                *done.entry(what.to_owned()).or_default() += 1;
            }
            self.more.notify_all();
        }
    }

    /// Waits until the store has taken this so often.
    pub fn wait_for(&self, what: &str, times: u64) {
        let done = self.done.lock().unwrap();
        let missing =
            |done: &mut BTreeMap<String, u64>| done.get(what).is_none_or(|seen| *seen < times);
        let (_done, timeout) = self.more.wait_timeout_while(done, PATIENCE, missing).unwrap();
        assert!(!timeout.timed_out(), "no {what}");
    }
}

/// Ends this process as nothing can be prepared for.
fn end() {
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
}

/// The people who answer, with the same keys in every process.
fn people() -> [(&'static str, SigningKey); 2] {
    let entropy = SeededEntropy::new(7);
    ["ann", "ben"].map(|name| (name, SigningKey::generate(&entropy)))
}

/// Their public halves.
pub fn keyring() -> Keyring {
    let entry = |(name, key): &(&str, SigningKey)| KeyEntry::new(key.public(), name, ["operator"]);
    Keyring::new(people().iter().map(entry)).unwrap()
}

/// Does nothing in the test itself; in a child it plays the part that it was given and leaves.
#[test]
fn a_part_in_another_process() {
    let Ok(task) = std::env::var(TASK) else { return };
    let mut words = task.splitn(5, ' ');
    let mut word = || words.next().unwrap();
    let (role, story, mode, aim, folder) = (word(), word(), word(), word(), word());
    let role = Role::ALL.into_iter().find(|r| r.name() == role).unwrap();
    let mode = Mode::ALL.into_iter().find(|m| m.name() == mode).unwrap();
    let aim = (aim != "-").then(|| Aim::from_text(aim).unwrap());
    let code = part(role, Story::named(story), mode, aim, Place::at(folder));
    std::process::exit(code)
}

fn part(role: Role, story: &'static Story, mode: Mode, aim: Option<Aim>, place: Place) -> i32 {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let code = runtime.block_on(async {
        let cast = Cast::new(story, aim, place);
        match role {
            Role::Drive => cast.drive().await,
            Role::Person => cast.person(mode).await,
            Role::Eraser => cast.erase().await,
            Role::Everybody => cast.to_the_end(mode).await,
            Role::Naive => cast.naive().await,
        }
    });
    runtime.shutdown_timeout(PATIENCE);
    code
}

/// Everything that one process works with.
struct Cast {
    story: &'static Story,
    place: Place,
    stage: Arc<Stage>,
    tools: Arc<Tools>,
    parts: Parts,
    scope: Scope,
}

impl Cast {
    fn new(story: &'static Story, aim: Option<Aim>, place: Place) -> Self {
        let stage = Arc::new(Stage::new(&place, aim));
        let clock = SystemClock::new();
        let opening = Opening {
            now: clock.now(),
            entropy: &OsEntropy,
            observers: Vec::new(),
            committing: Committing::Caller,
        };
        let store = SqliteStore::open(&place.db(), OpenMode::CreateOrOpen, opening).unwrap();
        let told = Arc::clone(&stage);
        let store = CrashStore::new(Arc::new(store), end).witnessed(move |sight| {
            let what = match sight.moment.act {
                Act::Append => sight.events.join(","),
                Act::Renewal => "renewal".to_owned(),
            };
            told.reach(Aim::Store(sight.moment), sight.stored, &what);
        });
        let store = match aim {
            Some(Aim::Store(moment)) => store.aimed(moment),
            _ => store,
        };
        let desk = Parts {
            store: Arc::new(store),
            clock: Arc::new(clock),
            entropy: Arc::new(OsEntropy),
            spawn: Arc::new(TokioSpawn::new(tokio::runtime::Handle::current(), 4)),
            processes: Arc::new(LinuxProcesses::new().unwrap()),
            keys: Arc::new(keyring()),
            policy: Arc::new(story.table()),
            tools: Arc::new(ToolSet::register(Vec::new()).unwrap()),
            reconcile: None,
            timing: Timing { lease: story.lease, ..Timing::default() },
        };
        let tools = Arc::new(Tools::new(place.clone(), Arc::clone(&stage), desk.clone()));
        let set = ToolSet::register(vec![tools.clone()]).unwrap();
        let parts = Parts { tools: Arc::new(set), ..desk };
        Self { story, place, stage, tools, parts, scope: Scope::of_file_owner() }
    }

    async fn run(&self) -> Option<RunId> {
        only_run(self.parts.store.as_ref(), &self.scope).await
    }

    async fn state(&self) -> Option<RunState> {
        let run = self.run().await?;
        self.parts.store.run(&self.scope, run).await.unwrap()
    }

    async fn drive(&self) -> i32 {
        let gate = Gate::new(self.parts.clone());
        let (held, progress) = match self.run().await {
            None => {
                let mut held = gate.begin(&self.scope, self.task()).await.unwrap();
                let progress = held.step().await.unwrap();
                (held, progress)
            }
            Some(run) => match gate.attach(&self.scope, run).await.unwrap() {
                Attached::Held(held, progress) => (held, progress),
                Attached::Waiting(_) => return WAITING,
                Attached::Ended(_) => return ENDED,
            },
        };
        match self.story.way {
            Way::Driver => self.to_rest(held).await,
            Way::Host => self.one_step(held, progress).await,
        }
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

    async fn to_rest(&self, held: HeldRun) -> i32 {
        let agent = Scripted::read(self.story.text().as_bytes()).unwrap();
        let mut driving = Driving::start(held, Box::new(agent)).await.unwrap();
        let code = match driving.finished().await.unwrap() {
            Driven::Waiting(_) => WAITING,
            Driven::Ended(_) => ENDED,
            Driven::Stopped => LET_GO,
        };
        if self.outlived() {
            self.stage.wait_for("outcome.late", 1);
        }
        code
    }

    /// Whether a call of this process answers after its deadline: then its outcome is still to be recorded.
    fn outlived(&self) -> bool {
        let done = self.stage.done.lock().unwrap();
        self.story.name == "late" && done.contains_key("question.asked") && self.tools.was_slow()
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
                Progress::Allowed => held.execute().await.unwrap(),
                Progress::Observed => {
                    held.close().await.unwrap();
                    return LET_GO;
                }
                Progress::Waiting(_) => return WAITING,
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
                let file = self.place.effect(step.index, &step.id.to_string(), step.starts);
                // A process that is killed between making the file and writing its byte has changed nothing yet.
                let happened = match tool.as_str() {
                    "keyed" => self.place.happened(step.index),
                    _ => std::fs::metadata(file).is_ok_and(|meta| meta.len() > 0),
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

/// The run of a place, if it was begun.
pub async fn only_run(store: &dyn Store, scope: &Scope) -> Option<RunId> {
    let rows = store.runs(scope, None, Page { offset: 0, limit: 2 }).await.unwrap();
    assert!(rows.total <= 1, "one place has one run");
    rows.rows.into_iter().next().map(|row| row.unwrap().id)
}
