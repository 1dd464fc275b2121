//! The folder of one session: a home and a place for temporary files, empty and the server's own.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// Makes the home and the folder for temporary files in a room that is private and empty.
pub(super) fn furnish(room: &Path) -> io::Result<(PathBuf, PathBuf)> {
    let refused = |what: &str| io::Error::new(io::ErrorKind::InvalidInput, what.to_owned());
    let meta = std::fs::symlink_metadata(room)?;
    if !meta.is_dir() {
        return Err(refused("it is no folder"));
    }
    if meta.mode() & 0o077 != 0 {
        return Err(refused("others may look into it: its mode has to be 0700"));
    }
    if std::fs::read_dir(room)?.next().is_some() {
        return Err(refused("it is not empty"));
    }
    let made = |name: &str| {
        let path = std::fs::canonicalize(room)?.join(name);
        DirBuilder::new().mode(0o700).create(&path).map(|()| path)
    };
    Ok((made("home")?, made("tmp")?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "tests")]

    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_room_is_private_and_empty() {
        let folder = tempfile::tempdir().unwrap();
        set_permissions(folder.path(), Permissions::from_mode(0o700)).unwrap();
        let (home, temporary) = furnish(folder.path()).unwrap();
        for made in [&home, &temporary] {
            assert_eq!(made.metadata().unwrap().mode() & 0o777, 0o700);
            assert_eq!(std::fs::read_dir(made).unwrap().count(), 0);
        }
        assert!(furnish(folder.path()).is_err(), "it has a home already");
        let open = tempfile::tempdir().unwrap();
        set_permissions(open.path(), Permissions::from_mode(0o755)).unwrap();
        assert!(furnish(open.path()).is_err(), "others may look into it");
        write(home.join("file"), "x").unwrap();
        assert!(furnish(&home.join("file")).is_err(), "no folder");
        assert!(furnish(&home.join("none")).is_err(), "not there");
    }
}
