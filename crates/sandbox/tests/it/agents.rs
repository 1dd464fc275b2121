//! A hostile agent and everything that it must not reach, for the tests of the confined child.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use portcullis_sandbox::child::{AgentChild, AgentSpec, SpawnError, spawn};
use tempfile::TempDir;

/// A folder with an agent, a scratch folder, and a state folder that is out of its reach.
pub(crate) struct Field {
    _folder: TempDir,
    pub(crate) base: PathBuf,
    pub(crate) probe: PathBuf,
    pub(crate) scratch: PathBuf,
    pub(crate) key: PathBuf,
}

impl Field {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(folder.path()).unwrap();
        for dir in ["agent", "scratch", "state"] {
            fs::create_dir(base.join(dir)).unwrap();
        }
        let field = Self {
            probe: base.join("agent/probe"),
            scratch: base.join("scratch"),
            key: base.join("state/key"),
            _folder: folder,
            base,
        };
        copy_program(&example("probe"), &field.probe);
        fs::write(&field.key, "secret").unwrap();
        field
    }

    pub(crate) fn spec(&self, attempts: &[&str]) -> AgentSpec {
        let mut spec = AgentSpec::new(&self.probe, &self.scratch);
        spec.args = attempts.iter().map(Into::into).collect();
        spec.forbidden = vec![self.base.join("state")];
        spec
    }
}

/// A program of this package's examples, which `cargo test` builds beside the test binary.
pub(crate) fn example(name: &str) -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    let path = exe.parent().unwrap().parent().unwrap().join("examples").join(name);
    let built = fs::metadata(&path).and_then(|meta| meta.modified()).ok();
    let sources = ["src".to_owned(), format!("examples/{name}.rs")]
        .map(|source| newest(&Path::new(env!("CARGO_MANIFEST_DIR")).join(source)));
    // `cargo test --test it` builds no examples, and would test what was built before.
    assert!(
        sources.into_iter().all(|source| source <= built),
        "{name} is missing or older than its source: run all of cargo test -p portcullis-sandbox"
    );
    path
}

/// Copies a program so that it can be started at once: a copy made by this process may still be open for writing in a
/// child that another test is just starting, and such a file is refused as busy.
pub(crate) fn copy_program(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg(from).arg(to).status().unwrap().success());
}

/// When the newest file beneath `dir` was changed; None when the sources are not here, as on another machine.
fn newest(at: &Path) -> Option<SystemTime> {
    if at.is_dir() {
        return fs::read_dir(at).ok()?.flatten().filter_map(|entry| newest(&entry.path())).max();
    }
    fs::metadata(at).ok()?.modified().ok()
}

pub(crate) fn start(spec: &AgentSpec) -> Result<AgentChild, SpawnError> {
    spawn(spec, &example("confine"))
}

/// Runs the agent to its end and gives its lines.
#[track_caller]
pub(crate) fn lines(spec: &AgentSpec) -> Vec<String> {
    let mut agent = start(spec).unwrap();
    drop(agent.stdin.take());
    let (mut text, mut errors) = (String::new(), String::new());
    agent.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    agent.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert!(agent.wait().unwrap().success(), "{text}{errors}");
    text.lines().map(str::to_owned).collect()
}

/// Runs each attempt confined, where all must be refused, and unconfined, where all must work.
#[track_caller]
pub(crate) fn refused_only_when_confined(mut spec: AgentSpec) {
    for (attempt, line) in spec.args.iter().zip(lines(&spec)) {
        assert!(line.ends_with(" PermissionDenied"), "confined, {attempt:?}: {line}");
    }
    spec.confined = false;
    let attempts = spec.args.clone();
    let outcome = lines(&spec);
    assert_eq!(outcome.len(), attempts.len());
    for (attempt, line) in attempts.iter().zip(outcome) {
        assert!(line.split(' ').nth(1) == Some("ok"), "control, {attempt:?}: {line}");
    }
}

/// Another process of this user, ended when dropped.
pub(crate) struct Bystander(pub(crate) Child);

impl Bystander {
    pub(crate) fn new() -> Self {
        Self(Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until a process of this number is gone or dead, for at most ten seconds.
pub(crate) fn ends(pid: u32) -> bool {
    let end = Instant::now() + Duration::from_secs(10);
    while Instant::now() < end {
        if !alive(pid) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

pub(crate) fn alive(pid: u32) -> bool {
    let stat = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat"))
        .unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}
