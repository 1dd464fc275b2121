//! The three pipes of a server, each with a task of its own: one writes, one reads and sorts, one keeps complaints.

use std::sync::Arc;
use std::time::Duration;

use portcullis_sandbox::child::Lines;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::MAX_LINE_BYTES;
use super::ledger::{Fault, Ledger};
use super::line;
use super::process::Process;
use super::sort::{Over, Sorter};
use super::wire::Outgoing;

/// How much is read at once.
const CHUNK: usize = 16 * 1024;

/// How long one line may take to be written: a server that does not read for so long is given up.
const WRITE_WAIT: Duration = Duration::from_secs(30);

/// Writes line by line, each whole or never begun.
pub(super) async fn write(
    mut stdin: ChildStdin,
    mut lines: mpsc::Receiver<Outgoing>,
    ledger: Arc<Ledger>,
) {
    while let Some(outgoing) = lines.recv().await {
        if outgoing.id.is_some_and(|id| !ledger.begin(id)) {
            continue;
        }
        match timeout(WRITE_WAIT, stdin.write_all(&outgoing.line)).await {
            Ok(Ok(())) => {
                // Whoever asked may be gone.
                let _ = outgoing.written.map(|written| written.send(()));
            }
            Ok(Err(_)) | Err(_) => return ledger.fail(Fault::Deaf),
        }
    }
}

/// Keeps the end of standard error.
pub(super) async fn complain(mut stderr: ChildStderr, process: Arc<Process>) {
    let mut piece = vec![0; CHUNK];
    while let Ok(count @ 1..) = stderr.read(&mut piece).await {
        process.complained(piece.get(..count).unwrap_or_default());
    }
    process.fell_silent();
}

/// Reads until the session is over, and ends the server then.
pub(super) struct Reader {
    pub(super) stdout: ChildStdout,
    pub(super) ledger: Arc<Ledger>,
    pub(super) process: Arc<Process>,
    pub(super) sorter: Sorter,
}

impl Reader {
    pub(super) async fn run(mut self) {
        let ledger = Arc::clone(&self.ledger);
        tokio::select! {
            fault = self.read() => ledger.fail(fault),
            () = ledger.over() => {}
        }
        if matches!(ledger.fault(), Some(Fault::Closed | Fault::Deaf)) {
            // One that closed its output, or ended before it was written to, may still say why, and how it ended.
            self.process.ended().await;
        }
        self.process.end();
    }

    async fn read(&mut self) -> Fault {
        let mut lines = Lines::new(MAX_LINE_BYTES);
        let mut piece = vec![0; CHUNK];
        loop {
            while let Some(line) = lines.take() {
                if line.len() > MAX_LINE_BYTES {
                    return Fault::LongLine;
                }
                if let Err(fault) = self.sort(&line).await {
                    return fault;
                }
            }
            if lines.is_too_long() {
                return Fault::LongLine;
            }
            match self.stdout.read(&mut piece).await {
                Ok(count @ 1..) => lines.push(piece.get(..count).unwrap_or_default()),
                Ok(0) | Err(_) => return Fault::Closed,
            }
        }
    }

    async fn sort(&self, line: &[u8]) -> Result<(), Fault> {
        self.sorter.sort(line::read(line)?, line.len(), Over::Pipe).await.map(drop)
    }
}
