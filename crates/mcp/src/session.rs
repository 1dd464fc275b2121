//! An open connection to one server, as the rest of this crate sees it, whatever the transport.

use std::time::Duration;

use portcullis_canon::{Object, Value};
use portcullis_domain::ports::BoxFuture;
use portcullis_domain::standing::Standing;

use crate::listing::{Listing, ListingError};
use crate::needs::Needs;
use crate::offer::{Offer, OfferError, OfferKind};
use crate::pin::FileFault;
use crate::progress::Told;

/// A connection to one server. It is closed by being dropped, descendants of the server's process included.
pub trait Session: Send + Sync {
    /// All pages of `tools/list`, within the bounds of the connection.
    ///
    /// # Errors
    /// [`SessionError`] says at which stage it failed.
    fn list(&self) -> BoxFuture<'_, Result<Listing, SessionError>>;

    /// Calls one tool, at most once, and only while its leave stands. A call that was begun is never sent again. Where the
    /// server says how far it is, that is told on.
    ///
    /// # Errors
    /// [`CallFailure`] says whether anything can have happened.
    fn call<'a>(
        &'a self,
        tool: &'a str,
        arguments: Object,
        leave: Leave,
        told: Told<'a>,
    ) -> BoxFuture<'a, Result<Answer, CallFailure>>;

    /// All pages of a kind, within the bounds of the connection; nothing where the server offers none.
    ///
    /// # Errors
    /// [`SessionError`] says at which stage it failed.
    fn offers(&self, kind: OfferKind) -> BoxFuture<'_, Result<Vec<Offer>, SessionError>>;

    /// Asks for a resource, a prompt or a completion, with the parameters of the protocol, and gives the result as it came.
    ///
    /// # Errors
    /// [`CallFailure`] says what is known.
    fn ask<'a>(
        &'a self,
        asks: Asks,
        params: Object,
        deadline: Duration,
        told: Told<'a>,
    ) -> BoxFuture<'a, Result<Value, CallFailure>>;

    /// How often the server said that its tools or prompts changed. A listing is good while this stands still.
    fn changes(&self) -> u64;

    /// Whether the server's end is seen: it ended, or closed the connection, though nobody here closed it, and did nothing
    /// wrong before. Another session may take the place of this one then.
    fn has_ended(&self) -> bool {
        false
    }

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
    /// A file that it is made of is not as it was pinned, so its program was not started.
    #[error("was not started: {0}")]
    Files(#[from] FileFault),
    /// No request reached it.
    #[error("cannot be reached: {0}")]
    Reach(String),
    /// A request to it came to nothing.
    #[error("gave no usable answer while {1}: {0}")]
    Unanswered(String, &'static str),
    /// It did not speak the protocol, or no revision that we speak.
    #[error("does not speak MCP: {0}")]
    Protocol(String),
    /// It speaks the protocol, and says that it has no tools, resources or prompts.
    #[error("is of no use here: it offers no tools, resources or prompts")]
    NoTools,
    /// It answered nothing in time.
    #[error("gave no answer within {0:?} while {1}")]
    Deadline(Duration, &'static str),
    /// It ended or closed the connection.
    #[error("closed the connection while {0}")]
    Closed(&'static str),
    /// More pages, bytes, or the same cursor again.
    #[error("listed its {0} without end: {1}")]
    Unbounded(&'static str, &'static str),
    /// What it listed cannot be used.
    #[error(transparent)]
    Listing(#[from] ListingError),
    /// What it listed beside its tools cannot be used.
    #[error(transparent)]
    Offers(#[from] OfferError),
}

/// How long a call is waited for, and whether it may still be sent.
#[derive(Clone, Debug)]
pub struct Leave {
    /// From now until the answer has to be there.
    pub deadline: Duration,
    /// Asked right before the first byte is sent: where it says no, nothing is.
    pub standing: Standing,
}

impl From<Duration> for Leave {
    /// A call that needs no lease.
    fn from(deadline: Duration) -> Self {
        Self { deadline, standing: Standing::always() }
    }
}

/// What a server is asked for beside calls of its tools. None of it changes anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asks {
    /// What a resource holds.
    Read,
    /// The messages of a prompt.
    Prompt,
    /// How a value of a prompt or of a resource's name may go on.
    Complete,
}

impl Asks {
    /// Every one of them.
    pub const ALL: [Self; 3] = [Self::Read, Self::Prompt, Self::Complete];

    /// The protocol's name for the request.
    #[must_use]
    pub const fn method(self) -> &'static str {
        match self {
            Self::Read => "resources/read",
            Self::Prompt => "prompts/get",
            Self::Complete => "completion/complete",
        }
    }
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
    /// An image or audio.
    Blob {
        /// The media type, as the server says it.
        media_type: String,
        /// The decoded bytes.
        bytes: Vec<u8>,
    },
    /// A resource, with what it holds.
    Resource(Resource),
    /// A link to one, which is not followed.
    Link(Link),
}

/// The contents of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// Its name, at most [`MAX_URI_BYTES`]: what the server says.
    pub uri: String,
    /// The media type, where the server says one.
    pub media_type: Option<String>,
    /// What it holds.
    pub body: Body,
}

/// What a resource holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Text.
    Text(String),
    /// Decoded bytes.
    Bytes(Vec<u8>),
}

/// A link to a resource, in the server's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Where it points, at most [`MAX_URI_BYTES`].
    pub uri: String,
    /// Its name.
    pub name: String,
    /// What a person reads in place of the name.
    pub title: Option<String>,
    /// What is said of it.
    pub description: Option<String>,
    /// The media type.
    pub media_type: Option<String>,
    /// Its size in bytes.
    pub size: Option<u64>,
}

/// The longest URI of a resource, in bytes. A longer one is none: cut, it would be another one.
pub const MAX_URI_BYTES: usize = 2_048;

/// What is said of a read where the server says that it has no such resource.
pub const NO_SUCH_RESOURCE: &str = "the server has no resource of that name";

/// How a call failed without an answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallFailure {
    /// Nothing was sent, or the server said that it knows no such call before it did anything.
    #[error("{0}")]
    NotSent(String),
    /// The server said, before it did anything, what it would have to ask of us.
    #[error("{0}")]
    Needs(Needs),
    /// The server said that it has no such resource.
    #[error("{NO_SUCH_RESOURCE}")]
    NoSuchResource,
    /// It was sent, and what became of it is not known.
    #[error("{0}")]
    Unknown(String),
    /// The server answered that it failed. A call of a tool says so in its [`Answer`].
    #[error("{0}")]
    Failed(String),
}
