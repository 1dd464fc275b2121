//! The border to the network: one exchange, its answer read in pieces, and failures that say what may have been sent.
//!
//! The key of a provider never comes here: an [`Exchange`] names a credential, and the transport puts it in.

use std::time::Duration;

use portcullis_domain::ports::{BoxFuture, ModelFault};

/// The most bytes of a reply that are read, after decoding: 16 MiB.
pub const MAX_REPLY_BYTES: usize = 16 * 1024 * 1024;

/// In which header a credential travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyHeader {
    /// `authorization: Bearer …`.
    Bearer,
    /// `x-api-key: …`.
    ApiKey,
}

/// A credential by name; its value is known to the transport alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyUse {
    /// The name in the operator's credential store.
    pub credential: String,
    /// Where it goes.
    pub header: KeyHeader,
}

/// One POST of JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// Where to.
    pub url: String,
    /// Headers that hold no secret, beside `content-type: application/json`.
    pub headers: Vec<(&'static str, String)>,
    /// The key, where the provider takes one.
    pub key: Option<KeyUse>,
    /// The body.
    pub body: Vec<u8>,
}

/// What came back before its body.
pub struct Answer {
    /// The status.
    pub status: u16,
    /// How long the other side asks to wait, as it said it.
    pub retry_after: Option<Duration>,
    /// The rest.
    pub body: Box<dyn Pieces>,
}

/// A body in pieces, decoded, in order. Dropping it ends the exchange.
pub trait Pieces: Send {
    /// The next piece; `None` once the body is whole.
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Vec<u8>>, TransportFailure>>;
}

/// Why an exchange failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TransportFault {
    /// No connection.
    Unreachable,
    /// The rules for outgoing connections, the certificate or the address forbid it.
    Refused,
    /// The credential is not there.
    NoCredential,
    /// It would have to be followed elsewhere.
    Redirected,
    /// A deadline passed.
    TimedOut,
    /// The connection ended early.
    Lost,
    /// More bytes than a body may have.
    TooLarge,
    /// The body is not one that is read: it is encoded, or of another kind, or repeats the key.
    BadEncoding,
}

/// An exchange that failed. `sent` is false only with proof that no byte of the request left.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct TransportFailure {
    /// How.
    pub fault: TransportFault,
    /// Whether a byte of the request may have left.
    pub sent: bool,
    /// One printable sentence without URL queries, headers, keys or bodies.
    pub message: String,
}

impl TransportFailure {
    /// What it is for an attempt. Where something may have been sent, somebody may have served it.
    #[must_use]
    pub const fn model_fault(&self) -> ModelFault {
        match (self.fault, self.sent) {
            (TransportFault::Refused, _) => ModelFault::EndpointRefused,
            (TransportFault::NoCredential, _) => ModelFault::KeyRefused,
            (TransportFault::Redirected, _) => ModelFault::Redirected,
            (TransportFault::TooLarge, _) => ModelFault::TooLarge,
            (TransportFault::BadEncoding, _) => ModelFault::BadEncoding,
            (_, false) => ModelFault::Unreachable,
            (TransportFault::TimedOut, true) => ModelFault::TimedOut,
            (TransportFault::Unreachable | TransportFault::Lost, true) => {
                ModelFault::ConnectionLost
            }
        }
    }
}

/// Makes exchanges. It follows no redirect, retries nothing, and holds its own deadlines.
pub trait Transport: Send + Sync {
    /// Makes one. Nothing happens before the first poll.
    fn exchange(&self, exchange: Exchange) -> BoxFuture<'_, Result<Answer, TransportFailure>>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_domain::ports::Charge;

    #[test]
    fn what_may_have_been_sent_is_charged() {
        use TransportFault as F;
        let faults = [F::Unreachable, F::TimedOut, F::Lost, F::TooLarge, F::BadEncoding];
        for fault in faults {
            let failure = |sent| TransportFailure { fault, sent, message: String::new() };
            assert_eq!(failure(true).model_fault().charge(), Charge::Projection, "{fault:?}");
        }
        for fault in [F::Unreachable, F::TimedOut, F::Lost] {
            let failure = TransportFailure { fault, sent: false, message: String::new() };
            assert_eq!(failure.model_fault(), ModelFault::Unreachable, "{fault:?}");
        }
    }
}
