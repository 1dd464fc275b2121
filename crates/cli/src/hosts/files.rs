//! The files of a host: read where nobody else could have written them, exchanged as a whole, with a backup beside them.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use rustix::fd::OwnedFd;
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RenameFlags, Stat, fchmod, fstat, fsync, openat, renameat,
    renameat_with, unlinkat,
};
use rustix::io::Errno;

use crate::failure::{Code, Failure};

/// The largest file that is edited, in bytes.
const MAX_FILE: u64 = 16 << 20;

/// What is added to a file's name for the copy of before.
const BACKUP: &str = ".before-portcullis";

/// What is added while it is written.
const TEMPORARY: &str = ".portcullis-new";

/// A file in a folder that is held.
pub(super) struct Own {
    folder: OwnedFd,
    path: PathBuf,
    name: String,
}

/// A file's text, and who may read it.
pub(super) struct Text {
    pub(super) text: String,
    mode: Mode,
}

impl Own {
    /// The file at this place, which need not exist; its folder has to, and to be this user's own.
    pub(super) fn at(path: &Path) -> Result<Self, Failure> {
        let name = path.file_name().and_then(|name| name.to_str());
        let (Some(folder), Some(name)) = (path.parent(), name) else {
            return Err(refused(path, "is no file's name", "name the host's file with --file"));
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fault = |errno: Errno| Failure::io("open the folder", folder, &errno.into());
        let held = rustix::fs::open(folder, flags, Mode::empty()).map_err(fault)?;
        let stat = fstat(&held).map_err(fault)?;
        if !is_own(&stat) {
            let hint = "make it your own, writable by nobody else";
            return Err(refused(folder, "belongs to another user, or others can write it", hint));
        }
        Ok(Self { folder: held, path: path.to_owned(), name: name.to_owned() })
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Where the copy of before is.
    pub(super) fn backup_path(&self) -> PathBuf {
        self.path.with_file_name(format!("{}{BACKUP}", self.name))
    }

    /// Its text; nothing when there is no such file.
    pub(super) fn read(&self) -> Result<Option<Text>, Failure> {
        self.read_named(&self.name)
    }

    /// The text of the copy of before.
    pub(super) fn read_backup(&self) -> Result<Option<Text>, Failure> {
        self.read_named(&format!("{}{BACKUP}", self.name))
    }

    fn read_named(&self, name: &str) -> Result<Option<Text>, Failure> {
        let path = self.path.with_file_name(name);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = match openat(&self.folder, name, flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP) => {
                return Err(refused(&path, "is a link", "name the file itself with --file"));
            }
            Err(errno) => return Err(Failure::io("open", &path, &errno.into())),
        };
        let stat = fstat(&file).map_err(|errno| Failure::io("look at", &path, &errno.into()))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(refused(&path, "is not a file", "name a file with --file"));
        }
        if !is_own(&stat) || stat.st_nlink != 1 {
            let why = "belongs to another user, has a second name, or others can write it";
            return Err(refused(&path, why, "check what it says, then make it your own"));
        }
        let mut bytes = Vec::new();
        File::from(file)
            .take(MAX_FILE.saturating_add(1))
            .read_to_end(&mut bytes)
            .map_err(|error| Failure::io("read", &path, &error))?;
        if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > MAX_FILE {
            return Err(refused(&path, "is larger than 16 MiB", "edit it by hand"));
        }
        let text = String::from_utf8(bytes)
            .map_err(|_| refused(&path, "is not UTF-8 text", "edit it by hand"))?;
        Ok(Some(Text { text, mode: Mode::from_raw_mode(stat.st_mode) & own_bits() }))
    }

    /// Keeps a copy of this text beside the file, unless there is one.
    pub(super) fn keep(&self, before: &Text) -> Result<(), Failure> {
        let temporary = self.put(&before.text, Mode::RUSR | Mode::WUSR)?;
        let backup = format!("{}{BACKUP}", self.name);
        renameat_with(&self.folder, &temporary, &self.folder, &backup, RenameFlags::NOREPLACE)
            .map_err(|errno| {
                self.give_up(&temporary);
                Failure::io("keep a copy in", &self.backup_path(), &errno.into())
            })
    }

    /// What was not finished is not left: it may hold secrets.
    fn give_up(&self, temporary: &str) {
        let _ = unlinkat(&self.folder, temporary, AtFlags::empty());
    }

    /// Exchanges the file as a whole. `before` is what was read: a file that has changed since stays as it is.
    pub(super) fn exchange(&self, before: Option<&Text>, text: &str) -> Result<(), Failure> {
        let now = self.read()?;
        if now.as_ref().map(|now| &now.text) != before.map(|before| &before.text) {
            let hint = "close the host, and try once more";
            return Err(refused(&self.path, "was changed meanwhile", hint));
        }
        let mode = before.map_or(Mode::RUSR | Mode::WUSR, |before| before.mode);
        let temporary = self.put(text, mode)?;
        let fault = |errno: Errno| Failure::io("write", &self.path, &errno.into());
        renameat(&self.folder, &temporary, &self.folder, &self.name).map_err(|errno| {
            self.give_up(&temporary);
            fault(errno)
        })?;
        fsync(&self.folder).map_err(fault)
    }

    /// Drops the copy of before.
    pub(super) fn drop_backup(&self) -> Result<(), Failure> {
        unlinkat(&self.folder, format!("{}{BACKUP}", self.name), AtFlags::empty())
            .map_err(|errno| Failure::io("remove", &self.backup_path(), &errno.into()))
    }

    /// Writes a new file beside it, synced.
    fn put(&self, text: &str, mode: Mode) -> Result<String, Failure> {
        let name = format!("{}{TEMPORARY}", self.name);
        let path = self.path.with_file_name(&name);
        let fault = |error: std::io::Error| Failure::io("write", &path, &error);
        match unlinkat(&self.folder, &name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(fault(errno.into())),
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = openat(&self.folder, &name, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|errno| fault(errno.into()))?;
        let mut file = File::from(file);
        fchmod(&file, mode)
            .map_err(std::io::Error::from)
            .and_then(|()| file.write_all(text.as_bytes()))
            .and_then(|()| file.sync_all())
            .map_err(|error| {
                self.give_up(&name);
                fault(error)
            })?;
        Ok(name)
    }
}

fn own_bits() -> Mode {
    Mode::RWXU | Mode::RWXG | Mode::RWXO
}

/// This user's, and nobody else writes it.
fn is_own(stat: &Stat) -> bool {
    stat.st_uid == rustix::process::geteuid().as_raw() && stat.st_mode & 0o022 == 0
}

fn refused(path: &Path, why: &str, hint: &str) -> Failure {
    Failure::new(Code::HostFile, format!("`{}` {why}", path.display())).hint(hint)
}
