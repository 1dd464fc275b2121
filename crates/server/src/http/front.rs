//! Who is let in: judged from the head of a request, before anything else of it is read.

use std::net::SocketAddr;

use http::header::{AUTHORIZATION, CONNECTION, CONTENT_TYPE, HOST, ORIGIN, WWW_AUTHENTICATE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use portcullis_mcp::HttpAnswer;

use super::token::Token;
use super::{ListenError, Terms};

/// Where messages go.
pub const PATH: &str = "/mcp";

/// The port that a `Host` leaves out.
const USUAL_PORT: u16 = 80;

/// The most bytes of an origin or of a public name.
const MAX_NAME_BYTES: usize = 255;

/// What a request has to show.
pub(super) struct Front {
    hosts: Vec<String>,
    origins: Vec<String>,
    token: Token,
}

/// A request that goes no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turned {
    /// It was sent to another name: a page whose name was made to lead here, for one.
    Host,
    /// A page of somewhere else sends it.
    Origin,
    /// It does not show the token.
    Token,
    /// There is nothing there.
    Path,
    /// More bytes than a message may have.
    TooLong,
    /// It did not come in time.
    Slow,
    /// It ended in the middle.
    Cut,
    /// Others' messages take all room.
    NoRoom,
}

impl Front {
    pub(super) fn new(
        address: SocketAddr,
        token: Token,
        terms: &Terms,
    ) -> Result<Self, ListenError> {
        let (hosts, origins) = names(address, terms)?;
        Ok(Self { hosts, origins, token })
    }

    /// Whether what is asked for is read at all.
    pub(super) fn judge(&self, head: &Parts) -> Result<(), Turned> {
        // A request to a proxy names its place in the first line; nobody asks for one here.
        let host = one(&head.headers, &HOST).filter(|_| head.uri.authority().is_none());
        if !host.is_some_and(|host| is_among(host, &self.hosts)) {
            return Err(Turned::Host);
        }
        if head.headers.contains_key(ORIGIN)
            && !one(&head.headers, &ORIGIN).is_some_and(|origin| is_among(origin, &self.origins))
        {
            return Err(Turned::Origin);
        }
        if !one(&head.headers, &AUTHORIZATION).and_then(bearer).is_some_and(|t| self.token.is(t)) {
            return Err(Turned::Token);
        }
        match head.uri.path() == PATH {
            true => Ok(()),
            false => Err(Turned::Path),
        }
    }
}

/// The hosts and the origins that are admitted at an address.
pub(super) fn names(
    address: SocketAddr,
    terms: &Terms,
) -> Result<(Vec<String>, Vec<String>), ListenError> {
    if let Some(odd) = terms.origins.iter().find(|origin| !is_origin(origin)) {
        return Err(ListenError::Origin(odd.clone()));
    }
    let mut hosts = vec![address.to_string(), format!("localhost:{}", address.port())];
    if address.port() == USUAL_PORT {
        hosts.extend([address.ip().to_string(), "localhost".to_owned()]);
    }
    match &terms.behind_tls {
        Some(name) if !is_authority(name) => return Err(ListenError::Public(name.clone())),
        Some(name) => hosts.push(name.clone()),
        None if !address.ip().is_loopback() => return Err(ListenError::NotLoopback(address)),
        None => {}
    }
    Ok((hosts, terms.origins.clone()))
}

/// The only value of a header; nothing where there are several, which two readers may read in two ways.
fn one<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a [u8]> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    values.next().is_none().then(|| first.as_bytes())
}

fn is_among(given: &[u8], known: &[String]) -> bool {
    known.iter().any(|known| known.as_bytes().eq_ignore_ascii_case(given))
}

/// What follows the scheme `Bearer`.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(b"Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then_some(token)
}

/// `scheme://host` or `scheme://host:port`. `null`, which is any page without an origin, is none.
fn is_origin(text: &str) -> bool {
    let scheme = |text: &str| {
        text.starts_with(|c: char| c.is_ascii_alphabetic())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
    };
    text.split_once("://").is_some_and(|(before, rest)| scheme(before) && is_authority(rest))
}

/// A host, and a port where there is one.
fn is_authority(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._:[]".contains(&b);
    (1..=MAX_NAME_BYTES).contains(&text.len()) && text.bytes().all(plain)
}

impl Turned {
    /// What is told, which says nothing of what would have been right.
    const fn says(self) -> (StatusCode, &'static str) {
        match self {
            Self::Host => (StatusCode::FORBIDDEN, "this `Host` is not served here"),
            Self::Origin => (StatusCode::FORBIDDEN, "this `Origin` is not admitted"),
            Self::Token => (StatusCode::UNAUTHORIZED, "a token is needed"),
            Self::Path => (StatusCode::NOT_FOUND, "there is nothing here"),
            Self::TooLong => (StatusCode::PAYLOAD_TOO_LARGE, "the message is longer than 4 MiB"),
            Self::Slow => (StatusCode::REQUEST_TIMEOUT, "the message did not come in time"),
            Self::Cut => (StatusCode::BAD_REQUEST, "the message ended in the middle"),
            Self::NoRoom => (StatusCode::SERVICE_UNAVAILABLE, "too much is being read just now"),
        }
    }

    /// The answer. Nothing more is read on this connection.
    pub(super) fn answer(self) -> HttpAnswer {
        let (status, sentence) = self.says();
        let mut answer = Response::new(Full::from(sentence).boxed());
        *answer.status_mut() = status;
        let headers = answer.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
        if self == Self::Token {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    const TOKEN: &str = "0123456789abcdef0123456789abcdef";

    fn front(address: &str, terms: &Terms) -> Result<Front, ListenError> {
        Front::new(address.parse().unwrap(), Token::read(TOKEN).unwrap(), terms)
    }

    fn usual() -> Front {
        let origins = vec!["https://app.example".to_owned()];
        front("127.0.0.1:4000", &Terms { origins, ..Terms::default() }).unwrap()
    }

    #[track_caller]
    fn check(front: &Front, uri: &str, headers: &[(&str, &str)], expected: Result<(), Turned>) {
        let mut request = Request::post(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (head, ()) = request.body(()).unwrap().into_parts();
        assert_eq!(front.judge(&head), expected, "{uri} {headers:?}");
    }

    #[test]
    fn a_request_shows_host_and_token() {
        let bearer = format!("Bearer {TOKEN}");
        let right = ("authorization", bearer.as_str());
        let front = usual();
        for host in ["127.0.0.1:4000", "localhost:4000", "LOCALHOST:4000"] {
            check(&front, "/mcp", &[("host", host), right], Ok(()));
        }
        let odd_hosts = [
            "127.0.0.1",
            "127.0.0.1:4001",
            "localhost",
            "evil.example:4000",
            "localhost:4000.evil.example",
            "127.0.0.1:4000 ",
            "",
        ];
        for host in odd_hosts {
            check(&front, "/mcp", &[("host", host), right], Err(Turned::Host));
        }
        check(&front, "/mcp", &[right], Err(Turned::Host));
        let twice = [("host", "127.0.0.1:4000"), ("host", "127.0.0.1:4000"), right];
        check(&front, "/mcp", &twice, Err(Turned::Host));
        let elsewhere = "http://evil.example/mcp";
        check(&front, elsewhere, &[("host", "127.0.0.1:4000"), right], Err(Turned::Host));
        check(&front, "/", &[("host", "127.0.0.1:4000"), right], Err(Turned::Path));
    }

    #[test]
    fn without_the_whole_token_nobody_is_let_in() {
        let host = ("host", "127.0.0.1:4000");
        let front = usual();
        check(&front, "/mcp", &[host], Err(Turned::Token));
        let near = [
            String::new(),
            TOKEN.to_owned(),
            "Bearer".to_owned(),
            "Bearer ".to_owned(),
            format!("Basic {TOKEN}"),
            format!("Bearer {}", TOKEN.get(1..).unwrap()),
            format!("Bearer {TOKEN}0"),
            format!("Bearer  {TOKEN}"),
            format!("Bearer {}", TOKEN.to_uppercase()),
        ];
        for value in &near {
            check(&front, "/mcp", &[host, ("authorization", value)], Err(Turned::Token));
        }
        let bearer = format!("bearer {TOKEN}");
        check(&front, "/mcp", &[host, ("authorization", &bearer)], Ok(()));
        let twice = [host, ("authorization", &bearer), ("authorization", &bearer)];
        check(&front, "/mcp", &twice, Err(Turned::Token));
        // What is not there is told to nobody who shows nothing.
        check(&front, "/other", &[host], Err(Turned::Token));
    }

    #[test]
    fn a_page_of_an_origin_that_nobody_admitted_is_turned_away() {
        let bearer = format!("Bearer {TOKEN}");
        let shown = [("host", "127.0.0.1:4000"), ("authorization", bearer.as_str())];
        let front = usual();
        let with = |origin| [shown[0], shown[1], ("origin", origin)];
        check(&front, "/mcp", &with("https://app.example"), Ok(()));
        let others = [
            "null",
            "http://app.example",
            "https://app.example:8443",
            "https://app.example.evil.example",
            "http://127.0.0.1:4000",
            "",
        ];
        for origin in others {
            check(&front, "/mcp", &with(origin), Err(Turned::Origin));
        }
        let twice = [shown[0], shown[1], ("origin", "https://app.example"), ("origin", "null")];
        check(&front, "/mcp", &twice, Err(Turned::Origin));
    }

    #[test]
    fn an_address_that_others_reach_needs_a_name_behind_tls() {
        let named = |name: &str| Terms { behind_tls: Some(name.to_owned()), ..Terms::default() };
        for open in ["0.0.0.0:1", "[::]:1", "192.0.2.1:1", "[::ffff:127.0.0.1]:1"] {
            let refused = front(open, &Terms::default()).err().unwrap();
            assert_eq!(refused, ListenError::NotLoopback(open.parse().unwrap()));
            assert!(front(open, &named("gate.example")).is_ok(), "{open}");
        }
        for own in ["127.0.0.1:1", "127.3.2.1:1", "[::1]:1"] {
            assert!(front(own, &Terms::default()).is_ok(), "{own}");
        }
        let bearer = format!("Bearer {TOKEN}");
        let right = ("authorization", bearer.as_str());
        let public = front("192.0.2.1:4000", &named("Gate.example")).unwrap();
        check(&public, "/mcp", &[("host", "gate.example"), right], Ok(()));
        check(&public, "/mcp", &[("host", "other.example"), right], Err(Turned::Host));
        for odd in ["", "https://gate.example", "gate.example/x", "a b", &"a".repeat(256)] {
            let refused = front("127.0.0.1:1", &named(odd)).err().unwrap();
            assert_eq!(refused, ListenError::Public(odd.to_owned()));
        }
    }

    #[test]
    fn an_origin_is_a_scheme_and_a_place() {
        for good in ["https://a.example", "http://localhost:3000", "vscode-webview://abc"] {
            assert!(is_origin(good), "{good}");
        }
        for odd in
            ["", "null", "*", "https://", "https://*.a.example", "https://a/", "://a", "a.example"]
        {
            let terms = Terms { origins: vec![odd.to_owned()], ..Terms::default() };
            let refused = front("127.0.0.1:1", &terms).err().unwrap();
            assert_eq!(refused, ListenError::Origin(odd.to_owned()));
        }
    }

    #[test]
    fn the_usual_port_may_be_left_out() {
        let bearer = format!("Bearer {TOKEN}");
        let right = ("authorization", bearer.as_str());
        let front = front("127.0.0.1:80", &Terms::default()).unwrap();
        for host in ["127.0.0.1", "127.0.0.1:80", "localhost", "localhost:80"] {
            check(&front, "/mcp", &[("host", host), right], Ok(()));
        }
    }
}
