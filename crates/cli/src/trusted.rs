//! Text files that say what this program is to do, read only where nobody else could have written them.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, RenameFlags};

use crate::failure::{Code, Failure};
use crate::output::text::number;

/// What kind of file is read.
pub(crate) struct Trusted {
    /// In words, such as `configuration`.
    pub(crate) what: &'static str,
    /// What is said of one that cannot be used.
    pub(crate) code: Code,
    /// The most bytes that it may have.
    pub(crate) most: usize,
}

impl Trusted {
    /// The text of a plain file of this user's or of root's that only its owner can write.
    pub(crate) fn read(&self, path: &Path) -> Result<String, Failure> {
        let act = format!("read the {}", self.what);
        let fault = |error: &std::io::Error| Failure::io(&act, path, error);
        // NONBLOCK: opening a pipe that somebody put there must not wait.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = rustix::fs::open(path, flags, Mode::empty())
            .map(File::from)
            .map_err(|errno| fault(&errno.into()))?;
        let meta = file.metadata().map_err(|error| fault(&error))?;
        let refused = |why: &str, hint: &str| {
            let sentence = format!("the {} `{}` {why}", self.what, path.display());
            Err(Failure::new(self.code, sentence).hint(hint))
        };
        if !meta.is_file() {
            return refused("is not a file", "name a file");
        }
        if meta.uid() != rustix::process::geteuid().as_raw() && meta.uid() != 0 {
            return refused("belongs to another user", "make a copy of your own");
        }
        if meta.mode() & 0o022 != 0 {
            let hint = "check what it says, then run `chmod go-w` on it";
            return refused("can be written by others", hint);
        }
        let most = u64::try_from(self.most).unwrap_or(u64::MAX);
        let mut bytes = Vec::new();
        file.take(most.saturating_add(1)).read_to_end(&mut bytes).map_err(|error| fault(&error))?;
        if bytes.len() > self.most {
            return refused(&format!("is larger than {} bytes", number(self.most)), "shorten it");
        }
        match String::from_utf8(bytes) {
            Ok(text) => Ok(text),
            Err(_) => refused("is not UTF-8 text", "save it as UTF-8"),
        }
    }
}

/// Puts a file of mode 0600 in the place of what is there: it appears whole and synced, or not at all.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let put = put(path, bytes, RenameFlags::empty());
    put.map_err(|error| Failure::io("write", path, &error))
}

/// The same where nothing is there yet; an error of the kind `AlreadyExists` where somebody else was first.
pub(crate) fn create(path: &Path, bytes: &[u8]) -> io::Result<()> {
    put(path, bytes, RenameFlags::NOREPLACE)
}

fn put(path: &Path, bytes: &[u8], how: RenameFlags) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let mut temporary = std::ffi::OsString::from(".");
    temporary.push(name);
    temporary.push(format!(".{}.tmp", std::process::id()));
    let temporary = path.with_file_name(temporary);
    // Left by a process that died and whose id came back.
    let _ = std::fs::remove_file(&temporary);
    let mut out = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    let written = out.write_all(bytes).and_then(|()| out.sync_all());
    let put =
        written.and_then(|()| Ok(rustix::fs::renameat_with(CWD, &temporary, CWD, path, how)?));
    if put.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    put.and_then(|()| sync_folder(path))
}

/// The new name is on the disk only once its folder is.
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(folder.unwrap_or(Path::new(".")), flags, Mode::empty())?;
    Ok(rustix::fs::fsync(folder)?)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kept");
        replace(&path, b"one").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        replace(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        let target = folder.path().join("other");
        std::os::unix::fs::symlink(&target, folder.path().join("link")).unwrap();
        replace(&folder.path().join("link"), b"x").unwrap();
        assert!(!target.exists(), "a link is replaced and not followed");
        let first = create(&path, b"three").unwrap_err();
        assert_eq!(first.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing is left beside");
        assert!(replace(&folder.path().join("none/x"), b"x").is_err());
    }

    #[test]
    fn only_a_whole_text_that_nobody_else_could_have_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("said");
        let kind = Trusted { what: "list", code: Code::Prices, most: 8 };
        let check = |bytes: &[u8], mode, expected: Result<&str, &str>| {
            File::create(&path).unwrap().write_all(bytes).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let read = kind.read(&path);
            match (&read, expected) {
                (Ok(text), Ok(expected)) => assert_eq!(text, expected),
                (Err(failure), Err(words)) => {
                    assert!(failure.to_string().starts_with("E8503: the list `"), "{failure}");
                    assert!(failure.to_string().contains(words), "{failure}");
                }
                _ => panic!("{read:?}"),
            }
        };
        check(b"12345678", 0o644, Ok("12345678"));
        check(b"123456789", 0o644, Err("larger than 8 bytes"));
        check(b"a", 0o664, Err("can be written by others"));
        check(b"a", 0o602, Err("can be written by others"));
        check(b"\xff", 0o600, Err("not UTF-8"));
        let odd = kind.read(folder.path()).unwrap_err();
        assert!(odd.to_string().contains("is not a file"), "{odd}");
    }
}
