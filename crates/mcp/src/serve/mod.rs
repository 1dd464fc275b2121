//! The server's half of the protocol: what a host is shown and answered, whatever stands behind it.
//!
//! Whoever serves implements [`Served`]; this module speaks the revisions of the protocol, reads each line within bounds
//! and by the strict parser, and hands on arguments in the bytes in which they came.

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

/// An image or sound, which a host shows or plays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostBlob {
    /// `image/…` or `audio/…`.
    pub media_type: String,
    /// The bytes.
    pub base64: String,
}

/// The answer to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostReply {
    /// What the model reads.
    pub text: String,
    /// The same as a value. It is left out where the protocol's numbers cannot hold it.
    pub structured: Option<Object>,
    /// What goes beside the text, as blocks of its own.
    pub blobs: Vec<HostBlob>,
    /// Whether the host is told that the call failed (`isError`).
    pub failed: bool,
    /// What the call would have needed of the host. The revision without sessions has an error for it.
    pub needs: Option<Needs>,
}

/// The host's ear while one of its calls is waited for.
pub trait Hearing: Send + Sync {
    /// Says how far it is, where the host wants to be told. `so_far` only grows.
    fn progress<'a>(&'a self, so_far: u64, message: &'a str) -> BoxFuture<'a, ()>;

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
