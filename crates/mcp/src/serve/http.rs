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
use portcullis_canon::{Digest, Object, Value};
use portcullis_domain::ports::Entropy;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};

use super::handler::Handler;
use super::message::{Message, Misread};
use super::mirror::mirrored;
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
    served: Arc<dyn Served>,
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
        let behind = Arc::clone(&served);
        let handler = move || Ok(Handler::new(Arc::clone(&behind)));
        Self {
            served,
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
        if let Some(repeated) = self.repeated(&message) {
            message.put_arguments(repeated);
        }
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

    /// The arguments of a call that headers repeat: the library holds the two against each other.
    fn repeated(&self, message: &Message) -> Option<Object> {
        let name = message.envelope.pointer("/params/name").and_then(Value::as_str);
        let name = name.filter(|_| message.method() == Some("tools/call"))?;
        mirrored(&self.served.tool(name)?.input_schema, &message.raw.arguments)
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

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use portcullis_canon::{Kind, Limits, parse};
    use portcullis_domain::ports::BoxFuture;
    use portcullis_testkit::ports::SeededEntropy;

    use super::*;
    use crate::serve::{Hearing, HostCall, HostReply, ServedTool};

    /// One tool, of which a header repeats an argument; it gives back what it was called with.
    struct Routed;

    impl Served for Routed {
        fn instructions(&self) -> String {
            String::new()
        }

        fn tools(&self) -> Vec<ServedTool> {
            let schema = br#"{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},"n":{}}}"#;
            vec![ServedTool {
                name: "route".to_owned(),
                description: "Routes.".to_owned(),
                input_schema: parse(schema, &Limits::BARE).unwrap(),
                read_only: true,
                destructive: false,
            }]
        }

        fn tool(&self, name: &str) -> Option<ServedTool> {
            self.tools().into_iter().find(|tool| tool.name == name)
        }

        fn call<'a>(&'a self, call: HostCall, _: &'a dyn Hearing) -> BoxFuture<'a, HostReply> {
            let text = Value::Object(call.arguments).to_canonical_string();
            let reply = HostReply {
                text,
                structured: None,
                blocks: Vec::new(),
                failed: false,
                needs: None,
            };
            Box::pin(std::future::ready(reply))
        }
    }

    fn door() -> HttpDoor {
        let terms = HttpTerms {
            sessions: Digest::of(Kind::HostToken, b"test"),
            unnamed: "test".to_owned(),
            entropy: Arc::new(SeededEntropy::new(1)),
        };
        HttpDoor::new(Arc::new(Routed), terms)
    }

    /// The status, the protocol's error, and the text of the result.
    async fn called(
        tool: &str,
        arguments: &str,
        headers: &[(&str, &str)],
    ) -> (u16, Option<i64>, Option<String>) {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments},"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{{"name":"t","version":"1"}},"io.modelcontextprotocol/clientCapabilities":{{}}}}}}}}"#
        );
        let usual = [
            ("host", "localhost"),
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "tools/call"),
            ("mcp-name", tool),
        ];
        let mut request = Request::post("/mcp");
        for (name, value) in usual.iter().chain(headers) {
            request = request.header(*name, *value);
        }
        let (head, ()) = request.body(()).unwrap().into_parts();
        let answer = door().answer(head, body.as_bytes()).await;
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        let said = parse(&body, &Limits::ENVELOPE).unwrap_or_else(|_| panic!("{status} {body:?}"));
        let text = said.pointer("/result/content/0/text").and_then(Value::as_str);
        (status, said.pointer("/error/code").and_then(Value::as_i64), text.map(str::to_owned))
    }

    #[tokio::test]
    async fn a_header_that_repeats_an_argument_says_the_same_or_nothing_is_called() {
        let arguments = r#"{"n":[123456789012345678901],"region":"north"}"#;
        let made = (200, None, Some(arguments.to_owned()));
        for same in ["north", "=?base64?bm9ydGg=?="] {
            assert_eq!(called("route", arguments, &[("mcp-param-region", same)]).await, made);
        }
        for other in ["south", "North", "=?base64?bm9ydGg?=", "=?base64?!?="] {
            let told = called("route", arguments, &[("mcp-param-region", other)]).await;
            assert_eq!(told, (400, Some(-32020), None), "{other}");
        }
        assert_eq!(called("route", arguments, &[]).await, (400, Some(-32020), None));
        let unsaid = called("route", "{}", &[("mcp-param-region", "north")]).await;
        assert_eq!(unsaid, (400, Some(-32020), None));
        assert_eq!(called("route", "{}", &[]).await, (200, None, Some("{}".to_owned())));
    }

    #[tokio::test]
    async fn a_tool_that_is_not_there_is_an_error_of_the_protocol() {
        let (_, code, text) = called("other", "{}", &[]).await;
        assert_eq!((code, text), (Some(-32602), None));
    }
}
