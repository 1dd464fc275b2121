//! Where things are: the state, the configuration and the keys of this user, by the XDG base directories.

use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::failure::{Code, Failure};

/// The folders of one user. None of them need exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The database by default, and what is remembered beside it.
    pub(crate) state: PathBuf,
    /// The configuration, with the keys beneath it. No agent and no tool may reach it.
    pub(crate) config: PathBuf,
    /// The reviewers' keys: `NAME.key` and `NAME.pub`.
    pub(crate) keys: PathBuf,
    /// This installation's own key, which signs heads and answers no question.
    pub(crate) host: PathBuf,
}

/// What of the environment says where things are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Surroundings {
    /// `HOME`.
    pub(crate) home: Option<PathBuf>,
    /// `XDG_STATE_HOME`.
    pub(crate) state_home: Option<PathBuf>,
    /// `XDG_CONFIG_HOME`.
    pub(crate) config_home: Option<PathBuf>,
}

impl Place {
    /// The folders that these surroundings name. Values that are no absolute path count as absent, as the
    /// standard says.
    pub(crate) fn of(surroundings: &Surroundings) -> Result<Self, Failure> {
        let absolute = |path: &Option<PathBuf>| path.clone().filter(|path| path.is_absolute());
        let beneath = |own: &Option<PathBuf>, usual: &str| {
            absolute(own)
                .or_else(|| absolute(&surroundings.home).map(|home| home.join(usual)))
                .map(|base| base.join("portcullis"))
        };
        let state = beneath(&surroundings.state_home, ".local/state");
        let config = beneath(&surroundings.config_home, ".config");
        let (Some(state), Some(config)) = (state, config) else {
            let sentence =
                "HOME is not set to an absolute path, so there is no place for state and keys";
            return Err(Failure::new(Code::NoPlace, sentence)
                .hint("set HOME, or both XDG_STATE_HOME and XDG_CONFIG_HOME"));
        };
        let (keys, host) = (config.join("keys"), config.join("host"));
        Ok(Self { state, config, keys, host })
    }

    /// The database unless the operator names another one.
    pub(crate) fn database(&self) -> PathBuf {
        self.state.join("portcullis.db")
    }

    /// Where heads of the usual database are kept unless the operator names another file. Beside the key that signs
    /// them and away from the state, so that a copy of the state that is put back does not bring its own.
    pub(crate) fn heads(&self) -> PathBuf {
        self.host.join("heads")
    }

    /// Where the token for hosts over HTTP is kept unless the operator names another file.
    pub(crate) fn token(&self) -> PathBuf {
        self.config.join("proxy.token")
    }

    /// Where it is remembered how each run was started.
    pub(crate) fn launches(&self) -> PathBuf {
        self.state.join("launch")
    }
}

/// Makes a folder that only this user can enter, with what is missing above it; one that is there has to
/// be this user's own and closed to writers.
pub(crate) fn make_private(folder: &Path) -> Result<(), Failure> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|error| Failure::io("make the folder", folder, &error))?;
    let meta = std::fs::symlink_metadata(folder).map_err(|e| Failure::io("look at", folder, &e))?;
    let own = meta.is_dir() && meta.uid() == rustix::process::geteuid().as_raw();
    if own && meta.permissions().mode() & 0o022 == 0 {
        return Ok(());
    }
    let sentence = format!(
        "the folder `{}` is a link, belongs to another user, or can be written by others",
        folder.display()
    );
    Err(Failure::new(Code::OddFolder, sentence)
        .hint("make it your own with mode 0700, or name another place"))
}
