//! The loop on Salvor's runtime: a loop of our own over `RunCtx`, its library tier, with one tool that writes.
//!
//! The command line and what is printed are those of `driver.py`, beside this folder. Salvor has no setting for how
//! durable a commit is: its store opens in WAL with `synchronous=FULL`, so `--sync` changes nothing here.

#![forbid(unsafe_code)]

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use async_trait::async_trait;
use salvor_core::{Effect, ReplayError, RunId};
use salvor_runtime::{RunCtx, Runtime, RuntimeError, ToolCallResult};
use salvor_store::{EventStore, SqliteStore};
use salvor_tools::{DynTool, HandlerError, ToolCtx, ToolError, ToolOutcome};
use serde_json::{Value, json};

/// The identity of the loop, which Salvor compares when a run is driven again.
const DEFINITION: &str = "sha256:portcullis-bench-loop";

/// What the command line says.
struct Options {
    resuming: bool,
    folder: PathBuf,
    steps: u64,
    bytes: usize,
    think: Duration,
    effects: Option<PathBuf>,
    /// The moment and the step of the kill.
    die: Option<(String, u64)>,
}

fn options() -> Result<Options> {
    let mut words = std::env::args().skip(1);
    let resuming = match words.next().as_deref() {
        Some("run") => false,
        Some("resume") => true,
        _ => bail!("run or resume?"),
    };
    let folder = PathBuf::from(words.next().context("which folder?")?);
    let mut options = Options {
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
        match name.as_str() {
            "--steps" => options.steps = value.parse()?,
            "--bytes" => options.bytes = value.parse()?,
            "--think" => options.think = Duration::from_millis(value.parse()?),
            "--effects" => options.effects = Some(PathBuf::from(value)),
            "--die" => moment = Some(value),
            "--at" => at = Some(value.parse()?),
            "--sync" => {}
            _ => bail!("{name} is not known here"),
        }
    }
    options.die = moment.zip(at);
    Ok(options)
}

/// The tool of the loop.
struct Act {
    result: String,
    think: Duration,
    effects: Option<PathBuf>,
    die: Option<(String, u64)>,
}

impl Act {
    fn new(options: &Options) -> Self {
        let line = "00000 the quick \"brown\" fox jumps over\tthe lazy dog\n";
        let mut result = line.repeat(options.bytes / line.len() + 1);
        result.truncate(options.bytes);
        let (think, effects) = (options.think, options.effects.clone());
        Self { result, think, effects, die: options.die.clone() }
    }

    fn act(&self, step: u64) -> Result<Value> {
        if !self.think.is_zero() {
            std::thread::sleep(self.think);
        }
        self.perhaps_die("before", step)?;
        if let Some(file) = &self.effects {
            have_effect(file, step)?;
        }
        self.perhaps_die("after", step)?;
        Ok(Value::from(self.result.as_str()))
    }

    fn perhaps_die(&self, moment: &str, step: u64) -> Result<()> {
        if self.die.as_ref().is_some_and(|(when, at)| when == moment && *at == step) {
            let own = rustix::process::getpid();
            rustix::process::kill_process(own, rustix::process::Signal::KILL)?;
        }
        Ok(())
    }
}

/// The effect, which is counted outside of this process.
fn have_effect(file: &Path, step: u64) -> Result<()> {
    let mut file = OpenOptions::new().append(true).create(true).open(file)?;
    file.write_all(format!("{step}\n").as_bytes())?;
    Ok(file.sync_all()?)
}

#[async_trait]
impl DynTool for Act {
    fn name(&self) -> &str {
        "act"
    }

    fn description(&self) -> &str {
        "Acts once."
    }

    fn effect(&self) -> Effect {
        Effect::Write
    }

    fn input_schema(&self) -> Value {
        json!({
            "type": "object",
            "properties": {"step": {"type": "integer", "minimum": 0}},
            "required": ["step"],
            "additionalProperties": false,
        })
    }

    async fn call_json(
        &self,
        _ctx: &ToolCtx,
        input: Value,
    ) -> Result<ToolOutcome<Value>, ToolError> {
        let step = input.get("step").and_then(Value::as_u64).unwrap_or_default();
        self.act(step).map(ToolOutcome::Output).map_err(|error| {
            let source = HandlerError::message(error.to_string());
            ToolError::Handler { tool: "act".to_owned(), source }
        })
    }
}

/// Drives the run from the beginning of its log: what is recorded is not done again.
async fn drive(ctx: &mut RunCtx, tool: &Act, steps: u64) -> Result<(), RuntimeError> {
    ctx.begin(DEFINITION, &json!("read all parts")).await?;
    for step in 0..steps {
        match ctx.tool_call(tool, &json!({"step": step}), None).await? {
            ToolCallResult::Output(_) => {}
            _ => return ctx.fail_run("the tool did not answer").await,
        }
    }
    ctx.complete_run(&json!("done")).await
}

/// Runs the loop, and plays the person who looks what became of a write that Salvor will not judge.
async fn run(options: &Options) -> Result<u32> {
    let store: Arc<dyn EventStore> = Arc::new(SqliteStore::open(options.folder.join("salvor.db"))?);
    let tool = Act::new(options);
    let known = store.list_runs().await?.first().map(|run| run.run_id);
    ensure!(options.resuming || known.is_none(), "the folder has a run already");
    let id = known.unwrap_or_else(RunId::new);
    let mut asked = 0;
    loop {
        let log = store.read_log(id).await?;
        let mut ctx = RunCtx::new(Arc::clone(&store), id, log)?;
        match drive(&mut ctx, &tool, options.steps).await {
            Ok(()) => return Ok(asked),
            Err(RuntimeError::Replay(ReplayError::NeedsReconciliation { input, .. })) => {
                asked += 1;
                let step = input.get("step").and_then(Value::as_u64).context("which step?")?;
                let done = by_hand(&tool, step)?;
                Runtime::new(Arc::clone(&store)).resolve(id, done).await?;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// What Salvor has for this state: a person looks, does by hand what is missing, and says what the result was.
fn by_hand(tool: &Act, step: u64) -> Result<Value> {
    let file = tool.effects.as_ref().context("the effects are not counted")?;
    let effects = std::fs::read_to_string(file).unwrap_or_default();
    if !effects.lines().any(|line| line == step.to_string()) {
        have_effect(file, step)?;
    }
    Ok(Value::from(tool.result.as_str()))
}

fn written() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/self/io")?;
    let line = text.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    Ok(line.context("/proc/self/io has no write_bytes")?.parse()?)
}

/// The version that this program is built with, which `Cargo.toml` pins.
fn version() -> Result<&'static str> {
    let mut lines = include_str!("../Cargo.toml").lines();
    let pinned = lines.find_map(|line| line.strip_prefix("salvor-runtime = \"="));
    pinned.map(|rest| rest.trim_end_matches('"')).context("salvor-runtime is not pinned")
}

fn main() -> Result<()> {
    let options = options()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build()?;
    let (before, begun) = (written()?, Instant::now());
    let asked = runtime.block_on(run(&options))?;
    println!("seconds {:.6}", begun.elapsed().as_secs_f64());
    println!("written {}", written()? - before);
    println!("set journal_mode=wal synchronous=FULL (as its store opens, no setting)");
    println!("versions salvor-runtime {}", version()?);
    println!("asked {asked}");
    Ok(())
}
