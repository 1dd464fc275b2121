//! The client: rules, credentials, and the two ways to send a request.

use std::fmt;
use std::sync::Arc;

use portcullis_domain::ports::{BoxFuture, Clock};
use reqwest::header::{HeaderName, HeaderValue};
use tokio::time::Instant;

use crate::credentials::{
    Agreed, CredentialRef, Credentials, Lent, LoginCode, LoginFile, OAuthFault,
};
use crate::error::{EgressError, Fault};
use crate::names::{Names, SystemNames};
use crate::request::Request;
use crate::response::{Incoming, Response};
use crate::rules::{EgressRules, RulesFault};
use crate::target::Target;
use crate::transport::Transport;

/// The one HTTP client. Cheap to clone; clones share connections and credentials.
///
/// Its futures need a tokio runtime with time and IO.
#[derive(Clone)]
pub struct Egress {
    parts: Arc<Parts>,
}

struct Parts {
    transport: Arc<Transport>,
    credentials: Credentials,
    clock: Arc<dyn Clock>,
}

impl Egress {
    /// A client under these rules, with the names of the system. The clock says when tokens end; deadlines are tokio's.
    ///
    /// # Errors
    /// When a further root cannot be used.
    pub fn new(
        rules: EgressRules,
        credentials: Credentials,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, RulesFault> {
        Self::with_names(rules, credentials, clock, Arc::new(SystemNames::new()))
    }

    /// As [`Egress::new`], with names from elsewhere. They are judged all the same.
    ///
    /// # Errors
    /// As [`Egress::new`].
    pub fn with_names(
        rules: EgressRules,
        credentials: Credentials,
        clock: Arc<dyn Clock>,
        names: Arc<dyn Names>,
    ) -> Result<Self, RulesFault> {
        let transport = Arc::new(Transport::new(rules, names)?);
        Ok(Self { parts: Arc::new(Parts { transport, credentials, clock }) })
    }

    /// Sends a request and waits for the whole answer. Dropping the future closes the connection.
    #[must_use = "nothing is sent before the first poll"]
    pub fn send(&self, request: Request) -> BoxFuture<'static, Result<Response, EgressError>> {
        let opening = self.open(request);
        Box::pin(async move { opening.await?.whole().await })
    }

    /// Sends a request and waits for the head of the answer; the body comes by [`Incoming::piece`].
    #[must_use = "nothing is sent before the first poll"]
    pub fn open(&self, request: Request) -> BoxFuture<'static, Result<Incoming, EgressError>> {
        let parts = Arc::clone(&self.parts);
        Box::pin(async move { parts.open(request).await })
    }

    /// Trades the code of a login for tokens, and puts them into the owner's file (0600), in the place of what is there.
    /// The rules have to admit the token endpoint.
    #[must_use = "nothing is sent before the first poll"]
    pub fn redeem(
        &self,
        code: LoginCode,
        agreed: Agreed,
        file: LoginFile,
    ) -> BoxFuture<'static, Result<(), OAuthFault>> {
        let parts = Arc::clone(&self.parts);
        Box::pin(
            async move { code.redeem(agreed, &file, &parts.transport, parts.clock.as_ref()).await },
        )
    }
}

impl Parts {
    async fn open(&self, request: Request) -> Result<Incoming, EgressError> {
        let started = Instant::now();
        let Some(credential) = request.credential.clone() else {
            return self.transport.open(request, None, started).await;
        };
        // Judged before anything is asked for: a token is not refreshed for a request that goes nowhere.
        self.transport.admit(&request).map_err(EgressError::nothing_sent)?;
        let lent = self.lend(&credential, &request, started).await?;
        let (name, value) = injected(&credential, &lent, &request)?;
        let host = request.target.host().to_owned();
        let mut incoming = self.transport.open(request, Some((name, value)), started).await?;
        match incoming.status {
            401 => lent.doubt(),
            403 => lent.is_not_enough(),
            _ => {}
        }
        let echo = lent.echo(&credential);
        if incoming.headers.iter().any(|(_, value)| echo.stands_in(value)) {
            return Err(EgressError::answered(Fault::Repeated { host }));
        }
        incoming.echo = Some(echo);
        Ok(incoming)
    }

    /// The secret, if it may go to the target.
    async fn lend(
        &self,
        credential: &CredentialRef,
        request: &Request,
        started: Instant,
    ) -> Result<Lent, EgressError> {
        clear_is_local(&request.target).map_err(EgressError::nothing_sent)?;
        let deadlines = request.deadlines.unwrap_or(self.transport.rules().deadlines);
        let lending =
            self.credentials.lend(credential, &request.target, &self.transport, &self.clock);
        match tokio::time::timeout_at(started + deadlines.total, lending).await {
            Ok(lent) => lent.map_err(EgressError::nothing_sent),
            Err(_) => {
                let host = request.target.host().to_owned();
                let phase = crate::error::Phase::Total;
                Err(EgressError::nothing_sent(Fault::Deadline { host, phase }))
            }
        }
    }
}

/// Plain http carries a credential to this machine only: to a loopback address that is written out, or to `localhost`,
/// for which nobody is asked and loopback addresses alone are dialled. A name that leads here is not enough.
pub(crate) fn clear_is_local(target: &Target) -> Result<(), Fault> {
    if target.is_encrypted() || target.is_this_machine() {
        Ok(())
    } else {
        Err(Fault::ClearCredential { host: target.host().to_owned() })
    }
}

fn injected(
    credential: &CredentialRef,
    lent: &Lent,
    request: &Request,
) -> Result<(HeaderName, HeaderValue), EgressError> {
    let (name, value) = credential.header_with(lent);
    if request.headers.iter().any(|(known, _)| *known == name) {
        return Err(EgressError::nothing_sent(Fault::Malformed(
            "a header and a credential have one name",
        )));
    }
    let unfit = || EgressError::nothing_sent(Fault::Malformed("a credential fits into no header"));
    let mut value = HeaderValue::from_str(&value).map_err(|_| unfit())?;
    value.set_sensitive(true);
    Ok((name, value))
}

impl fmt::Debug for Egress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Egress")
            .field("rules", self.parts.transport.rules())
            .field("credentials", &self.parts.credentials)
            .finish()
    }
}
