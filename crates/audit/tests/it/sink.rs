//! Where heads are kept.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::sync::Mutex;

use portcullis_audit::head::{FileSink, FnSink, HeadSink, Kept, SinkError, read_heads};
use portcullis_audit::keys::SigningKey;
use portcullis_audit::{FileError, Head};
use portcullis_canon::{Digest, Kind};
use portcullis_domain::id::{InstanceId, JournalId};
use portcullis_domain::stream::Tip;
use portcullis_domain::time::Timestamp;

use crate::scene::Drawn;

fn head(journal: u8, seq: u64, content: &[u8]) -> Head {
    let key = SigningKey::generate(&Drawn::default());
    let tip = Tip { seq, hash: Digest::of(Kind::Event, content) };
    let (instance, journal) =
        (InstanceId::from_bytes([1; 16]), JournalId::from_bytes([journal; 16]));
    Head::sign(instance, journal, tip, Timestamp::from_micros(0), &key)
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
    folder
}

#[test]
fn a_file_keeps_the_latest_head_of_each_journal() {
    let folder = folder();
    let path = folder.path().join("heads");
    let sink = FileSink::new(&path);
    assert_eq!(read_heads(&path).unwrap(), []);
    assert_eq!(sink.keep(&head(1, 5, b"a")).unwrap(), Kept::Written);
    assert_eq!(sink.keep(&head(2, 1, b"b")).unwrap(), Kept::Written);
    assert_eq!(sink.keep(&head(1, 6, b"c")).unwrap(), Kept::Written);
    assert_eq!(read_heads(&path).unwrap(), [head(1, 6, b"c"), head(2, 1, b"b")]);
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_head_never_gives_way_to_an_earlier_or_another_one() {
    let folder = folder();
    let path = folder.path().join("heads");
    let sink = FileSink::new(&path);
    sink.keep(&head(1, 5, b"a")).unwrap();
    assert_eq!(sink.keep(&head(1, 4, b"x")).unwrap(), Kept::LaterIsKept);
    assert!(matches!(sink.keep(&head(1, 5, b"x")), Err(SinkError::Diverged { seq: 5, .. })));
    assert_eq!(sink.keep(&head(1, 5, b"a")).unwrap(), Kept::Written, "control");
    assert_eq!(read_heads(&path).unwrap(), [head(1, 5, b"a")]);
}

#[test]
fn what_others_could_have_written_or_is_no_head_is_refused() {
    let folder = folder();
    let path = folder.path().join("heads");
    let sink = FileSink::new(&path);
    sink.keep(&head(1, 5, b"a")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o620)).unwrap();
    assert!(matches!(read_heads(&path), Err(SinkError::File(FileError::Mode { .. }))));
    assert!(matches!(sink.keep(&head(1, 6, b"a")), Err(SinkError::File(FileError::Mode { .. }))));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    assert!(matches!(read_heads(&path), Err(SinkError::File(FileError::Mode { .. }))));
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let whole = fs::read_to_string(&path).unwrap();
    for text in
        ["x".to_owned(), "\n".to_owned(), whole.trim_end().to_owned(), format!("{whole}x\n")]
    {
        fs::write(&path, &text).unwrap();
        assert!(matches!(read_heads(&path), Err(SinkError::Form { .. })), "{text:?}");
        assert!(sink.keep(&head(1, 6, b"a")).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), text, "nothing is overwritten");
    }
    let missing = folder.path().join("none/heads");
    assert!(matches!(
        FileSink::new(&missing).keep(&head(1, 1, b"a")),
        Err(SinkError::File(FileError::Missing { .. }))
    ));
}

#[test]
fn writers_at_once_leave_the_latest_of_each() {
    let folder = folder();
    let path = folder.path().join("heads");
    std::thread::scope(|scope| {
        for journal in 1..=4 {
            let path = &path;
            scope.spawn(move || {
                for seq in 1..=20 {
                    FileSink::new(path).keep(&head(journal, seq, b"a")).unwrap();
                }
            });
        }
    });
    let kept = read_heads(&path).unwrap();
    assert_eq!(kept.len(), 4);
    assert!(kept.iter().all(|head| head.seq == 20), "{kept:?}");
}

#[test]
fn a_closure_gets_the_line_and_its_error_is_passed_on() {
    let lines = Mutex::new(Vec::new());
    let sink = FnSink(|line: &str| {
        lines.lock().unwrap().push(line.to_owned());
        Ok(())
    });
    sink.keep(&head(1, 5, b"a")).unwrap();
    assert_eq!(*lines.lock().unwrap(), [head(1, 5, b"a").line()]);
    let broken = FnSink(|_: &str| Err(std::io::Error::from(std::io::ErrorKind::BrokenPipe)));
    assert!(matches!(broken.keep(&head(1, 5, b"a")), Err(SinkError::Handed(_))));
}
