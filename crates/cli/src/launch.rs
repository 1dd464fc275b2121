//! The memory of how each run was started, so that `resume RUN` needs no more than its name.
//!
//! Soft state beside the database: who loses it names agent, folder and configuration again.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use portcullis_canon::{Limits, Object, Value, parse};
use portcullis_domain::id::RunId;

use crate::agent::AgentChoice;
use crate::args::Globals;
use crate::config::{self, Config};
use crate::failure::{Code, Failure};
use crate::place;

/// The most bytes that one memory may have.
const MAX_BYTES: u64 = 64 * 1024;

/// How a run was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Launch {
    /// The agent.
    pub(crate) agent: AgentChoice,
    /// The folder for the file tools, absolute.
    pub(crate) files: Option<PathBuf>,
    /// The configuration file, absolute.
    pub(crate) config: Option<PathBuf>,
}

impl Launch {
    /// Remembers it for `run`.
    pub(crate) fn keep(&self, folder: &Path, run: RunId) -> Result<(), Failure> {
        place::make_private(folder)?;
        let path = |path: &Option<PathBuf>| {
            path.as_ref().and_then(|path| path.to_str()).map_or(Value::Null, Value::from)
        };
        let mut object = Object::new();
        object.insert("agent", self.agent.to_value());
        object.insert("files", path(&self.files));
        object.insert("config", path(&self.config));
        let text = Value::Object(object).to_canonical();
        let (target, temporary) = (file(folder, run), folder.join(format!(".{run}.tmp")));
        let fault = |error: std::io::Error| Failure::io("write", &target, &error);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let flags = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
        let mut out = options.custom_flags(flags).open(&temporary).map_err(fault)?;
        out.write_all(&text).and_then(|()| out.sync_all()).map_err(fault)?;
        std::fs::rename(&temporary, &target).map_err(fault)
    }

    /// What is remembered of `run`; nothing when there is no memory of it.
    pub(crate) fn recall(folder: &Path, run: RunId) -> Result<Option<Self>, Failure> {
        let path = file(folder, run);
        let flags = rustix::fs::OFlags::NOFOLLOW
            | rustix::fs::OFlags::CLOEXEC
            | rustix::fs::OFlags::NONBLOCK;
        let opened = match rustix::fs::open(&path, flags, rustix::fs::Mode::empty()) {
            Err(rustix::io::Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(Failure::io("read", &path, &errno.into())),
            Ok(opened) => File::from(opened),
        };
        let meta = opened.metadata().map_err(|error| Failure::io("read", &path, &error))?;
        let own = meta.is_file() && meta.uid() == rustix::process::geteuid().as_raw();
        let mut bytes = Vec::new();
        opened
            .take(MAX_BYTES)
            .read_to_end(&mut bytes)
            .map_err(|error| Failure::io("read", &path, &error))?;
        match Self::read(&bytes).filter(|_| own && meta.mode() & 0o022 == 0) {
            Some(launch) => Ok(Some(launch)),
            None => Err(Failure::new(
                Code::NoLaunch,
                format!(
                    "`{}` does not say how the run was started, or others could have written it",
                    path.display()
                ),
            )
            .hint("remove that file, and name --agent, --files and -c again")),
        }
    }

    /// The configuration that the run was begun with, in words, when it is another one than this.
    pub(crate) fn elsewhere(&self, config: &Config) -> Option<String> {
        let whole = |path: &PathBuf| path.canonicalize().unwrap_or_else(|_| path.clone());
        if self.config.as_ref().map(whole) == config.path.as_ref().map(whole) {
            return None;
        }
        Some(match &self.config {
            Some(path) => format!("the configuration `{}`", path.display()),
            None => "the usual configuration".to_owned(),
        })
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let value = parse(bytes, &Limits::BARE).ok()?;
        let path = |key: &str| match value.get(key)? {
            Value::Null => Some(None),
            Value::String(path) => Some(Some(PathBuf::from(path))),
            _ => None,
        };
        Some(Self {
            agent: AgentChoice::from_value(value.get("agent")?)?,
            files: path("files")?,
            config: path("config")?,
        })
    }
}

/// The configuration that was named, else the one that the run began with, else the usual one.
pub(crate) fn configuration(globals: &Globals, launch: Option<&Launch>) -> Result<Config, Failure> {
    match (&globals.config_path, launch.and_then(|launch| launch.config.as_deref())) {
        (None, Some(began_with)) => config::read(began_with),
        _ => config::load(globals),
    }
}

/// Where it is remembered how a run was started.
pub(crate) fn file(folder: &Path, run: RunId) -> PathBuf {
    folder.join(format!("{run}.json"))
}

/// The runs of which something is remembered, in order.
pub(crate) fn runs(folder: &Path) -> Result<BTreeSet<RunId>, Failure> {
    let fault = |error: std::io::Error| Failure::io("list", folder, &error);
    let mut runs = BTreeSet::new();
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(runs),
        entries => entries.map_err(fault)?,
    };
    for entry in entries {
        let name = entry.map_err(fault)?.file_name();
        let run = name.to_str().and_then(|name| name.strip_suffix(".json"));
        runs.extend(run.and_then(|run| run.parse::<RunId>().ok()));
    }
    Ok(runs)
}
