//! An open connection to one server, as the rest of this crate sees it, whatever the transport.

use std::time::Duration;

use portcullis_canon::{Object, Value};
use portcullis_domain::ports::BoxFuture;

use crate::listing::{Listing, ListingError};

/// A connection to one server. It is closed by being dropped, descendants of the server's process included.
pub trait Session: Send + Sync {
    /// All pages of `tools/list`, within the bounds of the connection.
    ///
    /// # Errors
    /// [`SessionError`] says at which stage it failed.
    fn list(&self) -> BoxFuture<'_, Result<Listing, SessionError>>;

    /// Calls one tool, at most once. A call that was begun is never sent again.
    ///
    /// # Errors
    /// [`CallFailure`] says whether anything can have happened.
    fn call(
        &self,
        tool: &str,
        arguments: Object,
        deadline: Duration,
    ) -> BoxFuture<'_, Result<Answer, CallFailure>>;

    /// How often the server said that its tools changed. A listing is good while this stands still.
    fn changes(&self) -> u64;

    /// Closes the connection, and tells the server so where there is a way to. Nothing can be asked after it. Dropping the
    /// session closes it too, and waits less for that.
    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// Why a connection cannot be used. Every message is safe to print.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The server's program could not be started.
    #[error("cannot start: {0}")]
    Start(String),
    /// No request reached it.
    #[error("cannot be reached: {0}")]
    Reach(String),
    /// A request to it came to nothing.
    #[error("gave no usable answer while {1}: {0}")]
    Unanswered(String, &'static str),
    /// It did not speak the protocol, or no revision that we speak.
    #[error("does not speak MCP: {0}")]
    Protocol(String),
    /// It speaks the protocol, and says that it has no tools.
    #[error("is of no use here: it offers no tools")]
    NoTools,
    /// It answered nothing in time.
    #[error("gave no answer within {0:?} while {1}")]
    Deadline(Duration, &'static str),
    /// It ended or closed the connection.
    #[error("closed the connection while {0}")]
    Closed(&'static str),
    /// More pages, bytes, or the same cursor again.
    #[error("listed its tools without end: {0}")]
    Unbounded(&'static str),
    /// What it listed cannot be used.
    #[error(transparent)]
    Listing(#[from] ListingError),
}

/// What a server answered to a call: a known outcome, whatever it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The blocks, in order.
    pub blocks: Vec<Block>,
    /// The structured content, in the server's digits.
    pub structured: Option<Value>,
    /// True when the server says that the call failed (`isError`).
    pub failed: bool,
}

/// One block of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Block {
    /// Text.
    Text(String),
    /// An image, audio, or the bytes of an embedded resource.
    Blob {
        /// The media type, as the server says it.
        media_type: String,
        /// The decoded bytes.
        bytes: Vec<u8>,
    },
    /// A link, which is not followed.
    Link {
        /// Where it points.
        uri: String,
        /// What the server calls it.
        name: String,
    },
}

/// How a call failed without an answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallFailure {
    /// Nothing was sent, or the server said that it knows no such call before it did anything.
    #[error("{0}")]
    NotSent(String),
    /// It was sent, and what became of it is not known.
    #[error("{0}")]
    Unknown(String),
}
