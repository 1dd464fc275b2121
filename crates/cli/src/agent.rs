//! Agents as the operator names them, `scripted:FILE`, `exec:COMMAND` or `model:MODEL`, and how one is started.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use portcullis_agents::{Deadlines, Exec, Scripted};
use portcullis_canon::{Object, Value};
use portcullis_domain::ports::{Agent, AgentFailure, BoxFuture, View};
use portcullis_engine::Engaged;
use portcullis_models::ModelAgent;
use portcullis_sandbox::child::{self, AgentSpec, Confinement, DEFAULT_PATH, Network, SpawnError};
use rustix::fs::OFlags;
use tokio::sync::oneshot;

use crate::failure::{Code, Failure};
use crate::model::ModelChoice;
use crate::scratch::Scratch;
use crate::words::{self, WordsError};

/// The longest text that names an agent, in bytes; it stands in the record.
const MAX_TEXT: usize = 4096;

/// The largest script.
const MAX_SCRIPT: u64 = 64 * 1024 * 1024;

/// Interpreters, and the flags after which a word is code and no script's name.
const INTERPRETERS: [(&str, &str); 9] = [
    ("python", "cm"),
    ("pypy", "cm"),
    ("node", "ep"),
    ("deno", ""),
    ("ruby", "e"),
    ("perl", "eE"),
    ("sh", "c"),
    ("dash", "c"),
    ("bash", "c"),
];

/// A text that names no agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ChoiceError {
    /// Neither form.
    #[error("an agent is `scripted:FILE`, `exec:COMMAND` or `model:PROVIDER:NAME`")]
    Form,
    /// A model that is none.
    #[error("a model is `PROVIDER:NAME`, such as `openai:gpt-5`, or `replay:DIR`")]
    Model,
    /// Too long for the record.
    #[error("an agent is named by at most {MAX_TEXT} bytes")]
    TooLong,
    /// The command cannot be split.
    #[error(transparent)]
    Words(#[from] WordsError),
}

/// Which kind of agent, with what belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Scripted(PathBuf),
    Exec { program: String, args: Vec<String> },
    Model(ModelChoice),
}

/// An agent and what it is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AgentChoice {
    /// As the operator named it; this stands in the record.
    pub(crate) text: String,
    /// Relative paths start here.
    pub(crate) base: PathBuf,
    /// Runs without confinement.
    pub(crate) unconfined: bool,
    /// May use the network.
    pub(crate) network: bool,
    /// Variables of this process that it is given, by name.
    pub(crate) env: Vec<String>,
    /// What it may read beside its own folder.
    pub(crate) reads: Vec<PathBuf>,
    kind: Kind,
}

impl AgentChoice {
    /// Reads a text; the agent is confined and is given nothing.
    pub(crate) fn new(text: &str, base: &Path) -> Result<Self, ChoiceError> {
        if text.len() > MAX_TEXT {
            return Err(ChoiceError::TooLong);
        }
        let kind = match text.split_once(':') {
            Some(("scripted", file)) if !file.is_empty() => Kind::Scripted(base.join(file)),
            Some(("exec", command)) => {
                let mut words = words::split(command)?.into_iter();
                let program = words.next().ok_or(WordsError::Empty)?;
                Kind::Exec { program, args: words.collect() }
            }
            Some(("model", model)) => {
                Kind::Model(ModelChoice::new(model, base).ok_or(ChoiceError::Model)?)
            }
            _ => return Err(ChoiceError::Form),
        };
        Ok(Self {
            text: text.to_owned(),
            base: base.to_owned(),
            unconfined: false,
            network: false,
            env: Vec::new(),
            reads: Vec::new(),
            kind,
        })
    }

    /// The model that the agent asks, when it does nothing else.
    pub(crate) const fn model(&self) -> Option<&ModelChoice> {
        match &self.kind {
            Kind::Model(model) => Some(model),
            Kind::Scripted(_) | Kind::Exec { .. } => None,
        }
    }

    /// Records what its model says into a folder; false when there is no live model.
    pub(crate) fn record_into(&mut self, folder: PathBuf) -> bool {
        match &mut self.kind {
            Kind::Model(ModelChoice::Live { record, .. }) => {
                *record = Some(folder);
                true
            }
            _ => false,
        }
    }

    /// The folder into which is recorded what its model says.
    pub(crate) fn recording(&self) -> Option<&Path> {
        match self.model() {
            Some(ModelChoice::Live { record, .. }) => record.as_deref(),
            Some(ModelChoice::Replay(_)) | None => None,
        }
    }

    /// True when the agent is a program of its own that runs without confinement.
    pub(crate) const fn is_unconfined(&self) -> bool {
        self.unconfined && matches!(self.kind, Kind::Exec { .. })
    }

    /// The first thing that this agent is given and `began` was not, as the operator says it.
    pub(crate) fn given_beyond(&self, began: &Self) -> Option<&'static str> {
        let all = |own: &[String], theirs: &[String]| own.iter().all(|one| theirs.contains(one));
        if self.unconfined && !began.unconfined {
            Some("--unconfined-agent")
        } else if self.network && !began.network {
            Some("--agent-network")
        } else if !all(&self.env, &began.env) {
            Some("--agent-env")
        } else if self.reads.iter().any(|one| !began.reads.contains(one)) {
            Some("--agent-reads")
        } else {
            None
        }
    }

    /// For the memory of how a run was started.
    pub(crate) fn to_value(&self) -> Value {
        let texts = |items: Vec<&str>| items.into_iter().map(Value::from).collect::<Vec<_>>();
        let mut object = Object::new();
        object.insert("text", self.text.as_str());
        object.insert("base", self.base.to_str().map_or(Value::Null, Value::from));
        object.insert("unconfined", self.unconfined);
        object.insert("network", self.network);
        object.insert("env", texts(self.env.iter().map(String::as_str).collect()));
        object.insert("reads", texts(self.reads.iter().filter_map(|path| path.to_str()).collect()));
        if let Kind::Model(ModelChoice::Live { record: Some(folder), .. }) = &self.kind {
            object.insert("record", folder.to_str().map_or(Value::Null, Value::from));
        }
        Value::Object(object)
    }

    /// Reads that memory.
    pub(crate) fn from_value(value: &Value) -> Option<Self> {
        let texts = |key: &str| -> Option<Vec<String>> {
            value.get(key)?.as_array()?.iter().map(|v| v.as_str().map(str::to_owned)).collect()
        };
        let base = PathBuf::from(value.get("base")?.as_str()?);
        let mut plain = Self::new(value.get("text")?.as_str()?, &base).ok()?;
        if let Some(folder) = value.get("record") {
            plain.record_into(folder.as_str()?.into());
        }
        Some(Self {
            unconfined: value.get("unconfined")?.as_bool()?,
            network: value.get("network")?.as_bool()?,
            env: texts("env")?,
            reads: texts("reads")?.into_iter().map(PathBuf::from).collect(),
            ..plain
        })
    }
}

/// What surrounds a program: what it must not reach, and what it needs to be found.
pub(crate) struct Surroundings {
    /// State, keys, configuration, heads, the governed folder.
    pub(crate) forbidden: Vec<PathBuf>,
    /// Where programs are looked for.
    pub(crate) search_path: Option<OsString>,
    /// The operator's home.
    pub(crate) home: Option<PathBuf>,
    /// Variables that the operator lets it have.
    pub(crate) env: Vec<(OsString, OsString)>,
}

/// A started agent, and the way to end it in peace.
pub(crate) struct Started {
    /// For the driver.
    pub(crate) agent: Box<dyn Agent>,
    /// The model that its driver lends it, when it asks one.
    engaged: Option<Engaged>,
    /// What is enforced on it, when it is a program.
    pub(crate) confinement: Option<Confinement>,
    returned: Option<oneshot::Receiver<Exec>>,
    _scratch: Option<Scratch>,
}

/// What is left to be done with an agent after its run came to rest.
pub(crate) struct Leaving {
    returned: Option<oneshot::Receiver<Exec>>,
    _scratch: Option<Scratch>,
}

impl Started {
    /// Parts the agent from what is needed after the driver is done with it.
    pub(crate) fn split(self) -> (Box<dyn Agent>, Option<Engaged>, Leaving) {
        let leaving = Leaving { returned: self.returned, _scratch: self._scratch };
        (self.agent, self.engaged, leaving)
    }

    /// An agent of this process.
    fn inside(agent: Box<dyn Agent>, engaged: Option<Engaged>) -> Self {
        Self { agent, engaged, confinement: None, returned: None, _scratch: None }
    }
}

impl Leaving {
    /// Tells a program that nothing more is asked and gives it time to end; it is killed otherwise.
    pub(crate) async fn end(self) {
        if let Some(returned) = self.returned
            && let Ok(mut exec) = returned.await
        {
            exec.end().await;
        }
    }
}

/// A program that comes back when the driver lets it go.
struct Lent {
    exec: Option<Exec>,
    back: Option<oneshot::Sender<Exec>>,
}

impl Agent for Lent {
    fn propose(&mut self, view: View) -> BoxFuture<'_, Result<Vec<u8>, AgentFailure>> {
        match &mut self.exec {
            Some(exec) => exec.propose(view),
            None => Box::pin(std::future::ready(Err(AgentFailure {
                reason: portcullis_domain::run::EndReason::AgentExited,
                message: "the agent's program was taken away".to_owned(),
            }))),
        }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let (Some(exec), Some(back)) = (self.exec.take(), self.back.take()) {
            // Nobody waits: the program is killed when it is dropped.
            drop(back.send(exec));
        }
    }
}

/// An agent that was found and may be started; nothing of it runs yet.
pub(crate) enum Prepared {
    /// A script that was read.
    Script(Scripted),
    /// A program, with what it may reach.
    Program(Box<child::Prepared>, Scratch),
    /// An agent that asks a model, and the model.
    Asker(Box<ModelAgent>, Engaged),
}

/// Finds the agent and refuses what can be refused before a run is begun.
pub(crate) fn prepare(choice: &AgentChoice, around: Surroundings) -> Result<Prepared, Failure> {
    match &choice.kind {
        Kind::Scripted(file) => Ok(Prepared::Script(script(file)?)),
        Kind::Model(_) => Err(Failure::new(Code::Bug, "a model was not opened")),
        Kind::Exec { program, args } => {
            if let Some(absent) = absent_script(program, args, &choice.base) {
                let sentence = format!("there is no script `{}` for `{program}`", absent.display());
                return Err(Failure::new(Code::AgentStart, sentence)
                    .hint("check the path; it starts where the agent was named"));
            }
            runnable(program, &choice.base)?;
            let scratch = Scratch::make()?;
            let spec = spec(choice, program, args, around, &scratch);
            // Not by its name: the file may have been replaced since this process was started.
            let prepared = child::prepare(&spec, Path::new("/proc/self/exe"))
                .map_err(|error| not_found(error, program, &choice.base))?;
            Ok(Prepared::Program(Box::new(prepared), scratch))
        }
    }
}

impl Prepared {
    /// Starts the agent. Nothing of it ran when this fails.
    pub(crate) fn start(self) -> Result<Started, Failure> {
        let (prepared, scratch) = match self {
            Self::Script(script) => return Ok(Started::inside(Box::new(script), None)),
            Self::Asker(agent, engaged) => return Ok(Started::inside(agent, Some(engaged))),
            Self::Program(prepared, scratch) => (prepared, scratch),
        };
        let child = prepared.start()?;
        let confinement = child.confinement;
        let exec = Exec::start(child, Deadlines::default())
            .map_err(|error| Failure::new(Code::AgentStart, error.to_string()))?;
        let (back, returned) = oneshot::channel();
        let agent = Box::new(Lent { exec: Some(exec), back: Some(back) });
        Ok(Started {
            agent,
            engaged: None,
            confinement: Some(confinement),
            returned: Some(returned),
            _scratch: Some(scratch),
        })
    }
}

impl Started {
    /// Stands in for an agent that could not be started, so that its run ends and says why.
    pub(crate) fn failed(failure: &Failure) -> Self {
        let message = failure.sentence();
        Self::inside(Box::new(NotStarted { message }), None)
    }
}

/// An agent that never was.
struct NotStarted {
    message: String,
}

impl Agent for NotStarted {
    fn propose(&mut self, _: View) -> BoxFuture<'_, Result<Vec<u8>, AgentFailure>> {
        Box::pin(std::future::ready(Err(AgentFailure {
            reason: portcullis_domain::run::EndReason::AgentError,
            message: self.message.clone(),
        })))
    }
}

fn script(file: &Path) -> Result<Scripted, Failure> {
    let fault = |error: &std::io::Error| Failure::io("read the script", file, error);
    // Not waiting for a writer: a pipe in a script's place is told apart, not hung on.
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(file)
        .map_err(|error| fault(&error))?;
    if !opened.metadata().map_err(|error| fault(&error))?.is_file() {
        return Err(Failure::new(Code::Script, "the script is not a regular file"));
    }
    let mut bytes = Vec::new();
    opened.take(MAX_SCRIPT + 1).read_to_end(&mut bytes).map_err(|error| fault(&error))?;
    if bytes.len() as u64 > MAX_SCRIPT {
        return Err(Failure::new(Code::Script, "the script is larger than 64 MiB"));
    }
    Scripted::read(&bytes).map_err(|error| Failure::new(Code::Script, error.to_string()))
}

fn spec(
    choice: &AgentChoice,
    program: &str,
    args: &[String],
    around: Surroundings,
    scratch: &Scratch,
) -> AgentSpec {
    let search_path = around.search_path.unwrap_or_else(|| DEFAULT_PATH.into());
    let operators_home = around.home;
    let mut readable = choice.reads.clone();
    let script = script_of(program, args);
    // The program runs in its scratch folder, so what the operator named from elsewhere is made absolute.
    let mut passed = Vec::with_capacity(args.len());
    for (index, arg) in args.iter().enumerate() {
        let path = choice.base.join(arg);
        let is_file = !arg.starts_with('-') && path.is_file();
        if is_file {
            let whole = script == Some(index);
            readable.push(if whole {
                own_place(&path, operators_home.as_deref())
            } else {
                path.clone()
            });
        }
        passed.push(if is_file { path.into_os_string() } else { arg.into() });
    }
    let program: OsString =
        if program.contains('/') { choice.base.join(program).into() } else { program.into() };
    let home = scratch.path().as_os_str().to_owned();
    let mut env: Vec<(OsString, OsString)> = vec![
        ("PATH".into(), search_path.clone()),
        ("LANG".into(), "C.UTF-8".into()),
        ("HOME".into(), home.clone()),
        ("TMPDIR".into(), home),
    ];
    env.retain(|(name, _)| !around.env.iter().any(|(own, _)| own == name));
    env.extend(around.env);
    AgentSpec {
        args: passed,
        env,
        readable,
        forbidden: around.forbidden,
        confined: !choice.unconfined,
        network: if choice.network { Network::Open } else { Network::Denied },
        search_path,
        home: operators_home,
        ..AgentSpec::new(program, scratch.path())
    }
}

/// Which argument is the script that an interpreter runs: the first one that is no flag, unless a flag before it
/// says that code or a module follows. An argument of any other program is only an argument.
fn script_of(program: &str, args: &[String]) -> Option<usize> {
    let name = program.rsplit('/').next()?;
    let name = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    let (_, code) = INTERPRETERS.iter().find(|(known, _)| *known == name)?;
    for (index, arg) in args.iter().enumerate() {
        match arg.strip_prefix('-') {
            None if name == "deno" && index == 0 && arg == "run" => {}
            None => return Some(index),
            Some(long) if long.starts_with('-') => {
                if ["-eval", "-print"].iter().any(|flag| long.starts_with(flag)) {
                    return None;
                }
            }
            Some(letters) if letters.chars().any(|letter| code.contains(letter)) => return None,
            Some(_) => {}
        }
    }
    None
}

/// The script that an interpreter could not find, as far as that can be told from outside: its first argument is a
/// path, or some are and none is there.
fn absent_script(program: &str, args: &[String], base: &Path) -> Option<PathBuf> {
    let index = script_of(program, args)?;
    let is_path = |arg: &str| Path::new(arg).extension().is_some() && !arg.contains("://");
    let words = || args.iter().skip(index).filter(|arg| !arg.starts_with('-'));
    let script = words().find(|arg| is_path(arg)).map(|arg| base.join(arg))?;
    // What a flag before it takes may be mistaken for it.
    let doubtful = args.iter().take(index).any(|arg| arg.starts_with('-'));
    let there = if doubtful { words().any(|arg| base.join(arg).exists()) } else { script.exists() };
    (!there).then_some(script)
}

/// Refuses a program that was named by its path and is there, and that nobody could run.
fn runnable(program: &str, base: &Path) -> Result<(), Failure> {
    let path = base.join(program);
    let Ok(meta) = path.metadata() else { return Ok(()) };
    if !program.contains('/') || !meta.is_file() || meta.mode() & 0o111 != 0 {
        return Ok(());
    }
    let sentence = format!("the program `{}` is not executable", path.display());
    let (program, path) = (words::quote(program), words::quote(&path.to_string_lossy()));
    Err(Failure::new(Code::AgentStart, sentence).hint(format!(
        "run `chmod +x {path}`, or name its interpreter, such as exec:\"python3 {program}\""
    )))
}

/// What was not found where programs are looked for may lie where the agent was named.
fn not_found(error: SpawnError, program: &str, base: &Path) -> Failure {
    let here = matches!(error, SpawnError::ProgramNotFound { .. })
        && !program.contains('/')
        && base.join(program).is_file();
    let failure = Failure::from(error);
    if here {
        return failure
            .hint(format!("a program of this folder is named by its path: `./{program}`"));
    }
    if matches!(failure.code(), Code::AgentStart) && failure.advice().is_none() {
        return failure.hint("check its name, which is looked for in PATH, or name its whole path");
    }
    failure
}

/// The folder of a script, which may bring other files; of a place that people keep everything in, the file alone.
fn own_place(file: &Path, home: Option<&Path>) -> PathBuf {
    match file.parent().and_then(|folder| folder.canonicalize().ok()) {
        Some(folder) if !child::is_catch_all(&folder, home) => folder,
        _ => file.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "tests")]

    use super::*;

    #[test]
    fn an_agent_is_a_script_or_a_command() {
        let base = Path::new("/b");
        let new = |text: &str| AgentChoice::new(text, base);
        assert_eq!(new("scripted:x/y").unwrap().kind, Kind::Scripted("/b/x/y".into()));
        let exec = new("exec:python3 'a b.py' -q").unwrap();
        let args = vec!["a b.py".to_owned(), "-q".to_owned()];
        assert_eq!(exec.kind, Kind::Exec { program: "python3".to_owned(), args });
        for text in ["", "exec", "scripted:", "python3 a.py", "run:x"] {
            assert_eq!(new(text), Err(ChoiceError::Form), "{text}");
        }
        assert_eq!(new("exec: "), Err(ChoiceError::Words(WordsError::Empty)));
        assert_eq!(new(&format!("exec:{}", "x".repeat(MAX_TEXT))), Err(ChoiceError::TooLong));
    }

    #[test]
    fn what_is_remembered_is_what_was_chosen() {
        let mut choice = AgentChoice::new("exec:a b", Path::new("/b")).unwrap();
        choice.unconfined = true;
        choice.env = vec!["TOKEN".to_owned()];
        choice.reads = vec!["/usr/share/x".into()];
        assert_eq!(AgentChoice::from_value(&choice.to_value()), Some(choice));
        assert_eq!(AgentChoice::from_value(&Value::Null), None);
    }

    #[test]
    fn what_an_agent_is_given_beyond_what_it_began_with_is_named() {
        let began = AgentChoice::new("exec:a", Path::new("/b")).unwrap();
        assert_eq!(began.given_beyond(&began), None);
        let mut more = began.clone();
        more.reads = vec!["/x".into()];
        assert_eq!(more.given_beyond(&began), Some("--agent-reads"));
        assert_eq!(began.given_beyond(&more), None, "less is no matter");
        more.env = vec!["TOKEN".to_owned()];
        assert_eq!(more.given_beyond(&began), Some("--agent-env"));
        more.network = true;
        assert_eq!(more.given_beyond(&began), Some("--agent-network"));
        more.unconfined = true;
        assert_eq!(more.given_beyond(&began), Some("--unconfined-agent"));
    }

    #[test]
    fn of_a_place_for_everything_only_the_file_is_readable() {
        let place =
            |file: &str, home: Option<&str>| own_place(Path::new(file), home.map(Path::new));
        assert_eq!(place("/tmp/agent.py", None), Path::new("/tmp/agent.py"));
        let bin = Path::new("/usr/bin").canonicalize().unwrap();
        assert_eq!(place("/usr/bin/env", None), bin);
        // The operator's home, wherever it lies.
        let home = bin.to_str().unwrap();
        assert_eq!(place("/usr/bin/env", Some(home)), Path::new("/usr/bin/env"));
    }

    #[test]
    fn only_an_interpreters_script_brings_its_folder() {
        let script = |command: &str| {
            let words = words::split(command).unwrap();
            script_of(&words[0], &words[1..])
        };
        for (command, expected) in [
            ("python3 agent.py conf.toml", Some(0)),
            ("/usr/bin/python3.12 -u -X agent.py", Some(2)),
            ("bash -eu agent.sh", Some(1)),
            ("deno run --quiet agent.ts", Some(2)),
            ("node agent.js", Some(0)),
            ("agent conf.toml", None),
            ("./python3-agent conf.toml", None),
            ("python3 -m agent conf.toml", None),
            ("python3 -Ic code conf.toml", None),
            ("node --eval code conf.toml", None),
            ("sh -c code conf.toml", None),
            ("python3", None),
        ] {
            assert_eq!(script(command), expected, "{command}");
        }
    }

    #[test]
    fn a_script_that_is_not_there_is_told_from_what_only_looks_like_one() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("agent.py"), "").unwrap();
        let absent = |command: &str| {
            let words = words::split(command).unwrap();
            absent_script(&words[0], &words[1..], folder.path())
        };
        for command in ["python3 gone.py", "python3 gone.py agent.py", "sh -eu x/gone.sh"] {
            assert!(absent(command).is_some(), "{command}");
        }
        assert_eq!(absent("python3 gone.py"), Some(folder.path().join("gone.py")));
        for command in [
            "python3 agent.py gone.toml",
            "python3 -W error::a.b agent.py",
            "python3 -m gone.py",
            "python3 -c gone.py",
            "python3",
            "node agent",
            "deno run https://example.org/agent.ts",
            "./agent gone.py",
        ] {
            assert_eq!(absent(command), None, "{command}");
        }
    }

    #[test]
    fn an_argument_that_is_a_file_opens_no_folder() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        std::fs::create_dir(base.join("agent")).unwrap();
        std::fs::create_dir(base.join("conf")).unwrap();
        for file in ["agent/agent.py", "conf/agent.toml"] {
            std::fs::write(base.join(file), "").unwrap();
        }
        let readable = |command: &str| {
            let choice = AgentChoice::new(&format!("exec:{command}"), &base).unwrap();
            let Kind::Exec { program, args } = &choice.kind else { panic!("{choice:?}") };
            let around = Surroundings {
                forbidden: Vec::new(),
                search_path: None,
                home: None,
                env: Vec::new(),
            };
            spec(&choice, program, args, around, &Scratch::make().unwrap()).readable
        };
        let conf = base.join("conf/agent.toml");
        assert_eq!(readable("agent conf/agent.toml"), std::slice::from_ref(&conf));
        assert_eq!(readable("python3 agent/agent.py conf/agent.toml"), [base.join("agent"), conf]);
    }
}
