//! The instant at which a request begins to leave, and the last word before it.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

/// Says right before a request leaves whether it still may.
pub(crate) type Word = Arc<dyn Fn() -> bool + Send + Sync>;

const WAITS: u8 = 0;
const LEFT: u8 = 1;
const WITHDRAWN: u8 = 2;

/// Whether a request has begun to leave. Nothing of one leaves before its body is asked for: the library writes head and body
/// together.
#[derive(Clone)]
pub(crate) struct Leaving {
    stage: Arc<AtomicU8>,
    word: Option<Word>,
}

impl Leaving {
    pub(crate) fn new(word: Option<Word>) -> Self {
        Self { stage: Arc::new(AtomicU8::new(WAITS)), word }
    }

    /// Asks for the last word, once; true when the request leaves.
    pub(crate) fn leaves(&self) -> bool {
        match self.stage.load(Ordering::Acquire) {
            WAITS => {
                let leaves = self.word.as_ref().is_none_or(|word| word());
                self.stage.store(if leaves { LEFT } else { WITHDRAWN }, Ordering::Release);
                leaves
            }
            stage => stage == LEFT,
        }
    }

    /// Whether anything may have left.
    pub(crate) fn has_left(&self) -> bool {
        self.stage.load(Ordering::Acquire) == LEFT
    }

    /// Whether the last word was a no.
    pub(crate) fn is_withdrawn(&self) -> bool {
        self.stage.load(Ordering::Acquire) == WITHDRAWN
    }
}

/// A body that is whole in memory, and asks for the last word before its first byte.
pub(crate) struct Parcel {
    leaving: Leaving,
    bytes: Option<Bytes>,
}

impl Parcel {
    pub(crate) fn new(leaving: Leaving, bytes: Vec<u8>) -> Self {
        Self { leaving, bytes: Some(bytes.into()) }
    }
}

/// A request that is not to leave any more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Withdrawn;

impl fmt::Display for Withdrawn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the request was withdrawn")
    }
}

impl std::error::Error for Withdrawn {}

impl Body for Parcel {
    type Data = Bytes;
    type Error = Withdrawn;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Withdrawn>>> {
        let Some(bytes) = self.bytes.take() else { return Poll::Ready(None) };
        let frame = if self.leaving.leaves() { Ok(Frame::data(bytes)) } else { Err(Withdrawn) };
        Poll::Ready(Some(frame))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let left = self.bytes.as_ref().map_or(0, Bytes::len);
        SizeHint::with_exact(u64::try_from(left).unwrap_or(u64::MAX))
    }
}
