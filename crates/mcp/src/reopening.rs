//! The sessions of one server that may end by itself: where one ended, the next takes its place.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use portcullis_canon::{Object, Value};
use portcullis_domain::ports::{BoxFuture, Clock, Monotonic};
use tokio::task::JoinHandle;

use crate::listing::Listing;
use crate::offer::{Offer, OfferKind};
use crate::progress::Told;
use crate::session::{Answer, Asks, CallFailure, Leave, Session, SessionError};

/// The wait before the second new session in a row; each further one waits twice as long, up to the longest.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// After so long without a new session, the next one is the first in a row again. Longer than any wait, so that a server
/// that ends each time never comes to that.
const GOOD: Duration = Duration::from_secs(600);

/// When a session failed that is not the first.
const AGAIN: &str = "it was started again";

/// How a session is opened: with what it was opened the first time, and all that is checked before.
pub type Opening =
    Box<dyn Fn() -> BoxFuture<'static, Result<Arc<dyn Session>, SessionError>> + Send + Sync>;

/// A session that is opened again after it [ended](Session::has_ended).
///
/// That happens with the next [`list`](Session::list). Until then [`changes`](Session::changes) has moved and calls are
/// not sent, so that nothing is called that was not listed again and held against the pin. No call is made a second
/// time.
pub struct Reopening {
    opening: Opening,
    clock: Arc<dyn Clock>,
    current: Mutex<Current>,
    /// Whoever opens the next session holds it.
    turn: tokio::sync::Mutex<Turn>,
}

/// The session that stands.
#[derive(Clone)]
struct Current {
    session: Arc<dyn Session>,
    /// What was counted of changes in the sessions before it.
    before: u64,
    /// Set when it was closed from here: no other follows.
    closed: bool,
}

/// How often in a row, and when, the session was opened again.
struct Turn {
    again: u32,
    last: Monotonic,
    /// The next session on its way. It goes on when nobody waits for it any more: a server that starts slowly is there for a
    /// later call.
    coming: Option<JoinHandle<Result<Arc<dyn Session>, SessionError>>>,
}

impl Reopening {
    /// Goes on after this session by way of `opening`. By the clock, a server that ends again and again is opened ever more
    /// rarely: at most once a minute.
    #[must_use]
    pub fn new(first: Arc<dyn Session>, opening: Opening, clock: Arc<dyn Clock>) -> Self {
        let current = Current { session: first, before: 0, closed: false };
        let turn = Turn { again: 0, last: clock.monotonic(), coming: None };
        Self { opening, clock, current: Mutex::new(current), turn: tokio::sync::Mutex::new(turn) }
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session that stands, or a new one where it ended.
    async fn standing(&self) -> Result<Arc<dyn Session>, SessionError> {
        let mut turn = self.turn.lock().await;
        let current = self.current().clone();
        if !current.has_ended() {
            return Ok(current.session);
        }
        if turn.coming.is_none() {
            turn.take(self.clock.monotonic())?;
            turn.coming = Some(tokio::spawn((self.opening)()));
        }
        let came = match &mut turn.coming {
            Some(coming) => coming.await,
            None => return Err(SessionError::Closed(AGAIN)),
        };
        turn.coming = None;
        let session = came.map_err(|_| SessionError::Closed(AGAIN))??;
        let mut place = self.current();
        if place.closed {
            return Err(SessionError::Closed(AGAIN));
        }
        *place =
            Current { session: Arc::clone(&session), before: current.changes(), closed: false };
        Ok(session)
    }
}

impl Turn {
    /// Counts one more, if enough time has passed.
    fn take(&mut self, now: Monotonic) -> Result<(), SessionError> {
        let passed = Duration::from_micros(now.micros_since(self.last));
        if passed >= GOOD {
            self.again = 0;
        }
        let pause = match self.again {
            0 => Duration::ZERO,
            again => PAUSE.saturating_mul(1 << (again - 1).min(10)).min(LONGEST_PAUSE),
        };
        if passed < pause {
            let seconds = (pause - passed).as_secs() + 1;
            let again = self.again;
            return Err(SessionError::Start(format!(
                "it ended {again} times in a row; it is started again in {seconds} s"
            )));
        }
        (self.again, self.last) = (self.again.saturating_add(1), now);
        Ok(())
    }
}

impl Current {
    fn has_ended(&self) -> bool {
        !self.closed && self.session.has_ended()
    }

    fn changes(&self) -> u64 {
        let counted = self.before.saturating_add(self.session.changes());
        counted.saturating_add(u64::from(self.has_ended()))
    }
}

impl Session for Reopening {
    fn list(&self) -> BoxFuture<'_, Result<Listing, SessionError>> {
        Box::pin(async move { self.standing().await?.list().await })
    }

    fn call<'a>(
        &'a self,
        tool: &'a str,
        arguments: Object,
        leave: Leave,
        told: Told<'a>,
    ) -> BoxFuture<'a, Result<Answer, CallFailure>> {
        let session = Arc::clone(&self.current().session);
        Box::pin(async move { session.call(tool, arguments, leave, told).await })
    }

    fn offers(&self, kind: OfferKind) -> BoxFuture<'_, Result<Vec<Offer>, SessionError>> {
        Box::pin(async move { self.standing().await?.offers(kind).await })
    }

    /// A prompt is asked for as a tool is called: only of the session in which it was listed. The others need no listing.
    fn ask<'a>(
        &'a self,
        asks: Asks,
        params: Object,
        deadline: Duration,
        told: Told<'a>,
    ) -> BoxFuture<'a, Result<Value, CallFailure>> {
        Box::pin(async move {
            let session = match asks {
                Asks::Prompt => Ok(Arc::clone(&self.current().session)),
                Asks::Read | Asks::Complete => self.standing().await,
            };
            let session = session.map_err(|error| {
                tracing::warn!("an MCP server could not be started again: it {error}");
                CallFailure::NotSent(
                    "the server could not be started again; the operator sees why".to_owned(),
                )
            })?;
            session.ask(asks, params, deadline, told).await
        })
    }

    fn changes(&self) -> u64 {
        self.current().changes()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        let session = {
            let mut current = self.current();
            current.closed = true;
            Arc::clone(&current.session)
        };
        Box::pin(async move { session.close().await })
    }
}

impl fmt::Debug for Reopening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reopening").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

    use portcullis_domain::time::Timestamp;
    use portcullis_testkit::ports::ManualClock;

    use super::*;

    /// A session that ends when it is told to.
    #[derive(Default)]
    struct Ending {
        ended: AtomicBool,
        changes: AtomicU64,
        calls: AtomicUsize,
    }

    impl Session for Ending {
        fn list(&self) -> BoxFuture<'_, Result<Listing, SessionError>> {
            Box::pin(async { Ok(Listing::new(Vec::new())?) })
        }

        fn call<'a>(
            &'a self,
            _: &'a str,
            _: Object,
            _: Leave,
            _: Told<'a>,
        ) -> BoxFuture<'a, Result<Answer, CallFailure>> {
            self.calls.fetch_add(1, Ordering::SeqCst);
            let ended = self.has_ended();
            Box::pin(async move {
                match ended {
                    true => Err(CallFailure::NotSent("it is over".to_owned())),
                    false => Err(CallFailure::Unknown("lost".to_owned())),
                }
            })
        }

        fn offers(&self, _: OfferKind) -> BoxFuture<'_, Result<Vec<Offer>, SessionError>> {
            Box::pin(async { Ok(Vec::new()) })
        }

        fn ask<'a>(
            &'a self,
            asks: Asks,
            _: Object,
            _: Duration,
            _: Told<'a>,
        ) -> BoxFuture<'a, Result<Value, CallFailure>> {
            let ended = self.has_ended();
            Box::pin(async move {
                match ended {
                    true => Err(CallFailure::NotSent("it is over".to_owned())),
                    false => Ok(Value::from(asks.method())),
                }
            })
        }

        fn changes(&self) -> u64 {
            self.changes.load(Ordering::SeqCst)
        }

        fn has_ended(&self) -> bool {
            self.ended.load(Ordering::SeqCst)
        }
    }

    struct Scene {
        opened: Arc<Mutex<Vec<Arc<Ending>>>>,
        clock: ManualClock,
        session: Reopening,
    }

    impl Scene {
        fn new() -> Self {
            let first = Arc::new(Ending::default());
            let opened = Arc::new(Mutex::new(vec![Arc::clone(&first)]));
            let more = Arc::clone(&opened);
            let opening: Opening = Box::new(move || {
                let next = Arc::new(Ending::default());
                more.lock().unwrap().push(Arc::clone(&next));
                Box::pin(async { Ok(next as Arc<dyn Session>) })
            });
            let clock = ManualClock::at(Timestamp::from_micros(0));
            let session = Reopening::new(first, opening, Arc::new(clock.clone()));
            Self { opened, clock, session }
        }

        fn opened(&self) -> usize {
            self.opened.lock().unwrap().len()
        }

        fn end(&self) {
            self.opened.lock().unwrap().last().unwrap().ended.store(true, Ordering::SeqCst);
        }

        async fn call(&self) -> CallFailure {
            self.session.call("a", Object::new(), GOOD.into(), &|_| {}).await.unwrap_err()
        }
    }

    #[tokio::test]
    async fn after_its_end_nothing_is_called_that_was_not_listed_again() {
        let scene = Scene::new();
        scene.opened.lock().unwrap()[0].changes.store(4, Ordering::SeqCst);
        assert!(matches!(scene.call().await, CallFailure::Unknown(_)), "control");
        scene.end();
        assert_eq!(scene.session.changes(), 5, "what was listed before is not good any more");
        assert!(matches!(scene.call().await, CallFailure::NotSent(_)), "a call opens nothing");
        assert_eq!(scene.opened(), 1);
        scene.session.list().await.unwrap();
        assert_eq!((scene.opened(), scene.session.changes()), (2, 5));
        assert!(matches!(scene.call().await, CallFailure::Unknown(_)));
        scene.session.list().await.unwrap();
        assert_eq!(scene.opened(), 2, "one that stands stays");
    }

    #[tokio::test]
    async fn what_needs_no_listing_opens_the_next_session_and_a_prompt_does_not() {
        let scene = Scene::new();
        let ask = |asks| scene.session.ask(asks, Object::new(), GOOD, &|_| {});
        scene.end();
        assert!(matches!(ask(Asks::Prompt).await, Err(CallFailure::NotSent(_))));
        assert_eq!(scene.opened(), 1);
        ask(Asks::Read).await.unwrap();
        assert_eq!(
            (scene.opened(), scene.session.changes()),
            (2, 1),
            "tools are not yet listed again"
        );
        ask(Asks::Prompt).await.unwrap();
    }

    #[tokio::test]
    async fn one_that_ends_again_and_again_is_opened_ever_more_rarely() {
        let scene = Scene::new();
        let end = async || {
            scene.end();
            scene.session.list().await
        };
        end().await.unwrap();
        for pause in [1, 2, 4, 8, 16, 32, 60, 60, 60] {
            let failure = end().await.unwrap_err().to_string();
            assert!(failure.ends_with(&format!("again in {} s", pause + 1)), "{failure}");
            scene.clock.advance(Duration::from_millis(pause * 1000 - 1));
            end().await.unwrap_err();
            scene.clock.advance(Duration::from_millis(1));
            end().await.unwrap();
        }
        scene.clock.advance(GOOD);
        end().await.unwrap();
        assert_eq!(scene.opened(), 12);
    }

    #[tokio::test]
    async fn one_that_starts_slowly_is_there_for_a_later_call() {
        let gate = Arc::new(tokio::sync::Notify::new());
        let (opened, held) = (Arc::new(AtomicUsize::new(0)), Arc::clone(&gate));
        let counted = Arc::clone(&opened);
        let opening: Opening = Box::new(move || {
            counted.fetch_add(1, Ordering::SeqCst);
            let held = Arc::clone(&held);
            Box::pin(async move {
                held.notified().await;
                Ok(Arc::new(Ending::default()) as Arc<dyn Session>)
            })
        });
        let first = Ending::default();
        first.ended.store(true, Ordering::SeqCst);
        let session = Reopening::new(Arc::new(first), opening, Arc::new(ManualClock::default()));
        for _ in 0..3 {
            let waited = tokio::time::timeout(Duration::from_millis(20), session.list()).await;
            assert!(waited.is_err(), "nobody who waits less has it");
        }
        gate.notify_one();
        session.list().await.unwrap();
        assert_eq!(opened.load(Ordering::SeqCst), 1, "it was started once");
    }

    #[tokio::test]
    async fn what_was_closed_stays_closed() {
        let scene = Scene::new();
        scene.session.close().await;
        scene.end();
        let _its_own = scene.session.list().await;
        assert_eq!(scene.opened(), 1);
    }

    #[tokio::test]
    async fn many_that_wait_open_one() {
        let scene = Scene::new();
        scene.end();
        let list = || scene.session.list();
        let (one, two, three) = tokio::join!(list(), list(), list());
        assert!(one.is_ok() && two.is_ok() && three.is_ok());
        assert_eq!(scene.opened(), 2);
    }
}
