//! The transport of a real process: the product's one HTTP client.

use std::sync::Arc;

use portcullis_domain::ports::{BoxFuture, Clock, Disposition};
use portcullis_egress::{
    CredentialRef, Egress, EgressError, Fault, Incoming, Method, Request, Sent, Target,
};

use crate::transport::{
    Answer, Exchange, KeyHeader, Pieces, Transport, TransportFailure, TransportFault,
};

/// A [`Transport`] over [`Egress`]: its rules say which providers can be reached, its store holds their keys.
#[derive(Debug)]
pub struct OverEgress {
    egress: Egress,
    clock: WallClock,
}

/// A clock without a form that shows it.
struct WallClock(Arc<dyn Clock>);

impl std::fmt::Debug for WallClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Clock")
    }
}

impl OverEgress {
    /// Goes out through `egress`; the clock turns a date in `Retry-After` into a wait.
    #[must_use]
    pub fn new(egress: Egress, clock: Arc<dyn Clock>) -> Self {
        Self { egress, clock: WallClock(clock) }
    }

    async fn open(&self, exchange: Exchange) -> Result<Answer, TransportFailure> {
        let incoming = self.egress.open(request(exchange)?).await.map_err(failure)?;
        let retry_after = incoming.retry_after(self.clock.0.now());
        Ok(Answer { status: incoming.status, retry_after, body: Box::new(Body(incoming)) })
    }
}

/// What cannot be put together is not sent.
fn request(exchange: Exchange) -> Result<Request, TransportFailure> {
    let unfit = |fault: &dyn std::fmt::Display| TransportFailure {
        fault: TransportFault::Refused,
        sent: false,
        message: fault.to_string(),
    };
    let target = Target::parse(&exchange.url).map_err(|fault| unfit(&fault))?;
    let mut request = Request::new(Method::Post, target)
        .header("content-type", "application/json")
        .map_err(|fault| unfit(&fault))?;
    for (name, value) in &exchange.headers {
        request = request.header(name, value).map_err(|fault| unfit(&fault))?;
    }
    if let Some(key) = &exchange.key {
        let credential = match key.header {
            KeyHeader::Bearer => CredentialRef::bearer(&key.credential),
            KeyHeader::ApiKey => CredentialRef::header(&key.credential, "x-api-key")
                .map_err(|fault| unfit(&fault))?,
        };
        request = request.credential(credential);
    }
    Ok(request.body(exchange.body))
}

fn failure(error: EgressError) -> TransportFailure {
    let fault = match &error.fault {
        Fault::Unresolved { .. } | Fault::Connect { .. } => TransportFault::Unreachable,
        Fault::Deadline { .. } => TransportFault::TimedOut,
        Fault::Lost { .. } | Fault::Cut { .. } => TransportFault::Lost,
        Fault::Redirect { .. } => TransportFault::Redirected,
        // Whoever hands out tokens may do so again.
        Fault::Credential(fault) if fault.disposition() == Disposition::Retry => {
            TransportFault::Unreachable
        }
        Fault::Credential(_) => TransportFault::NoCredential,
        Fault::TooLarge { .. } => TransportFault::TooLarge,
        Fault::Encoded { .. } | Fault::Media { .. } | Fault::Repeated { .. } => {
            TransportFault::BadEncoding
        }
        Fault::Target(_)
        | Fault::Withdrawn { .. }
        | Fault::NotAdmitted { .. }
        | Fault::Address { .. }
        | Fault::ClearCredential { .. }
        | Fault::Malformed(_)
        | Fault::Tls { .. } => TransportFault::Refused,
    };
    let sent = error.sent != Sent::Nothing;
    TransportFailure { fault, sent, message: error.to_string() }
}

struct Body(Incoming);

impl Pieces for Body {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Vec<u8>>, TransportFailure>> {
        Box::pin(async move { self.0.piece().await.map_err(failure) })
    }
}

impl Transport for OverEgress {
    fn exchange(&self, exchange: Exchange) -> BoxFuture<'_, Result<Answer, TransportFailure>> {
        Box::pin(self.open(exchange))
    }
}
