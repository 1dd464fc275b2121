//! A session with a server behind a URL: streamable HTTP, by way of the product's one HTTP client.
//!
//! Each message of ours is a request of its own ([`post`]); what comes back is one message, or a stream of them
//! ([`events`]). All of it is matched in the same ledger as the lines of a program, so that what is known of a call
//! does not depend on what carried it.

mod events;
mod head;
mod notices;
mod params;
mod post;
mod server;
mod site;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use portcullis_canon::{Object, Value};
use portcullis_domain::ports::BoxFuture;
use portcullis_egress::Egress;
use tokio::sync::mpsc;
use tokio::time::Instant;

use self::post::Posts;
pub use self::server::HttpServer;
use self::site::Site;
use super::ledger::{Fault, Ledger};
use super::sort::Sorter;
use super::talk::{OPENING, Talk};
use super::wire::{QUEUE, Wire};
use crate::listing::Listing;
use crate::login::Challenges;
use crate::offer::{Offer, OfferKind};
use crate::progress::Told;
use crate::session::{Answer, Asks, CallFailure, Leave, Session, SessionError};

/// How long a drop waits until the server was told.
const DROP_WAIT: Duration = Duration::from_secs(1);

/// A session over HTTP. Dropping it closes what is open. A server that keeps sessions is told so: on a runtime with several
/// threads that is waited for, a second at most; on one with a single thread [`close`](Session::close) does it.
pub struct Http {
    server: HttpServer,
    egress: Egress,
    wait: Duration,
    challenges: Challenges,
    current: Mutex<Current>,
    /// Whoever renews the session holds it.
    turn: tokio::sync::Mutex<()>,
}

/// The session that stands.
#[derive(Clone)]
struct Current {
    open: Arc<Open>,
    /// What was counted of changes in the sessions before it.
    before: u64,
}

struct Open {
    talk: Talk,
    site: Arc<Site>,
}

impl Http {
    /// Opens a session, in the newest revision that both speak. `wait` is one deadline for all of it, to the end of the
    /// first [`list`](Session::list); each later listing has as long. `egress` has to admit the server, as
    /// [`HttpServer::rules`] does, and to hold its credential.
    ///
    /// A server that ends the session gets a new one with the next [`list`](Session::list). Until then
    /// [`changes`](Session::changes) has moved and calls are not sent, so that nothing is called that was not listed
    /// again.
    ///
    /// # Errors
    /// [`SessionError`] says at which stage it failed.
    pub async fn connect(
        server: HttpServer,
        egress: Egress,
        wait: Duration,
    ) -> Result<Self, SessionError> {
        Self::connect_noting(server, egress, wait, Challenges::default()).await
    }

    /// The same, with a place for what the server says when it refuses for want of a token.
    ///
    /// # Errors
    /// As [`Http::connect`].
    pub async fn connect_noting(
        server: HttpServer,
        egress: Egress,
        wait: Duration,
        challenges: Challenges,
    ) -> Result<Self, SessionError> {
        let open = Arc::new(Open::new(&server, &egress, wait, &challenges).await?);
        let current = Mutex::new(Current { open, before: 0 });
        let turn = tokio::sync::Mutex::default();
        Ok(Self { server, egress, wait, challenges, current, turn })
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session that stands, or a new one where the server ended it.
    async fn standing(&self) -> Result<Arc<Open>, SessionError> {
        let _turn = self.turn.lock().await;
        let current = self.current().clone();
        if !current.open.was_ended() {
            return Ok(current.open);
        }
        let open =
            Arc::new(Open::new(&self.server, &self.egress, self.wait, &self.challenges).await?);
        *self.current() = Current { open: Arc::clone(&open), before: current.changes() };
        Ok(open)
    }
}

impl Drop for Http {
    fn drop(&mut self) {
        use tokio::runtime::{Handle, RuntimeFlavor};

        let open = Arc::clone(&self.current().open);
        open.talk.end();
        let several = Handle::try_current()
            .is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread);
        if !several || !open.site.has_session() || open.site.is_closed() {
            return;
        }
        tokio::task::block_in_place(|| open.site.wait_closed(DROP_WAIT));
    }
}

impl Current {
    fn changes(&self) -> u64 {
        let counted = self.before.saturating_add(self.open.talk.changes());
        counted.saturating_add(u64::from(self.open.was_ended()))
    }
}

impl Open {
    async fn new(
        server: &HttpServer,
        egress: &Egress,
        wait: Duration,
        challenges: &Challenges,
    ) -> Result<Self, SessionError> {
        let until = Instant::now() + wait;
        let ledger = Arc::new(Ledger::new());
        let (outgoing, lines) = mpsc::channel(QUEUE);
        let (incoming, received) = mpsc::channel(QUEUE);
        let sorter = Sorter::new(Arc::clone(&ledger), outgoing.clone(), incoming);
        let (server, egress, challenges) = (server.clone(), egress.clone(), challenges.clone());
        let site = Site::new(server, egress, Arc::clone(&ledger), sorter, challenges);
        let site = Arc::new(site);
        // It ends by itself once the session is over, and says goodbye then.
        tokio::spawn(Posts::new(Arc::clone(&site), lines).run());
        let mut unopened = Unopened(Some(&ledger));
        let wire = Wire { ledger: Arc::clone(&ledger), outgoing, incoming: received };
        let opened = Talk::open(wire, wait, until).await;
        match opened {
            Ok(talk) => {
                unopened.0 = None;
                Ok(Self { talk, site })
            }
            Err(failure) => Err(explain(failure, ledger.fault())),
        }
    }

    /// Whether the server ended it, so that a new one may take its place.
    fn was_ended(&self) -> bool {
        self.talk.fault().is_some_and(|fault| fault.is_renewable())
    }
}

/// Ends a session that did not come about, also when nobody waits for it any more.
struct Unopened<'a>(Option<&'a Ledger>);

impl Drop for Unopened<'_> {
    fn drop(&mut self) {
        if let Some(ledger) = self.0 {
            ledger.fail(Fault::Closed);
        }
    }
}

/// Why a session did not open, as well as it is known.
fn explain(failure: SessionError, fault: Option<Fault>) -> SessionError {
    match (failure, fault) {
        (failure @ SessionError::Deadline(..), _) => failure,
        (_, Some(Fault::Unreached(why))) => SessionError::Reach(why),
        (_, Some(Fault::Unusable(why))) => SessionError::Unanswered(why, OPENING),
        (SessionError::Closed(_), Some(fault)) => SessionError::Protocol(fault.to_string()),
        (failure, _) => failure,
    }
}

impl Session for Http {
    fn list(&self) -> BoxFuture<'_, Result<Listing, SessionError>> {
        Box::pin(async move {
            let open = self.standing().await?;
            let listing = open.talk.list().await?;
            open.site.learn(listing)
        })
    }

    fn call<'a>(
        &'a self,
        tool: &'a str,
        arguments: Object,
        leave: Leave,
        told: Told<'a>,
    ) -> BoxFuture<'a, Result<Answer, CallFailure>> {
        let open = Arc::clone(&self.current().open);
        Box::pin(async move { open.talk.call(tool, arguments, leave, told).await })
    }

    fn offers(&self, kind: OfferKind) -> BoxFuture<'_, Result<Vec<Offer>, SessionError>> {
        Box::pin(async move { self.standing().await?.talk.offers(kind).await })
    }

    fn ask<'a>(
        &'a self,
        asks: Asks,
        params: Object,
        deadline: Duration,
        told: Told<'a>,
    ) -> BoxFuture<'a, Result<Value, CallFailure>> {
        let open = Arc::clone(&self.current().open);
        Box::pin(async move { open.talk.ask(asks, params, deadline, told).await })
    }

    fn changes(&self) -> u64 {
        self.current().changes()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        let open = Arc::clone(&self.current().open);
        Box::pin(async move {
            open.talk.end();
            open.site.closed().await;
        })
    }
}
