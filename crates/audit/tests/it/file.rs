//! Attacks on a SQLite file: what lies beside its rows.

use std::path::Path;

use portcullis_audit::head::tips;
use portcullis_audit::keys::SigningKey;
use portcullis_audit::verify::THREADS;
use portcullis_audit::{Break, Head, HeadResult, Options, compare_head, verify};
use portcullis_domain::ports::{Ledgers as _, Store as _};

use crate::raw::RawFile;
use crate::scene::{Drawn, START, Scene};
use crate::tables::Editable as _;

fn played(path: &Path) -> (RawFile, Scene) {
    let file = RawFile::create(path);
    let mut scene = Scene::new(file.store.clone());
    scene.play();
    (file, scene)
}

fn head(file: &RawFile, key: &SigningKey) -> Head {
    let (journal, tip) = tips(&mut *file.store.begin().unwrap()).unwrap()[0];
    Head::sign(file.store.instance(), journal, tip, START, key)
}

#[test]
fn a_backup_put_back_is_noticed_when_a_head_was_kept() {
    let folder = tempfile::tempdir().unwrap();
    let (path, backup) = (folder.path().join("now.db"), folder.path().join("backup.db"));
    let (file, mut scene) = played(&path);
    file.execute(&format!("VACUUM INTO '{}'", backup.display()));
    scene.more();
    let key = SigningKey::generate(&Drawn::default());
    let head = head(&file, &key);
    let kept = std::slice::from_ref(&head);
    let with_head = Options { heads: kept, ..Options::default() };
    assert!(file.verify(with_head).intact, "control");
    drop((scene, file));

    std::fs::set_permissions(&backup, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    for rest in ["now.db-wal", "now.db-shm"] {
        let _gone_with_the_last_handle = std::fs::remove_file(folder.path().join(rest));
    }
    std::fs::rename(&backup, &path).unwrap();
    let file = RawFile::create(&path);
    assert!(file.verify(Options::default()).intact, "the backup is a good record");
    let result = compare_head(&mut *file.store.begin().unwrap(), &head).unwrap();
    assert_eq!(result, HeadResult::Cut);
    let cut = Break::HeadCut { journal: head.journal, seq: head.seq };
    assert_eq!(file.verify(with_head).breaks, [cut]);
}

#[test]
fn a_row_that_no_key_finds_is_seen() {
    let folder = tempfile::tempdir().unwrap();
    let (file, _scene) = played(&folder.path().join("portcullis.db"));
    // Without its indexes in the schema, a table takes a row that they do not hold; then they are put back.
    file.execute(
        "CREATE TEMP TABLE held AS SELECT rowid AS place, * FROM sqlite_schema;
         PRAGMA writable_schema = ON;
         DELETE FROM sqlite_schema WHERE type = 'index' AND tbl_name = 'approvals';
         UPDATE sqlite_schema SET sql = 'CREATE TABLE approvals (question, person, statement, signature)'
             WHERE name = 'approvals';
         PRAGMA writable_schema = RESET;",
    );
    file.execute(
        "INSERT INTO approvals SELECT question, 'eve', statement, signature FROM approvals LIMIT 1;
         PRAGMA writable_schema = ON;
         DELETE FROM sqlite_schema;
         INSERT INTO sqlite_schema (rowid, type, name, tbl_name, rootpage, sql)
             SELECT place, type, name, tbl_name, rootpage, sql FROM held;
         PRAGMA writable_schema = RESET;",
    );
    assert_eq!(file.table("approvals").rows.len(), 5, "control: a walk of the table finds it");
    assert_eq!(file.verify(Options::default()).breaks, [Break::Unsound]);
}

#[test]
fn threads_that_take_turns_find_what_those_with_a_reader_each_find() {
    let folder = tempfile::tempdir().unwrap();
    let (file, scene) = played(&folder.path().join("portcullis.db"));
    let ring = scene.ring();
    let options = Options { keys: &[&ring], ..Options::default() };
    let both = || {
        let each = verify(&mut *file.store.begin_for(THREADS).unwrap(), options).unwrap();
        assert_eq!(format!("{each:?}"), format!("{:?}", file.verify(options)));
        each
    };
    assert_eq!(both().breaks, [], "control");
    let changes = [
        "UPDATE runs SET owner = 'eve'",
        "UPDATE events SET at = at + 1 WHERE journal_seq = 5",
        "DELETE FROM contents WHERE rowid = 3",
        "DELETE FROM events WHERE journal_seq = 9",
    ];
    let mut known = 0;
    for change in changes {
        file.execute(change);
        let found = both().breaks.len();
        assert!(found > known, "`{change}` is not seen");
        known = found;
    }
}
