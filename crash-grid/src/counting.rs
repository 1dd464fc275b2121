//! The process that counts: a third one, beside the test and the processes that are killed.

use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use portcullis_testkit::counter::{Counter, serve};
use tempfile::TempDir;

use super::place::this_program;

/// How long it may take to come up.
const PATIENCE: Duration = Duration::from_secs(20);

/// A running counter. It ends with this, or with the process that holds this.
pub(crate) struct Counting {
    pub(crate) counter: Counter,
    process: Child,
    _folder: TempDir,
}

impl Counting {
    /// Starts the counter and waits until it listens.
    pub(crate) fn start() -> Self {
        // A short path, since the name of a socket is bounded.
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("counter");
        let mut command = this_program();
        command.arg("count").arg(&path).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut process = command.spawn().unwrap();
        let begun = Instant::now();
        while UnixStream::connect(&path).is_err() {
            assert!(process.try_wait().unwrap().is_none(), "the counter ended");
            assert!(begun.elapsed() < PATIENCE, "the counter does not come up");
            std::thread::sleep(Duration::from_millis(5));
        }
        Self { counter: Counter::at(path), process, _folder: folder }
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        let _gone_already = self.process.kill();
        let _gone_already = self.process.wait();
    }
}

/// Counts until whoever started this process is gone.
pub(crate) fn count(path: &str) -> i32 {
    let listener = UnixListener::bind(path).unwrap();
    std::thread::spawn(move || serve(&listener));
    let _end = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    0
}
