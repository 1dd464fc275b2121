//! `portcullis decide`: answers one hook event of a host, with the policy and the record of everything else.
//!
//! The host makes the call by itself, so what is recorded is advice and never an effect. Whatever goes wrong is a no in the
//! host's own form: an event that cannot be read, a configuration that is missing, a store that fails, a deadline that passes,
//! a bug. The record is durable before a yes is said.

use std::io::Read as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use portcullis_canon::{Limits as JsonLimits, Object, Value, parse};
use portcullis_domain::event::Advice;
use portcullis_domain::id::{QuestionId, ThreadId};
use portcullis_domain::limits::Limits;
use portcullis_domain::ports::{AgentFailure, Pages, Store};
use portcullis_domain::question::{Question, QuestionKind, QuestionStatus};
use portcullis_domain::run::{EndReason, Run, RunStatus};
use portcullis_domain::scope::Scope;
use portcullis_domain::thread::conversation;
use portcullis_engine::operator;
use portcullis_engine::{Advised, Asking, Attached, Gate, HeldRun, Progress, Task};
use portcullis_store::sqlite::open::OpenMode;

use crate::args::{Cli, Globals};
use crate::assemble;
use crate::config::{self, Config};
use crate::failure::Failure;
use crate::heads::Heads;
use crate::hooks::mouth::{BLOCKED, Mouth, Said};
use crate::hooks::{Answer, HookCall, Host};

/// The largest event, in bytes.
const MAX_EVENT: usize = 1 << 20;

/// Questions that one conversation may have waiting.
const MAX_WAITING: usize = 16;

/// How long the end waits for the database to be closed.
const CLOSING: Duration = Duration::from_millis(500);

/// Arguments of `decide`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The host whose hook this is
    #[arg(long, value_enum)]
    host: Host,
    /// Who is asked where the rules ask: our people, or whoever sits before the host
    #[arg(long, value_enum, default_value_t = Ask::Inbox)]
    ask: Ask,
    /// When the answer is no because none came, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 5_000, value_parser = clap::value_parser!(u64).range(100..=60_000))]
    timeout_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Ask {
    /// A question in the inbox: the call is denied until it is approved, and then allowed once
    Inbox,
    /// The host asks its own person, where its form can; that is no approval
    Host,
}

/// Answers, whatever happens.
pub(crate) fn answer(args: &Args, cli: &Cli) -> ExitCode {
    let mouth = Arc::new(Mouth::new(args.host));
    let (done, watched) = channel();
    let watch = watch(Arc::clone(&mouth), watched, Duration::from_millis(args.timeout_ms));
    let said = match &watch {
        Ok(_) => catch_unwind(AssertUnwindSafe(|| decided(args, cli)))
            .unwrap_or_else(|_| Said::deny("the gate met a state that cannot be")),
        Err(_) => Said::deny("the gate cannot watch its own deadline"),
    };
    finish(&mouth, &said, done, watch.ok())
}

/// Says it, unless the deadline was first: then the process ends with that answer.
fn finish(mouth: &Mouth, said: &Said, done: Sender<()>, watch: Option<JoinHandle<()>>) -> ExitCode {
    let code = mouth.say_here(said);
    drop(done);
    match (code, watch) {
        (Some(code), _) => code,
        (None, Some(watch)) => {
            let _ = watch.join();
            ExitCode::from(BLOCKED)
        }
        (None, None) => ExitCode::from(BLOCKED),
    }
}

/// Says no when the deadline passes, and ends the process: what is still under way can say nothing else any more.
fn watch(
    mouth: Arc<Mouth>,
    done: Receiver<()>,
    deadline: Duration,
) -> std::io::Result<JoinHandle<()>> {
    thread::Builder::new().name("deadline".to_owned()).spawn(move || {
        if done.recv_timeout(deadline) == Err(RecvTimeoutError::Timeout) {
            let said = Said::deny("the gate did not come to an answer in time");
            if mouth.say_here(&said).is_some() {
                std::process::exit(i32::from(BLOCKED));
            }
        }
    })
}

fn decided(args: &Args, cli: &Cli) -> Said {
    let call = match event().and_then(|event| args.host.read(&event)) {
        Ok(call) => call,
        Err(why) => return Said::deny(format!("the hook's event cannot be used: {why}")),
    };
    match open(args, cli, call) {
        Ok(said) => said,
        Err(failure) => Said::deny(format!("the gate cannot decide: {failure}")),
    }
}

/// The event on standard input.
fn event() -> Result<Value, String> {
    let most = u64::try_from(MAX_EVENT).unwrap_or(u64::MAX).saturating_add(1);
    let mut bytes = Vec::new();
    std::io::stdin()
        .lock()
        .take(most)
        .read_to_end(&mut bytes)
        .map_err(|error| format!("it cannot be read: {}", error.kind()))?;
    if bytes.len() > MAX_EVENT {
        return Err(format!("it is larger than {MAX_EVENT} bytes"));
    }
    let limits = JsonLimits::ENVELOPE.with_max_bytes(MAX_EVENT);
    parse(&bytes, &limits).map_err(|error| format!("it is not strict JSON: {error}"))
}

fn open(args: &Args, cli: &Cli, call: HookCall) -> Result<Said, Failure> {
    let globals = cli.globals()?;
    let config = config::load(&globals)?;
    if config.decide.is_empty() {
        return Ok(Said::deny("the configuration names no tool in [decide.tools]"));
    }
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).enable_all().build().map_err(|error| {
        Failure::new(
            crate::failure::Code::Io,
            format!("the runtime cannot start: {}", error.kind()),
        )
    })?;
    let asking = match args.ask {
        Ask::Host if call.asks => Asking::Host,
        Ask::Host | Ask::Inbox => Asking::Inbox,
    };
    let said = runtime
        .block_on(async { Desk::open(args.host, &globals, &config)?.decide(&call, asking).await });
    runtime.shutdown_timeout(CLOSING);
    said
}

/// What a decision needs, once it is open.
struct Desk {
    gate: Gate,
    scope: Scope,
    database: Arc<dyn assemble::Database>,
    heads: Option<Heads>,
    host: Host,
    owner: String,
    limits: Limits,
}

impl Desk {
    fn open(host: Host, globals: &Globals, config: &Config) -> Result<Self, Failure> {
        let heads = Heads::of(globals, config)?;
        let house = assemble::deskhouse(globals, OpenMode::CreateOrOpen, config)?;
        if let Some(heads) = &heads {
            heads.compare(house.database.as_ref())?;
        }
        Ok(Self {
            gate: Gate::new(house.parts),
            scope: Scope::of_file_owner(),
            database: house.database,
            heads,
            host,
            owner: assemble::own_person(globals, config),
            limits: one_call(&config.limits),
        })
    }

    async fn decide(&self, call: &HookCall, asking: Asking) -> Result<Said, Failure> {
        operator::sweep_due(self.gate.parts(), &self.scope).await?;
        self.end_left().await?;
        let raw = proposal(call);
        let thread = conversation(&self.owner, &self.host.agent(), &call.conversation);
        let said = match self.collect(thread, &raw).await? {
            Some(said) => said,
            None => self.begin(thread, call, raw, asking).await?,
        };
        if let Some(heads) = &self.heads {
            heads.keep(self.database.as_ref())?;
        }
        Ok(said)
    }

    /// Ends what processes that are gone left undecided of this host's calls: their host was told nothing by them.
    async fn end_left(&self) -> Result<(), Failure> {
        let mut pages = Pages::all();
        while let Some(page) = pages.next_page() {
            let store = &self.gate.parts().store;
            let rows = store.runs(&self.scope, Some(RunStatus::Running), page).await?.rows;
            pages.read(rows.len());
            let own = |run: &Run| run.agent == self.host.agent() && run.owner == self.owner;
            for run in rows.into_iter().flatten().filter(own) {
                let state = store.run(&self.scope, run.id).await?;
                // What a person was asked about waits for the identical call.
                if state.is_none_or(|state| state.question.is_some()) {
                    continue;
                }
                // One that is held is another's, and one that cannot be taken up hinders nobody.
                let taken = self.gate.attach(&self.scope, run.id).await;
                if let Ok(Attached::Held(mut held, _)) = taken {
                    held.fail(undecided()).await?;
                }
            }
        }
        Ok(())
    }

    /// What an identical call of this conversation came to, which a person is or was asked about; nothing when there is none.
    async fn collect(&self, thread: ThreadId, raw: &[u8]) -> Result<Option<Said>, Failure> {
        let mut waiting = 0_usize;
        for status in [QuestionStatus::Granted, QuestionStatus::Open] {
            let mut pages = Pages::all();
            while let Some(page) = pages.next_page() {
                let store = &self.gate.parts().store;
                let rows = store.questions(&self.scope, None, Some(status), page).await?.rows;
                pages.read(rows.len());
                for question in rows.into_iter().flatten() {
                    match self.same(store.as_ref(), thread, &question, raw).await? {
                        Some(true) => return self.follow(&question).await,
                        Some(false) => waiting = waiting.saturating_add(1),
                        None => {}
                    }
                }
            }
        }
        Ok((waiting >= MAX_WAITING).then(|| {
            Said::deny(format!(
                "{waiting} calls of this conversation wait for a person; they have to be answered first"
            ))
        }))
    }

    /// Whether the question is about this call, in this conversation; nothing when it is another conversation's.
    async fn same(
        &self,
        store: &dyn Store,
        thread: ThreadId,
        question: &Question,
        raw: &[u8],
    ) -> Result<Option<bool>, Failure> {
        if question.kind != QuestionKind::Approval {
            return Ok(None);
        }
        let Some(state) = store.run(&self.scope, question.run).await? else { return Ok(None) };
        if state.run.thread != thread || state.run.agent != self.host.agent() {
            return Ok(None);
        }
        let Some(proposal) = state.step().and_then(|step| step.proposal) else {
            return Ok(Some(false));
        };
        let kept = store.content(&self.scope, proposal.digest).await?;
        Ok(Some(kept.is_some_and(|kept| kept.bytes() == raw)))
    }

    /// Goes on with a call that waited. Nothing when it waits no longer, and is to be judged anew.
    async fn follow(&self, question: &Question) -> Result<Option<Said>, Failure> {
        match self.gate.attach(&self.scope, question.run).await? {
            Attached::Waiting(question) => Ok(Some(waits(question))),
            Attached::Held(mut held, Progress::Allowed) => tell(&mut held).await.map(Some),
            Attached::Held(mut held, _) => refused(&mut held).await.map(Some),
            Attached::Ended(EndReason::ApprovalExpired) => Ok(None),
            Attached::Ended(_) | Attached::Child(_) => {
                Ok(Some(Said::deny("the call was not allowed")))
            }
        }
    }

    /// Judges a call that nobody was asked about.
    async fn begin(
        &self,
        thread: ThreadId,
        call: &HookCall,
        raw: Vec<u8>,
        asking: Asking,
    ) -> Result<Said, Failure> {
        let task = Task {
            goal: format!("call {}", call.tool),
            owner: self.owner.clone(),
            thread: None,
            parent: None,
            limits: self.limits.clone(),
            agent: self.host.agent(),
            // The host runs as it likes: nothing confines it from here.
            unconfined_agent: true,
        };
        let mut held = self.gate.begin_on(&self.scope, thread, task).await?;
        held.asking(asking).await?;
        match held.propose(raw).await? {
            Progress::Allowed => tell(&mut held).await,
            Progress::Waiting(question) => Ok(waits(question)),
            _ => refused(&mut held).await,
        }
    }
}

/// The bounds of a run that is one call: whatever it comes to ends it.
fn one_call(configured: &Limits) -> Limits {
    Limits {
        max_steps: 2,
        max_denials: 1,
        max_consecutive_failures: 1,
        question_ttl_ms: configured.question_ttl_ms,
        grant_ttl_ms: configured.grant_ttl_ms,
        ..Limits::default()
    }
}

/// Why a call ends that was being decided when its process ended.
fn undecided() -> AgentFailure {
    let message = "the process that decided this call ended before it could say anything";
    AgentFailure { reason: EndReason::AgentExited, message: message.to_owned() }
}

/// The call as a proposal: equal calls have equal bytes.
fn proposal(call: &HookCall) -> Vec<u8> {
    let mut object = Object::new();
    object.insert("kind", "tool_call");
    object.insert("tool", call.tool.as_str());
    object.insert("arguments", call.arguments.clone());
    Value::Object(object).to_canonical()
}

/// Hands the verdict on.
async fn tell(held: &mut HeldRun) -> Result<Said, Failure> {
    match held.advise().await? {
        Advised::Told(Advice::Allow) => {
            Ok(Said { answer: Answer::Allow, reason: "the rules allow this call".to_owned() })
        }
        Advised::Told(Advice::Ask) => {
            Ok(Said { answer: Answer::Ask, reason: "the rules ask about this call".to_owned() })
        }
        Advised::Not(Progress::Waiting(question)) => Ok(waits(question)),
        Advised::Not(_) => refused(held).await,
    }
}

fn waits(question: QuestionId) -> Said {
    Said::deny(format!(
        "a person has to approve this call first: {question} (portcullis approve {question}); make exactly the same call again afterwards"
    ))
}

/// Why the call is not allowed, as it is recorded.
async fn refused(held: &mut HeldRun) -> Result<Said, Failure> {
    let state = held.state().await?;
    let observed = state.batch.iter().rev().find_map(|step| step.observation.as_ref());
    Ok(Said::deny(match observed.and_then(|observation| observation.refusal) {
        Some(limit) if limit.bounds_a_conversation() => format!(
            "a limit of this conversation is met ({}); the user can wait, raise the limit, or begin a new conversation",
            limit.as_str()
        ),
        Some(refusal) => format!("this call is not allowed ({})", refusal.as_str()),
        None => "this call is not allowed (not_allowed)".to_owned(),
    }))
}
