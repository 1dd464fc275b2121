//! The gate in a loop of one's own: a host with one tool, an agent that is a plain function, and a person who says yes.
//!
//! Run it with `cargo run -q -p portcullis --example own_agent`.

#![allow(clippy::print_stdout, reason = "an example for the terminal")]

use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};

use portcullis::audit::keys::{KeyEntry, Keyring, SigningKey};
use portcullis::audit::{Options, verify};
use portcullis::canon::{Limits as JsonLimits, Object, Value, parse};
use portcullis::domain::approval::{Answer, Statement};
use portcullis::domain::id::{QuestionId, RunId};
use portcullis::domain::limits::Limits;
use portcullis::domain::permit::Permit;
use portcullis::domain::ports::{
    BoxFuture, Clock, Ledgers, StoreError, ToolFailure, ToolOutput, ToolSource, View,
};
use portcullis::domain::run::EndReason;
use portcullis::domain::scope::Scope;
use portcullis::domain::tool::{EffectClass, ToolSpec};
use portcullis::engine::operator::{self, Answered, SignedAnswer};
use portcullis::engine::{
    Attached, Gate, GateError, HeldRun, Parts, Progress, Task, Timing, Tools,
};
use portcullis::policy::ClassTable;
use portcullis::sandbox::identity::LinuxProcesses;
use portcullis::store::memory::MemoryStore;
use portcullis::system::{OsEntropy, SystemClock, TokioSpawn};

/// A tool of the host: mail that leaves the house, here into a list.
struct Mail {
    schema: Value,
    sent: Mutex<Vec<String>>,
}

impl ToolSource for Mail {
    fn specs(&self) -> Vec<ToolSpec> {
        vec![ToolSpec {
            name: "mail.send".to_owned(),
            description: "Sends a message.".to_owned(),
            input_schema: self.schema.clone(),
            // What it changes is elsewhere: the default policy asks a person.
            effect: EffectClass::RemoteMutation,
            source: false,
            sink: true,
            authority: vec!["/to".to_owned()],
            deadline_ms: 5_000,
            terminal: false,
            fixed: Object::new(),
            max_result_bytes: 4_096,
            target: None,
            probe: None,
            idempotency_key: None,
        }]
    }

    fn blocks(&self) -> bool {
        false
    }

    /// Can be called with a permit only, and only the gate has those.
    fn call(&self, permit: Permit) -> BoxFuture<'_, Result<ToolOutput, ToolFailure>> {
        Box::pin(async move {
            let to = permit.arguments().get("to").and_then(Value::as_str).unwrap_or_default();
            self.sent.lock().unwrap_or_else(PoisonError::into_inner).push(to.to_owned());
            Ok(ToolOutput { content: br#"{"queued":true}"#.to_vec(), labels: None })
        })
    }
}

/// The agent: whatever turns a view into bytes. Here a script; in earnest, your model's answer.
fn agent(view: &View) -> &'static [u8] {
    match view.request {
        // No text: the schema refuses it, and the agent sees why.
        0 => br#"{"kind":"tool_call","tool":"mail.send","arguments":{"to":"ann@example.org"}}"#,
        1 => {
            br#"{"kind":"tool_call","tool":"mail.send","reason":"the report is due",
                  "arguments":{"to":"ann@example.org","text":"The report."}}"#
        }
        _ => br#"{"kind":"complete","result":"the report is on its way"}"#,
    }
}

/// Where the host's loop came to rest.
enum Rest {
    Waiting(QuestionId),
    Ended(EndReason),
}

/// The host's own loop: one match on what can be done next.
async fn drive(held: &mut HeldRun) -> Result<Rest, GateError> {
    let mut progress = held.step().await?;
    let mut fresh = true;
    loop {
        progress = match progress {
            Progress::Open => {
                let view = held.view(fresh).await?;
                fresh = false;
                for step in &view.history {
                    println!(
                        "  step {}: {} {}",
                        step.request,
                        step.outcome,
                        step.content.to_canonical_string()
                    );
                }
                held.propose(agent(&view).to_vec()).await?
            }
            Progress::Allowed => held.execute().await?,
            Progress::Observed => held.step().await?,
            Progress::Waiting(question) => return Ok(Rest::Waiting(question)),
            Progress::Child(_) => return Err(GateError::Misuse("these tools start no run")),
            Progress::Ended(reason) => return Ok(Rest::Ended(reason)),
        };
    }
}

/// The parts of a gate over a store in memory. A real host opens a `SqliteStore` here.
fn parts(
    store: &MemoryStore,
    mail: Arc<Mail>,
    person: &SigningKey,
) -> Result<Parts, Box<dyn Error>> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let keys = Keyring::new([KeyEntry::new(person.public(), "ann", ["operator"])])?;
    Ok(Parts {
        store: Arc::new(store.clone()),
        keys: Arc::new(keys.with_clock(Arc::clone(&clock))),
        clock,
        entropy: Arc::new(OsEntropy),
        spawn: Arc::new(TokioSpawn::new(tokio::runtime::Handle::current(), 4)),
        processes: Arc::new(LinuxProcesses::new()?),
        policy: Arc::new(ClassTable::default()),
        tools: Arc::new(Tools::register(vec![mail])?),
        reconcile: None,
        conversation: None,
        timing: Timing::default(),
    })
}

/// What a person does, usually in another process: look at the question, sign a yes, hand it in.
async fn approve(
    parts: &Parts,
    scope: &Scope,
    run: RunId,
    question: QuestionId,
    person: &SigningKey,
) -> Result<Answered, GateError> {
    let state = parts.store.run(scope, run).await?.ok_or(StoreError::NotFound("run"))?;
    let asked = state.question.filter(|asked| asked.id == question);
    let shown = asked.ok_or(StoreError::NotFound("question"))?.digest;
    let statement = Statement {
        covers: vec![shown],
        answer: Answer::Approve,
        key: person.id(),
        at: parts.clock.now(),
        note: None,
        result: None,
    };
    let signature = person.sign(&statement);
    let answer =
        SignedAnswer { run, question, shown, statement, signature, note: None, result: None };
    operator::answer(parts, scope, answer).await
}

/// What came of it all.
#[derive(Debug)]
pub(crate) struct Told {
    /// How the run ended.
    pub(crate) ended: Option<EndReason>,
    /// Whom the tool really wrote to.
    pub(crate) sent: Vec<String>,
    /// What was sent before anybody said yes.
    pub(crate) sent_before_yes: usize,
    /// Whether the record verifies.
    pub(crate) intact: bool,
}

pub(crate) async fn story() -> Result<Told, Box<dyn Error>> {
    let store = MemoryStore::new(SystemClock::new().now(), &OsEntropy);
    let person = SigningKey::generate(&OsEntropy);
    let schema = br#"{"type":"object","required":["to","text"],"additionalProperties":false,
        "properties":{"to":{"type":"string"},"text":{"type":"string","maxLength":2000}}}"#;
    let schema = parse(schema, &JsonLimits::BARE)?;
    let mail = Arc::new(Mail { schema, sent: Mutex::default() });
    let sent = || mail.sent.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let parts = parts(&store, Arc::clone(&mail), &person)?;
    let (gate, scope) = (Gate::new(parts.clone()), Scope::of_file_owner());

    let task = Task {
        goal: "send Ann the report".to_owned(),
        owner: "ben".to_owned(),
        thread: None,
        parent: None,
        limits: Limits::default(),
        agent: "example:own_agent".to_owned(),
        unconfined_agent: true,
    };
    let mut held = gate.begin(&scope, task).await?;
    let run = held.run();
    let mut rest = drive(&mut held).await?;
    drop(held);
    let sent_before_yes = sent().len();

    if let Rest::Waiting(question) = rest {
        println!("  waiting: {question}");
        approve(&parts, &scope, run, question, &person).await?;
        rest = match gate.attach(&scope, run).await? {
            Attached::Held(mut held, _) => drive(&mut held).await?,
            Attached::Waiting(question) => Rest::Waiting(question),
            Attached::Child(_) => return Err("these tools start no run".into()),
            Attached::Ended(reason) => Rest::Ended(reason),
        };
    }

    let keys: &dyn portcullis::domain::ports::ReviewerKeys = parts.keys.as_ref();
    let options = Options { keys: &[keys], ..Options::default() };
    let report = verify(store.begin()?.as_mut(), options)?;
    let ended = match rest {
        Rest::Ended(reason) => Some(reason),
        Rest::Waiting(_) => None,
    };
    Ok(Told { ended, sent: sent(), sent_before_yes, intact: report.intact })
}

#[tokio::main]
#[allow(dead_code, reason = "the test of this example calls the story itself")]
async fn main() -> Result<(), Box<dyn Error>> {
    let Told { ended, sent, sent_before_yes, intact } = story().await?;
    println!("ended:           {}", ended.map_or("not yet", EndReason::as_str));
    println!("sent before yes: {sent_before_yes}");
    println!("sent in all:     {}", sent.join(", "));
    println!("record intact:   {intact}");
    Ok(())
}
