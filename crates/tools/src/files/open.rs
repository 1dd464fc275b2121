//! Opening the folder, unless an agent must never reach it.

use std::io;
use std::path::{Path, PathBuf};

use portcullis_canon::sanitize;
use portcullis_domain::ports::Disposition;
use portcullis_sandbox::confined::{Fault, Root, Swept};

use super::Files;

/// The longest path in a message, in bytes.
const MAX_SHOWN_PATH: usize = 300;

/// Why a folder is not handed to the tools. Paths in it are the operator's own, made safe for a terminal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilesError {
    /// It is no folder that can be opened.
    #[error("cannot open the folder `{folder}` for the file tools: it {fault}")]
    Open {
        /// The folder.
        folder: String,
        /// What was wrong.
        fault: Fault,
    },
    /// It contains, is, or lies in a folder that no agent may reach.
    #[error(
        "the folder `{folder}` contains, or lies in, `{forbidden}`, which no tool may reach; name another folder"
    )]
    Overlap {
        /// The folder.
        folder: String,
        /// What it meets.
        forbidden: String,
    },
    /// Whether it does cannot be told, so it counts as if it did.
    #[error("cannot tell whether the folder `{folder}` and `{forbidden}` lie in each other: {why}")]
    Unclear {
        /// The folder.
        folder: String,
        /// The other place.
        forbidden: String,
        /// What prevented the answer.
        why: io::ErrorKind,
    },
}

impl FilesError {
    /// What the error asks of the caller: in each case a person names another folder.
    #[must_use]
    pub const fn disposition(&self) -> Disposition {
        Disposition::Operator
    }
}

impl Files {
    /// Opens the operator's folder and holds it. `forbidden` are absolute paths that no agent may reach: the
    /// state, key and policy folders. They need not exist yet.
    ///
    /// The folder is opened once: renaming or replacing it afterwards does not change what is held. What a killed
    /// process of ours had begun to write in it is removed.
    ///
    /// # Errors
    /// [`FilesError`] when it is no folder, when it meets a forbidden one (through links and bind mounts too), or
    /// when that cannot be told.
    pub fn open(root: &Path, forbidden: &[PathBuf]) -> Result<Self, FilesError> {
        let folder = shown(root);
        let held =
            Root::open(root).map_err(|fault| FilesError::Open { folder: folder.clone(), fault })?;
        for place in forbidden {
            match held.contains_or_lies_in(place) {
                Ok(false) => {}
                Ok(true) => return Err(FilesError::Overlap { folder, forbidden: shown(place) }),
                Err(error) => {
                    let why = error.kind();
                    return Err(FilesError::Unclear { folder, forbidden: shown(place), why });
                }
            }
        }
        // The real path, and the identity beside it: a folder that was put in its place is another target.
        let (device, inode) =
            held.identity().map_err(|fault| FilesError::Open { folder: folder.clone(), fault })?;
        let real = std::fs::canonicalize(root).map_or(folder, |real| shown(&real));
        let target = format!("folder {real} (device {device}, inode {inode})");
        // What could not be swept lies hidden and in nobody's way, as before.
        tell(held.sweep(), &target);
        Ok(Self { root: held, target })
    }
}

/// Files that vanish from an operator's folder, and a look that did not reach all of it, are said.
fn tell(swept: Swept, folder: &str) {
    let Swept { removed, cut } = swept;
    if removed > 0 {
        tracing::info!(folder, removed, "removed files that a killed process had begun to write");
    }
    if cut {
        tracing::warn!(
            folder,
            "too large to be looked through for files that killed processes left half written"
        );
    }
}

fn shown(path: &Path) -> String {
    sanitize::clip(&sanitize::line(&path.to_string_lossy()), MAX_SHOWN_PATH)
}
