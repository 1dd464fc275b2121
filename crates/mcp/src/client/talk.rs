//! What is said over an open connection, whatever carries it: the handshake, listings and calls.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use portcullis_canon::{Object, Value, from_value, sanitize, to_value};
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientCapabilities, ClientConfig, ClientRequest,
    Implementation, JsonObject, ProtocolVersion, SubscriptionFilter,
};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, ClientServiceExt as _, RunningService, Subscription,
};
use rmcp::{ClientHandler, RoleClient};
use tokio::time::{Instant, timeout_at};

use super::ledger::{Fault, Ledger};
use super::pages::{self, Pages};
use super::request::ask;
use super::result;
use super::wire::Wire;
use crate::listing::Listing;
use crate::session::{Answer, CallFailure, SessionError};

/// How much of a refusal goes into a sentence.
const QUOTED_BYTES: usize = 300;

/// What the stages are called in sentences.
pub(super) const OPENING: &str = "opening the session";
const LISTING: &str = "listing its tools";

/// An open session. Dropping it ends what carries it.
pub(super) struct Talk {
    ledger: Arc<Ledger>,
    service: RunningService<RoleClient, Nothing>,
    /// Held so that the server goes on telling of changes.
    _changes: Option<Subscription>,
    wait: Duration,
    /// The end of the deadline that began with the start, until the first listing.
    first: Mutex<Option<Instant>>,
}

/// What this client offers a server: nothing.
struct Nothing;

impl ClientHandler for Nothing {
    fn get_info(&self) -> ClientConfig {
        let own = Implementation::new("portcullis", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), own)
            .with_protocol_version(ProtocolVersion::V_2025_11_25)
    }
}

impl Talk {
    /// Opens a session in the newest revision that both speak. `until` ends the deadline `wait`, which holds for the first
    /// listing too; each later one has as long.
    pub(super) async fn open(
        wire: Wire,
        wait: Duration,
        until: Instant,
    ) -> Result<Self, SessionError> {
        let ledger = Arc::clone(&wire.ledger);
        match timeout_at(until, open(wire, &ledger)).await {
            Ok(Ok((service, changes))) => {
                let first = Mutex::new(Some(until));
                Ok(Self { ledger, service, _changes: changes, wait, first })
            }
            Ok(Err(failure)) => Err(failure),
            Err(_) => Err(SessionError::Deadline(wait, OPENING)),
        }
    }

    pub(super) async fn list(&self) -> Result<Listing, SessionError> {
        let first = self.first.lock().unwrap_or_else(PoisonError::into_inner).take();
        let until = first.unwrap_or_else(|| Instant::now() + self.wait);
        let (mut pages, mut cursor) = (Pages::default(), None);
        loop {
            let request = ClientRequest::ListToolsRequest(pages::request(cursor));
            let reply = ask(self.service.peer(), &self.ledger, request, until).await;
            let reply = reply.map_err(|lost| pages::lost(lost, self.wait, LISTING))?;
            cursor = pages.take(reply)?;
            if cursor.is_none() {
                return pages.finish();
            }
        }
    }

    pub(super) async fn call(
        &self,
        tool: String,
        arguments: Object,
        deadline: Duration,
    ) -> Result<Answer, CallFailure> {
        let until = Instant::now() + deadline;
        let arguments = exact(arguments)?;
        let params = CallToolRequestParams::new(tool).with_arguments(arguments);
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        match ask(self.service.peer(), &self.ledger, request, until).await {
            Ok(reply) => result::answer(reply),
            Err(lost) => Err(result::lost(lost)),
        }
    }

    pub(super) fn changes(&self) -> u64 {
        self.ledger.changes()
    }

    /// Why the session is over; nothing while it is not.
    pub(super) fn fault(&self) -> Option<Fault> {
        self.ledger.fault()
    }

    /// Ends it: nothing is asked any more.
    pub(super) fn end(&self) {
        self.ledger.fail(Fault::Closed);
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        self.end();
    }
}

type Opened = (RunningService<RoleClient, Nothing>, Option<Subscription>);

/// Agrees on a revision, and subscribes to changes where they do not come by themselves.
async fn open(wire: Wire, ledger: &Ledger) -> Result<Opened, SessionError> {
    let lifecycle = ClientLifecycleMode::Auto {
        preferred_versions: vec![ProtocolVersion::V_2026_07_28],
        legacy_version: Some(ProtocolVersion::V_2025_11_25),
    };
    let service = Nothing.serve_with_lifecycle(wire, lifecycle).await.map_err(refused)?;
    let Some(info) = service.peer().peer_info() else {
        return Err(SessionError::Protocol("it did not say who it is".to_owned()));
    };
    if !ProtocolVersion::KNOWN_VERSIONS.contains(&info.protocol_version) {
        let version = sanitize::clip(&sanitize::line(info.protocol_version.as_str()), 40);
        return Err(SessionError::Protocol(format!("it answers in the revision `{version}`")));
    }
    let Some(tools) = &info.capabilities.tools else {
        return Err(SessionError::NoTools);
    };
    if info.protocol_version.has_initialize() || tools.list_changed != Some(true) {
        return Ok((service, None));
    }
    let filter = SubscriptionFilter::builder().tools_list_changed().build();
    match service.peer().listen(filter).await {
        Ok(changes) => Ok((service, Some(changes))),
        Err(_) => {
            let fault = ledger.fault().map_or_else(String::new, |fault| format!(" ({fault})"));
            Err(SessionError::Protocol(format!(
                "it says that it tells of changes of its tools, and does not{fault}"
            )))
        }
    }
}

/// A failed handshake, in one sentence that is safe to print.
fn refused(error: ClientInitializeError) -> SessionError {
    let quote = |text: &str| sanitize::clip(&sanitize::line(text), QUOTED_BYTES);
    match error {
        ClientInitializeError::ConnectionClosed(_)
        | ClientInitializeError::TransportError { .. }
        | ClientInitializeError::Cancelled => SessionError::Closed(OPENING),
        ClientInitializeError::ExpectedInitResponse(_)
        | ClientInitializeError::ExpectedInitResult(_) => {
            SessionError::Protocol("its answer to the handshake is another one".to_owned())
        }
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => refused(*fallback),
        ClientInitializeError::JsonRpcError(error) => SessionError::Protocol(format!(
            "it refuses the handshake (error {}: {})",
            error.code.0,
            quote(&error.message)
        )),
        ClientInitializeError::NoCompatibleProtocolVersion { .. } => {
            SessionError::Protocol("it speaks no revision that we speak".to_owned())
        }
        other => SessionError::Protocol(quote(&other.to_string())),
    }
}

/// The arguments as they are handed over, when no digit is lost on the way.
fn exact(arguments: Object) -> Result<JsonObject, CallFailure> {
    let arguments = Value::Object(arguments);
    let handed: Option<JsonObject> = from_value(&arguments).ok();
    handed.filter(|handed| to_value(handed).is_ok_and(|back| back == arguments)).ok_or_else(|| {
        CallFailure::NotSent("the arguments cannot be sent as they stand".to_owned())
    })
}

#[cfg(test)]
mod tests {
    use portcullis_canon::{Limits, parse};

    use super::*;

    #[test]
    fn arguments_are_sent_to_the_digit_or_not_at_all() {
        let read = |text: &str| match parse(text.as_bytes(), &Limits::default()).unwrap() {
            Value::Object(object) => object,
            other => panic!("{other:?}"),
        };
        for whole in [
            "{}",
            r#"{"a":18446744073709551615,"b":-9223372036854775808,"c":1.5,"d":1e21,"e":[null,true,"x"]}"#,
        ] {
            let sent = to_value(&exact(read(whole)).unwrap()).unwrap();
            assert_eq!(sent, Value::Object(read(whole)), "{whole}");
        }
        for lossy in [r#"{"a":18446744073709551616}"#, r#"{"a":0.1000000000000000000001}"#] {
            assert!(matches!(exact(read(lossy)), Err(CallFailure::NotSent(_))), "{lossy}");
        }
    }
}
