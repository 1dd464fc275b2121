//! The store as one process sees it: slow, sometimes refusing, sometimes not answering, sometimes hearing things twice.

use std::sync::Arc;

use portcullis_canon::Digest;
use portcullis_domain::event::Body;
use portcullis_domain::id::{InstanceId, RunId};
use portcullis_domain::lease::Epoch;
use portcullis_domain::ports::{
    Append, BoxFuture, Committed, Condition, Durability, Observer as _, Reminder, Store, StoreError,
};
use portcullis_domain::row::{Cell, Row as _};
use portcullis_domain::scope::Scope;
use portcullis_domain::time::Timestamp;
use portcullis_engine::Answers;

use crate::executor::{Pid, pause};
use crate::log::What;
use crate::planted::Planted;
use crate::world::World;

/// What goes wrong with an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    /// It is refused and not stored.
    Busy,
    Full,
    /// It may or may not be stored, and nobody is told which.
    DoubtStored,
    DoubtNotStored,
}

/// The shared record behind one process's door.
pub(crate) struct SimStore {
    world: Arc<World>,
    pid: Pid,
    /// What hears of the answers that this process records.
    answers: Option<Arc<Answers>>,
}

impl SimStore {
    pub(crate) const fn new(world: Arc<World>, pid: Pid, answers: Option<Arc<Answers>>) -> Self {
        Self { world, pid, answers }
    }

    /// What was read arrives some time later.
    fn late<'a, T: Send + 'a>(
        &'a self,
        read: BoxFuture<'a, Result<T, StoreError>>,
    ) -> BoxFuture<'a, Result<T, StoreError>> {
        Box::pin(async move {
            let read = read.await;
            let times = self.world.draw(|draw| u64::from(draw.chance(150)));
            pause(times).await;
            read
        })
    }

    async fn slow(&self) {
        let times = self.world.draw(|draw| draw.below(3));
        pause(times).await;
    }

    fn wrong(&self) -> Option<Wrong> {
        let rate = self.world.mood().store;
        self.world.draw(|draw| {
            let kinds = [
                (3, Wrong::Busy),
                (1, Wrong::Full),
                (3, Wrong::DoubtStored),
                (3, Wrong::DoubtNotStored),
            ];
            draw.chance(rate).then(|| draw.weighted(&kinds)).flatten()
        })
    }

    async fn append_as(&self, scope: &Scope, append: Append) -> Result<Committed, StoreError> {
        self.slow().await;
        let append = self.tampered(append);
        match self.wrong() {
            Some(Wrong::Busy) => {
                self.world.count("store refused for now");
                self.world.note("the store is busy");
                return Err(StoreError::Busy);
            }
            Some(Wrong::Full) => {
                self.world.count("disk full");
                self.world.note("the disk is full");
                return Err(StoreError::Full);
            }
            Some(Wrong::DoubtNotStored) => {
                self.world.count("append in doubt and not stored");
                self.world.note("an append is lost, and its caller cannot know");
                return Err(StoreError::InDoubt);
            }
            Some(Wrong::DoubtStored) => {
                self.deliver(scope, append).await?;
                self.world.count("append in doubt and stored");
                self.world.note("the answer to an append is lost");
                return Err(StoreError::InDoubt);
            }
            None => {}
        }
        let again = append.clone();
        let committed = self.deliver_planted(scope, append).await?;
        self.world.hear(self.pid, false);
        self.repeat(scope, again).await;
        self.slow().await;
        self.world.hear(self.pid, true);
        Ok(committed)
    }

    /// Hands an append to the record, and logs what was committed.
    async fn deliver(&self, scope: &Scope, append: Append) -> Result<Committed, StoreError> {
        let take = match &append.condition {
            Condition::Driver { run, take: Some(take), epoch, .. } => {
                Some((*run, epoch.next(), take.until))
            }
            _ => None,
        };
        let committed = self.world.record.append(scope, append).await;
        match &committed {
            Ok(committed) => {
                let (durability, events) = (committed.durability, committed.events.clone());
                self.world.log_as(self.pid, What::Committed { durability, events });
                if let Some((run, epoch, until)) = take {
                    self.world.log_as(self.pid, What::Term { run, epoch, until });
                }
                if let Some(answers) = &self.answers {
                    answers.committed(&committed.events);
                }
            }
            Err(StoreError::LabelsMoved) => self.world.count("labels moved before commit 1"),
            Err(_) => {}
        }
        committed
    }

    /// Delivers a stored append again: at once, or some time later.
    async fn repeat(&self, scope: &Scope, append: Append) {
        let rate = self.world.mood().twice;
        if !self.world.chance(rate) {
            return;
        }
        if self.world.chance(500) {
            self.world.post(self.pid, append);
            return;
        }
        self.world.count("append delivered twice");
        let repeated = self.deliver(scope, append).await;
        self.world.note(format!("an append arrives twice: {}", told(&repeated)));
    }

    /// Delivers an append again that was stored long ago.
    pub(crate) async fn redeliver(&self, scope: &Scope, append: Append) {
        self.world.count("append delivered again later");
        let repeated = self.deliver(scope, append).await;
        let told = told(&repeated);
        self.world.log_as(self.pid, What::Note(format!("an old append arrives again: {told}")));
    }

    async fn renew_as(
        &self,
        scope: &Scope,
        run: RunId,
        epoch: Epoch,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<(), StoreError> {
        self.slow().await;
        if self.world.chance(self.world.mood().renewal) {
            self.world.count("renewal failed");
            self.world.note("a renewal fails");
            return Err(StoreError::Busy);
        }
        self.world.record.renew(scope, run, epoch, now, until).await?;
        self.world.log_as(self.pid, What::Term { run, epoch, until });
        Ok(())
    }
}

/// What the planted faults do. Nothing of it is reached without one.
impl SimStore {
    fn is(&self, planted: Planted) -> bool {
        self.world.planted == Some(planted)
    }

    fn tampered(&self, mut append: Append) -> Append {
        if self.is(Planted::TermNotChecked)
            && let Condition::Driver { live_at, take: None, .. } = &mut append.condition
        {
            *live_at = None;
        }
        append
    }

    async fn deliver_planted(
        &self,
        scope: &Scope,
        mut append: Append,
    ) -> Result<Committed, StoreError> {
        let has = |body: fn(&Body) -> bool| append.events.iter().any(|event| body(&event.body));
        let starts = has(|body| matches!(body, Body::StepStarted(_)));
        let answers = has(|body| matches!(body, Body::QuestionAnswered(_)));
        let asks = has(|body| matches!(body, Body::QuestionAsked(_)));
        let forgets = (starts && self.is(Planted::LostCommitTakenAsDone))
            || (answers && self.is(Planted::AnswerForgotten));
        if forgets && self.world.chance(200) {
            return self.world.record.fork()?.append(scope, append).await;
        }
        if starts && self.is(Planted::IntentNotSynced) {
            append.durability = Durability::Written;
            let committed = self.deliver(scope, append).await?;
            return Ok(Committed { durability: Durability::Synced, ..committed });
        }
        if self.is(Planted::EpochNotChecked) {
            self.overtake(scope, &mut append).await?;
        }
        let run = append.events.first().map(|event| RunId::from_bytes(event.stream.id));
        let committed = self.deliver(scope, append).await?;
        if answers && self.is(Planted::RefusedAnswerKept) && self.world.chance(200) {
            return Err(StoreError::Busy);
        }
        if let Some(run) = run.filter(|_| asks && self.is(Planted::TableChanged)) {
            self.change_table(scope, run).await?;
        }
        Ok(committed)
    }

    /// Makes a stale holder's append fit what is recorded now.
    async fn overtake(&self, scope: &Scope, append: &mut Append) -> Result<(), StoreError> {
        let Condition::Driver { run, seq, epoch, take: None, .. } = &mut append.condition else {
            return Ok(());
        };
        if let Some(state) = self.world.record.run(scope, *run).await?
            && state.run.epoch != *epoch
        {
            (*seq, *epoch) = (state.run.seq, state.run.epoch);
        }
        Ok(())
    }

    async fn change_table(&self, scope: &Scope, run: RunId) -> Result<(), StoreError> {
        let state = self.world.record.run(scope, run).await?;
        if let Some(question) = state.and_then(|state| state.question) {
            let key = question.key_cells();
            self.world.record.tamper(|raw| raw.set("questions", &key, "uses", Cell::Int(7)))?;
        }
        Ok(())
    }
}

fn told<T>(result: &Result<T, StoreError>) -> String {
    match result {
        Ok(_) => "taken".to_owned(),
        Err(error) => error.to_string(),
    }
}

impl Store for SimStore {
    fn instance(&self) -> InstanceId {
        self.world.record.instance()
    }

    fn append<'a>(
        &'a self,
        scope: &'a Scope,
        append: Append,
    ) -> BoxFuture<'a, Result<Committed, StoreError>> {
        Box::pin(self.append_as(scope, append))
    }

    fn renew<'a>(
        &'a self,
        scope: &'a Scope,
        run: RunId,
        epoch: Epoch,
        now: Timestamp,
        until: Timestamp,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(self.renew_as(scope, run, epoch, now, until))
    }

    portcullis_testkit::store_reads!(world.record, late);

    fn remind<'a>(
        &'a self,
        scope: &'a Scope,
        reminder: Reminder,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        self.world.record.remind(scope, reminder)
    }

    fn erase<'a>(
        &'a self,
        scope: &'a Scope,
        content: Digest,
        by: &'a str,
        at: Timestamp,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        self.world.record.erase(scope, content, by, at)
    }
}
