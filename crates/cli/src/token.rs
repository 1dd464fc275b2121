//! The file with the token for hosts over HTTP: read by nobody but its owner, and made where there is none.

use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use portcullis::system::OsEntropy;
use portcullis_server::http::Token;
use rustix::fs::{Mode, OFlags};
use zeroize::Zeroizing;

use crate::failure::{Code, Failure};
use crate::trusted;

/// More than a token and the end of its line.
const MAX_BYTES: u64 = 512;

/// The token of this file, and whether it was made just now.
pub(crate) fn open_or_make(path: &Path) -> Result<(Token, bool), Failure> {
    match read(path) {
        Ok(Some(token)) => return Ok((token, false)),
        Ok(None) => {}
        Err(failure) => return Err(failure),
    }
    let made = make(path)?;
    let token = read(path)?.ok_or_else(|| refused(path, "was taken away while it was made"))?;
    Ok((token, made))
}

/// Nothing where there is no file.
fn read(path: &Path) -> Result<Option<Token>, Failure> {
    let fault = |error: &std::io::Error| Failure::io("read the token in", path, error);
    // NOFOLLOW: the owner and the mode that count are those of the file itself. NONBLOCK: a pipe must not wait.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(rustix::io::Errno::LOOP) => return Err(refused(path, "is a link")),
        Err(errno) => return Err(fault(&errno.into())),
    };
    let meta = file.metadata().map_err(|error| fault(&error))?;
    if !meta.is_file() {
        return Err(refused(path, "is not a file"));
    }
    if meta.uid() != rustix::process::geteuid().as_raw() {
        return Err(refused(path, "belongs to another user"));
    }
    if meta.mode() & 0o077 != 0 {
        return Err(refused(path, "can be read or written by others; draw a new one"));
    }
    let mut text = Zeroizing::new(String::new());
    match file.take(MAX_BYTES).read_to_string(&mut text) {
        Err(error) if error.kind() != ErrorKind::InvalidData => Err(fault(&error)),
        // What is no text is no token either.
        read => {
            let token = read.ok().and_then(|_| Token::read(&text).ok());
            let odd = "holds no token: 32 to 256 letters, digits and `-._~+/=` on one line";
            token.map(Some).ok_or_else(|| refused(path, odd))
        }
    }
}

/// Puts a new token there, whole and synced; false when somebody else was first.
fn make(path: &Path) -> Result<bool, Failure> {
    let fault = |error: std::io::Error| Failure::io("make the token in", path, &error);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder {
        crate::place::make_private(folder)?;
    }
    let text = Token::draw(&OsEntropy);
    let line = Zeroizing::new([text.as_bytes(), b"\n"].concat());
    match trusted::create(path, &line) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(fault(error)),
    }
}

fn refused(path: &Path, why: &str) -> Failure {
    Failure::new(Code::Token, format!("the token file `{}` {why}", path.display()))
        .hint("move it away, and a new one is made")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn a_token_is_made_once_and_nobody_else_reads_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config/proxy.token");
        assert!(open_or_make(&path).unwrap().1);
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!((mode(&path), mode(path.parent().unwrap()), text.len()), (0o600, 0o700, 65));
        assert!(!open_or_make(&path).unwrap().1);
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        assert!(!make(&path).unwrap(), "another one does not take its place");
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing is left");
    }

    #[test]
    fn what_others_could_read_or_have_put_there_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let check = |text: &[u8], permissions, words: &str| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(permissions)).unwrap();
            let failure = open_or_make(&path).unwrap_err().to_string();
            assert!(failure.starts_with("E9502: ") && failure.contains(words), "{failure}");
            assert!(!failure.contains("0123456789"), "{failure}");
        };
        let good = b"0123456789abcdef0123456789abcdef";
        for permissions in [0o640, 0o604, 0o660, 0o602] {
            check(good, permissions, "by others");
        }
        check(b"0123456789", 0o600, "holds no token");
        check(&[good.as_slice(), b"\n", good].concat(), 0o600, "holds no token");
        check(b"\xff", 0o600, "holds no token");
        fs::write(&path, good).unwrap();
        assert!(!open_or_make(&path).unwrap().1, "the control");
        let link = folder.path().join("link");
        symlink(&path, &link).unwrap();
        let failure = open_or_make(&link).unwrap_err().to_string();
        assert!(failure.contains("is a link"), "{failure}");
        let failure = open_or_make(folder.path()).unwrap_err().to_string();
        assert!(failure.contains("is not a file"), "{failure}");
    }
}
