//! A database that was begun and holds nothing: SQLite refuses to read such a file for several reasons, none of which
//! says what is so.

use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use portcullis_store::sqlite::error::OpenError;
use portcullis_store::sqlite::open::OpenMode;
use rustix::fs::OFlags;

use crate::args::Globals;
use crate::drive;
use crate::failure::{Code, Failure};

/// What every SQLite file begins with.
const MAGIC: &[u8] = b"SQLite format 3\0";

/// The bytes of its header.
const HEADER: usize = 100;

/// Why the database was not opened, in this mode. One that would have been made to its end failed for its own reason.
pub(crate) fn refusal(error: OpenError, mode: OpenMode, globals: &Globals) -> Failure {
    let may_be_begun = matches!(
        error,
        OpenError::NotADatabase { .. } | OpenError::NotWritable { .. } | OpenError::Busy { .. }
    );
    if mode == OpenMode::CreateOrOpen || !may_be_begun || !is_begun(&globals.db) {
        return error.into();
    }
    let sentence = format!(
        "the database `{}` holds nothing yet: its making was broken off or is not over, or the file `…-wal` beside it was taken away",
        globals.db.display()
    );
    let init = drive::command(globals, "init --no-config");
    Failure::new(Code::HalfMade, sentence)
        .hint(format!("put that file back if there was one; else finish it with `{init}`"))
}

/// True for an empty file, and for a database whose one page holds no table.
fn is_begun(path: &Path) -> bool {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let opened = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path);
    let Ok(file) = opened else { return false };
    let mut header = Vec::new();
    if file.take(HEADER as u64).read_to_end(&mut header).is_err() {
        return false;
    }
    if header.is_empty() {
        return true;
    }
    // How many pages there are, and whose file it is: nothing yet.
    header.starts_with(MAGIC)
        && header.get(28..32) == Some(&[0, 0, 0, 1])
        && header.get(68..72) == Some(&[0; 4])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "tests")]

    use super::*;

    #[test]
    fn a_file_that_was_only_begun_is_told_from_others() {
        let folder = tempfile::tempdir().unwrap();
        let begun = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            is_begun(&path)
        };
        assert!(begun("empty", b""));
        assert!(!begun("letter", b"Dear reader,"));
        assert!(!begun("cut", MAGIC));
        assert!(!is_begun(&folder.path().join("absent")));
        let path = folder.path().join("p.db");
        let conn = rusqlite::Connection::open(&path).unwrap();
        conn.execute_batch("PRAGMA page_size = 8192; VACUUM").unwrap();
        assert!(is_begun(&path));
        conn.execute_batch("CREATE TABLE t (x)").unwrap();
        assert!(!is_begun(&path), "a database with a table");
    }
}
