//! The thing measured: a real gate over a SQLite store, with one quick tool that only reads.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, anyhow, ensure};
use portcullis::audit::keys::Keyring;
use portcullis::canon::{Limits as JsonLimits, Object, Value, parse};
use portcullis::domain::limits::Limits;
use portcullis::domain::permit::Permit;
use portcullis::domain::ports::{
    Agent, AgentFailure, BoxFuture, Clock, ToolFailure, ToolOutput, ToolSource, View,
};
use portcullis::domain::run::EndReason;
use portcullis::domain::scope::Scope;
use portcullis::domain::tool::{EffectClass, ToolSpec};
use portcullis::engine::{Driven, Driving, Gate, Parts, Task, Timing, Tools};
use portcullis::policy::ClassTable;
use portcullis::sandbox::identity::LinuxProcesses;
use portcullis::store::sqlite::open::OpenMode;
use portcullis::store::sqlite::{Committing, Opening, SqliteStore};
use portcullis::system::{OsEntropy, SystemClock, TokioSpawn};

/// The name of the database in a run's folder.
pub(crate) const FILE: &str = "gated.db";

/// Blocking places, as the command has them.
const PLACES: usize = 16;

/// The arguments' schema: a bounded text with a pattern, numbers with bounds and defaults, an enumeration.
const SCHEMA: &str = r#"{
    "type": "object",
    "properties": {
        "path": {"type": "string", "minLength": 1, "maxLength": 4096, "pattern": "^[^/]"},
        "from_line": {"type": "integer", "minimum": 0, "default": 0},
        "max_lines": {"type": "integer", "minimum": 1, "maximum": 100000, "default": 2000},
        "encoding": {"type": "string", "enum": ["utf-8", "base64"], "default": "utf-8"},
        "note": {"type": "string", "maxLength": 65536}
    },
    "required": ["path"],
    "additionalProperties": false
}"#;

/// A tool that answers with text of a fixed size.
struct Reads {
    spec: ToolSpec,
    answer: Vec<u8>,
}

/// The spec of the tool.
pub(crate) fn spec() -> Result<ToolSpec> {
    Ok(ToolSpec {
        name: "bench.read".to_owned(),
        description: "Reads some lines.".to_owned(),
        input_schema: parse(SCHEMA.as_bytes(), &JsonLimits::BARE)?,
        effect: EffectClass::ReadOnly,
        source: true,
        sink: false,
        authority: vec!["/path".to_owned()],
        deadline_ms: 10_000,
        terminal: false,
        fixed: Object::new(),
        max_result_bytes: 1 << 20,
        target: None,
        probe: None,
        idempotency_key: None,
    })
}

/// A JSON object of about this many bytes: lines of text, as a file has them.
pub(crate) fn answer(bytes: usize) -> Vec<u8> {
    let mut lines: Vec<Value> = Vec::new();
    let mut size = r#"{"lines":[]}"#.len();
    while size < bytes {
        let number = lines.len();
        let line = format!("{number:05} the quick \"brown\" fox jumps over\tthe lazy dog, naïvely");
        let line: String = line.chars().take(bytes.saturating_sub(size).max(1)).collect();
        // Quotes, a comma and one escape or two are part of the size.
        size = size.saturating_add(line.len()).saturating_add(6);
        lines.push(Value::from(line.as_str()));
    }
    let mut object = Object::new();
    object.insert("lines", lines);
    Value::Object(object).to_canonical()
}

impl ToolSource for Reads {
    fn specs(&self) -> Vec<ToolSpec> {
        vec![self.spec.clone()]
    }

    fn blocks(&self) -> bool {
        false
    }

    fn call(&self, _permit: Permit) -> BoxFuture<'_, Result<ToolOutput, ToolFailure>> {
        Box::pin(async { Ok(ToolOutput { content: self.answer.clone(), labels: None }) })
    }
}

/// The bytes of the proposal for a request: each differs, so that the loop detector stays silent.
pub(crate) fn proposal(request: u64) -> Vec<u8> {
    format!(
        r#"{{"kind":"tool_call","request":{request},"tool":"bench.read","reason":"the next part","arguments":{{"path":"reports/part-{request:06}.txt","from_line":{request}}}}}"#
    )
    .into_bytes()
}

/// The bytes that end a run.
pub(crate) fn completion(request: u64) -> Vec<u8> {
    format!(r#"{{"kind":"complete","request":{request},"result":"done"}}"#).into_bytes()
}

/// Opens the store in `folder` as the command does, which drives one run.
pub(crate) fn store(folder: &Path) -> Result<Arc<SqliteStore>> {
    store_with(folder, Committing::Caller)
}

/// Opens the store in `folder`.
pub(crate) fn store_with(folder: &Path, committing: Committing) -> Result<Arc<SqliteStore>> {
    let now = SystemClock::new().now();
    let opening = Opening { now, entropy: &OsEntropy, observers: Vec::new(), committing };
    Ok(Arc::new(SqliteStore::open(&folder.join(FILE), OpenMode::CreateOrOpen, opening)?))
}

/// A gate over `store` whose tool answers with this many bytes. Needs a tokio runtime.
pub(crate) fn gate(store: Arc<SqliteStore>, bytes: usize) -> Result<Gate> {
    let tool = Reads { spec: spec()?, answer: answer(bytes) };
    Ok(Gate::new(parts(store, Arc::new(tool))?))
}

/// The parts of a gate over `store` with one tool, where nobody can be asked. Needs a tokio runtime.
pub(crate) fn parts(store: Arc<SqliteStore>, tool: Arc<dyn ToolSource>) -> Result<Parts> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    Ok(Parts {
        store,
        keys: Arc::new(Keyring::default().with_clock(Arc::clone(&clock))),
        clock,
        entropy: Arc::new(OsEntropy),
        spawn: Arc::new(TokioSpawn::new(tokio::runtime::Handle::current(), PLACES)),
        processes: Arc::new(LinuxProcesses::new()?),
        policy: Arc::new(ClassTable::default()),
        tools: Arc::new(Tools::register(vec![tool])?),
        reconcile: None,
        conversation: None,
        timing: Timing::default(),
    })
}

/// A run of as many steps as its agent makes.
pub(crate) fn task() -> Task {
    Task {
        goal: "read all parts".to_owned(),
        owner: "bench".to_owned(),
        thread: None,
        parent: None,
        limits: Limits { max_steps: 1_000_000, ..Limits::default() },
        agent: "bench".to_owned(),
        unconfined_agent: false,
    }
}

/// Some steps and the end.
pub(crate) struct Worker {
    /// How many.
    pub(crate) steps: u64,
}

impl Agent for Worker {
    fn propose(&mut self, view: View) -> BoxFuture<'_, Result<Vec<u8>, AgentFailure>> {
        let raw = match view.request {
            request if request < self.steps => proposal(request),
            request => completion(request),
        };
        Box::pin(async { Ok(raw) })
    }
}

/// Drives one run to its end.
pub(crate) async fn drive(gate: &Gate, agent: Box<dyn Agent>) -> Result<()> {
    let held = gate.begin(&Scope::of_file_owner(), task()).await.map_err(|e| anyhow!("{e}"))?;
    let mut driving = Driving::start(held, agent).await.map_err(|e| anyhow!("{e}"))?;
    let driven = driving.finished().await.map_err(|e| anyhow!("{e}"))?;
    ensure!(driven == Driven::Ended(EndReason::GoalCompleted), "the run ended as {driven:?}");
    Ok(())
}

/// The runtime that the command has for runs.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_have_about_the_size_that_was_asked_for() {
        for bytes in [100_usize, 1024, 8192] {
            let made = answer(bytes).len();
            assert!(made.abs_diff(bytes) <= bytes / 10, "{bytes}: {made}");
        }
    }
}
