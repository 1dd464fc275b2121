//! A request: what is sent where, with which credential by name, and how long and how much is waited for.

use std::fmt;
use std::sync::Arc;

use reqwest::header::{HeaderName, HeaderValue};

use crate::credentials::CredentialRef;
use crate::leaving::Word;
use crate::rules::Deadlines;
use crate::target::Target;

/// The longest body that is sent, in bytes: 64 MiB.
pub const MAX_REQUEST_BODY: usize = 64 * 1024 * 1024;

/// The most headers that a request may name.
const MAX_HEADERS: usize = 64;

/// The longest value of a header, in bytes.
const MAX_HEADER_VALUE: usize = 8 * 1024;

/// Headers that are not the caller's: the HTTP library writes them, or a credential does.
const NOT_FOR_CALLERS: &[&str] = &[
    "accept-encoding",
    "authorization",
    "connection",
    "content-length",
    "cookie",
    "expect",
    "host",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// What is done with the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// `GET`
    Get,
    /// `HEAD`
    Head,
    /// `POST`
    Post,
    /// `PUT`
    Put,
    /// `PATCH`
    Patch,
    /// `DELETE`
    Delete,
}

impl Method {
    pub(crate) const fn wire(self) -> reqwest::Method {
        match self {
            Self::Get => reqwest::Method::GET,
            Self::Head => reqwest::Method::HEAD,
            Self::Post => reqwest::Method::POST,
            Self::Put => reqwest::Method::PUT,
            Self::Patch => reqwest::Method::PATCH,
            Self::Delete => reqwest::Method::DELETE,
        }
    }
}

/// Why a header is refused. Never repeats its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderFault {
    /// No token, or no value that HTTP can carry.
    #[error("a header's name or value has a character that HTTP cannot carry, or is too long")]
    Unfit,
    /// One that the client writes itself.
    #[error("this header is written by the client; keys go in by a credential's name")]
    NotForCallers,
    /// More than 64.
    #[error("a request carries at most {MAX_HEADERS} headers")]
    TooMany,
    /// Named before.
    #[error("a header is named twice")]
    Twice,
}

/// One request. It is sent at most once: nothing here sends it again.
///
/// Its debug form has the method, the origin and the names of headers, and nothing else.
#[derive(Clone)]
pub struct Request {
    pub(crate) method: Method,
    pub(crate) target: Target,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) credential: Option<CredentialRef>,
    pub(crate) body: Option<Vec<u8>>,
    pub(crate) deadlines: Option<Deadlines>,
    pub(crate) max_body: Option<u64>,
    pub(crate) media: Option<&'static str>,
    pub(crate) word: Option<Word>,
}

impl Request {
    /// A request without body.
    #[must_use]
    pub const fn new(method: Method, target: Target) -> Self {
        Self {
            method,
            target,
            headers: Vec::new(),
            credential: None,
            body: None,
            deadlines: None,
            max_body: None,
            media: None,
            word: None,
        }
    }

    /// Adds a header. Its value is no secret: those go in by [`Request::credential`].
    ///
    /// # Errors
    /// Headers that are the client's to write, values that HTTP cannot carry, repetitions.
    pub fn header(mut self, name: &str, value: &str) -> Result<Self, HeaderFault> {
        let name = header_name(name)?;
        if value.len() > MAX_HEADER_VALUE {
            return Err(HeaderFault::Unfit);
        }
        let value = HeaderValue::from_str(value).map_err(|_| HeaderFault::Unfit)?;
        if self.headers.len() >= MAX_HEADERS {
            return Err(HeaderFault::TooMany);
        }
        if self.headers.iter().any(|(known, _)| *known == name) {
            return Err(HeaderFault::Twice);
        }
        self.headers.push((name, value));
        Ok(self)
    }

    /// Puts a credential in at the edge.
    #[must_use]
    pub fn credential(mut self, credential: CredentialRef) -> Self {
        self.credential = Some(credential);
        self
    }

    /// The body, at most [`MAX_REQUEST_BODY`]. Say what it is with the header `content-type`.
    #[must_use]
    pub fn body(mut self, bytes: Vec<u8>) -> Self {
        self.body = Some(bytes);
        self
    }

    /// Other deadlines than those of the rules.
    #[must_use]
    pub const fn deadlines(mut self, deadlines: Deadlines) -> Self {
        self.deadlines = Some(deadlines);
        self
    }

    /// A tighter bound on the answer's body, in bytes. That of the rules holds as well.
    #[must_use]
    pub const fn max_body(mut self, bytes: u64) -> Self {
        self.max_body = Some(bytes);
        self
    }

    /// Asked once, right before the request leaves: after its credential was had and its connection was made, however long
    /// that took. Where the answer is no, nothing of it leaves ([`Fault::Withdrawn`](crate::Fault::Withdrawn)). A request
    /// without a body is asked about before its connection is made.
    #[must_use]
    pub fn while_true(mut self, word: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.word = Some(Arc::new(word));
        self
    }

    /// Takes no other kind of content from a successful answer (such as `application/json`), and asks for it.
    #[must_use]
    pub const fn only(mut self, media: &'static str) -> Self {
        self.media = Some(media);
        self
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("Request")
            .field("method", &self.method)
            .field("target", &self.target)
            .field("headers", &names)
            .field("credential", &self.credential)
            .field("body_bytes", &self.body.as_ref().map(Vec::len))
            .finish_non_exhaustive()
    }
}

/// A header's name that callers may use.
pub(crate) fn header_name(name: &str) -> Result<HeaderName, HeaderFault> {
    let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| HeaderFault::Unfit)?;
    if NOT_FOR_CALLERS.contains(&name.as_str()) || name.as_str().starts_with("proxy-") {
        return Err(HeaderFault::NotForCallers);
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> Request {
        Request::new(Method::Get, Target::parse("https://a.example/p?q").expect("a URL"))
    }

    #[test]
    fn headers_of_the_client_are_not_the_callers() {
        for name in NOT_FOR_CALLERS {
            let refused = request().header(&name.to_uppercase(), "x").err();
            assert_eq!(refused, Some(HeaderFault::NotForCallers), "{name}");
        }
        assert!(request().header("content-type", "application/json").is_ok());
    }

    #[test]
    fn a_header_cannot_carry_another() {
        for value in ["a\r\nx-other: 1", "a\nb", "a\0b"] {
            assert_eq!(request().header("x-a", value).err(), Some(HeaderFault::Unfit));
        }
        assert_eq!(request().header("x a", "b").err(), Some(HeaderFault::Unfit));
        let twice = request().header("x-a", "b").and_then(|request| request.header("X-A", "c"));
        assert_eq!(twice.err(), Some(HeaderFault::Twice));
        let many = (0..=MAX_HEADERS)
            .try_fold(request(), |request, n| request.header(&format!("x-{n}"), ""));
        assert_eq!(many.err(), Some(HeaderFault::TooMany));
    }

    #[test]
    fn the_debug_form_has_names_and_sizes_only() {
        let request = request().header("x-key", "canary-value").expect("a header");
        let shown = format!("{:?}", request.body(b"canary-body".to_vec()));
        assert!(shown.contains("x-key") && shown.contains("11"), "{shown}");
        assert!(!shown.contains("canary") && !shown.contains("?q"), "{shown}");
    }
}
