//! The protocol over HTTP, a request at a time: read as strictly as a line, then answered by the library's stateless half.
//!
//! Whoever takes requests from the wire has judged who asks, and bounded how much. Here it is read what they say, and in which
//! conversation. The revisions with sessions and the one without are served alike, since no state is held between requests.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use portcullis_canon::{Digest, Value};
use portcullis_domain::ports::Entropy;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};

use super::handler::Handler;
use super::message::{Message, Misread};
use super::open::OpenCalls;
use super::sessions::Sessions;
use super::{MAX_MESSAGE_BYTES, Served};

/// The header that names a session.
const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");

/// An answer that can be written: whole, or events while a call is held.
pub type HttpAnswer = Response<BoxBody<Bytes, Infallible>>;

/// Whose requests they are.
pub struct HttpTerms {
    /// What proves that an id of a session was given out here. It follows from what lets the host in, and from nothing else.
    pub sessions: Digest,
    /// The conversation of requests that name no session.
    pub unnamed: String,
    /// Where ids of sessions are drawn.
    pub entropy: Arc<dyn Entropy>,
}

/// Answers the requests of one host, over however many connections.
pub struct HttpDoor {
    service: StreamableHttpService<Handler, NeverSessionManager>,
    sessions: Sessions,
    open: OpenCalls,
    unnamed: String,
}

impl HttpDoor {
    /// Serves this.
    #[must_use]
    pub fn new(served: Arc<dyn Served>, terms: HttpTerms) -> Self {
        // Whose `Host` and `Origin` are admitted was judged before anything was read.
        let config = StreamableHttpServerConfig::default()
            .disable_allowed_hosts()
            .with_legacy_session_mode(false)
            .with_json_response(true)
            .with_max_request_body_bytes(MAX_MESSAGE_BYTES);
        let handler = move || Ok(Handler::new(Arc::clone(&served)));
        Self {
            service: StreamableHttpService::new(handler, Arc::default(), config),
            sessions: Sessions::new(terms.sessions, terms.entropy),
            open: OpenCalls::default(),
            unnamed: terms.unnamed,
        }
    }

    /// Answers one request. Dropping the answer, or this future, tells a call that nobody waits for it any more.
    pub async fn answer(&self, mut head: Parts, body: &[u8]) -> HttpAnswer {
        let Ok(session) = self.session(&head.headers) else {
            return told(StatusCode::NOT_FOUND, "there is no such session; begin a new one");
        };
        match head.method {
            Method::POST => {
                head.headers.remove(SESSION);
                self.post(head, body, session).await
            }
            Method::DELETE => self.end(session),
            // No stream without a request: nothing is said that was not asked for.
            _ => other_method(),
        }
    }

    /// The session that is named, if one is; an error for one that is not good here.
    fn session(&self, headers: &HeaderMap) -> Result<Option<String>, ()> {
        let mut named = headers.get_all(SESSION).iter();
        let Some(id) = named.next() else { return Ok(None) };
        let id = id.to_str().ok().filter(|id| self.sessions.is_good(id));
        match (id, named.next()) {
            (Some(id), None) => Ok(Some(id.to_owned())),
            _ => Err(()),
        }
    }

    async fn post(&self, mut head: Parts, body: &[u8], session: Option<String>) -> HttpAnswer {
        let mut message = match Message::read(body) {
            Ok(message) => message,
            Err(misread) => return refused(&misread),
        };
        let begins = session.is_none() && message.method() == Some("initialize");
        if let Some(session) = &session {
            if let Some(call) = given_up(&message) {
                self.open.give_up(session, call);
            }
            message.raw.open = message.id().map(|id| self.open.begin(session, id));
        }
        let connection = session.map_or_else(
            || format!("token {}", self.unnamed),
            |session| format!("session {session}"),
        );
        message.raw.connection = Some(connection);
        head.extensions.insert(message.raw);
        let body = Full::new(Bytes::from(message.envelope.to_canonical()));
        let mut answer = self.service.handle(Request::from_parts(head, body)).await;
        if begins
            && answer.status() == StatusCode::OK
            && let Ok(id) = HeaderValue::try_from(self.sessions.begin())
        {
            answer.headers_mut().insert(SESSION, id);
        }
        answer
    }

    fn end(&self, session: Option<String>) -> HttpAnswer {
        match session {
            Some(session) => {
                self.sessions.end(&session);
                told(StatusCode::NO_CONTENT, "")
            }
            None => told(StatusCode::BAD_REQUEST, "no session is named"),
        }
    }
}

/// The number of the request that a message gives up.
fn given_up(message: &Message) -> Option<&Value> {
    let cancelled = message.method() == Some("notifications/cancelled");
    message.envelope.pointer("/params/requestId").filter(|_| cancelled)
}

/// What is no message, told as the protocol does.
fn refused(misread: &Misread) -> HttpAnswer {
    let json = HeaderValue::from_static("application/json");
    answer(StatusCode::BAD_REQUEST, json, misread.answer())
}

/// A sentence.
fn told(status: StatusCode, sentence: &str) -> HttpAnswer {
    let text = HeaderValue::from_static("text/plain; charset=utf-8");
    answer(status, text, sentence.as_bytes().to_vec())
}

fn other_method() -> HttpAnswer {
    let mut answer = told(StatusCode::METHOD_NOT_ALLOWED, "messages are posted");
    answer.headers_mut().insert(ALLOW, HeaderValue::from_static("POST, DELETE"));
    answer
}

fn answer(status: StatusCode, kind: HeaderValue, body: Vec<u8>) -> HttpAnswer {
    let mut answer = Response::new(Full::new(Bytes::from(body)).boxed());
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    answer
}
