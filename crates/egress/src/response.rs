//! An answer: whole, or piece by piece under the same bounds.

use std::fmt;
use std::time::Duration;

use portcullis_domain::ports::{BoxFuture, Disposition};
use portcullis_domain::time::Timestamp;
use reqwest::header::HeaderMap;
use tokio::time::Instant;

use crate::echo::Echo;
use crate::error::{EgressError, Fault, Phase};
use crate::retry_after;

/// The headers of an answer. The debug form has their names only.
#[derive(Clone, PartialEq, Eq)]
pub struct Headers(Vec<(String, Vec<u8>)>);

impl Headers {
    pub(crate) fn of(map: &HeaderMap) -> Self {
        let pairs =
            map.iter().map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec()));
        Self(pairs.collect())
    }

    /// The first value of a header by its name in lower case, if it is text.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        let value = self.iter().find(|(known, _)| *known == name).map(|(_, value)| value);
        value.and_then(|value| std::str::from_utf8(value).ok())
    }

    /// All headers: names in lower case, values as they came.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_slice()))
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|(name, _)| name)).finish()
    }
}

/// What a status other than success means: 408, 409, 425, 429 and 5xx may pass; 401, 403 and 407 are the operator's.
const fn judge_status(status: u16) -> Option<Disposition> {
    match status {
        200..=299 => None,
        408 | 409 | 425 | 429 | 500..=599 => Some(Disposition::Retry),
        401 | 403 | 407 => Some(Disposition::Operator),
        _ => Some(Disposition::Refuse),
    }
}

/// A whole answer. The debug form has the status, the headers' names and the body's length.
#[derive(Clone, PartialEq, Eq)]
pub struct Response {
    /// 200 to 299, or 400 to 599: a redirect is an error.
    pub status: u16,
    /// The headers.
    pub headers: Headers,
    /// The body, within the bound.
    pub body: Vec<u8>,
}

impl Response {
    /// What to do when the status is no success; `None` when it is one.
    #[must_use]
    pub const fn disposition(&self) -> Option<Disposition> {
        judge_status(self.status)
    }

    /// How long the other side asks to be left alone, at most [`MAX_RETRY_AFTER`](crate::MAX_RETRY_AFTER).
    #[must_use]
    pub fn retry_after(&self, now: Timestamp) -> Option<Duration> {
        retry_after::read(self.headers.text("retry-after")?, now)
    }
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response")
            .field("status", &self.status)
            .field("headers", &self.headers)
            .field("body_bytes", &self.body.len())
            .finish()
    }
}

/// An answer whose body comes piece by piece. Dropping it closes the connection.
pub struct Incoming {
    /// 200 to 299, or 400 to 599.
    pub status: u16,
    /// The headers.
    pub headers: Headers,
    pub(crate) host: String,
    pub(crate) response: reqwest::Response,
    pub(crate) bounds: Bounds,
    /// What it must not repeat.
    pub(crate) echo: Option<Echo>,
    /// What ended it, once it did.
    pub(crate) ended: Option<Result<(), EgressError>>,
}

/// What a body has to keep to.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    /// How many bytes may still come.
    pub(crate) left: u64,
    /// How many might have come in all, for the error.
    pub(crate) limit: u64,
    pub(crate) idle: Duration,
    pub(crate) ends: Instant,
}

impl Incoming {
    /// What to do when the status is no success; `None` when it is one.
    #[must_use]
    pub const fn disposition(&self) -> Option<Disposition> {
        judge_status(self.status)
    }

    /// How long the other side asks to be left alone, at most [`MAX_RETRY_AFTER`](crate::MAX_RETRY_AFTER).
    #[must_use]
    pub fn retry_after(&self, now: Timestamp) -> Option<Duration> {
        retry_after::read(self.headers.text("retry-after")?, now)
    }

    /// The next piece of the body, `None` at its end. The pieces together stay within the bound, and what goes over it is
    /// not handed out. After an error there is nothing but that error.
    ///
    /// # Errors
    /// A body that is too long, too slow, or cut off, or that repeats the credential of its request.
    pub fn piece(&mut self) -> BoxFuture<'_, Result<Option<Vec<u8>>, EgressError>> {
        Box::pin(async move {
            if let Some(ended) = &self.ended {
                return ended.clone().map(|()| None);
            }
            let piece = self.take().await;
            match &piece {
                Ok(Some(_)) => {}
                Ok(None) => self.ended = Some(Ok(())),
                Err(error) => self.ended = Some(Err(error.clone())),
            }
            piece
        })
    }

    async fn take(&mut self) -> Result<Option<Vec<u8>>, EgressError> {
        let host = || self.host.clone();
        let idle_ends = Instant::now() + self.bounds.idle;
        let (until, phase) = if self.bounds.ends <= idle_ends {
            (self.bounds.ends, Phase::Total)
        } else {
            (idle_ends, Phase::Idle)
        };
        let Ok(read) = tokio::time::timeout_at(until, self.response.chunk()).await else {
            return Err(EgressError::answered(Fault::Deadline { host: host(), phase }));
        };
        let Ok(piece) = read else {
            return Err(EgressError::answered(Fault::Cut { host: host() }));
        };
        let Some(bytes) = piece else { return Ok(None) };
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let Some(left) = self.bounds.left.checked_sub(length) else {
            let limit = self.bounds.limit;
            return Err(EgressError::answered(Fault::TooLarge { host: host(), limit }));
        };
        self.bounds.left = left;
        if self.echo.as_mut().is_some_and(|echo| echo.is_in(&bytes)) {
            return Err(EgressError::answered(Fault::Repeated { host: host() }));
        }
        Ok(Some(bytes.to_vec()))
    }

    /// Waits for the rest.
    pub(crate) async fn whole(mut self) -> Result<Response, EgressError> {
        let mut body = Vec::new();
        while let Some(piece) = self.piece().await? {
            body.extend_from_slice(&piece);
        }
        Ok(Response { status: self.status, headers: self.headers, body })
    }
}

impl fmt::Debug for Incoming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Incoming")
            .field("status", &self.status)
            .field("headers", &self.headers)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_judged() {
        let cases = [
            (200, None),
            (204, None),
            (400, Some(Disposition::Refuse)),
            (401, Some(Disposition::Operator)),
            (404, Some(Disposition::Refuse)),
            (408, Some(Disposition::Retry)),
            (409, Some(Disposition::Retry)),
            (429, Some(Disposition::Retry)),
            (500, Some(Disposition::Retry)),
            (529, Some(Disposition::Retry)),
        ];
        for (status, expected) in cases {
            assert_eq!(judge_status(status), expected, "{status}");
        }
    }
}
