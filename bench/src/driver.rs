//! Our side of `cargo xtask bench --peers`: the same loop, and the same death in it, as the peers' drivers have.
//!
//! The command line and what is printed are those of `bench/peers/driver.py`. There is one setting for how durable a
//! commit is, so `--sync` changes nothing here. The tool can change something elsewhere and the rules allow it; what
//! became of a call that a kill cut off is answered by a person, who looks at the file of effects.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use portcullis::audit::keys::{KeyEntry, Keyring, SigningKey};
use portcullis::canon::{Limits as JsonLimits, Object, Value, parse};
use portcullis::domain::approval::{Answer, Statement};
use portcullis::domain::content::Content;
use portcullis::domain::id::{QuestionId, RunId};
use portcullis::domain::permit::Permit;
use portcullis::domain::ports::{
    Agent, AgentFailure, BoxFuture, Clock as _, Page, ToolFailure, ToolOutput, ToolSource, View,
};
use portcullis::domain::run::EndReason;
use portcullis::domain::scope::Scope;
use portcullis::domain::tool::{EffectClass, ToolSpec};
use portcullis::engine::operator::{self, SignedAnswer};
use portcullis::engine::{Attached, Driven, Driving, Gate, HeldRun};
use portcullis::policy::{ClassTable, Outcome};
use portcullis::system::{OsEntropy, SystemClock};

use crate::{figures, gated};

/// The word that makes this program be a driver.
pub(crate) const CHILD: &str = "driver";

/// The name of the tool.
const TOOL: &str = "bench.act";

/// The arguments' schema.
const SCHEMA: &str = r#"{
    "type": "object",
    "properties": {"step": {"type": "integer", "minimum": 0}},
    "required": ["step"],
    "additionalProperties": false
}"#;

/// When in a call the process kills itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    BeforeEffect,
    AfterEffect,
}

/// What the command line says.
#[derive(Debug)]
struct Options {
    resuming: bool,
    folder: PathBuf,
    steps: u64,
    bytes: usize,
    think: Duration,
    effects: Option<PathBuf>,
    die: Option<(Moment, u64)>,
}

impl Options {
    fn read(mut words: impl Iterator<Item = String>) -> Result<Self> {
        let resuming = match words.next().as_deref() {
            Some("run") => false,
            Some("resume") => true,
            _ => bail!("run or resume?"),
        };
        let folder = PathBuf::from(words.next().context("which folder?")?);
        let mut options = Self {
            resuming,
            folder,
            steps: 0,
            bytes: 0,
            think: Duration::ZERO,
            effects: None,
            die: None,
        };
        let (mut moment, mut at) = (None, None);
        while let Some(name) = words.next() {
            let value = words.next().with_context(|| format!("{name} of what?"))?;
            match (name.as_str(), value.as_str()) {
                ("--steps", value) => options.steps = value.parse()?,
                ("--bytes", value) => options.bytes = value.parse()?,
                ("--think", value) => options.think = Duration::from_millis(value.parse()?),
                ("--effects", value) => options.effects = Some(PathBuf::from(value)),
                ("--die", "before") => moment = Some(Moment::BeforeEffect),
                ("--die", "after") => moment = Some(Moment::AfterEffect),
                ("--at", value) => at = Some(value.parse()?),
                ("--sync", "default" | "full") => {}
                (name, value) => bail!("{name} {value} is not known here"),
            }
        }
        options.die = moment.zip(at);
        Ok(options)
    }
}

/// The tool: it answers with text of a fixed size, and may have an effect that is counted elsewhere.
struct Acts {
    spec: ToolSpec,
    answer: Vec<u8>,
    effects: Option<PathBuf>,
    die: Option<(Moment, u64)>,
}

impl Acts {
    fn new(options: &Options) -> Result<Self> {
        let spec = ToolSpec {
            name: TOOL.to_owned(),
            description: "Acts once.".to_owned(),
            input_schema: parse(SCHEMA.as_bytes(), &JsonLimits::BARE)?,
            effect: EffectClass::RemoteMutation,
            source: true,
            sink: true,
            authority: Vec::new(),
            deadline_ms: 10_000,
            terminal: false,
            fixed: Object::new(),
            max_result_bytes: 1 << 20,
            target: None,
            probe: None,
            idempotency_key: None,
        };
        let (effects, die) = (options.effects.clone(), options.die);
        Ok(Self { spec, answer: gated::answer(options.bytes), effects, die })
    }

    fn act(&self, step: u64) -> std::io::Result<()> {
        self.perhaps_die(Moment::BeforeEffect, step)?;
        if let Some(file) = &self.effects {
            let mut file = OpenOptions::new().append(true).create(true).open(file)?;
            file.write_all(format!("{step}\n").as_bytes())?;
            file.sync_all()?;
        }
        self.perhaps_die(Moment::AfterEffect, step)
    }

    fn perhaps_die(&self, moment: Moment, step: u64) -> std::io::Result<()> {
        if self.die == Some((moment, step)) {
            let own = rustix::process::getpid();
            rustix::process::kill_process(own, rustix::process::Signal::KILL)?;
        }
        Ok(())
    }
}

impl ToolSource for Acts {
    fn specs(&self) -> Vec<ToolSpec> {
        vec![self.spec.clone()]
    }

    fn blocks(&self) -> bool {
        false
    }

    fn call(&self, permit: Permit) -> BoxFuture<'_, Result<ToolOutput, ToolFailure>> {
        Box::pin(async move {
            let step = permit.arguments().get("step").and_then(Value::as_u64).unwrap_or(u64::MAX);
            match self.act(step) {
                Ok(()) => Ok(ToolOutput { content: self.answer.clone(), labels: None }),
                Err(error) => Err(ToolFailure::Unknown { message: error.to_string() }),
            }
        })
    }
}

/// One call a step: a step's request is its number.
struct Caller {
    steps: u64,
    think: Duration,
}

impl Agent for Caller {
    fn propose(&mut self, view: View) -> BoxFuture<'_, Result<Vec<u8>, AgentFailure>> {
        let (request, think) = (view.request, self.think);
        let raw = if request < self.steps {
            format!(
                r#"{{"kind":"tool_call","request":{request},"tool":"{TOOL}","arguments":{{"step":{request}}}}}"#
            )
            .into_bytes()
        } else {
            gated::completion(request)
        };
        Box::pin(async move {
            if !think.is_zero() {
                tokio::time::sleep(think).await;
            }
            Ok(raw)
        })
    }
}

/// A person who answers for calls whose outcome is unknown.
struct Person {
    key: SigningKey,
    asked: u32,
}

impl Person {
    /// Looks at the effects and says what is true: it happened, or else it is to run again.
    async fn answer(
        &mut self,
        gate: &Gate,
        run: RunId,
        question: QuestionId,
        options: &Options,
    ) -> Result<()> {
        let scope = Scope::of_file_owner();
        self.asked = self.asked.saturating_add(1);
        let state = gate.parts().store.run(&scope, run).await?.context("the run is gone")?;
        let asked = state.question.filter(|asked| asked.id == question);
        let shown = asked.context("the question is gone")?.digest;
        let step = state.run.step_count.saturating_sub(1);
        let happened = had_effect(options, step)?;
        let result = happened.then(|| Content::seal(gated::answer(options.bytes), &OsEntropy));
        let statement = Statement {
            covers: vec![shown],
            answer: if happened { Answer::Happened } else { Answer::RunAgain },
            key: self.key.id(),
            at: SystemClock::new().now(),
            note: None,
            result: result.as_ref().map(Content::reference),
        };
        let signature = self.key.sign(&statement);
        let answer =
            SignedAnswer { run, question, shown, statement, signature, note: None, result };
        operator::answer(gate.parts(), &scope, answer).await.map_err(|e| anyhow!("{e}"))?;
        Ok(())
    }
}

fn had_effect(options: &Options, step: u64) -> Result<bool> {
    let file = options.effects.as_ref().context("the effects are not counted")?;
    let effects = match std::fs::read_to_string(file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        read => read?,
    };
    Ok(effects.lines().any(|line| line == step.to_string()))
}

/// The driver: runs the loop and prints one fact a line.
pub(crate) fn child(words: impl Iterator<Item = String>) -> Result<()> {
    let options = Options::read(words)?;
    let runtime = gated::runtime()?;
    let mut person = Person { key: SigningKey::generate(&OsEntropy), asked: 0 };
    let (took, written) = runtime.block_on(async {
        let gate = gate(&options, &person)?;
        let (before, begun) = (figures::written()?, Instant::now());
        run(&gate, &options, &mut person).await?;
        Ok::<_, anyhow::Error>((begun.elapsed(), figures::written()?.saturating_sub(before)))
    })?;
    println!("seconds {:.6}", took.as_secs_f64());
    println!("written {written}");
    println!("set journal_mode=wal synchronous=FULL (intent and outcome; the proposal rides)");
    println!("versions portcullis {}", env!("CARGO_PKG_VERSION"));
    println!("asked {}", person.asked);
    Ok(())
}

fn gate(options: &Options, person: &Person) -> Result<Gate> {
    let store = gated::store(&options.folder)?;
    let mut parts = gated::parts(store, Arc::new(Acts::new(options)?))?;
    parts.policy =
        Arc::new(ClassTable::default().with(EffectClass::RemoteMutation, Outcome::Allow));
    let keys = Keyring::new([KeyEntry::new(person.key.public(), "ann", ["operator"])])?;
    parts.keys = Arc::new(keys.with_clock(Arc::clone(&parts.clock)));
    Ok(Gate::new(parts))
}

/// Begins the run, or goes on with the one that is there, until it has ended.
async fn run(gate: &Gate, options: &Options, person: &mut Person) -> Result<()> {
    let scope = Scope::of_file_owner();
    if !options.resuming {
        let held = gate.begin(&scope, gated::task()).await.map_err(|e| anyhow!("{e}"))?;
        return drive(held, options).await;
    }
    let page = Page { offset: 0, limit: 1 };
    let rows = gate.parts().store.runs(&scope, None, page).await?;
    let row = rows.rows.first().context("the folder has no run")?;
    let run = row.as_ref().map_err(|damaged| anyhow!("{damaged:?}"))?.id;
    loop {
        match gate.attach(&scope, run).await.map_err(|e| anyhow!("{e}"))? {
            Attached::Held(held, _) => return drive(held, options).await,
            Attached::Waiting(question) => person.answer(gate, run, question, options).await?,
            Attached::Ended(EndReason::GoalCompleted) => return Ok(()),
            Attached::Child(child) => bail!("the run waits for {child}"),
            Attached::Ended(reason) => bail!("the run ended as {reason:?}"),
        }
    }
}

async fn drive(held: HeldRun, options: &Options) -> Result<()> {
    let agent = Caller { steps: options.steps, think: options.think };
    let mut driving = Driving::start(held, Box::new(agent)).await.map_err(|e| anyhow!("{e}"))?;
    let driven = driving.finished().await.map_err(|e| anyhow!("{e}"))?;
    ensure!(driven == Driven::Ended(EndReason::GoalCompleted), "the run ended as {driven:?}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn options(text: &str) -> Result<Options> {
        Options::read(text.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn the_command_line_is_read_as_the_peers_read_it() {
        let text =
            "resume /a --steps 7 --bytes 100 --sync full --think 5 --effects /e --die after --at 3";
        let read = options(text).expect("options");
        assert!(read.resuming);
        assert_eq!((read.steps, read.bytes, read.think), (7, 100, Duration::from_millis(5)));
        assert_eq!(read.die, Some((Moment::AfterEffect, 3)));
        assert_eq!(read.effects, Some(PathBuf::from("/e")));
        for text in ["", "walk /a", "run", "run /a --steps", "run /a --die never", "run /a --x y"] {
            assert!(options(text).is_err(), "{text}");
        }
    }

    /// Drives three steps of which the first has an unknown outcome, lets `meanwhile` happen, and resumes.
    fn resumed(meanwhile: impl FnOnce(&Path)) -> (u32, String) {
        let folder = tempfile::tempdir().expect("a folder");
        let below = folder.path().join("later");
        let effects = below.join("effects");
        let text = format!("run {} --steps 3 --bytes 100", folder.path().display());
        let mut options = options(&text).expect("options");
        options.effects = Some(effects.clone());
        let mut person = Person { key: SigningKey::generate(&OsEntropy), asked: 0 };
        gated::runtime().expect("a runtime").block_on(async {
            let gate = gate(&options, &person).expect("a gate");
            let stopped = run(&gate, &options, &mut person).await.expect_err("it waits");
            assert!(stopped.to_string().contains("Waiting"), "{stopped}");
            std::fs::create_dir(&below).expect("a folder");
            meanwhile(&effects);
            options.resuming = true;
            run(&gate, &options, &mut person).await.expect("the run goes on");
        });
        (person.asked, std::fs::read_to_string(&effects).expect("effects"))
    }

    #[test]
    fn what_did_not_happen_is_run_again_on_a_persons_word() {
        assert_eq!(resumed(|_| {}), (1, "0\n1\n2\n".to_owned()));
    }

    #[test]
    fn what_did_happen_is_not_done_again() {
        let happened = |effects: &Path| std::fs::write(effects, "0\n").expect("an effect");
        assert_eq!(resumed(happened), (1, "0\n1\n2\n".to_owned()));
    }
}
