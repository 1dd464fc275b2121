//! `portcullis demo`: the gate at work on a folder of its own, with a person's answer from another process.

use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use portcullis::system::OsEntropy;
use portcullis_domain::id::{QuestionId, RunId};
use portcullis_domain::limits::Limits;
use portcullis_domain::ports::{Entropy as _, Page, Store, StoreError};
use portcullis_domain::question::QuestionStatus;
use portcullis_domain::scope::Scope;
use portcullis_domain::step::Step;
use portcullis_engine::{Attached, Driven, Gate, Task};
use portcullis_store::sqlite::open::OpenMode;

use crate::agent::{AgentChoice, Prepared};
use crate::args::Globals;
use crate::assemble::{self, Gatehouse};
use crate::config::{self, Config};
use crate::drive;
use crate::exit::Exit;
use crate::failure::{Code, Failure};
use crate::place::{Place, Surroundings};
use crate::signals::Signals;
use crate::start::{self, Ready};
use crate::wire::{DemoJson, DemoStepJson};
use crate::words::quote;

/// How often the database is looked at while a person decides.
const LOOK: Duration = Duration::from_millis(300);

const RULES: &str = "# The rules of the demo: reading is allowed, changes ask, deleting is denied.
[classes]
read_only = \"allow\"
local_mutation = \"ask\"
destructive = \"deny\"
";

const FILES: [(&str, &str); 2] = [
    ("budget.txt", "rent 900\nfood 350\nbooks 40\n"),
    ("notes.txt", "Ask about the rent. Delete nothing.\n"),
];

/// What the agent of the demo proposes, and in whose words.
const SCRIPT: [(&str, &str); 5] = [
    (
        "asks what is in the folder",
        r#"{"kind":"tool_call","tool":"files.list","arguments":{"path":"."},"reason":"to see what is there"}"#,
    ),
    (
        "asks for something that makes no sense",
        r#"{"kind":"tool_call","tool":"files.read","arguments":{"path":7}}"#,
    ),
    (
        "asks to delete a file",
        r#"{"kind":"tool_call","tool":"files.delete","arguments":{"path":"budget.txt"},"reason":"it looks unused"}"#,
    ),
    (
        "asks to write a new file",
        r#"{"kind":"tool_call","tool":"files.create","arguments":{"path":"summary.txt","content":"The month costs 1290.\n"},"reason":"the owner wants a summary"}"#,
    ),
    ("says that it is done", r#"{"kind":"complete","result":{"written":"summary.txt"}}"#),
];

/// Arguments of `demo`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Answer the question too, by another process of this program
    #[arg(long)]
    yes: bool,
}

/// The folder of one demo, and the command line that means it.
struct Stage {
    /// Tell it as one value at the end.
    json: bool,
    base: PathBuf,
    files: PathBuf,
    globals: Globals,
    config: Config,
}

/// Plays it.
pub(crate) async fn run(args: Args, globals: &Globals) -> Result<Exit, Failure> {
    if globals.json && !args.yes {
        return Err(Failure::undecided("with --json nobody is asked, and no demo was begun")
            .hint("say `--yes`, and another process answers"));
    }
    let mut signals = Signals::catch()?;
    let stage = Stage::build(globals)?;
    stage.say(&[
        &format!("A folder for this demo: {}", stage.base.display()),
        "Its rules: reading is allowed, changes ask a person, deleting is denied.",
        "",
    ])?;
    let ready = stage.open().await?;
    let (run, driven) = stage.begin(&ready, &mut signals).await?;
    stage.narrate(ready.gatehouse.database.as_ref(), run, 0).await?;
    let Driven::Waiting(question) = driven else { return stage.unexpected(driven) };
    if args.yes {
        stage.say(&["", "Nothing has changed yet. Another process answers now:", ""])?;
        stage.another_process(&["approve", &question.to_string(), "--yes"])?;
    } else {
        stage.say(&[
            "",
            "Nothing has changed yet. Answer in another terminal:",
            "",
            &format!("    {}", stage.typed(&format!("approve {question}"))?),
            "",
        ])?;
        tokio::select! {
            answered = wait(&ready.gatehouse, question, run) => answered?,
            () = signals.next() => return Ok(Exit::Stopped),
        }
    }
    let driven = stage.go_on(&ready, run, &mut signals).await?;
    stage.say(&[""])?;
    stage.narrate(ready.gatehouse.database.as_ref(), run, 3).await?;
    stage.show_change()?;
    let steps = stage.steps(ready.gatehouse.database.as_ref(), run, 0).await?;
    drop(ready);
    stage.say(&["", "And anybody can check the record:", ""])?;
    let intact = stage.another_process(&["verify"])?;
    stage.tell(run, steps, intact)?;
    match driven {
        Driven::Stopped => Ok(Exit::Stopped),
        _ if intact => Ok(Exit::Done),
        _ => Ok(Exit::Refused),
    }
}

impl Stage {
    fn build(globals: &Globals) -> Result<Self, Failure> {
        let mut random = [0_u8; 4];
        OsEntropy.fill(&mut random);
        let name: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let base = std::env::temp_dir().join(format!("portcullis-demo-{name}"));
        let (files, rules) = (base.join("files"), base.join("rules.toml"));
        let mut maker = std::fs::DirBuilder::new();
        maker.mode(0o700);
        for folder in [&base, &files, &base.join("state"), &base.join("config")] {
            maker.create(folder).map_err(|error| Failure::io("make", folder, &error))?;
        }
        for (name, text) in FILES {
            write(&files.join(name), text)?;
        }
        write(&rules, RULES)?;
        let script: String = SCRIPT.iter().flat_map(|(_, line)| [*line, "\n"]).collect();
        write(&base.join("agent.jsonl"), &script)?;
        let place = Place::of(&Surroundings {
            home: None,
            state_home: Some(base.join("state")),
            config_home: Some(base.join("config")),
        })?;
        let json = globals.json;
        let globals = Globals {
            db: place.database(),
            json: false,
            config_path: Some(rules.clone()),
            place,
            key: None,
            ..globals.clone()
        };
        let config = config::read(&rules)?;
        Ok(Self { json, base, files, globals, config })
    }

    async fn open(&self) -> Result<Ready, Failure> {
        start::open(
            &self.globals,
            OpenMode::CreateOrOpen,
            &self.config,
            Some(&self.files),
            None,
            false,
        )
        .await
    }

    fn agent(&self) -> Result<AgentChoice, Failure> {
        AgentChoice::new("scripted:agent.jsonl", &self.base)
            .map_err(|error| Failure::new(Code::Bug, error.to_string()))
    }

    fn prepared(&self, agent: &AgentChoice) -> Result<Prepared, Failure> {
        assemble::prepare_agent(agent, &self.globals, &self.config, Some(&self.files))
    }

    async fn begin(
        &self,
        ready: &Ready,
        signals: &mut Signals,
    ) -> Result<(RunId, Driven), Failure> {
        let agent = self.agent()?;
        let started = self.prepared(&agent)?.start()?;
        let task = Task {
            goal: "write a summary of the budget".to_owned(),
            owner: self.globals.user.clone(),
            thread: None,
            parent: None,
            limits: Limits::default(),
            agent: agent.text.clone(),
            unconfined_agent: false,
        };
        let gate = Gate::new(ready.gatehouse.parts.clone());
        let held = gate.begin(&Scope::of_file_owner(), task).await?;
        let run = held.run();
        Ok((run, drive::to_rest(held, started, signals, None).await?))
    }

    async fn go_on(
        &self,
        ready: &Ready,
        run: RunId,
        signals: &mut Signals,
    ) -> Result<Driven, Failure> {
        let gate = Gate::new(ready.gatehouse.parts.clone());
        match gate.attach(&Scope::of_file_owner(), run).await? {
            Attached::Waiting(question) => Ok(Driven::Waiting(question)),
            Attached::Child(child) => Ok(Driven::Child(child)),
            Attached::Ended(reason) => Ok(Driven::Ended(reason)),
            Attached::Held(held, _) => {
                let agent = self.agent()?;
                let started = self.prepared(&agent)?.start()?;
                drive::to_rest(held, started, signals, None).await
            }
        }
    }

    fn say(&self, lines: &[&str]) -> Result<(), Failure> {
        if self.json {
            return Ok(());
        }
        crate::say(&lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>())
    }

    /// What became of each step, from the record, not from what was meant to happen.
    async fn steps(
        &self,
        store: &dyn Store,
        run: RunId,
        from: u64,
    ) -> Result<Vec<DemoStepJson>, Failure> {
        let page = Page { offset: from, limit: 50 };
        let steps = store.steps(&Scope::of_file_owner(), run, page).await?;
        let told = steps.rows.into_iter().flatten().map(|step| {
            let asked = usize::try_from(step.index).ok().and_then(|index| SCRIPT.get(index));
            let agent = asked.map_or("goes on", |(words, _)| words);
            DemoStepJson { index: step.index, agent, outcome: outcome(&step) }
        });
        Ok(told.collect())
    }

    async fn narrate(&self, store: &dyn Store, run: RunId, from: u64) -> Result<(), Failure> {
        for step in self.steps(store, run, from).await? {
            self.say(&[
                &format!("{}. The agent {}.", step.index + 1, step.agent),
                &format!("   {}", step.outcome),
            ])?;
        }
        Ok(())
    }

    /// The file that the approved call makes, if it is there.
    fn change(&self) -> Option<String> {
        let file = self.files.join("summary.txt");
        file.is_file().then(|| file.display().to_string())
    }

    fn show_change(&self) -> Result<(), Failure> {
        match self.change() {
            Some(file) => self.say(&["", &format!("The change is there: {file}")]),
            None => self.say(&["", "Nothing was changed."]),
        }
    }

    /// Says where to look, or all of it at once.
    fn tell(&self, run: RunId, steps: Vec<DemoStepJson>, intact: bool) -> Result<(), Failure> {
        let next = self.typed(&format!("show {run}"))?;
        if !self.json {
            let folder = quote(&self.base.to_string_lossy());
            return self.say(&[
                "",
                &format!("Look around: {next}"),
                &format!("Nothing else was touched; when you are done: rm -r {folder}"),
            ]);
        }
        let (folder, change) = (self.base.display().to_string(), self.change());
        crate::say_json(&DemoJson { folder, run, steps, change, intact, next })
    }

    fn unexpected(&self, driven: Driven) -> Result<Exit, Failure> {
        let how = match driven {
            Driven::Ended(reason) => reason.as_str(),
            Driven::Stopped => return Ok(Exit::Stopped),
            Driven::Waiting(_) | Driven::Child(_) => "waiting",
        };
        let sentence =
            format!("the demo did not go as it should ({how}); see {}", self.base.display());
        Err(Failure::new(Code::Bug, sentence))
    }

    /// Where a process of this program finds the demo.
    fn surroundings(&self) -> [(&'static str, OsString); 2] {
        [
            ("XDG_STATE_HOME", self.base.join("state").into()),
            ("XDG_CONFIG_HOME", self.base.join("config").into()),
        ]
    }

    /// A command to be typed in another terminal.
    fn typed(&self, rest: &str) -> Result<String, Failure> {
        let own = assemble::own_program()?;
        let set = self
            .surroundings()
            .map(|(name, value)| format!("{name}={}", quote(&value.to_string_lossy())));
        let (own, user) = (quote(&own.to_string_lossy()), &self.globals.user);
        Ok(format!("{} {own} --key {user} {rest}", set.join(" ")))
    }

    /// Runs this program again, as another person would; true when it exits with 0.
    fn another_process(&self, args: &[&str]) -> Result<bool, Failure> {
        // By this name it is the same program, even when its file was replaced meanwhile.
        let own = Path::new("/proc/self/exe");
        #[expect(
            clippy::disallowed_methods,
            reason = "the demo's second process is this program itself"
        )]
        let mut command = std::process::Command::new(own);
        command
            .args(["--key", &self.globals.user])
            .args(args)
            .envs(self.surroundings())
            .env_remove("PORTCULLIS_DB")
            .env_remove("PORTCULLIS_KEY");
        if self.json {
            command.stdout(Stdio::null());
        }
        let status = command
            .stdin(Stdio::null())
            .status()
            .map_err(|error| Failure::io("start", own, &error))?;
        Ok(status.success())
    }
}

/// What became of a step, by its row.
fn outcome(step: &Step) -> String {
    let verdict = step.verdict.as_ref().map(|verdict| verdict.outcome());
    let observation = step.observation.as_ref();
    let why = observation.and_then(|seen| seen.refusal).map(|refusal| refusal.as_str());
    match (verdict, why, observation) {
        (Some("ask"), None, None) => "The rules ask a person, so the run waits.".to_owned(),
        (Some("ask"), None, Some(_)) => {
            "A person approved exactly this call: it was done.".to_owned()
        }
        (Some(verdict), Some(why), _) => {
            format!("The rules say {verdict} ({why}): it did not happen.")
        }
        (None, Some(why), _) => format!("The gate refuses it before any rule is asked ({why})."),
        (Some("allow"), None, Some(_)) => "The rules allow it: it was done.".to_owned(),
        _ => "The record says so, and the run has ended.".to_owned(),
    }
}

/// Waits until the question is answered or the run has ended.
async fn wait(gatehouse: &Gatehouse, question: QuestionId, run: RunId) -> Result<(), Failure> {
    loop {
        let state = gatehouse.database.run(&Scope::of_file_owner(), run).await?;
        let state = state.ok_or(StoreError::NotFound("run"))?;
        let open = state
            .question
            .as_ref()
            .is_some_and(|asked| asked.id == question && asked.status == QuestionStatus::Open);
        if !open || state.run.status.is_terminal() {
            return Ok(());
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// A file of the demo: its folder was made just now and is this user's alone.
fn write(path: &Path, text: &str) -> Result<(), Failure> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut options = std::fs::OpenOptions::new();
    options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|error| Failure::io("write", path, &error))
}
