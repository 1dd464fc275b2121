//! Moving a file or directory, and making a directory.

use rustix::fs::{AtFlags, Mode, mkdirat, statat};
use rustix::io::Errno;

use super::entry::{Identity, Kind, Stat};
use super::open::{probe, require_regular};
use super::temp::{rename_new, require_new_name, sync_dir};
use super::{Fault, FileError, RelPath, Root};

impl Root {
    /// Moves a regular file with one name, or a directory, to a name that is free.
    ///
    /// # Errors
    /// The target exists or may not be created, the source is something else, or it was exchanged meanwhile (it is
    /// moved back then). The error names the path that it concerns.
    pub fn rename(&self, from: &RelPath, to: &RelPath) -> Result<(), FileError> {
        let at_source = |fault| FileError::new(from, fault);
        let at_target = |fault| FileError::new(to, fault);
        let (from_dir, from_name) = self.parent(from).map_err(at_source)?;
        let (_handle, seen) = probe(&from_dir, from_name).map_err(at_source)?;
        if Stat::of(&seen).kind != Kind::Directory {
            require_regular(&seen).map_err(at_source)?;
        } else if from.contains(to) && from != to {
            return Err(at_target(Fault::IntoItself));
        }
        let (to_dir, to_name) = self.parent(to).map_err(at_target)?;
        require_new_name(&to_dir, to_name).map_err(at_target)?;
        rename_new(&from_dir, from_name, &to_dir, to_name).map_err(at_target)?;

        let arrived = statat(&to_dir, to_name, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|errno| at_target(Fault::in_doubt(errno)))?;
        if Identity::of(&arrived) != Identity::of(&seen) {
            rename_new(&to_dir, to_name, &from_dir, from_name)
                .map_err(|_| at_source(Fault::in_doubt(Errno::STALE)))?;
            return Err(at_source(Fault::Changed));
        }
        sync_dir(&to_dir).map_err(at_target)?;
        sync_dir(&from_dir).map_err(at_source)
    }

    /// Makes a directory. Its parent must exist; its permissions are 0777 less the process's umask.
    ///
    /// # Errors
    /// The name is taken or may not be created.
    pub fn create_dir(&self, path: &RelPath) -> Result<(), FileError> {
        self.create_dir_inner(path).map_err(|fault| FileError::new(path, fault))
    }

    fn create_dir_inner(&self, path: &RelPath) -> Result<(), Fault> {
        let (dir, name) = self.parent(path)?;
        require_new_name(&dir, name)?;
        mkdirat(&dir, name, Mode::from_raw_mode(0o777))?;
        sync_dir(&dir)
    }
}
