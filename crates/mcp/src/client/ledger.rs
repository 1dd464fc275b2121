//! What was asked of a server and what came of it: an answer counts only for a request that was written and is open.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use portcullis_canon::Value;
use portcullis_domain::standing::Standing;
use tokio::sync::watch;

use crate::needs::Needs;
use crate::progress::Progress;

/// The most answers and lines without sense that one session takes before it ends.
pub(super) const MAX_STRAYS: u32 = 100;

/// The most given-up requests that are remembered, the newest: a later answer to one of them is dropped in silence.
const MAX_GIVEN_UP: usize = 1_024;

/// Why a request whose leave no longer stands is not written.
const LAPSED: &str = "the run was not held here any more when the call was about to be sent";

/// What a request is for, which decides what becomes of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// `server/discover` or `initialize`.
    Handshake,
    /// The subscription to changes, whose answer is its end.
    Listen,
    /// A page of a listing, a call or what else is asked for: the answer is kept as it came.
    Kept,
}

/// What a server answered, as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// A result.
    Result(Value),
    /// An error: its code, and its message, which is not safe to print.
    Error(i64, String),
    /// The error that says what the server would have to ask of us.
    Needs(Needs),
}

/// What is to be done with an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// It was waited for.
    Asked(What),
    /// Nobody waits any more.
    Late,
    /// Nobody asked.
    Stray,
}

/// Why a session is over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    /// The server closed its output or ended.
    #[error("it closed the connection")]
    Closed,
    /// It closed its input, or takes nothing any more.
    #[error("it does not read what it is sent")]
    Deaf,
    /// A longer line than is kept.
    #[error("it wrote a line of more than {} bytes", super::MAX_LINE_BYTES)]
    LongLine,
    /// More values in one line than are kept.
    #[error("it wrote a line of more than {} values", super::line::MAX_VALUES)]
    ManyValues,
    /// A line that looks like a message and is none.
    #[error("it wrote a line that is no strict JSON: {0}")]
    NotJson(String),
    /// An answer of the handshake that cannot be read.
    #[error("its answer to `{0}` has another shape than the protocol gives it")]
    Shape(&'static str),
    /// Answers that nobody asked for, or lines that are no messages.
    #[error("it wrote more than {MAX_STRAYS} lines that answer nothing that was asked")]
    Strays,
    /// Notices and requests without end.
    #[error("it floods the connection with what nobody asked for")]
    Flood,
    /// The subscription to changes ended while the session went on.
    #[error("it ended the subscription to changes of its tools")]
    Unsubscribed,
    /// No request of the handshake left.
    #[error("{0}")]
    Unreached(String),
    /// What it answered to the handshake cannot be used.
    #[error("{0}")]
    Unusable(String),
    /// It says that it knows the session no more.
    #[error("it ended the session")]
    Ended,
    /// The id that it gives the session cannot be one, or is another than before.
    #[error("the id that it gives the session {0}")]
    Identity(&'static str),
}

impl Fault {
    /// Whether a new session may take the place of this one, once its tools were held against the pin again.
    pub(super) const fn is_renewable(&self) -> bool {
        matches!(self, Self::Ended | Self::Unsubscribed)
    }
}

/// A request that came to nothing by itself, while the session goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Broken {
    /// Whether the server may have taken it up.
    pub(super) sent: bool,
    /// Why, safe to print.
    pub(super) why: String,
}

#[derive(Debug)]
enum Stage {
    /// Not a byte of it was written.
    Queued,
    /// It may have been written.
    Written,
    Answered(Reply),
    Broken(Broken),
}

#[derive(Debug)]
struct Ask {
    what: What,
    stage: Stage,
    /// Whether it may still be written.
    standing: Standing,
    /// By which the server says how far it is.
    token: Option<i64>,
    /// The last that it said.
    so_far: Option<f64>,
    /// What was not told on yet.
    news: Option<Progress>,
}

#[derive(Debug, Default)]
struct State {
    asked: BTreeMap<i64, Ask>,
    /// Given up before they came by.
    withdrawn: BTreeSet<i64>,
    /// Given up after they may have been written.
    given_up: BTreeSet<i64>,
    strays: u32,
    fault: Option<Fault>,
}

/// All requests of one session.
#[derive(Debug)]
pub(super) struct Ledger {
    state: Mutex<State>,
    changes: AtomicU64,
    over: watch::Sender<bool>,
    /// Told whenever a request was given up.
    moved: watch::Sender<()>,
    /// Told whenever the server said how far one is.
    progressed: watch::Sender<()>,
}

impl Ledger {
    pub(super) fn new() -> Self {
        let (over, moved) = (watch::Sender::new(false), watch::Sender::new(()));
        let (changes, progressed) = (AtomicU64::new(0), watch::Sender::new(()));
        Self { state: Mutex::default(), changes, over, moved, progressed }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No guard is held over anything that could panic half-way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a request that is about to be queued. False when it was withdrawn meanwhile, or the session is over.
    pub(super) fn ask(&self, id: i64, what: What, standing: Standing) -> bool {
        let mut state = self.state();
        if state.withdrawn.remove(&id) || state.fault.is_some() {
            return false;
        }
        if what == What::Handshake {
            // One question of the handshake takes the place of another that stayed without an answer.
            let earlier = state.asked.iter().filter(|(_, ask)| ask.what == What::Handshake);
            let earlier: Vec<i64> = earlier.map(|(id, _)| *id).collect();
            earlier.into_iter().for_each(|id| state.give_up(id));
            self.moved.send_replace(());
        }
        let stage = Stage::Queued;
        let ask = Ask { what, stage, standing, token: None, so_far: None, news: None };
        state.asked.insert(id, ask);
        true
    }

    /// Says by which token the server tells how far a request is.
    pub(super) fn mark(&self, id: i64, token: i64) {
        if let Some(ask) = self.state().asked.get_mut(&id) {
            ask.token = Some(token);
        }
    }

    /// The server said how far a request is. It counts for one that is waited for, and only forwards.
    pub(super) fn heard(&self, token: i64, progress: Progress) {
        let mut state = self.state();
        let mut asks = state.asked.values_mut();
        let waits =
            |ask: &&mut Ask| ask.token == Some(token) && matches!(ask.stage, Stage::Written);
        if let Some(ask) = asks.find(waits)
            && ask.so_far.is_none_or(|so_far| progress.so_far > so_far)
        {
            (ask.so_far, ask.news) = (Some(progress.so_far), Some(progress));
            self.progressed.send_replace(());
        }
    }

    /// Resolves whenever the server said how far a request is.
    pub(super) fn progressed(&self) -> watch::Receiver<()> {
        self.progressed.subscribe()
    }

    /// The newest word of how far a request is, once.
    pub(super) fn progress(&self, id: i64) -> Option<Progress> {
        self.state().asked.get_mut(&id)?.news.take()
    }

    /// Just before the first byte of a request is written. False when it is not to be written any more: nobody waits for
    /// it, or its run may be another's by now.
    pub(super) fn begin(&self, id: i64) -> bool {
        let mut state = self.state();
        let Some(ask) = state.asked.get_mut(&id) else { return false };
        if !ask.standing.holds() {
            ask.stage = Stage::Broken(Broken { sent: false, why: LAPSED.to_owned() });
            return false;
        }
        ask.stage = Stage::Written;
        true
    }

    /// An answer arrived.
    pub(super) fn answer(&self, id: Option<i64>, reply: Reply) -> Arrival {
        let mut state = self.state();
        let Some(id) = id else { return Arrival::Stray };
        if state.given_up.remove(&id) {
            return Arrival::Late;
        }
        match state.asked.get_mut(&id) {
            Some(ask) if matches!(ask.stage, Stage::Written) => {
                let what = ask.what;
                if what == What::Kept {
                    ask.stage = Stage::Answered(reply);
                } else {
                    state.asked.remove(&id);
                }
                Arrival::Asked(what)
            }
            // Answered twice, or before it was asked.
            _ => Arrival::Stray,
        }
    }

    /// The answer to a request, once it came.
    pub(super) fn take(&self, id: i64) -> Option<Reply> {
        let mut state = self.state();
        if !matches!(state.asked.get(&id)?.stage, Stage::Answered(_)) {
            return None;
        }
        match state.asked.remove(&id)?.stage {
            Stage::Answered(reply) => Some(reply),
            Stage::Queued | Stage::Written | Stage::Broken(_) => None,
        }
    }

    /// A request came to nothing. Gives what it was for, when somebody still waits for it.
    pub(super) fn break_off(&self, id: i64, broken: Broken) -> Option<What> {
        let mut state = self.state();
        let ask = state.asked.get_mut(&id)?;
        if !matches!(ask.stage, Stage::Queued | Stage::Written) {
            return None;
        }
        ask.stage = Stage::Broken(broken);
        Some(ask.what)
    }

    /// Why a request came to nothing, once it did.
    pub(super) fn broken(&self, id: i64) -> Option<Broken> {
        let mut state = self.state();
        let Stage::Broken(broken) = &state.asked.get(&id)?.stage else { return None };
        let broken = broken.clone();
        state.asked.remove(&id);
        Some(broken)
    }

    /// Waits until nobody waits for an answer to this request.
    pub(super) async fn let_go(&self, id: i64) {
        let mut moved = self.moved.subscribe();
        // The sender lives in `self`.
        while self.is_open(id) && moved.changed().await.is_ok() {}
    }

    fn is_open(&self, id: i64) -> bool {
        let state = self.state();
        let stage = state.asked.get(&id).map(|ask| &ask.stage);
        stage.is_some_and(|stage| matches!(stage, Stage::Queued | Stage::Written))
    }

    /// Gives a request up. True when the server may have seen it: what became of it is not known then.
    pub(super) fn give_up(&self, id: i64) -> bool {
        let sent = self.strike(id);
        self.moved.send_replace(());
        sent
    }

    fn strike(&self, id: i64) -> bool {
        let mut state = self.state();
        match state.asked.get(&id).map(|ask| &ask.stage) {
            None => {
                state.withdrawn.insert(id);
                false
            }
            Some(Stage::Queued) => {
                state.asked.remove(&id);
                false
            }
            Some(Stage::Written | Stage::Answered(_)) => {
                state.give_up(id);
                true
            }
            Some(Stage::Broken(broken)) => {
                let sent = broken.sent;
                state.asked.remove(&id);
                sent
            }
        }
    }

    /// Whether the open request of this number is a subscription.
    pub(super) fn is_subscription(&self, id: Option<i64>) -> bool {
        let state = self.state();
        id.and_then(|id| state.asked.get(&id)).is_some_and(|ask| ask.what == What::Listen)
    }

    /// Counts what made no sense.
    pub(super) fn stray(&self) -> Result<(), Fault> {
        let mut state = self.state();
        state.strays = state.strays.saturating_add(1);
        if state.strays > MAX_STRAYS { Err(Fault::Strays) } else { Ok(()) }
    }

    /// The server said that its tools or prompts changed.
    pub(super) fn changed(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    /// Ends the session; the first reason stays.
    pub(super) fn fail(&self, fault: Fault) {
        self.state().fault.get_or_insert(fault);
        self.over.send_replace(true);
    }

    pub(super) fn fault(&self) -> Option<Fault> {
        self.state().fault.clone()
    }

    /// Waits until the session is over.
    pub(super) async fn over(&self) {
        // The sender lives in `self`, so the wait ends with a true value only.
        let _ = self.over.subscribe().wait_for(|over| *over).await;
    }
}

impl State {
    fn give_up(&mut self, id: i64) {
        self.asked.remove(&id);
        self.given_up.insert(id);
        while self.given_up.len() > MAX_GIVEN_UP {
            self.given_up.pop_first();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply() -> Reply {
        Reply::Result(Value::from("done"))
    }

    #[test]
    fn an_answer_counts_once_and_only_after_its_request_was_written() {
        let ledger = Ledger::new();
        assert_eq!(ledger.answer(Some(1), reply()), Arrival::Stray, "before it was asked");
        assert!(ledger.ask(1, What::Kept, Standing::always()));
        assert_eq!(ledger.answer(Some(1), reply()), Arrival::Stray, "before it was written");
        assert!(ledger.begin(1));
        assert_eq!(ledger.take(1), None);
        assert_eq!(ledger.answer(Some(2), reply()), Arrival::Stray, "another one");
        assert_eq!(ledger.answer(None, reply()), Arrival::Stray, "none");
        assert_eq!(ledger.answer(Some(1), reply()), Arrival::Asked(What::Kept));
        assert_eq!(ledger.answer(Some(1), reply()), Arrival::Stray, "the second time");
        assert_eq!(ledger.take(1), Some(reply()));
        assert_eq!(ledger.take(1), None);
    }

    #[test]
    fn what_was_given_up_says_whether_it_may_have_been_seen() {
        let ledger = Ledger::new();
        assert!(!ledger.give_up(1), "it did not come by yet");
        assert!(!ledger.ask(1, What::Kept, Standing::always()), "and is not queued any more");
        assert!(ledger.ask(2, What::Kept, Standing::always()));
        assert!(!ledger.give_up(2), "it was not written");
        assert!(!ledger.begin(2), "and is not written any more");
        assert!(ledger.ask(3, What::Kept, Standing::always()) && ledger.begin(3));
        assert!(ledger.give_up(3), "it may have been seen");
        assert_eq!(ledger.answer(Some(3), reply()), Arrival::Late);
        assert_eq!(ledger.answer(Some(3), reply()), Arrival::Stray, "once");
        assert_eq!(ledger.take(3), None);
    }

    #[test]
    fn the_second_question_of_the_handshake_gives_the_first_up() {
        let ledger = Ledger::new();
        assert!(ledger.ask(0, What::Handshake, Standing::always()) && ledger.begin(0));
        assert!(ledger.ask(1, What::Handshake, Standing::always()) && ledger.begin(1));
        assert_eq!(ledger.answer(Some(0), reply()), Arrival::Late);
        assert_eq!(ledger.answer(Some(1), reply()), Arrival::Asked(What::Handshake));
    }

    #[test]
    fn what_came_to_nothing_says_so_once_and_takes_no_answer() {
        let broken = |sent| Broken { sent, why: "cut".to_owned() };
        let ledger = Ledger::new();
        assert_eq!(ledger.break_off(1, broken(true)), None, "nobody asked");
        assert!(ledger.ask(1, What::Kept, Standing::always()) && ledger.begin(1));
        assert_eq!(ledger.break_off(1, broken(true)), Some(What::Kept));
        assert_eq!(ledger.answer(Some(1), reply()), Arrival::Stray, "it is over");
        assert_eq!(ledger.broken(1), Some(broken(true)));
        assert_eq!(ledger.broken(1), None);
        assert!(ledger.ask(2, What::Kept, Standing::always()) && ledger.begin(2));
        ledger.answer(Some(2), reply());
        assert_eq!(ledger.break_off(2, broken(true)), None, "it was answered");
        for sent in [true, false] {
            assert!(ledger.ask(3, What::Kept, Standing::always()) && ledger.begin(3));
            ledger.break_off(3, broken(sent));
            assert_eq!(ledger.give_up(3), sent);
        }
    }

    #[tokio::test]
    async fn who_works_at_a_request_is_told_that_nobody_waits() {
        let ledger = Ledger::new();
        ledger.let_go(1).await;
        assert!(ledger.ask(1, What::Kept, Standing::always()) && ledger.begin(1));
        let mut waiting = std::pin::pin!(ledger.let_go(1));
        let still = tokio::time::timeout(std::time::Duration::from_millis(20), &mut waiting).await;
        assert!(still.is_err(), "control: somebody waits");
        ledger.give_up(1);
        waiting.await;
    }

    #[test]
    fn how_far_a_request_is_counts_while_it_is_open_and_only_forwards() {
        let at = |so_far| Progress { so_far, total: None };
        let ledger = Ledger::new();
        ledger.heard(7, at(1.0));
        assert!(ledger.ask(1, What::Kept, Standing::always()));
        ledger.mark(1, 7);
        ledger.heard(7, at(1.0));
        assert_eq!(ledger.progress(1), None, "before it was written");
        assert!(ledger.begin(1));
        ledger.heard(8, at(1.0));
        assert_eq!(ledger.progress(1), None, "of another one");
        for so_far in [2.0, 3.0, 3.0, 1.0] {
            ledger.heard(7, at(so_far));
        }
        assert_eq!((ledger.progress(1), ledger.progress(1)), (Some(at(3.0)), None));
        ledger.heard(7, at(3.0));
        assert_eq!(ledger.progress(1), None, "it was told already");
        ledger.answer(Some(1), reply());
        ledger.heard(7, at(9.0));
        assert_eq!(ledger.progress(1), None, "after its answer");
    }

    #[test]
    fn strays_are_counted_and_the_first_fault_stays() {
        let ledger = Ledger::new();
        for _ in 0..MAX_STRAYS {
            assert_eq!(ledger.stray(), Ok(()));
        }
        assert_eq!(ledger.stray(), Err(Fault::Strays));
        ledger.fail(Fault::Strays);
        ledger.fail(Fault::Closed);
        assert_eq!(ledger.fault(), Some(Fault::Strays));
        assert!(!ledger.ask(9, What::Kept, Standing::always()), "nothing is asked any more");
    }
}
