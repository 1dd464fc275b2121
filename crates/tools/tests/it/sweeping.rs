//! What opening a folder removes from it is said.

use std::fmt::Debug;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Arc, Mutex};

use portcullis_tools::Files;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Keeps each line of the log.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

struct Line<'a>(&'a mut String);

impl Visit for Line<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // The folder is another one in each run of the test.
        if field.name() != "folder" {
            self.0.push_str(&format!(" {}={value:?}", field.name()));
        }
    }
}

impl Subscriber for Log {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = event.metadata().level().to_string();
        event.record(&mut Line(&mut line));
        self.0.lock().unwrap().push(line);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn what_a_killed_writer_left_is_removed_and_said_and_nothing_else_is() {
    let folder = tempfile::tempdir().unwrap();
    let opened = || {
        let log = Log::default();
        tracing::subscriber::with_default(log.clone(), || {
            Files::open(folder.path(), &[]).unwrap();
        });
        log.0.lock().unwrap().clone()
    };
    assert_eq!(opened(), [""; 0], "nothing was there to remove");
    for half in ["half", "other"].map(|name| folder.path().join(name)) {
        fs::write(&half, "half of a fi").unwrap();
        let inode = fs::metadata(&half).unwrap().ino();
        let name = format!(".portcullis-tmp-0123456789abcdef0123456789abcdef-{inode}");
        fs::rename(&half, folder.path().join(name)).unwrap();
    }
    let said = "INFO message=removed files that a killed process had begun to write removed=2";
    assert_eq!(opened(), [said]);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
