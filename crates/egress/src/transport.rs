//! Sending one request over the HTTP library, and telling what became of it. Knows nothing of credentials.

use std::error::Error as StdError;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName,
    HeaderValue, TRANSFER_ENCODING,
};
use tokio::time::Instant;

use crate::dial::Dialler;
use crate::error::{EgressError, Fault, Phase, Sent};
use crate::leaving::{Leaving, Parcel};
use crate::names::Names;
use crate::request::{MAX_REQUEST_BODY, Method, Request};
use crate::response::{Bounds, Headers, Incoming};
use crate::rules::{Deadlines, EgressRules, RulesFault};
use crate::target::Target;
use crate::tls;

/// What the other side is told that we are.
const USER_AGENT: &str = concat!("portcullis/", env!("CARGO_PKG_VERSION"));

/// How long a connection is kept without use. Short, since a server that closes it at the wrong instant makes an
/// outcome unknown.
const KEEP: Duration = Duration::from_secs(15);

/// How many connections to one place are kept without use.
const KEPT: usize = 32;

/// The HTTP library with our rules in it.
pub(crate) struct Transport {
    client: reqwest::Client,
    rules: Arc<EgressRules>,
}

impl Transport {
    pub(crate) fn new(rules: EgressRules, names: Arc<dyn Names>) -> Result<Self, RulesFault> {
        let rules = Arc::new(rules);
        let tls = tls::config(rules.roots.as_ref()).ok_or(RulesFault::Client)?;
        let mut builder = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .dns_resolver(Dialler::new(Arc::clone(&rules), names))
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .no_proxy()
            .referer(false)
            .http1_only()
            .user_agent(USER_AGENT)
            .connect_timeout(rules.connect)
            .pool_idle_timeout(KEEP)
            .pool_max_idle_per_host(KEPT);
        if let Some(proxy) = rules.proxy.clone() {
            builder = builder.proxy(reqwest::Proxy::custom(move |url| {
                (!proxy.leaves_out(url.host())).then(|| proxy.url().clone())
            }));
        }
        let client = builder.build().map_err(|_| RulesFault::Client)?;
        Ok(Self { client, rules })
    }

    pub(crate) fn rules(&self) -> &EgressRules {
        &self.rules
    }

    /// What is judged of a request before anything is done for it.
    pub(crate) fn admit(&self, request: &Request) -> Result<(), Fault> {
        check(request, request.deadlines.unwrap_or(self.rules.deadlines))?;
        self.rules.admit(&request.target)
    }

    /// Sends a request, with one more header if a credential made one, and waits for the head of the answer.
    pub(crate) async fn open(
        &self,
        request: Request,
        injected: Option<(HeaderName, HeaderValue)>,
        started: Instant,
    ) -> Result<Incoming, EgressError> {
        self.admit(&request).map_err(EgressError::nothing_sent)?;
        let deadlines = request.deadlines.unwrap_or(self.rules.deadlines);
        let limit = request.max_body.unwrap_or(u64::MAX).min(self.rules.max_body);
        let (method, media, target) = (request.method, request.media, request.target.clone());
        let host = target.host().to_owned();
        let leaving = Leaving::new(request.word.clone());
        let withdrawn = || EgressError::nothing_sent(Fault::Withdrawn { host: host.clone() });
        if request.body.as_ref().is_none_or(Vec::is_empty) && !leaving.leaves() {
            return Err(withdrawn());
        }

        let header_ends = Instant::now() + deadlines.header;
        let ends = started + deadlines.total;
        let (until, phase) =
            if ends <= header_ends { (ends, Phase::Total) } else { (header_ends, Phase::Header) };
        let sending = self.client.execute(wire(request, injected, &leaving));
        let Ok(answered) = tokio::time::timeout_at(until, sending).await else {
            let sent = if leaving.has_left() { Sent::Perhaps } else { Sent::Nothing };
            return Err(EgressError { fault: Fault::Deadline { host, phase }, sent });
        };
        let response = answered.map_err(|error| match leaving.is_withdrawn() {
            true => withdrawn(),
            false => explain(&error, &target, leaving.has_left()),
        })?;
        judge_head(&response, method, media, limit, &host).map_err(EgressError::answered)?;
        Ok(Incoming {
            status: response.status().as_u16(),
            headers: Headers::of(response.headers()),
            host,
            response,
            bounds: Bounds { left: limit, limit, idle: deadlines.idle, ends },
            echo: None,
            ended: None,
        })
    }
}

/// What can be wrong with a request of a caller's that only the whole shows.
fn check(request: &Request, deadlines: Deadlines) -> Result<(), Fault> {
    if request.body.as_ref().is_some_and(|body| body.len() > MAX_REQUEST_BODY) {
        return Err(Fault::Malformed("its body is over the bound"));
    }
    if !deadlines.are_usable() {
        return Err(Fault::Malformed("its deadlines are not usable"));
    }
    if request.media.is_some_and(|media| HeaderValue::from_str(media).is_err()) {
        return Err(Fault::Malformed("the kind of content that it takes is none"));
    }
    Ok(())
}

/// The request as the library takes it.
fn wire(
    request: Request,
    injected: Option<(HeaderName, HeaderValue)>,
    leaving: &Leaving,
) -> reqwest::Request {
    let mut wire = reqwest::Request::new(request.method.wire(), request.target.url().clone());
    let headers = wire.headers_mut();
    // Compressed bodies are not read, so that the bytes that are counted are those that are handed out.
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    if let Some(media) = request.media
        && let Ok(media) = HeaderValue::from_str(media)
    {
        headers.insert(ACCEPT, media);
    }
    headers.extend(request.headers);
    if let Some((name, mut value)) = injected {
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    match request.body {
        Some(body) if !body.is_empty() => {
            *wire.body_mut() = Some(reqwest::Body::wrap(Parcel::new(leaving.clone(), body)));
        }
        // The library says nothing of a body that is not there, and some servers want to hear it (RFC 9110, section 8.6).
        _ if matches!(request.method, Method::Post | Method::Put | Method::Patch) => {
            wire.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
        }
        _ => {}
    }
    wire
}

/// What the head of an answer says about whether its body is read.
fn judge_head(
    response: &reqwest::Response,
    method: Method,
    media: Option<&'static str>,
    limit: u64,
    host: &str,
) -> Result<(), Fault> {
    let host = || host.to_owned();
    let status = response.status();
    if status.is_redirection() {
        return Err(Fault::Redirect { host: host(), status: status.as_u16() });
    }
    if status.is_informational() {
        return Err(Fault::Lost { host: host() });
    }
    // An error is an error in whatever form it comes: its body stays bounded, and decides nothing.
    if !status.is_success() {
        return Ok(());
    }
    let headers = response.headers();
    let plain = |name: HeaderName, allowed: &str| {
        headers
            .get_all(name)
            .iter()
            .all(|value| value.as_bytes().eq_ignore_ascii_case(allowed.as_bytes()))
    };
    if !plain(CONTENT_ENCODING, "identity") || !plain(TRANSFER_ENCODING, "chunked") {
        return Err(Fault::Encoded { host: host() });
    }
    if let Some(expected) = media
        && !is_media(headers, expected)
    {
        return Err(Fault::Media { host: host(), expected });
    }
    let announced = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    if method != Method::Head && announced.is_some_and(|length: u64| length > limit) {
        return Err(Fault::TooLarge { host: host(), limit });
    }
    Ok(())
}

/// Whether the content is of a kind, parameters aside.
fn is_media(headers: &HeaderMap, expected: &str) -> bool {
    let found = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let kind = found.and_then(|found| found.split(';').next());
    kind.is_some_and(|kind| kind.trim().eq_ignore_ascii_case(expected))
}

/// What became of a request that brought no head. The library's own text has the URL in it and is thrown away.
fn explain(error: &reqwest::Error, target: &Target, has_left: bool) -> EgressError {
    let host = || target.host().to_owned();
    if error.is_connect() {
        // Until there is a connection, nothing of the request has left.
        let fault = causes(error).find_map(|cause| {
            if let Some(fault) = cause.downcast_ref::<Fault>() {
                return Some(fault.clone());
            }
            let fault = tls::fault(cause.downcast_ref::<rustls::Error>()?);
            Some(Fault::Tls { host: host(), fault })
        });
        let fault = fault.unwrap_or_else(|| match error.is_timeout() {
            true => Fault::Deadline { host: host(), phase: Phase::Connect },
            false => Fault::Connect { host: host() },
        });
        return EgressError::nothing_sent(fault);
    }
    if error.is_builder() {
        return EgressError::nothing_sent(Fault::Malformed("the HTTP library refuses it"));
    }
    let sent = if has_left { Sent::Perhaps } else { Sent::Nothing };
    EgressError { fault: Fault::Lost { host: host() }, sent }
}

/// An error and what is behind it. What an `io::Error` carries is no source of it, so that is looked into as well.
fn causes<'e>(
    error: &'e (dyn StdError + 'static),
) -> impl Iterator<Item = &'e (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |error| {
        let error: &'e (dyn StdError + 'static) = *error;
        let carried = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        match carried {
            Some(carried) => Some(carried as &'e (dyn StdError + 'static)),
            None => error.source(),
        }
    })
}
