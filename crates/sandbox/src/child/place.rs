//! Where something lies, seen through links and spellings, whether it exists yet or not.

use std::fs::Metadata;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A path that is canonical as far as it exists, and which file it is.
#[derive(Clone, Debug)]
pub struct Place {
    path: PathBuf,
    identity: Option<(u64, u64)>,
}

impl Place {
    /// Looks where `path` leads today.
    ///
    /// # Errors
    /// The system cannot say, or a link on the way leads nowhere: it could lead anywhere tomorrow.
    pub fn of(path: &Path) -> io::Result<Self> {
        let whole = std::path::absolute(path)?;
        for ancestor in whole.ancestors() {
            match std::fs::canonicalize(ancestor) {
                Ok(found) => {
                    let rest = whole.strip_prefix(ancestor).unwrap_or(Path::new(""));
                    if !rest.as_os_str().is_empty() {
                        return Ok(Self { path: found.join(rest), identity: None });
                    }
                    // Nothing is joined: that would end it with a stroke, and a file has no such name.
                    let identity = std::fs::metadata(&found).ok().map(|meta| identity(&meta));
                    return Ok(Self { path: found, identity });
                }
                Err(error)
                    if error.kind() == ErrorKind::NotFound
                        && ancestor.symlink_metadata().is_err() => {}
                Err(error) => return Err(error),
            }
        }
        Err(ErrorKind::NotFound.into())
    }

    /// The path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// True when `path`, or a folder above it, is this one: by name, or by another mount or link of it.
    #[must_use]
    pub fn covers(&self, path: &Path) -> bool {
        path.starts_with(&self.path)
            || self.identity.is_some_and(|own| {
                path.ancestors().any(|dir| dir.metadata().is_ok_and(|meta| identity(&meta) == own))
            })
    }

    /// True when this is the file that `meta` was read of.
    pub(super) fn is(&self, meta: &Metadata) -> bool {
        self.identity == Some(identity(meta))
    }
}

fn identity(meta: &Metadata) -> (u64, u64) {
    (meta.dev(), meta.ino())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]
    use super::*;

    #[test]
    fn a_file_is_known_by_its_other_names() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("own"), "x").unwrap();
        std::fs::write(at("other"), "x").unwrap();
        std::fs::hard_link(at("own"), at("hard")).unwrap();
        std::os::unix::fs::symlink(at("own"), at("soft")).unwrap();
        let own = Place::of(&at("own")).unwrap();
        for name in ["own", "hard", "soft", "."] {
            assert!(Place::of(&at(name)).unwrap().covers(own.path()), "{name}");
        }
        for name in ["other", "none"] {
            assert!(!Place::of(&at(name)).unwrap().covers(own.path()), "{name}");
        }
    }
}
