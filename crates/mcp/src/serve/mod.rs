//! The server's half of the protocol: what a host is shown and answered, whatever stands behind it.
//!
//! Whoever serves implements [`Served`]; this module speaks the revisions of the protocol, reads each line within bounds
//! and by the strict parser, and hands on arguments in the bytes in which they came.

mod block;
mod handler;
mod http;
mod lines;
mod message;
mod mirror;
mod open;
mod sessions;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use portcullis_canon::{Object, Value};
use portcullis_domain::ports::BoxFuture;
use rmcp::ServiceExt as _;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

use crate::needs::Needs;
use crate::offer::OfferKind;
use crate::session::Link;

pub use self::http::{HttpAnswer, HttpDoor, HttpTerms};
use handler::Handler;
use lines::Lines;

/// The most bytes of one message of a host.
pub const MAX_MESSAGE_BYTES: usize = 4 * 1024 * 1024;

/// How long a host has to read the last answers: one that reads nothing keeps nobody.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

/// One tool as a host is shown it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedTool {
    /// The name by which it is called.
    pub name: String,
    /// What the model reads about it.
    pub description: String,
    /// The JSON Schema of the arguments.
    pub input_schema: Value,
    /// True when it changes nothing.
    pub read_only: bool,
    /// True when it may destroy something.
    pub destructive: bool,
}

/// A call as a host asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostCall {
    /// The name, as the host spells it.
    pub tool: String,
    /// The arguments, with all their digits.
    pub arguments: Object,
    /// What the host says beside the call (`_meta`).
    pub meta: Object,
    /// The conversation that the transport stands for; none where that is the connection itself.
    pub connection: Option<String>,
}

/// What goes to a host beside the text of an answer, as a block of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostBlock {
    /// An image or sound, which a host shows or plays.
    Blob {
        /// `image/…` or `audio/…`.
        media_type: String,
        /// The bytes.
        base64: String,
    },
    /// A resource with what it holds.
    Resource(HostResource),
    /// A link to one.
    Link(Link),
}

/// A resource with what it holds, as a host gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostResource {
    /// Its name.
    pub uri: String,
    /// The media type, where one is known.
    pub media_type: Option<String>,
    /// What it holds.
    pub body: HostBody,
}

/// What a resource holds, as a host gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostBody {
    /// Text.
    Text(String),
    /// Bytes, in base64.
    Base64(String),
}

/// The answer to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostReply {
    /// What the model reads.
    pub text: String,
    /// The same as a value. It is left out where the protocol's numbers cannot hold it.
    pub structured: Option<Object>,
    /// What goes beside the text, as blocks of its own.
    pub blocks: Vec<HostBlock>,
    /// Whether the host is told that the call failed (`isError`).
    pub failed: bool,
    /// What the call would have needed of the host. The revision without sessions has an error for it.
    pub needs: Option<Needs>,
}

/// What stands beside something that a host asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostAsk {
    /// What the host says beside it (`_meta`).
    pub meta: Object,
    /// The conversation that the transport stands for; none where that is the connection itself.
    pub connection: Option<String>,
}

/// One message of a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostMessage {
    /// True for one of the model's, false for one of the person's.
    pub assistant: bool,
    /// What it says.
    pub says: HostSays,
}

/// What a message of a prompt says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostSays {
    /// Text.
    Text(String),
    /// Anything else.
    Block(HostBlock),
}

/// How a value may go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostCompletion {
    /// At most 100 values.
    pub values: Vec<String>,
    /// How many there are in all, where that is known.
    pub total: Option<u32>,
    /// Whether there are more, where that is known.
    pub has_more: Option<bool>,
}

/// Why a host does not get what it asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostRefusal {
    /// There is no such thing for it.
    Unknown,
    /// What the person or the model reads.
    Told(String),
}

/// Which of these a host is offered at all. It is told of no other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServedKinds {
    /// Resources, and forms of their names.
    pub resources: bool,
    /// Prompts.
    pub prompts: bool,
    /// Completions.
    pub completions: bool,
}

/// How far a call is, for a host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HostProgress {
    /// It only grows, for one call.
    pub so_far: f64,
    /// How much it will be, where that is known.
    pub total: Option<f64>,
    /// What there is to say of it, in words of ours.
    pub message: Option<&'static str>,
}

/// The host's ear while one of its calls is waited for.
pub trait Hearing: Send + Sync {
    /// Says how far it is, where the host wants to be told.
    fn progress(&self, progress: HostProgress) -> BoxFuture<'_, ()>;

    /// Resolves once nobody waits for the answer any more.
    fn cancelled(&self) -> BoxFuture<'_, ()>;
}

/// What is served.
pub trait Served: Send + Sync + 'static {
    /// One paragraph for the model about what it is talking to.
    fn instructions(&self) -> String;

    /// The tools, the same ones as long as the connection lasts.
    fn tools(&self) -> Vec<ServedTool>;

    /// One of the tools, by its name. A call of any other is refused and goes no further.
    fn tool(&self, name: &str) -> Option<ServedTool>;

    /// Performs one call. It is polled to its end, also when nobody waits for the answer any more.
    fn call<'a>(&'a self, call: HostCall, hearing: &'a dyn Hearing) -> BoxFuture<'a, HostReply>;

    /// What else is served. What is not is no method for a host.
    fn kinds(&self) -> ServedKinds {
        ServedKinds::default()
    }

    /// The entries of a listing, the same ones as long as the connection lasts.
    fn offers(&self, _: OfferKind) -> Vec<Object> {
        Vec::new()
    }

    /// Reads a resource.
    fn read<'a>(
        &'a self,
        _uri: String,
        _ask: HostAsk,
        _: &'a dyn Hearing,
    ) -> BoxFuture<'a, Result<Vec<HostResource>, HostRefusal>> {
        Box::pin(std::future::ready(Err(HostRefusal::Unknown)))
    }

    /// Gets a prompt.
    fn prompt<'a>(
        &'a self,
        _name: String,
        _arguments: Object,
        _ask: HostAsk,
        _: &'a dyn Hearing,
    ) -> BoxFuture<'a, Result<Vec<HostMessage>, HostRefusal>> {
        Box::pin(std::future::ready(Err(HostRefusal::Unknown)))
    }

    /// Completes a value. The parameters are those of the protocol.
    fn complete<'a>(
        &'a self,
        _params: Object,
        _ask: HostAsk,
        _: &'a dyn Hearing,
    ) -> BoxFuture<'a, Result<HostCompletion, HostRefusal>> {
        Box::pin(std::future::ready(Err(HostRefusal::Unknown)))
    }
}

/// Why a host could not be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// It did not begin as the protocol says.
    #[error("the host does not speak MCP: it did not begin with a request of the protocol")]
    Protocol,
    /// The service ended by a fault of its own.
    #[error("serving the host ended by a fault of this program")]
    Fault,
}

/// Serves one host until it closes `input`, `stop` resolves, or more than 64 MiB of answers wait for it to read them. Calls that
/// were begun may still run when this returns.
///
/// # Errors
/// [`ServeError`]; a host that closes the connection before it asks for anything is none.
pub async fn serve<R, W>(
    served: Arc<dyn Served>,
    input: R,
    output: W,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(), ServeError>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let (lines, written) = Lines::new(input, output);
    let mut stop = Box::pin(stop);
    let began = tokio::select! {
        began = Handler::new(served).serve(lines) => began,
        () = &mut stop => return Ok(()),
    };
    let running = match began {
        Ok(running) => running,
        Err(rmcp::service::ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
        Err(_) => return Err(ServeError::Protocol),
    };
    let token = running.cancellation_token();
    let waiting = running.waiting();
    tokio::pin!(waiting);
    let ended = tokio::select! {
        ended = &mut waiting => ended,
        () = &mut stop => {
            token.cancel();
            waiting.await
        }
    };
    // Whatever was answered is written before the end is told, if the host reads it.
    let _ = timeout(LAST_ANSWERS, written).await;
    ended.map(drop).map_err(|_| ServeError::Fault)
}
