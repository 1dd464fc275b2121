//! Tool sources under watch: their calls are counted and compared with their effects, and the process can end there.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use portcullis_domain::id::StepId;
use portcullis_domain::permit::Permit;
use portcullis_domain::ports::{BoxFuture, ToolFailure, ToolOutput, ToolSource};
use portcullis_domain::tool::{EffectClass, ToolSpec};

use super::Effects;
use super::report::{Kind, Point, Side};
use crate::crash::{CrashStore, Moment, Phase};
use crate::render::same_bytes;

/// The cards that people said yes to, in their bytes, by step.
pub(super) type Shown = Mutex<BTreeMap<StepId, Vec<u8>>>;

/// What the watched sources of one process tell.
pub(super) struct Watch {
    store: Arc<CrashStore>,
    aim: Option<Point>,
    effects: Arc<Effects>,
    /// Shared by all processes: effects before the latest call was started.
    before: Arc<AtomicUsize>,
    shown: Arc<Shown>,
    calls: AtomicU64,
    points: Mutex<Vec<Point>>,
    lies: Mutex<Vec<(Kind, String)>>,
}

impl Watch {
    pub(super) fn new(
        store: Arc<CrashStore>,
        aim: Option<Point>,
        effects: Arc<Effects>,
        before: Arc<AtomicUsize>,
        shown: Arc<Shown>,
    ) -> Self {
        let (calls, points, lies) = (AtomicU64::new(0), Mutex::default(), Mutex::default());
        Self { store, aim, effects, before, shown, calls, points, lies }
    }

    /// Passes a point at an append.
    pub(super) fn append(&self, moment: Moment, events: &[&'static str]) {
        // Before the store hears of a start, so that what happens after it is its effect.
        if moment.phase == Phase::Before && events.contains(&"step.started") {
            self.before.store((self.effects)().len(), Ordering::Release);
        }
        self.note(Point::Record { moment, events: events.to_vec() });
    }

    fn note(&self, point: Point) {
        self.points.lock().unwrap_or_else(PoisonError::into_inner).push(point);
    }

    /// The points that were passed, in order.
    pub(super) fn points(&self) -> Vec<Point> {
        self.points.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What tools said of themselves that is not so.
    pub(super) fn lies(&self) -> Vec<(Kind, String)> {
        self.lies.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Passes a point; true when the process ends there.
    fn pass(&self, number: u64, tool: &str, side: Side) -> bool {
        let point = Point::Effect { number, tool: tool.to_owned(), side };
        let ends = self.aim.as_ref() == Some(&point);
        self.note(point);
        if ends {
            self.store.end();
        }
        ends
    }

    /// Holds what is about to run against what people were shown, if they were.
    fn was_shown(&self, permit: &Permit) {
        let shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let card = shown.get(&permit.step());
        let same = card.map_or(Ok(()), |card| same_bytes(card, permit.tool(), permit.arguments()));
        if let Err(text) = same {
            let mut lies = self.lies.lock().unwrap_or_else(PoisonError::into_inner);
            lies.push((Kind::NotShown, text));
        }
    }

    /// Holds what a call did against what its tool says.
    fn compare(
        &self,
        tool: &str,
        class: Option<EffectClass>,
        before: usize,
        answer: &Result<ToolOutput, ToolFailure>,
    ) {
        let now = (self.effects)();
        let grown = now.get(before..).unwrap_or_default().join(", ");
        if now.len() <= before {
            return;
        }
        let says = match answer {
            Err(
                ToolFailure::NothingHappened { .. }
                | ToolFailure::Lacking { .. }
                | ToolFailure::Abort { .. },
            ) => "says that nothing happened",
            _ if class == Some(EffectClass::ReadOnly) => "says that it only reads",
            _ => return,
        };
        let text = format!("`{tool}` {says}, and this happened: {grown}");
        self.lies.lock().unwrap_or_else(PoisonError::into_inner).push((Kind::FalseClaim, text));
    }
}

/// One source under watch.
pub(super) struct Watched {
    inner: Arc<dyn ToolSource>,
    classes: BTreeMap<String, EffectClass>,
    watch: Arc<Watch>,
}

impl Watched {
    pub(super) fn new(inner: Arc<dyn ToolSource>, watch: Arc<Watch>) -> Self {
        let classes = inner.specs().into_iter().map(|spec| (spec.name, spec.effect)).collect();
        Self { inner, classes, watch }
    }
}

impl ToolSource for Watched {
    fn specs(&self) -> Vec<ToolSpec> {
        self.inner.specs()
    }

    fn blocks(&self) -> bool {
        self.inner.blocks()
    }

    fn call(&self, permit: Permit) -> BoxFuture<'_, Result<ToolOutput, ToolFailure>> {
        Box::pin(async move {
            let watch = &self.watch;
            let tool = permit.tool().to_owned();
            let number = watch.calls.fetch_add(1, Ordering::AcqRel).saturating_add(1);
            watch.was_shown(&permit);
            let before = (watch.effects)().len();
            if watch.pass(number, &tool, Side::Before) {
                // Nobody hears of it: the process is gone.
                return Err(ToolFailure::Unknown { message: "the process ended".to_owned() });
            }
            let answer = self.inner.call(permit).await;
            watch.compare(&tool, self.classes.get(&tool).copied(), before, &answer);
            watch.pass(number, &tool, Side::After);
            answer
        })
    }
}

#[cfg(test)]
mod tests {
    use portcullis_canon::Object;

    use super::*;
    use crate::block_on;
    use crate::permit::permit_for;
    use crate::recording_store::RecordingStore;
    use crate::render::card;

    /// Answers, and does nothing.
    struct Idle;

    impl ToolSource for Idle {
        fn specs(&self) -> Vec<ToolSpec> {
            Vec::new()
        }

        fn blocks(&self) -> bool {
            false
        }

        fn call(&self, _: Permit) -> BoxFuture<'_, Result<ToolOutput, ToolFailure>> {
            Box::pin(async { Ok(ToolOutput { content: Vec::new(), labels: None }) })
        }
    }

    #[test]
    fn what_runs_is_held_against_the_card_that_was_shown() {
        for (shown, told) in [("ann", 0), ("ben", 1)] {
            let permit = permit_for("send", Object::from_iter([("to", "ann")]));
            let bytes = card("send", Object::from_iter([("to", shown)])).to_canonical();
            let cards = Arc::new(Mutex::new(BTreeMap::from([(permit.step(), bytes)])));
            let store = Arc::new(CrashStore::new(Arc::new(RecordingStore::new()), || {}));
            let effects: Arc<Effects> = Arc::new(Vec::new);
            let watch = Arc::new(Watch::new(store, None, effects, Arc::default(), cards));
            block_on(Watched::new(Arc::new(Idle), Arc::clone(&watch)).call(permit)).unwrap();
            let lies = watch.lies();
            assert_eq!(lies.len(), told, "{shown}");
            assert!(lies.iter().all(|(kind, _)| *kind == Kind::NotShown));
        }
    }
}
