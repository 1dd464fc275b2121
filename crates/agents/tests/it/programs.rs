//! Small programs as agents, in a folder of their own, and views to show them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use portcullis_agents::{Deadlines, Exec};
use portcullis_canon::{Limits, Object, Value, parse};
use portcullis_domain::ports::{AdvertisedTool, Agent as _, AgentFailure, SeenStep, View};
use portcullis_sandbox::child::{AgentChild, AgentSpec, spawn};
use tempfile::TempDir;

/// Long enough for a loaded machine; a test that waits this long has failed.
pub(crate) const PATIENT: Deadlines = Deadlines {
    hello: Duration::from_secs(60),
    reply: Duration::from_secs(60),
    end: Duration::from_secs(60),
};

/// The opening of a well-behaved shell agent: reads the gate's hello and answers.
pub(crate) const HELLO: &str = "read -r hello\necho '{\"type\":\"hello\",\"version\":1}'\n";

/// A shell script as an agent, running in its scratch folder.
pub(crate) struct Program {
    folder: TempDir,
    spec: AgentSpec,
}

impl Program {
    pub(crate) fn shell(script: &str) -> Self {
        Self::shell_in(tempfile::tempdir().unwrap(), script)
    }

    pub(crate) fn shell_in(folder: TempDir, script: &str) -> Self {
        let path = folder.path().join("agent.sh");
        fs::write(&path, script).unwrap();
        Self::new(folder, "/bin/sh", &path)
    }

    pub(crate) fn new(folder: TempDir, interpreter: &str, script: &Path) -> Self {
        let mut spec = AgentSpec::new(interpreter, folder.path());
        spec.args = vec![script.into()];
        spec.confined = false;
        Self { folder, spec }
    }

    pub(crate) fn confined(mut self, readable: &[&Path]) -> Self {
        self.spec.confined = true;
        self.spec.readable = readable.iter().map(|path| (*path).to_owned()).collect();
        self
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn child(&self) -> AgentChild {
        spawn(&self.spec, &confine()).unwrap()
    }

    pub(crate) fn start(&self) -> Exec {
        self.start_with(PATIENT)
    }

    pub(crate) fn start_with(&self, deadlines: Deadlines) -> Exec {
        Exec::start(self.child(), deadlines).unwrap()
    }
}

/// The example of this package that agents are started by way of; `cargo test` builds it beside the test binary.
fn confine() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    let path = exe.parent().unwrap().parent().unwrap().join("examples/agents-confine");
    assert!(path.exists(), "build the examples first: cargo test -p portcullis-agents --examples");
    path
}

pub(crate) fn view(request: u64) -> View {
    let tools = vec![AdvertisedTool {
        name: "files.list".to_owned(),
        description: "Lists.".to_owned(),
        input_schema: Value::Object(Object::new()),
    }];
    View {
        request,
        goal: "tidy up".to_owned(),
        tools: tools.into(),
        history: (0..request).map(seen).collect(),
        omitted: 0,
        labels: portcullis_domain::label::Labels::none(),
        steps_left: 50 - request,
    }
}

fn seen(request: u64) -> SeenStep {
    SeenStep {
        request,
        tool: Some("files.list".to_owned()),
        arguments: None,
        outcome: "tool_result".to_owned(),
        content: Value::from(format!("result {request}")),
        external: true,
    }
}

/// The reply as text.
#[track_caller]
pub(crate) fn text(reply: Result<Vec<u8>, AgentFailure>) -> String {
    String::from_utf8(reply.unwrap()).unwrap()
}

pub(crate) async fn ask(agent: &mut Exec, request: u64) -> Result<Vec<u8>, AgentFailure> {
    agent.propose(view(request)).await
}

pub(crate) fn json(line: &str) -> Value {
    parse(line.as_bytes(), &Limits::ENVELOPE).unwrap()
}

/// Whether a process of this number is there, dead and uncollected ones included.
pub(crate) fn exists(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

/// Waits for a file that a program writes under another name first, and gives its text.
pub(crate) async fn written(program: &Program, name: &str) -> String {
    for _ in 0..6_000 {
        if let Ok(text) = fs::read_to_string(program.folder().join(name)) {
            return text;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{name} was never written");
}
