//! A database made through the library, with fixed ids and time, and the command run on it as a process.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use portcullis_audit::keys::{KeyEntry, Keyring, SigningKey};
use portcullis_canon::{Limits as JsonLimits, Object, Value, parse};
use portcullis_domain::fold::RunState;
use portcullis_domain::id::RunId;
use portcullis_domain::limits::Limits;
use portcullis_domain::permit::Permit;
use portcullis_domain::ports::{BoxFuture, Clock as _, ToolFailure, ToolOutput, ToolSource};
use portcullis_domain::question::Question;
use portcullis_domain::scope::Scope;
use portcullis_domain::tool::{EffectClass, ToolSpec};
use portcullis_engine::{Gate, HeldRun, Parts, Progress, Task, Timing, Tools};
use portcullis_policy::{ClassTable, Outcome};
use portcullis_store::sqlite::open::OpenMode;
use portcullis_store::sqlite::{Committing, Opening, SqliteStore};
use portcullis_testkit::block_on;
use portcullis_testkit::ports::{FixedProcesses, ManualClock, SeededEntropy, ThreadSpawn};
use tempfile::TempDir;

/// Tools that answer `{"ok":true}`; `lost` never knows whether it happened.
struct FakeTools;

impl FakeTools {
    fn spec(name: &str, effect: EffectClass) -> ToolSpec {
        let schema =
            r#"{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}"#;
        ToolSpec {
            name: name.to_owned(),
            description: "A tool of the tests.".to_owned(),
            input_schema: parse(schema.as_bytes(), &JsonLimits::BARE).unwrap(),
            effect,
            source: true,
            sink: effect.changes_something(),
            authority: vec!["/path".to_owned()],
            deadline_ms: 5_000,
            terminal: false,
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
        vec![
            Self::spec("look", EffectClass::ReadOnly),
            Self::spec("lost", EffectClass::LocalMutation),
            Self::spec("burn", EffectClass::Destructive),
            Self::spec("send", EffectClass::RemoteMutation),
        ]
    }

    fn blocks(&self) -> bool {
        false
    }

    fn call(&self, permit: Permit) -> BoxFuture<'_, Result<ToolOutput, ToolFailure>> {
        let lost = permit.tool() == "lost";
        Box::pin(async move {
            if lost {
                return Err(ToolFailure::Unknown { message: "the line went dead".to_owned() });
            }
            Ok(ToolOutput { content: br#"{"ok":true}"#.to_vec(), labels: None })
        })
    }
}

pub(crate) struct Scene {
    pub(crate) home: TempDir,
    pub(crate) clock: ManualClock,
    pub(crate) gate: Gate,
    pub(crate) scope: Scope,
}

impl Scene {
    /// One person, whose key lies where the command looks for it.
    pub(crate) fn new() -> Self {
        Self::with(1, Limits::default())
    }

    /// `send` asks this many people; `burn` is denied, the rest allowed.
    pub(crate) fn with(people: u32, limits: Limits) -> Self {
        limits.check().unwrap();
        let home = tempfile::tempdir().unwrap();
        let keys = home.path().join(".config/portcullis/keys");
        let mut ring = Vec::new();
        for (person, seed) in [("ann", 11), ("bob", 12)] {
            private(keys.parent().unwrap().to_owned());
            let key = SigningKey::create(&keys, person, &SeededEntropy::new(seed)).unwrap();
            ring.push(KeyEntry::new(key.public(), person, ["operator"]));
        }
        let clock = ManualClock::default();
        let entropy = SeededEntropy::new(7);
        private(home.path().join("state"));
        let db = home.path().join("state/portcullis.db");
        let opening = Opening {
            now: clock.now(),
            entropy: &entropy,
            observers: Vec::new(),
            committing: Committing::OwnThread,
        };
        let store = SqliteStore::open(&db, OpenMode::CreateOrOpen, opening).unwrap();
        let policy = ClassTable::default()
            .with(EffectClass::RemoteMutation, Outcome::ask("operator", people).unwrap());
        let parts = Parts {
            store: Arc::new(store),
            clock: Arc::new(clock.clone()),
            entropy: Arc::new(entropy),
            spawn: Arc::new(ThreadSpawn::default()),
            processes: Arc::new(FixedProcesses::new(1)),
            keys: Arc::new(Keyring::new(ring).unwrap()),
            policy: Arc::new(policy),
            tools: Arc::new(Tools::register(vec![Arc::new(FakeTools)]).unwrap()),
            reconcile: None,
            conversation: None,
            timing: Timing::default(),
        };
        Self { home, clock, gate: Gate::new(parts), scope: Scope::of_file_owner() }
    }

    pub(crate) fn begin(&self, goal: &str) -> HeldRun {
        self.begin_with(goal, Limits::default())
    }

    pub(crate) fn begin_with(&self, goal: &str, limits: Limits) -> HeldRun {
        self.clock.advance(Duration::from_secs(1));
        let task = Task {
            goal: goal.to_owned(),
            owner: "carol".to_owned(),
            thread: None,
            parent: None,
            limits,
            agent: "scripted:test".to_owned(),
            unconfined_agent: false,
        };
        block_on(self.gate.begin(&self.scope, task)).unwrap()
    }

    /// A run that waits for a yes to `send`.
    pub(crate) fn asking(&self, goal: &str, path: &str) -> RunId {
        let mut run = self.begin(goal);
        let progress =
            self.propose(&mut run, "send", [("path", Value::from(path))], Some("because"));
        assert!(matches!(progress, Progress::Waiting(_)), "{progress:?}");
        run.run()
    }

    /// Proposes a call and executes it when it is allowed.
    pub(crate) fn propose<const N: usize>(
        &self,
        run: &mut HeldRun,
        tool: &str,
        arguments: [(&str, Value); N],
        reason: Option<&str>,
    ) -> Progress {
        let mut proposal = Object::new();
        proposal.insert("kind", "tool_call");
        proposal.insert("tool", tool);
        proposal.insert("arguments", Object::from_iter(arguments));
        if let Some(reason) = reason {
            proposal.insert("reason", reason);
        }
        self.propose_raw(run, Value::Object(proposal).to_canonical())
    }

    pub(crate) fn propose_raw(&self, run: &mut HeldRun, raw: Vec<u8>) -> Progress {
        self.clock.advance(Duration::from_millis(10));
        match block_on(run.propose(raw)).unwrap() {
            Progress::Allowed => block_on(run.execute()).unwrap(),
            progress => progress,
        }
    }

    pub(crate) fn state(&self, run: RunId) -> RunState {
        block_on(self.gate.parts().store.run(&self.scope, run)).unwrap().unwrap()
    }

    pub(crate) fn question(&self, run: RunId) -> Question {
        self.state(run).question.unwrap()
    }

    pub(crate) fn db(&self) -> PathBuf {
        self.home.path().join("state/portcullis.db")
    }

    /// The command as ann runs it, without a terminal.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_portcullis"));
        command
            .args(args)
            .env_clear()
            .env("HOME", self.home.path())
            .env("USER", "ann")
            .env("PORTCULLIS_DB", self.db())
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Ended {
        Ended::of(self.command(args).output().unwrap())
    }

    pub(crate) fn run_as(&self, user: &str, args: &[&str]) -> Ended {
        Ended::of(self.command(args).env("USER", user).output().unwrap())
    }
}

fn private(folder: PathBuf) {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).unwrap();
}

/// What a command left behind.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ended {
    fn of(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Standard output of a command that had to end so.
    #[track_caller]
    pub(crate) fn out(self, code: i32) -> String {
        assert_eq!(self.code, code, "{}\n{}", self.out, self.err);
        self.out
    }

    /// The one sentence on standard error of a command that had to end so.
    #[track_caller]
    pub(crate) fn refused(self, code: i32) -> String {
        assert_eq!(self.code, code, "{}\n{}", self.out, self.err);
        assert_eq!(self.err.lines().count(), 1, "{}", self.err);
        self.err
    }

    /// The one sentence of a command that had shown something before it had to end so.
    #[track_caller]
    pub(crate) fn refused_after(self, code: i32) -> String {
        assert!(!self.out.is_empty());
        self.refused(code)
    }

    /// Standard output as JSON.
    #[track_caller]
    pub(crate) fn json(self, code: i32) -> Value {
        let out = self.out(code);
        assert_eq!(out.lines().count(), 1, "{out}");
        parse(out.trim_end().as_bytes(), &JsonLimits::ENVELOPE).unwrap()
    }
}

/// The text under a JSON pointer.
#[track_caller]
pub(crate) fn text_at<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_else(|| panic!("{pointer}: {value:?}"))
}

/// True when nothing in it moves a cursor, hides or turns around.
#[track_caller]
pub(crate) fn assert_safe(text: &str) {
    for line in text.lines() {
        assert_eq!(portcullis_canon::sanitize::line(line), line);
    }
}

/// The text with each id and digest replaced by the number of its first mention, as wide as it was: what is
/// drawn and digested is not what a layout is about.
pub(crate) fn numbered(text: &str) -> String {
    let text = without_place(text);
    let mut seen: Vec<&str> = Vec::new();
    let mut out = String::new();
    let mut rest = text.as_str();
    while let Some(at) = rest.find(|c: char| c.is_ascii_hexdigit()) {
        let (before, from) = rest.split_at(at);
        let end = from.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(from.len());
        let (digits, after) = from.split_at(end);
        out.push_str(before);
        if matches!(digits.len(), 32 | 64) {
            let number = seen.iter().position(|known| *known == digits).unwrap_or_else(|| {
                seen.push(digits);
                seen.len() - 1
            });
            out.push_str(&format!("{:0width$}", number + 1, width = digits.len()));
        } else {
            out.push_str(digits);
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

/// The text with each `--db PATH` as `--db DB`: where a test keeps its database is not what a layout is about.
fn without_place(text: &str) -> String {
    let mut parts = text.split("--db ");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.split_once(' ').map_or("", |(_, rest)| rest);
        out.push_str(&format!("--db DB {rest}"));
    }
    out
}
