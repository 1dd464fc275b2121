//! Tools whose effects are counted from outside: each change rings once in the process that counts.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use portcullis::canon::{Limits, Object, Value, parse};
use portcullis::domain::permit::Permit;
use portcullis::domain::ports::{BoxFuture, ToolFailure, ToolOutput, ToolSource};
use portcullis::domain::scope::Scope;
use portcullis::domain::tool::{EffectClass, ToolSpec};
use portcullis::engine::{Parts, operator};
use portcullis_testkit::crash::Phase;
use portcullis_testkit::stage::{Sighted, Stage};

use super::life::PATIENCE;
use super::place::Effects;

/// Name, class, deadline in milliseconds.
const TOOLS: &[(&str, EffectClass, u64)] = &[
    ("look", EffectClass::ReadOnly, 30_000),
    ("write", EffectClass::LocalMutation, 30_000),
    ("send", EffectClass::RemoteMutation, 30_000),
    ("burn", EffectClass::Destructive, 30_000),
    ("shred", EffectClass::Destructive, 30_000),
    // Loses its connection the first time.
    ("flaky", EffectClass::LocalMutation, 30_000),
    // Answers after its deadline the first time.
    ("slow", EffectClass::LocalMutation, 300),
    // The operator ends the run while it works.
    ("halt", EffectClass::LocalMutation, 30_000),
    // Works until its lease was renewed twice.
    ("linger", EffectClass::LocalMutation, 30_000),
    ("end", EffectClass::ReadOnly, 30_000),
];

/// The tools, in the hands of one process.
pub(crate) struct Tools {
    effects: Effects,
    stage: Arc<Stage>,
    /// What the operator has who ends a run.
    desk: Parts,
    calls: AtomicU64,
    slow: AtomicBool,
}

impl Tools {
    pub(crate) fn new(effects: Effects, stage: Arc<Stage>, desk: Parts) -> Self {
        Self { effects, stage, desk, calls: AtomicU64::new(0), slow: AtomicBool::new(false) }
    }

    /// Whether a call was made that answers after its deadline.
    pub(crate) fn was_slow(&self) -> bool {
        self.slow.load(Ordering::Acquire)
    }

    /// Comes to a point from which no process goes on that ends there.
    async fn reach(&self, number: u64, phase: Phase, tool: &str) {
        self.stage.reach(&Sighted::in_tool(number, phase, tool));
        self.live_on().await;
    }

    fn wait_for(&self, what: &str, times: u64) {
        assert!(self.stage.wait_for(what, times, PATIENCE), "no {what}");
    }

    /// Goes no further in a process that is over.
    async fn live_on(&self) {
        if self.stage.has_ended() {
            pending::<()>().await;
        }
    }

    async fn perform(&self, permit: &Permit) -> Result<ToolOutput, ToolFailure> {
        let n = permit.arguments().get("n").and_then(Value::as_u64).unwrap();
        let number = self.calls.fetch_add(1, Ordering::AcqRel) + 1;
        self.reach(number, Phase::Before, permit.tool()).await;
        if changes(permit.tool()) {
            self.effects.ring(n, &permit.step().to_string(), permit.start());
        }
        self.reach(number, Phase::After, permit.tool()).await;
        let first = permit.start() == 1;
        match permit.tool() {
            "flaky" if first => {
                return Err(ToolFailure::Unknown { message: "the line went dead".to_owned() });
            }
            "slow" if first => {
                self.slow.store(true, Ordering::Release);
                self.wait_for("question.asked", 1);
            }
            "halt" => {
                let scope = Scope::of_file_owner();
                let cancel = operator::cancel(&self.desk, &scope, permit.run(), "ann", None);
                cancel.await.unwrap();
            }
            "linger" if first => self.wait_for("renewal", 2),
            _ => {}
        }
        self.live_on().await;
        Ok(ToolOutput { content: format!(r#"{{"n":{n}}}"#).into_bytes(), labels: None })
    }
}

/// Whether a tool changes something, and so rings.
pub(crate) fn changes(tool: &str) -> bool {
    TOOLS.iter().any(|(name, effect, _)| *name == tool && effect.changes_something())
}

impl ToolSource for Tools {
    fn specs(&self) -> Vec<ToolSpec> {
        let schema = br#"{"type":"object","additionalProperties":false,"required":["n"],
            "properties":{"n":{"type":"integer"}}}"#;
        let spec = |(name, effect, deadline_ms): &(&str, EffectClass, u64)| ToolSpec {
            name: (*name).to_owned(),
            description: "A tool.".to_owned(),
            input_schema: parse(schema, &Limits::BARE).unwrap(),
            effect: *effect,
            source: true,
            sink: effect.changes_something(),
            authority: Vec::new(),
            deadline_ms: *deadline_ms,
            terminal: *name == "end",
            fixed: Object::new(),
            max_result_bytes: 4_096,
            target: None,
        };
        TOOLS.iter().map(spec).collect()
    }

    fn blocks(&self) -> bool {
        true
    }

    fn call(&self, permit: Permit) -> BoxFuture<'_, Result<ToolOutput, ToolFailure>> {
        Box::pin(async move { self.perform(&permit).await })
    }
}
