//! The three pipes of an agent's program. Every wait here can be dropped at any moment: what was read and what is
//! still to be written stays in the struct.

use std::convert::Infallible;
use std::fs::File;
use std::future::{pending, poll_fn};
use std::io::{self, Read as _};
use std::os::fd::AsFd as _;
use std::pin::Pin;
use std::process;
use std::task::Poll;

use portcullis_domain::proposal::MAX_PROPOSAL_BYTES;
use portcullis_sandbox::child::{Lines, Tail};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, ReadBuf};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};

/// The longest line from an agent, in bytes, without the line end.
pub const MAX_LINE_BYTES: usize = MAX_PROPOSAL_BYTES;

/// How much is read at once.
const CHUNK: usize = 16 * 1024;

/// The most that a pipe holds, unless the machine's administrator allows more.
const MAX_PIPE_BYTES: usize = 1024 * 1024;

/// What a piece of output or input came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moved {
    /// Something moved.
    Some,
    /// The program closed its output, or is gone.
    Closed,
}

#[derive(Debug)]
pub(crate) struct Streams {
    /// `None` once closed.
    stdin: Option<ChildStdin>,
    unwritten: Vec<u8>,
    written: usize,
    stdout: ChildStdout,
    out: Box<[u8]>,
    pub(crate) lines: Lines,
    /// `None` after its end.
    stderr: Option<ChildStderr>,
    err: Box<[u8]>,
    pub(crate) tail: Tail,
}

impl Streams {
    pub(crate) fn new(
        stdin: process::ChildStdin,
        stdout: process::ChildStdout,
        stderr: process::ChildStderr,
    ) -> io::Result<Self> {
        Ok(Self {
            stdin: Some(ChildStdin::from_std(stdin)?),
            unwritten: Vec::new(),
            written: 0,
            stdout: ChildStdout::from_std(stdout)?,
            out: vec![0; CHUNK].into(),
            lines: Lines::new(MAX_LINE_BYTES),
            stderr: Some(ChildStderr::from_std(stderr)?),
            err: vec![0; CHUNK].into(),
            tail: Tail::default(),
        })
    }

    /// Puts a line behind what is still to be written.
    pub(crate) fn queue(&mut self, line: &[u8]) {
        self.unwritten.extend_from_slice(line);
    }

    /// Whether everything queued has been written.
    pub(crate) const fn is_written(&self) -> bool {
        self.unwritten.is_empty()
    }

    /// Waits until a piece moves on any of the pipes. Standard output is left alone while a whole line waits.
    pub(crate) async fn step(&mut self) -> Moved {
        let unwritten = self.unwritten.get(self.written..).unwrap_or_default();
        let may_read = !self.lines.is_full();
        tokio::select! {
            wrote = write(self.stdin.as_mut(), unwritten), if !unwritten.is_empty() => {
                self.wrote(wrote)
            }
            read = self.stdout.read(&mut self.out), if may_read => match read {
                Ok(0) | Err(_) => Moved::Closed,
                Ok(count) => {
                    self.lines.push(self.out.get(..count).unwrap_or_default());
                    Moved::Some
                }
            },
            read = read(self.stderr.as_mut(), &mut self.err), if self.stderr.is_some() => {
                self.complained(read);
                Moved::Some
            }
            else => Moved::Closed,
        }
    }

    /// Writes what is queued and closes the program's input, throwing its output away; never returns.
    pub(crate) async fn finish(&mut self) -> Infallible {
        self.lines = Lines::new(MAX_LINE_BYTES);
        while !self.is_written() && self.step().await == Moved::Some {
            self.lines = Lines::new(MAX_LINE_BYTES);
        }
        self.stdin = None;
        self.drain().await;
        pending().await
    }

    /// Throws output away and keeps the end of standard error, until both are closed.
    pub(crate) async fn drain(&mut self) {
        let mut open = true;
        while open || self.stderr.is_some() {
            tokio::select! {
                read = self.stdout.read(&mut self.out), if open => {
                    open = matches!(read, Ok(count) if count > 0);
                }
                read = read(self.stderr.as_mut(), &mut self.err), if self.stderr.is_some() => {
                    self.complained(read);
                }
            }
        }
    }

    /// Reads what a program that has ended left in the pipe, as far as it belongs to one line. Not by way of the runtime,
    /// which may not have noticed yet that something arrived. A descendant may go on writing, so no more is read than
    /// a pipe holds.
    pub(crate) fn read_left(&mut self) -> io::Result<()> {
        let mut pipe = File::from(self.stdout.as_fd().try_clone_to_owned()?);
        let mut room = MAX_PIPE_BYTES;
        while room > 0 && !self.lines.is_full() && !self.lines.is_too_long() {
            match pipe.read(&mut self.out) {
                Ok(0) => break,
                Ok(count) => {
                    self.lines.push(self.out.get(..count).unwrap_or_default());
                    room = room.saturating_sub(count);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whether output is there that nobody asked for, down to the first byte.
    pub(crate) async fn has_unasked(&mut self) -> bool {
        if self.lines.is_empty() {
            // Lets the runtime see what has arrived; the read itself does not wait.
            tokio::task::yield_now().await;
            self.peek().await;
        }
        !self.lines.is_empty()
    }

    async fn peek(&mut self) {
        let Self { stdout, out, lines, .. } = self;
        poll_fn(|cx| {
            let mut buffer = ReadBuf::new(out);
            if let Poll::Ready(Ok(())) = Pin::new(&mut *stdout).poll_read(cx, &mut buffer) {
                lines.push(buffer.filled());
            }
            Poll::Ready(())
        })
        .await;
    }

    fn wrote(&mut self, wrote: io::Result<usize>) -> Moved {
        match wrote {
            Ok(count) => {
                self.written = self.written.saturating_add(count);
                if self.written >= self.unwritten.len() {
                    self.unwritten = Vec::new();
                    self.written = 0;
                }
                Moved::Some
            }
            // It closed its input: it will never know what it is asked.
            Err(_) => Moved::Closed,
        }
    }

    fn complained(&mut self, read: io::Result<usize>) {
        match read {
            Ok(0) | Err(_) => self.stderr = None,
            Ok(count) => self.tail.push(self.err.get(..count).unwrap_or_default()),
        }
    }
}

async fn write(stdin: Option<&mut ChildStdin>, bytes: &[u8]) -> io::Result<usize> {
    match stdin {
        Some(stdin) => stdin.write(bytes).await,
        None => Err(io::ErrorKind::BrokenPipe.into()),
    }
}

async fn read(stderr: Option<&mut ChildStderr>, buffer: &mut [u8]) -> io::Result<usize> {
    match stderr {
        Some(stderr) => stderr.read(buffer).await,
        None => Ok(0),
    }
}
