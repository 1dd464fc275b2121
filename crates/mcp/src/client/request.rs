//! One request and its answer, by one deadline: what was given up is known to be unsent, or is not known at all.

use std::sync::Arc;
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::ClientRequest;
use rmcp::service::{Peer, PeerRequestOptions, RequestHandle};
use tokio::time::{Instant, timeout, timeout_at};

use super::ledger::{Fault, Ledger, Reply};
use super::wire::number;
use crate::progress::Told;

/// How long the notice that a request was given up may take to be written.
const NOTICE_WAIT: Duration = Duration::from_secs(5);

/// A request without an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lost {
    /// Whether the server may have taken it up: one that it refused by its status was not.
    pub(super) sent: bool,
    pub(super) why: Why,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// No answer in time.
    Deadline,
    /// The session is over.
    Over(Fault),
    /// It came to nothing by itself: why, safe to print.
    Broken(String),
}

/// Asks once, and waits for the answer until then. How far it is, is told meanwhile, as often as there is time for it.
pub(super) async fn ask(
    peer: &Peer<RoleClient>,
    ledger: &Arc<Ledger>,
    request: ClientRequest,
    until: Instant,
    told: Told<'_>,
) -> Result<Reply, Lost> {
    let unsent = |why| Lost { sent: false, why };
    if let Some(fault) = ledger.fault() {
        return Err(unsent(Why::Over(fault)));
    }
    let mut progressed = ledger.progressed();
    let queued = peer.send_request_with_option(request, PeerRequestOptions::no_options());
    let handle = match timeout_at(until, queued).await {
        Ok(Ok(handle)) => handle,
        Ok(Err(_)) => return Err(unsent(why(ledger))),
        Err(_) => return Err(unsent(Why::Deadline)),
    };
    let Some(id) = number(&handle.id) else { return Err(unsent(why(ledger))) };
    let mut open = Open { id, handle: Some(handle), ledger: Arc::clone(ledger) };
    let Some(handle) = &mut open.handle else { return Err(unsent(why(ledger))) };
    let came = loop {
        tokio::select! {
            biased;
            came = timeout_at(until, &mut handle.rx) => break came,
            // The sender lives in the ledger.
            _ = progressed.changed() => ledger.progress(id).into_iter().for_each(told),
        }
    };
    ledger.progress(id).into_iter().for_each(told);
    if let Some(reply) = ledger.take(id) {
        open.handle = None;
        return Ok(reply);
    }
    if let Some(broken) = ledger.broken(id) {
        open.handle = None;
        return Err(Lost { sent: broken.sent, why: Why::Broken(broken.why) });
    }
    let why = if came.is_err() { Why::Deadline } else { why(ledger) };
    Err(Lost { sent: open.give_up(), why })
}

/// Why nothing can be asked: without another reason, the connection is closed.
fn why(ledger: &Ledger) -> Why {
    Why::Over(ledger.fault().unwrap_or(Fault::Closed))
}

/// A request that is waited for. Dropping it gives it up.
struct Open {
    id: i64,
    /// `None` when it was answered or given up.
    handle: Option<RequestHandle<RoleClient>>,
    ledger: Arc<Ledger>,
}

impl Open {
    /// True when the server may have seen it; it is told then that nobody waits any more.
    fn give_up(&mut self) -> bool {
        let sent = self.ledger.give_up(self.id);
        let handle = self.handle.take().filter(|_| sent && self.ledger.fault().is_none());
        if let (Some(handle), Ok(runtime)) = (handle, tokio::runtime::Handle::try_current()) {
            let reason = Some("no answer is waited for any more".to_owned());
            runtime.spawn(async move {
                let _it_is_only_told = timeout(NOTICE_WAIT, handle.cancel(reason)).await;
            });
        }
        sent
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if self.handle.is_some() {
            self.give_up();
        }
    }
}
