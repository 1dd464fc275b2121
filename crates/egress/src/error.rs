//! What can go wrong with a request: why, what to do about it, and how much of it may have been sent.

use portcullis_domain::ports::Disposition;

use crate::address::AddressClass;
use crate::credentials::CredentialFault;
use crate::target::TargetFault;

/// A request that brought no usable answer.
///
/// Its text names hosts and limits, and never a path, a query, a header, a key or a part of a body.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{fault}")]
pub struct EgressError {
    /// Why.
    pub fault: Fault,
    /// How much of the request may have left this machine.
    pub sent: Sent,
}

/// How much of a request may have left this machine. What counts money or effects decides on this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sent {
    /// Not one byte of it: no effect, nothing to pay.
    Nothing,
    /// Perhaps all of it: the other side may have acted, and may have charged.
    Perhaps,
    /// It arrived: the other side answered, though not in a usable way.
    Answered,
}

/// A part of a request's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Name, connection and TLS.
    Connect,
    /// From sending to the head of the answer.
    Header,
    /// Between two pieces of a body.
    Idle,
    /// The whole.
    Total,
}

impl std::fmt::Display for Phase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Connect => "no connection was made",
            Self::Header => "no answer began",
            Self::Idle => "no further part of the answer came",
            Self::Total => "the answer was not complete",
        })
    }
}

/// Why a certificate or a handshake was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum TlsFault {
    /// The certificate is for other names.
    #[error("its certificate is for another name")]
    Name,
    /// Nobody who is trusted vouches for it.
    #[error("its certificate is signed by nobody who is trusted here")]
    Issuer,
    /// It is over.
    #[error("its certificate has expired")]
    Expired,
    /// It has not begun.
    #[error("its certificate is not valid yet")]
    NotYet,
    /// It is wrong in another way.
    #[error("its certificate is not valid")]
    Certificate,
    /// The two sides did not come to terms.
    #[error("the TLS handshake failed")]
    Handshake,
}

/// Why a request brought no usable answer. Hosts are those that were asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The URL is not read.
    #[error(transparent)]
    Target(#[from] TargetFault),
    /// No rule of the operator's admits the host.
    #[error("`{host}` is not a place that the operator's rules admit")]
    NotAdmitted {
        /// The host and its port.
        host: String,
    },
    /// The host is, or its name leads to, a place that no rule makes reachable, or not this one.
    #[error("`{host}` is, or leads to, {class}, which is not reachable under the operator's rules")]
    Address {
        /// The host.
        host: String,
        /// What kind of address.
        class: AddressClass,
    },
    /// The name leads nowhere.
    #[error("the name `{host}` could not be resolved")]
    Unresolved {
        /// The host.
        host: String,
    },
    /// A credential would go over the wire unencrypted.
    #[error(
        "a credential goes to `{host}` over https only; plain http carries one to this machine alone"
    )]
    ClearCredential {
        /// The host.
        host: String,
    },
    /// The credential could not be had.
    #[error(transparent)]
    Credential(#[from] CredentialFault),
    /// The request cannot be put together.
    #[error("the request is malformed: {0}")]
    Malformed(&'static str),
    /// Nobody answered at the address.
    #[error("no connection to `{host}` could be made")]
    Connect {
        /// The host.
        host: String,
    },
    /// The other side is not who it should be.
    #[error("`{host}` cannot be trusted: {fault}")]
    Tls {
        /// The host.
        host: String,
        /// What was wrong.
        fault: TlsFault,
    },
    /// A deadline passed.
    #[error("`{host}` was too slow: {phase} in time")]
    Deadline {
        /// The host.
        host: String,
        /// Which.
        phase: Phase,
    },
    /// The connection ended, or carried something that is no HTTP, before an answer began.
    #[error("the connection to `{host}` was lost before an answer")]
    Lost {
        /// The host.
        host: String,
    },
    /// Whoever asked said right before it left that it must not any more.
    #[error("the request to `{host}` was withdrawn before it left")]
    Withdrawn {
        /// The host.
        host: String,
    },
    /// The answer points elsewhere. It is never followed.
    #[error(
        "`{host}` answered with a redirect ({status}), which is never followed; name the final URL"
    )]
    Redirect {
        /// The host that answered.
        host: String,
        /// 300 to 399.
        status: u16,
    },
    /// The body is compressed although that was not asked for.
    #[error("`{host}` answered with an encoded body, which is not read")]
    Encoded {
        /// The host.
        host: String,
    },
    /// The answer repeats the credential that the request carried, in its body or in a header.
    #[error(
        "`{host}` repeated the credential in its answer, which is not kept; tell its operator, and change the credential"
    )]
    Repeated {
        /// The host.
        host: String,
    },
    /// The body is not of the kind that the caller can read: a proxy's page, a login form.
    #[error(
        "`{host}` answered with another kind of content than `{expected}`; is there a proxy or a login page?"
    )]
    Media {
        /// The host.
        host: String,
        /// What the caller reads.
        expected: &'static str,
    },
    /// The body is longer than the caller takes.
    #[error("the answer of `{host}` is longer than {limit} bytes")]
    TooLarge {
        /// The host.
        host: String,
        /// The bound, in bytes.
        limit: u64,
    },
    /// The body ended early, or its framing was wrong.
    #[error("the answer of `{host}` was cut off")]
    Cut {
        /// The host.
        host: String,
    },
}

impl EgressError {
    pub(crate) fn nothing_sent(fault: impl Into<Fault>) -> Self {
        Self { fault: fault.into(), sent: Sent::Nothing }
    }

    pub(crate) const fn answered(fault: Fault) -> Self {
        Self { fault, sent: Sent::Answered }
    }

    /// What to do about it. `Retry` says that the fault may pass, not that a second request is safe: for a request that
    /// changes something, [`EgressError::sent`] decides.
    #[must_use]
    pub const fn disposition(&self) -> Disposition {
        match &self.fault {
            Fault::Unresolved { .. }
            | Fault::Connect { .. }
            | Fault::Deadline { .. }
            | Fault::Lost { .. }
            | Fault::Cut { .. } => Disposition::Retry,
            Fault::Target(_)
            | Fault::NotAdmitted { .. }
            | Fault::Address { .. }
            | Fault::Encoded { .. }
            | Fault::TooLarge { .. }
            | Fault::Withdrawn { .. } => Disposition::Refuse,
            Fault::ClearCredential { .. }
            | Fault::Tls { .. }
            | Fault::Redirect { .. }
            | Fault::Repeated { .. }
            | Fault::Media { .. } => Disposition::Operator,
            Fault::Credential(fault) => fault.disposition(),
            Fault::Malformed(_) => Disposition::Bug,
        }
    }
}
