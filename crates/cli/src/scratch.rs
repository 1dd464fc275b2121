//! The one folder in which an agent's program may write: drawn for it, 0700, gone afterwards.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use portcullis::system::OsEntropy;
use portcullis_domain::ports::Entropy as _;

use crate::failure::Failure;

/// A folder of this process alone.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// Makes it in the system's folder for temporary files, under a name that nobody can guess.
    pub(crate) fn make() -> Result<Self, Failure> {
        let mut random = [0_u8; 12];
        OsEntropy.fill(&mut random);
        let name: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let path = std::env::temp_dir().join(format!("portcullis-{name}"));
        let mut maker = std::fs::DirBuilder::new();
        maker.mode(0o700).create(&path).map_err(|error| Failure::io("make", &path, &error))?;
        Ok(Self(path))
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    #[expect(
        clippy::disallowed_methods,
        reason = "a folder that was drawn here; links in it are not followed"
    )]
    fn drop(&mut self) {
        // What the program left behind and made unremovable stays.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
