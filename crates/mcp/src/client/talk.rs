//! What is said over an open connection, whatever carries it: the handshake, listings and calls.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use portcullis_canon::{Object, Value, from_value, sanitize, to_value};
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientCapabilities, ClientConfig, ClientRequest,
    CompleteRequest, GetPromptRequest, Implementation, JsonObject, ProtocolVersion,
    ReadResourceRequest, SubscriptionFilter,
};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, ClientServiceExt as _, RunningService, Subscription,
};
use rmcp::{ClientHandler, RoleClient};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout_at};

use super::ledger::{Fault, Ledger};
use super::pages::{self, Listed, Pages};
use super::request::ask;
use super::result;
use super::wire::Wire;
use crate::listing::{AdvertisedTool, Listing};
use crate::offer::{Offer, OfferKind, checked};
use crate::progress::Told;
use crate::session::{Answer, Asks, CallFailure, Leave, SessionError};

/// How much of a refusal goes into a sentence.
const QUOTED_BYTES: usize = 300;

/// What the stages are called in sentences.
pub(super) const OPENING: &str = "opening the session";

/// An open session. Dropping it ends what carries it.
pub(super) struct Talk {
    ledger: Arc<Ledger>,
    service: RunningService<RoleClient, Nothing>,
    offers: Offers,
    /// Held so that the server goes on telling of changes.
    _changes: Option<Subscription>,
    wait: Duration,
    /// The end of the deadline that began with the start, until the first listing.
    first: Mutex<Option<Instant>>,
}

/// What a server says that it has.
#[derive(Clone, Copy, Debug)]
struct Offers {
    tools: bool,
    resources: bool,
    prompts: bool,
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
            Ok(Ok((service, offers, changes))) => {
                let first = Mutex::new(Some(until));
                Ok(Self { ledger, service, offers, _changes: changes, wait, first })
            }
            Ok(Err(failure)) => Err(failure),
            Err(_) => Err(SessionError::Deadline(wait, OPENING)),
        }
    }

    pub(super) async fn list(&self) -> Result<Listing, SessionError> {
        let first = self.first.lock().unwrap_or_else(PoisonError::into_inner).take();
        let until = first.unwrap_or_else(|| Instant::now() + self.wait);
        let entries = match self.offers.tools {
            true => self.pages(Listed::Tools, until).await?,
            false => Vec::new(),
        };
        let tools = entries.into_iter().map(AdvertisedTool::read).collect::<Result<_, _>>()?;
        Ok(Listing::new(tools)?)
    }

    /// What it offers of a kind; nothing where it says that it has none.
    pub(super) async fn offers(&self, kind: OfferKind) -> Result<Vec<Offer>, SessionError> {
        let there = match kind {
            OfferKind::Resource | OfferKind::Template => self.offers.resources,
            OfferKind::Prompt => self.offers.prompts,
        };
        let entries = match there {
            true => self.pages(Listed::Offers(kind), Instant::now() + self.wait).await?,
            false => Vec::new(),
        };
        Ok(checked(kind, &entries)?)
    }

    async fn pages(&self, listed: Listed, until: Instant) -> Result<Vec<Value>, SessionError> {
        let (mut pages, mut cursor) = (Pages::of(listed), None);
        loop {
            let request = listed.request(cursor);
            let reply = ask(self.service.peer(), &self.ledger, request, until, &|_| {}).await;
            let reply = reply.map_err(|lost| pages::lost(lost, self.wait, listed.stage()))?;
            cursor = pages.take(reply)?;
            if cursor.is_none() {
                return Ok(pages.finish());
            }
        }
    }

    /// Asks for something beside calls. The parameters are those of the protocol.
    pub(super) async fn ask(
        &self,
        asks: Asks,
        params: Object,
        deadline: Duration,
        told: Told<'_>,
    ) -> Result<Value, CallFailure> {
        let until = Instant::now() + deadline;
        let params = Value::Object(params);
        let request = match asks {
            Asks::Read => {
                ClientRequest::ReadResourceRequest(ReadResourceRequest::new(exact(params)?))
            }
            Asks::Prompt => ClientRequest::GetPromptRequest(GetPromptRequest::new(exact(params)?)),
            Asks::Complete => ClientRequest::CompleteRequest(CompleteRequest::new(exact(params)?)),
        };
        let reply = ask(self.service.peer(), &self.ledger, request, until, told).await;
        let reply = reply.map_err(result::lost)?;
        match asks {
            Asks::Read => result::read(reply),
            Asks::Prompt | Asks::Complete => result::settled(reply),
        }
    }

    pub(super) async fn call(
        &self,
        tool: &str,
        arguments: Object,
        leave: Leave,
        told: Told<'_>,
    ) -> Result<Answer, CallFailure> {
        let until = Instant::now() + leave.deadline;
        let arguments: JsonObject = exact(Value::Object(arguments))?;
        let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        let mut request = CallToolRequest::new(params);
        // Not sent: the ledger looks at it right before the first byte is.
        request.extensions.insert(leave.standing);
        let request = ClientRequest::CallToolRequest(request);
        match ask(self.service.peer(), &self.ledger, request, until, told).await {
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

type Opened = (RunningService<RoleClient, Nothing>, Offers, Option<Subscription>);

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
    let said = &info.capabilities;
    let offers = Offers {
        tools: said.tools.is_some(),
        resources: said.resources.is_some(),
        prompts: said.prompts.is_some(),
    };
    if !(offers.tools || offers.resources || offers.prompts) {
        return Err(SessionError::NoTools);
    }
    let tells_of_tools = said.tools.as_ref().and_then(|tools| tools.list_changed) == Some(true);
    let tells_of_prompts =
        said.prompts.as_ref().and_then(|prompts| prompts.list_changed) == Some(true);
    if info.protocol_version.has_initialize() || !(tells_of_tools || tells_of_prompts) {
        return Ok((service, offers, None));
    }
    let mut filter = SubscriptionFilter::builder();
    if tells_of_tools {
        filter = filter.tools_list_changed();
    }
    if tells_of_prompts {
        filter = filter.prompts_list_changed();
    }
    match service.peer().listen(filter.build()).await {
        Ok(changes) => Ok((service, offers, Some(changes))),
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

/// What is handed over in the library's types, when no digit is lost on the way.
fn exact<T: DeserializeOwned + Serialize>(arguments: Value) -> Result<T, CallFailure> {
    let handed: Option<T> = from_value(&arguments).ok();
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
        let read = |text: &str| parse(text.as_bytes(), &Limits::default()).unwrap();
        let exact = |value| exact::<JsonObject>(value);
        for whole in [
            "{}",
            r#"{"a":18446744073709551615,"b":-9223372036854775808,"c":1.5,"d":1e21,"e":[null,true,"x"]}"#,
        ] {
            let sent = to_value(&exact(read(whole)).unwrap()).unwrap();
            assert_eq!(sent, read(whole), "{whole}");
        }
        for lossy in [r#"{"a":18446744073709551616}"#, r#"{"a":0.1000000000000000000001}"#] {
            assert!(matches!(exact(read(lossy)), Err(CallFailure::NotSent(_))), "{lossy}");
        }
    }
}
