//! Agents as the operator names them, `scripted:FILE` or `exec:COMMAND`, and how one is started.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use portcullis_agents::{Deadlines, Exec, Scripted};
use portcullis_canon::{Object, Value};
use portcullis_domain::ports::{Agent, AgentFailure, BoxFuture, View};
use portcullis_sandbox::child::{self, AgentSpec, Confinement, DEFAULT_PATH, Network};
use tokio::sync::oneshot;

use crate::failure::{Code, Failure};
use crate::scratch::Scratch;
use crate::words::{self, WordsError};

/// The longest text that names an agent, in bytes; it stands in the record.
const MAX_TEXT: usize = 4096;

/// The largest script.
const MAX_SCRIPT: u64 = 64 * 1024 * 1024;

/// Places where people keep everything: of a program there, only its own file may be read.
const CATCH_ALLS: [&str; 8] = ["/", "/tmp", "/var/tmp", "/home", "/root", "/opt", "/srv", "/mnt"];

/// A text that names no agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ChoiceError {
    /// Neither form.
    #[error("an agent is `scripted:FILE` or `exec:COMMAND`")]
    Form,
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

    /// True when the agent is a program of its own that runs without confinement.
    pub(crate) const fn is_unconfined(&self) -> bool {
        self.unconfined && matches!(self.kind, Kind::Exec { .. })
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
        Value::Object(object)
    }

    /// Reads that memory.
    pub(crate) fn from_value(value: &Value) -> Option<Self> {
        let texts = |key: &str| -> Option<Vec<String>> {
            value.get(key)?.as_array()?.iter().map(|v| v.as_str().map(str::to_owned)).collect()
        };
        let base = PathBuf::from(value.get("base")?.as_str()?);
        let plain = Self::new(value.get("text")?.as_str()?, &base).ok()?;
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
    /// Variables that the operator lets it have.
    pub(crate) env: Vec<(OsString, OsString)>,
}

/// A started agent, and the way to end it in peace.
pub(crate) struct Started {
    /// For the driver.
    pub(crate) agent: Box<dyn Agent>,
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
    pub(crate) fn split(self) -> (Box<dyn Agent>, Leaving) {
        (self.agent, Leaving { returned: self.returned, _scratch: self._scratch })
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

/// Starts the agent. Nothing of it runs when this fails.
pub(crate) fn start(choice: &AgentChoice, around: Surroundings) -> Result<Started, Failure> {
    let (program, args) = match &choice.kind {
        Kind::Scripted(file) => {
            let agent: Box<dyn Agent> = Box::new(script(file)?);
            return Ok(Started { agent, confinement: None, returned: None, _scratch: None });
        }
        Kind::Exec { program, args } => (program, args),
    };
    let scratch = Scratch::make()?;
    let spec = spec(choice, program, args, around, &scratch)?;
    let own = std::env::current_exe()
        .map_err(|error| Failure::io("find", Path::new("/proc/self/exe"), &error))?;
    let child = child::spawn(&spec, &own)?;
    let confinement = child.confinement;
    if !choice.unconfined && !confinement.fully_enforced {
        return Err(Failure::new(
            Code::Unconfined,
            "this machine does not confine the agent fully",
        )
        .hint("use a newer kernel, or say `--unconfined-agent`, which the record will show"));
    }
    let exec = Exec::start(child, Deadlines::default())
        .map_err(|error| Failure::new(Code::AgentStart, error.to_string()))?;
    let (back, returned) = oneshot::channel();
    let agent = Box::new(Lent { exec: Some(exec), back: Some(back) });
    Ok(Started {
        agent,
        confinement: Some(confinement),
        returned: Some(returned),
        _scratch: Some(scratch),
    })
}

fn script(file: &Path) -> Result<Scripted, Failure> {
    let fault = |error: &std::io::Error| Failure::io("read the script", file, error);
    let opened = File::open(file).map_err(|error| fault(&error))?;
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
) -> Result<AgentSpec, Failure> {
    let search_path = around.search_path.unwrap_or_else(|| DEFAULT_PATH.into());
    let mut readable = choice.reads.clone();
    // The program runs in its scratch folder, so what the operator named from elsewhere is made absolute.
    let mut passed = Vec::with_capacity(args.len());
    for arg in args {
        let path = choice.base.join(arg);
        let is_file = !arg.starts_with('-') && path.is_file();
        if is_file {
            readable.push(own_place(&path));
        }
        passed.push(if is_file { path.into_os_string() } else { arg.into() });
    }
    let program =
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
    Ok(AgentSpec {
        program,
        args: passed,
        env,
        scratch: scratch.path().to_owned(),
        readable,
        forbidden: around.forbidden,
        confined: !choice.unconfined,
        network: if choice.network { Network::Open } else { Network::Denied },
        search_path,
    })
}

/// The folder of a file; of a place that people keep everything in, the file alone.
fn own_place(file: &Path) -> PathBuf {
    let folder = file.parent().and_then(|folder| folder.canonicalize().ok());
    let own_home =
        crate::args::variable("HOME").and_then(|home| Path::new(&home).canonicalize().ok());
    let is_home = |folder: &Path| {
        folder.parent() == Some(Path::new("/home")) || own_home.as_deref() == Some(folder)
    };
    match folder {
        Some(folder)
            if !CATCH_ALLS.iter().any(|all| folder == Path::new(all)) && !is_home(&folder) =>
        {
            folder
        }
        _ => file.to_owned(),
    }
}

#[cfg(test)]
mod tests {
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
    fn of_a_place_for_everything_only_the_file_is_readable() {
        assert_eq!(own_place(Path::new("/tmp/agent.py")), Path::new("/tmp/agent.py"));
        assert_eq!(
            own_place(Path::new("/usr/bin/env")),
            Path::new("/usr/bin").canonicalize().unwrap()
        );
    }
}
