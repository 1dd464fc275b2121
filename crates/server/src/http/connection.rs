//! One connection: a request at a time, each within its bounds of bytes and time.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::request::Parts;
use http::{Method, Request};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use portcullis_mcp::{HttpAnswer, HttpDoor, MAX_MESSAGE_BYTES};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout;

use super::Bounds;
use super::front::{Front, Turned};

/// The most bytes of the head of a request.
const MAX_HEAD_BYTES: usize = 16 * 1024;

/// The most headers of a request.
const MAX_HEADERS: usize = 64;

/// The most bytes that are read ahead.
const MAX_BUFFER_BYTES: usize = 64 * 1024;

/// What all connections share.
pub(super) struct Door {
    pub(super) front: Front,
    pub(super) http: HttpDoor,
    pub(super) bounds: Bounds,
    /// Bytes of messages that may be in memory, a place each.
    pub(super) room: Arc<Semaphore>,
}

/// Serves a connection until either side ends it; once `leaving` is true it takes no further request.
pub(super) async fn attend(stream: TcpStream, door: Arc<Door>, mut leaving: watch::Receiver<bool>) {
    // Answers are whole when they are written. Where the kernel does not take it, they are only later.
    let _ = stream.set_nodelay(true);
    let stalled = u32::try_from(door.bounds.stalled.as_millis()).unwrap_or(u32::MAX);
    if rustix::net::sockopt::set_tcp_user_timeout(&stream, stalled).is_err() {
        return;
    }
    let head_within = door.bounds.head;
    let service = service_fn(move |request| {
        let door = Arc::clone(&door);
        async move { Ok::<_, Infallible>(door.answer(request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(head_within)
        .max_header_size(MAX_HEAD_BYTES)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_BUFFER_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    tokio::select! {
        _ended = connection.as_mut() => return,
        _gone = leaving.wait_for(|leaving| *leaving) => connection.as_mut().graceful_shutdown(),
    }
    // How it ended is the host's to know.
    let _ = connection.await;
}

impl Door {
    async fn answer(&self, request: Request<Incoming>) -> HttpAnswer {
        let (mut head, body) = request.into_parts();
        if let Err(turned) = self.front.judge(&head) {
            return turned.answer();
        }
        // Nothing behind this sees the token.
        head.headers.remove(AUTHORIZATION);
        match self.message(&head, body).await {
            Ok((message, _room)) => self.http.answer(head, &message).await,
            Err(turned) => turned.answer(),
        }
    }

    /// The whole body of a request that has one, and the room that it takes.
    async fn message(
        &self,
        head: &Parts,
        body: Incoming,
    ) -> Result<(Bytes, Option<OwnedSemaphorePermit>), Turned> {
        if head.method != Method::POST {
            return Ok((Bytes::new(), None));
        }
        let most = u64::try_from(MAX_MESSAGE_BYTES).unwrap_or(u64::MAX);
        let said = body.size_hint().exact().unwrap_or(most);
        if said > most {
            return Err(Turned::TooLong);
        }
        let bytes = u32::try_from(said).map_err(|_| Turned::TooLong)?;
        let room = timeout(self.bounds.body, Arc::clone(&self.room).acquire_many_owned(bytes));
        let room = room.await.ok().and_then(Result::ok).ok_or(Turned::NoRoom)?;
        let whole = Limited::new(body, MAX_MESSAGE_BYTES).collect();
        match timeout(self.bounds.body, whole).await {
            Ok(Ok(whole)) => Ok((whole.to_bytes(), Some(room))),
            Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Turned::TooLong),
            Ok(Err(_)) => Err(Turned::Cut),
            Err(_) => Err(Turned::Slow),
        }
    }
}
