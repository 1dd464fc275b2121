//! Two processes with many threads each at one thing: a run that may go on, a grant, an item of the inbox. The effect
//! is a byte in a file that only grows, so that it is counted outside of the database.

use std::fs::{self, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

use portcullis::system::{OsEntropy, SystemClock, TokioSpawn};
use portcullis_audit::keys::{KeyEntry, Keyring, SigningKey};
use portcullis_audit::{Options, verify};
use portcullis_canon::{Limits as JsonLimits, Object, parse};
use portcullis_domain::approval::{Answer, Statement};
use portcullis_domain::fold::RunState;
use portcullis_domain::id::RunId;
use portcullis_domain::limits::Limits;
use portcullis_domain::permit::Permit;
use portcullis_domain::ports::{
    BoxFuture, Clock as _, EventFilter, Ledgers as _, MAX_PAGE, Store as _, ToolFailure,
    ToolOutput, ToolSource,
};
use portcullis_domain::question::QuestionStatus;
use portcullis_domain::scope::Scope;
use portcullis_domain::tool::{EffectClass, ToolSpec};
use portcullis_engine::operator::{self, SignedAnswer};
use portcullis_engine::{Attached, Gate, HeldRun, Parts, Progress, Task, Timing, Tools};
use portcullis_policy::{ClassTable, Outcome};
use portcullis_sandbox::identity::LinuxProcesses;
use portcullis_store::sqlite::open::OpenMode;
use portcullis_store::sqlite::{Committing, Opening, SqliteStore};
use portcullis_testkit::ports::SeededEntropy;
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// What a child is to do: `<part> <run> <folder>`.
const TASK: &str = "PORTCULLIS_CROWD_TEST_TASK";

/// Threads of each process.
const THREADS: usize = 64;

/// Processes.
const PROCESSES: usize = 2;

/// More tries than a thread needs until the run has ended.
const MOST_TRIES: usize = 20_000;

/// Appends a byte to a file, and loses its connection at its first start when it is told to.
struct Counted {
    file: PathBuf,
    loses: bool,
}

impl ToolSource for Counted {
    fn specs(&self) -> Vec<ToolSpec> {
        vec![ToolSpec {
            name: "send".to_owned(),
            description: "Sends.".to_owned(),
            input_schema: parse(br#"{"type":"object"}"#, &JsonLimits::BARE).unwrap(),
            effect: EffectClass::RemoteMutation,
            source: true,
            sink: true,
            authority: Vec::new(),
            deadline_ms: 30_000,
            terminal: true,
            fixed: Object::new(),
            max_result_bytes: 4_096,
            target: None,
            probe: None,
            idempotency_key: None,
        }]
    }

    fn blocks(&self) -> bool {
        true
    }

    fn call(&self, permit: Permit) -> BoxFuture<'_, Result<ToolOutput, ToolFailure>> {
        Box::pin(async move {
            count(&self.file);
            if self.loses && permit.start() == 1 {
                return Err(ToolFailure::Unknown { message: "the line went dead".to_owned() });
            }
            Ok(ToolOutput { content: b"{}".to_vec(), labels: None })
        })
    }
}

/// The effect.
fn count(file: &Path) {
    let mut file = OpenOptions::new().create(true).append(true).open(file).unwrap();
    file.write_all(b"x").unwrap();
}

fn person() -> SigningKey {
    SigningKey::generate(&SeededEntropy::new(7))
}

/// One process: its gate, its executor and where the effects are counted.
struct Desk {
    folder: PathBuf,
    gate: Gate,
    store: Arc<SqliteStore>,
    scope: Scope,
    runtime: Runtime,
}

impl Desk {
    fn at(folder: &Path, loses: bool) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let clock = SystemClock::new();
        let opening = Opening {
            now: clock.now(),
            entropy: &OsEntropy,
            observers: Vec::new(),
            committing: Committing::OwnThread,
        };
        let db = folder.join("portcullis.db");
        let store = Arc::new(SqliteStore::open(&db, OpenMode::CreateOrOpen, opening).unwrap());
        let ask = Outcome::ask("operator", 1).unwrap();
        let tool = Counted { file: folder.join("effects"), loses };
        let parts = Parts {
            store: store.clone(),
            clock: Arc::new(clock),
            entropy: Arc::new(OsEntropy),
            spawn: Arc::new(TokioSpawn::new(runtime.handle().clone(), 4)),
            processes: Arc::new(LinuxProcesses::new().unwrap()),
            keys: Arc::new(
                Keyring::new([KeyEntry::new(person().public(), "ann", ["operator"])]).unwrap(),
            ),
            policy: Arc::new(ClassTable::default().with(EffectClass::RemoteMutation, ask)),
            tools: Arc::new(Tools::register(vec![Arc::new(tool)]).unwrap()),
            reconcile: None,
            conversation: None,
            timing: Timing::default(),
        };
        let scope = Scope::of_file_owner();
        Self { folder: folder.to_owned(), gate: Gate::new(parts), store, scope, runtime }
    }

    /// A run that waits for a yes to its one call.
    fn asking(&self) -> RunId {
        let task = Task {
            goal: "send it".to_owned(),
            owner: "carol".to_owned(),
            thread: None,
            parent: None,
            limits: Limits::default(),
            agent: "test".to_owned(),
            unconfined_agent: false,
        };
        let mut held = self.runtime.block_on(self.gate.begin(&self.scope, task)).unwrap();
        let raw = br#"{"kind":"tool_call","tool":"send","arguments":{}}"#.to_vec();
        let progress = self.runtime.block_on(held.propose(raw)).unwrap();
        assert!(matches!(progress, Progress::Waiting(_)), "{progress:?}");
        held.run()
    }

    fn state(&self, run: RunId) -> RunState {
        self.runtime.block_on(self.store.run(&self.scope, run)).unwrap().unwrap()
    }

    /// Answers the run's open question; false when that was not taken.
    fn answer(&self, run: RunId, answer: Answer) -> bool {
        let Some(question) = self.state(run).question else { return false };
        let key = person();
        let statement = Statement {
            covers: vec![question.digest],
            answer,
            key: key.id(),
            at: self.gate.parts().clock.now(),
            note: None,
            result: None,
        };
        let signed = SignedAnswer {
            run,
            question: question.id,
            shown: question.digest,
            signature: key.sign(&statement),
            statement,
            note: None,
            result: None,
        };
        self.runtime.block_on(operator::answer(self.gate.parts(), &self.scope, signed)).is_ok()
    }

    fn take(&self, run: RunId) -> Option<(HeldRun, Progress)> {
        match self.runtime.block_on(self.gate.attach(&self.scope, run)) {
            Ok(Attached::Held(held, progress)) => Some((held, progress)),
            _ => None,
        }
    }

    /// Goes on with the run until it has ended, whoever ends it; how often it was somebody else's.
    fn to_the_end(&self, run: RunId) -> usize {
        for tries in 0..MOST_TRIES {
            if self.state(run).run.status.is_terminal() {
                return tries;
            }
            if let Some((mut held, Progress::Allowed)) = self.take(run) {
                self.runtime.block_on(held.execute()).unwrap();
            }
        }
        panic!("the run does not end")
    }

    /// What somebody does who looks first and then acts: the fault that the count has to show.
    fn naive(&self, run: RunId, ready: &Barrier) {
        let granted = self.state(run).question.unwrap().status == QuestionStatus::Granted;
        ready.wait();
        if granted {
            count(&self.folder.join("effects"));
        }
    }

    fn effects(&self) -> u64 {
        fs::metadata(self.folder.join("effects")).map_or(0, |meta| meta.len())
    }

    /// How many events of a type there are.
    fn count(&self, kind: &str) -> usize {
        let filter = EventFilter { stream: None, after: 0, limit: MAX_PAGE };
        let events = self.runtime.block_on(self.store.events(&self.scope, filter)).unwrap();
        events.iter().filter(|event| event.kind == kind).count()
    }

    fn verify(&self) {
        let ring = Keyring::new([KeyEntry::new(person().public(), "ann", ["operator"])]).unwrap();
        let options = Options { keys: &[&ring], ..Options::default() };
        let report = verify(self.store.begin().unwrap().as_mut(), options).unwrap();
        assert!(report.intact, "{:?}", report.breaks);
    }
}

/// Does nothing in the test itself; in a child it plays the part that it was given, with all its threads at once.
#[test]
fn a_crowd_in_another_process() {
    let Ok(task) = std::env::var(TASK) else { return };
    let mut words = task.splitn(3, ' ');
    let mut word = || words.next().unwrap();
    let (part, run, folder) = (word(), word().parse::<RunId>().unwrap(), word());
    let desk = Desk::at(Path::new(folder), part == "again");
    println!("ready");
    std::io::stdin().lock().read_line(&mut String::new()).unwrap();
    let (ready, refused, taken) = (Barrier::new(THREADS), AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| match part {
                "naive" => desk.naive(run, &ready),
                part => {
                    ready.wait();
                    if part == "inbox" && desk.answer(run, Answer::Approve) {
                        taken.fetch_add(1, Ordering::AcqRel);
                    }
                    refused.fetch_add(desk.to_the_end(run), Ordering::AcqRel);
                }
            });
        }
    });
    println!("refused {}", refused.into_inner());
    println!("taken {}", taken.into_inner());
}

/// A process of the crowd, and what it says.
struct Member {
    child: Child,
    says: BufReader<std::process::ChildStdout>,
}

impl Member {
    fn start(part: &str, run: RunId, folder: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crowd::a_crowd_in_another_process", "--nocapture"])
            .arg("--test-threads=1")
            .env(TASK, format!("{part} {run} {}", folder.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let says = BufReader::new(child.stdout.take().unwrap());
        let mut member = Self { child, says };
        member.hear("ready");
        member
    }

    /// The rest of the next line that begins so.
    fn hear(&mut self, word: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.says.read_line(&mut line).unwrap() > 0, "it ended without {word}");
            // The harness writes the test's name before the first word.
            if let Some((_, rest)) = line.trim_end().split_once(word) {
                return rest.trim().to_owned();
            }
        }
    }
}

/// Lets the processes loose on the run; how often one of their threads was refused, and how many answers were taken.
fn loose(part: &str, run: RunId, folder: &Path) -> (usize, usize) {
    let mut crowd: Vec<Member> = (0..PROCESSES).map(|_| Member::start(part, run, folder)).collect();
    for member in &mut crowd {
        member.child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    }
    let (mut refused, mut taken) = (0, 0);
    for mut member in crowd {
        refused += member.hear("refused").parse::<usize>().unwrap();
        taken += member.hear("taken").parse::<usize>().unwrap();
        assert!(member.child.wait().unwrap().success());
    }
    (refused, taken)
}

fn desk(loses: bool) -> (TempDir, Desk) {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let desk = Desk::at(folder.path(), loses);
    (folder, desk)
}

#[test]
fn an_approved_run_that_many_resume_has_its_effect_once() {
    let (folder, desk) = desk(false);
    let run = desk.asking();
    assert!(desk.answer(run, Answer::Approve));
    let (refused, _) = loose("resume", run, folder.path());
    assert_eq!(desk.effects(), 1);
    assert_eq!((desk.count("step.started"), desk.count("approval.used")), (1, 1));
    assert!(refused > 0, "nobody was in anybody's way");
    desk.verify();
}

/// The control: the same crowd that looks first and then acts does it as often as there are threads.
#[test]
fn a_crowd_without_the_gate_does_it_over_and_over() {
    let (folder, desk) = desk(false);
    let run = desk.asking();
    assert!(desk.answer(run, Answer::Approve));
    loose("naive", run, folder.path());
    assert_eq!(desk.effects(), u64::try_from(PROCESSES * THREADS).unwrap());
}

#[test]
fn a_grant_to_run_it_again_that_many_use_is_used_once() {
    let (folder, desk) = desk(true);
    let run = desk.asking();
    assert!(desk.answer(run, Answer::Approve));
    let (mut held, _) = desk.take(run).unwrap();
    let lost = desk.runtime.block_on(held.execute()).unwrap();
    assert!(matches!(lost, Progress::Waiting(_)), "{lost:?}");
    drop(held);
    assert!(desk.answer(run, Answer::RunAgain));
    assert_eq!(desk.effects(), 1);
    loose("again", run, folder.path());
    assert_eq!(desk.effects(), 2, "once, and once more by a person's word");
    assert_eq!((desk.count("step.started"), desk.count("approval.used")), (2, 2));
    desk.verify();
}

#[test]
fn an_item_of_the_inbox_that_many_answer_is_answered_once() {
    let (folder, desk) = desk(false);
    let run = desk.asking();
    let (_, taken) = loose("inbox", run, folder.path());
    assert_eq!((taken, desk.count("question.answered")), (1, 1));
    assert_eq!((desk.effects(), desk.count("step.started")), (1, 1));
    desk.verify();
}
