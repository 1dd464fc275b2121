//! One message a line, read within bounds and by the strict parser. What cannot be read is answered and dropped.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use portcullis_canon::to_vec;
use rmcp::RoleServer;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::MAX_MESSAGE_BYTES;
use super::message::{Message, Misread};

/// Answers that may wait to be written.
const WAITING_LINES: usize = 64;

/// The most bytes of all answers that wait for a host to read: one that asks for more and reads nothing is left. Each counts
/// with what it takes beside its line.
const WAITING_BYTES: usize = 64 << 20;
const WAITING_BESIDE: usize = 1024;

/// Messages over a reader and a writer.
pub(super) struct Lines<R> {
    read: BufReader<R>,
    line: Vec<u8>,
    /// The rest of a line that was too long is skipped.
    skipping: bool,
    out: Option<mpsc::Sender<Waiting>>,
    /// Bytes that wait to be written.
    waiting: Arc<AtomicUsize>,
}

/// A line that waits to be written, and is counted for as long.
struct Waiting {
    line: Vec<u8>,
    all: Arc<AtomicUsize>,
}

impl Waiting {
    fn new(line: Vec<u8>, all: &Arc<AtomicUsize>) -> Self {
        all.fetch_add(line.len().saturating_add(WAITING_BESIDE), Ordering::Relaxed);
        Self { line, all: Arc::clone(all) }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.all.fetch_sub(self.line.len().saturating_add(WAITING_BESIDE), Ordering::Relaxed);
    }
}

impl<R: AsyncRead + Send + Unpin> Lines<R> {
    /// Begins to write beside; the task ends when nothing more can be written.
    pub(super) fn new<W>(read: R, mut write: W) -> (Self, JoinHandle<()>)
    where
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let (out, mut lines) = mpsc::channel::<Waiting>(WAITING_LINES);
        let written = tokio::spawn(async move {
            while let Some(waiting) = lines.recv().await {
                if write.write_all(&waiting.line).await.is_err() || write.flush().await.is_err() {
                    return;
                }
            }
        });
        (Self::over(read, Some(out)), written)
    }

    fn over(read: R, out: Option<mpsc::Sender<Waiting>>) -> Self {
        let (read, line) = (BufReader::new(read), Vec::new());
        Self { read, line, skipping: false, out, waiting: Arc::default() }
    }

    /// The next whole line; `None` at the end. What was read of one stays when the wait is dropped.
    async fn next_line(&mut self) -> Option<Result<Vec<u8>, Misread>> {
        loop {
            let bytes = self.read.fill_buf().await.ok().filter(|bytes| !bytes.is_empty())?;
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let taken = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default();
            let too_long = self.line.len().saturating_add(taken.len()) > MAX_MESSAGE_BYTES;
            let begins_to_skip = too_long && !self.skipping;
            if too_long {
                self.line = Vec::new();
                self.skipping = true;
            } else if !self.skipping {
                self.line.extend_from_slice(taken);
            }
            let read = taken.len().saturating_add(usize::from(end.is_some()));
            self.read.consume(read);
            if end.is_some() {
                let skipped = std::mem::take(&mut self.skipping);
                if !skipped {
                    return Some(Ok(std::mem::take(&mut self.line)));
                }
            }
            if begins_to_skip {
                return Some(Err(Misread::too_long()));
            }
        }
    }

    /// Answers what cannot be read, unless the host does not even read what it is told.
    fn refuse(&self, misread: &Misread) {
        if let Some(out) = &self.out {
            let mut line = misread.answer();
            line.push(b'\n');
            let _ = out.try_send(Waiting::new(line, &self.waiting));
        }
    }
}

impl<R: AsyncRead + Send + Unpin> Transport<RoleServer> for Lines<R> {
    type Error = io::Error;

    fn send(
        &mut self,
        item: ServerJsonRpcMessage,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let out = self.out.clone();
        // Counted now, and not when there is a place for it.
        let line = to_vec(&item).map(|mut line| {
            line.push(b'\n');
            Waiting::new(line, &self.waiting)
        });
        async move {
            let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
            let line = line.map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
            out.ok_or_else(gone)?.send(line).await.map_err(|_| gone())
        }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        loop {
            if self.waiting.load(Ordering::Relaxed) > WAITING_BYTES {
                return None;
            }
            let read = match self.next_line().await? {
                Ok(line) if line.iter().all(u8::is_ascii_whitespace) => continue,
                Ok(line) => Message::read(&line),
                Err(misread) => Err(misread),
            };
            match read {
                Ok(message) => return Some(message.into_decoded()),
                Err(misread) => self.refuse(&misread),
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        self.out = None;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &[u8]) -> Lines<std::io::Cursor<Vec<u8>>> {
        Lines::over(std::io::Cursor::new(text.to_vec()), None)
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_told_once_and_the_next_one_is_read() {
        let mut text = vec![b'x'; MAX_MESSAGE_BYTES.saturating_mul(2)];
        text.extend_from_slice(b"\n{}\nrest");
        let mut lines = lines(&text);
        assert!(lines.next_line().await.unwrap().is_err());
        assert_eq!(lines.next_line().await.unwrap().unwrap(), b"{}");
        assert!(lines.next_line().await.is_none(), "a line without its end is none");
    }
}
