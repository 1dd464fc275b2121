//! A server of the example `mcp-odd`, in folders of its own, and what it changed.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use portcullis_canon::{Limits, Object, Value, parse};
use portcullis_domain::standing::Standing;
use portcullis_mcp::{
    Answer, Block, CallFailure, Leave, Session, SessionError, Stdio, StdioServer,
};
use tempfile::TempDir;

/// Long enough for a loaded machine; what waits this long has failed.
pub(crate) const PATIENT: Duration = Duration::from_secs(60);

/// A deadline that passes.
pub(crate) const SHORT: Duration = Duration::from_secs(2);

/// One server's folders.
pub(crate) struct Scene {
    folder: TempDir,
    mode: String,
}

impl Scene {
    pub(crate) fn new(mode: &str) -> Self {
        Self { folder: tempfile::tempdir().unwrap(), mode: mode.to_owned() }
    }

    /// The file in which the server counts what it changed.
    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path().join("changed")
    }

    /// The server, with a room that nobody had before.
    pub(crate) fn server(&self) -> StdioServer {
        use std::os::unix::fs::DirBuilderExt as _;

        let room = self
            .folder
            .path()
            .join(format!("room-{}", fs::read_dir(&self.folder).unwrap().count()));
        fs::DirBuilder::new().mode(0o700).create(&room).unwrap();
        let mut server = StdioServer::new(odd(), room);
        server.args = vec![self.mode.clone().into(), self.file().into()];
        server.helper_exe = odd();
        server
    }

    pub(crate) async fn connect(&self) -> Stdio {
        self.connect_within(PATIENT).await.unwrap()
    }

    pub(crate) async fn connect_within(&self, wait: Duration) -> Result<Stdio, SessionError> {
        Stdio::connect(self.server(), wait).await
    }

    /// What the server noted, line by line.
    pub(crate) fn noted(&self) -> Vec<String> {
        fs::read_to_string(self.file()).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    /// Waits until the server took up so many calls that are counted.
    pub(crate) async fn wait_for(&self, count: usize) {
        self.wait_until(|noted| noted.iter().filter(|line| *line == "count").count() >= count)
            .await;
    }

    /// Waits until the server noted exactly this, for what reaches it in a time of its own.
    pub(crate) async fn wait_for_notes(&self, notes: &[&str]) {
        self.wait_until(|noted| noted == notes).await;
    }

    async fn wait_until(&self, there: impl Fn(&[String]) -> bool) {
        let end = Instant::now() + PATIENT;
        while !there(&self.noted()) {
            assert!(Instant::now() < end, "it noted {:?} alone", self.noted());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// How often the server did what it counts.
    pub(crate) fn counted(&self) -> usize {
        self.noted().iter().filter(|line| *line == "count").count()
    }
}

/// Opens a session and lists, each as far as it comes, and says how it failed and after which time.
pub(crate) async fn failure_of(mode: &str, wait: Duration) -> (String, Duration) {
    let scene = Scene::new(mode);
    let begun = Instant::now();
    let failure = match scene.connect_within(wait).await {
        Ok(session) => session.list().await.expect_err(mode),
        Err(failure) => failure,
    };
    (failure.to_string(), begun.elapsed())
}

/// The example of this package; `cargo test` builds it beside the test binary.
pub(crate) fn odd() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    let path = exe.parent().unwrap().parent().unwrap().join("examples/mcp-odd");
    assert!(path.exists(), "build the examples first: cargo test -p portcullis-mcp --examples");
    path
}

pub(crate) fn arguments(text: &str) -> Object {
    match parse(text.as_bytes(), &Limits::default()).unwrap() {
        Value::Object(object) => object,
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn call(
    session: &Stdio,
    tool: &str,
    wait: Duration,
) -> Result<Answer, CallFailure> {
    session.call(tool, Object::new(), wait.into(), &|_| {}).await
}

/// A call whose run is not held any more is not sent; and one that is held is, for control.
pub(crate) async fn sends_only_while_held(session: &dyn Session) {
    let lapsed = Leave { deadline: PATIENT, standing: Standing::of(|| false) };
    match session.call("count", Object::new(), lapsed, &|_| {}).await {
        Err(CallFailure::NotSent(why)) => {
            assert!(why.contains("was not held here any more"), "{why}");
        }
        other => panic!("{other:?}"),
    }
    let held = session.call("count", Object::new(), PATIENT.into(), &|_| {}).await;
    assert_eq!(text(held), "counted");
}

/// The text of an answer that is one block of it.
#[track_caller]
pub(crate) fn text(answer: Result<Answer, CallFailure>) -> String {
    match answer.unwrap().blocks.as_slice() {
        [Block::Text(text)] => text.clone(),
        other => panic!("{other:?}"),
    }
}

/// Waits until a process of this number is gone or dead.
pub(crate) fn ends(pid: u32) -> bool {
    let end = Instant::now() + PATIENT;
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

/// The most memory that this process ever had, in MiB. Each test has a process of its own under nextest; where it has
/// not, the figure is that of all tests together.
pub(crate) fn peak_mib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}
