//! The places on the network that the operator named, through the product's one HTTP client.
//!
//! `http.read` is `GET` and `HEAD`; every other method is a change elsewhere and goes by `http.send`, or by
//! `http.send_keyed` where the operator says that the place keeps idempotency keys. All of them also send: a URL can
//! carry out what a run has read. A tool of which no place admits a method is not there at all.

mod answer;
mod arguments;
mod failure;
mod method;
mod read;
#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test makes the page as it likes"
)]
pub(crate) mod reference;
mod rules;
mod send;

use std::fmt;

use portcullis_domain::permit::Permit;
use portcullis_domain::ports::{BoxFuture, ToolFailure, ToolOutput, ToolSource};
use portcullis_domain::tool::ToolSpec;
use portcullis_egress::{Egress, Incoming, Method, Request};

pub use method::http_method;
pub use rules::{HttpFault, HttpPlace, HttpRules, MAX_HTTP_CONTENT, MAX_HTTP_PLACES};

use crate::arguments::refused;

/// The HTTP tools: those of `http.read`, `http.send` and `http.send_keyed` for which there is a place.
pub struct Http {
    egress: Egress,
    rules: HttpRules,
}

impl Http {
    /// The tools over a client. Both judge each URL: the client by its own rules, which [`HttpRules::reachable`]
    /// makes.
    #[must_use]
    pub fn new(egress: Egress, rules: HttpRules) -> Self {
        Self { egress, rules }
    }

    async fn perform(&self, permit: &Permit) -> Result<ToolOutput, ToolFailure> {
        let tool = Tool::ALL.into_iter().find(|tool| tool.name() == permit.tool());
        match tool.ok_or_else(|| refused("there is no such tool on HTTP"))? {
            Tool::Read => read::call(self, permit.arguments()).await,
            tool => send::call(self, tool, permit).await,
        }
    }

    /// Sends one request, once, within the operator's time.
    async fn open(&self, request: Request) -> Result<Incoming, portcullis_egress::EgressError> {
        self.egress.open(request.deadlines(self.rules.deadlines())).await
    }
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http").field("rules", &self.rules).finish_non_exhaustive()
    }
}

/// One of the tools, and which requests are its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tool {
    Read,
    Send,
    SendKeyed,
}

impl Tool {
    const ALL: [Self; 3] = [Self::Read, Self::Send, Self::SendKeyed];

    const fn name(self) -> &'static str {
        match self {
            Self::Read => "http.read",
            Self::Send => "http.send",
            Self::SendKeyed => "http.send_keyed",
        }
    }

    /// Whether a request with this method to this place goes by this tool, so that each goes by one alone.
    fn takes(self, place: &HttpPlace, method: Method) -> bool {
        let right = match self {
            Self::Read => method::reads(method),
            Self::Send => !method::reads(method) && place.key_header().is_none(),
            Self::SendKeyed => !method::reads(method) && place.key_header().is_some(),
        };
        right && place.admits(method)
    }

    fn places(self, rules: &HttpRules) -> Vec<&HttpPlace> {
        let methods = || method::ALL.into_iter().map(|(method, _)| method);
        let open = |place: &&HttpPlace| methods().any(|method| self.takes(place, method));
        rules.places().filter(open).collect()
    }

    /// The spec, or nothing when there is nowhere to go.
    fn spec(self, rules: &HttpRules) -> Option<ToolSpec> {
        let places = self.places(rules);
        if places.is_empty() {
            return None;
        }
        Some(match self {
            Self::Read => read::spec(rules, &places),
            Self::Send | Self::SendKeyed => send::spec(self, rules, &places),
        })
    }
}

impl ToolSource for Http {
    fn specs(&self) -> Vec<ToolSpec> {
        Tool::ALL.into_iter().filter_map(|tool| tool.spec(&self.rules)).collect()
    }

    /// Nothing waits for the kernel: the client is asynchronous. It needs a tokio runtime with time and IO.
    fn blocks(&self) -> bool {
        false
    }

    fn call(&self, permit: Permit) -> BoxFuture<'_, Result<ToolOutput, ToolFailure>> {
        Box::pin(async move { self.perform(&permit).await })
    }
}
