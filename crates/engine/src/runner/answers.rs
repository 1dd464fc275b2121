//! What this process records about runs of a runner: answers, after which they go on, and ends, after which nothing of
//! them is waited for.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use portcullis_domain::event::{Body, Event};
use portcullis_domain::id::{QuestionId, RunId};
use portcullis_domain::ports::Observer;
use portcullis_domain::stream::StreamKind;

use super::line::{Entry, Lane};
use super::{Inner, Job};

/// Sees the answers that this process records, and has their runs go on; and the ends, so that no driver waits for a tool
/// of a run that was cancelled. It is an observer of the store, which is opened before there is a runner.
///
/// Answers that another process records are found by [`super::Runner::take_up`], ends by the driver itself, each second.
#[derive(Default)]
pub struct Answers(Mutex<Vec<Weak<Inner>>>);

/// What is told of.
enum News {
    Answered(QuestionId),
    Ended,
}

impl Answers {
    fn lock(&self) -> MutexGuard<'_, Vec<Weak<Inner>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on this runner hears too.
    pub(super) fn tell(&self, inner: &Arc<Inner>) {
        self.lock().push(Arc::downgrade(inner));
    }
}

impl Observer for Answers {
    fn committed(&self, events: &[Event]) {
        let news = |event: &Event| match &event.body {
            Body::QuestionAnswered(body) => Some(News::Answered(body.question)),
            Body::RunFinished(_) => Some(News::Ended),
            _ => None,
        };
        let on_run = |event: &&Event| event.link.stream.kind == StreamKind::Run;
        let told = events.iter().filter(on_run);
        let mut told = told.filter_map(|event| Some((event, news(event)?))).peekable();
        if told.peek().is_none() {
            return;
        }
        let runners: Vec<Arc<Inner>> = {
            let mut runners = self.lock();
            runners.retain(|runner| runner.strong_count() > 0);
            runners.iter().filter_map(Weak::upgrade).collect()
        };
        for (event, news) in told {
            let (tenant, run) = (&event.link.tenant, RunId::from_bytes(event.link.stream.id));
            for runner in runners.iter().filter(|runner| runner.scope.tenant() == tenant) {
                match news {
                    News::Answered(question) => runner.answered(run, question),
                    News::Ended => runner.ended(run),
                }
            }
        }
    }
}

impl Inner {
    /// Puts a run that a person has answered in line, and those that waited for this answer, whether there is room or
    /// not: the record has it anyway.
    fn answered(self: &Arc<Self>, run: RunId, question: QuestionId) {
        let runs = {
            let mut state = self.lock();
            if state.stopping {
                return;
            }
            state.refused.forget(run);
            let mut runs = state.refused.waited_for(question);
            runs.insert(0, run);
            runs
        };
        for run in runs {
            let entry = Entry { job: Job::GoOn(run), tell: Vec::new() };
            if self.put(self.lock(), Lane::Answered, entry).is_err() {
                tracing::warn!(%run, "an answered run has to wait for the next look");
            }
        }
    }

    /// Tells the driver of a run that it has ended.
    fn ended(&self, run: RunId) {
        let hold = self.lock().driven.get(&run).and_then(|at| at.hold.upgrade());
        if let Some(hold) = hold {
            hold.end();
        }
    }
}
