//! Runs that could not be driven on, and when each is to be tried again.

use std::collections::BTreeMap;
use std::time::Duration;

use portcullis_domain::id::{QuestionId, RunId};
use portcullis_domain::ports::{Monotonic, StoreError};

use super::{Outcome, Unserved};
use crate::error::GateError;

/// How many runs are remembered at most. One that is forgotten for another is tried again at the next look.
const MAX_REFUSED: usize = 10_000;

/// How long a run is left alone that could not be driven on: after the first time, and at most.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));

/// What is remembered of runs that could not be driven on.
#[derive(Default)]
pub(super) struct Refused {
    runs: BTreeMap<RunId, Entry>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    times: u32,
    /// The monotonic instant before which it is not tried again.
    until: Monotonic,
    /// The question about an outcome that its call waits for.
    question: Option<QuestionId>,
}

impl Refused {
    /// Notes how it went with a run.
    pub(super) fn note(&mut self, run: RunId, outcome: &Outcome, now: Monotonic) {
        match outcome {
            Ok(_) | Err(Unserved::Stopping | Unserved::Crowded) => self.forget(run),
            Err(Unserved::Gate(GateError::Store(StoreError::OutcomeOpen { question }))) => {
                self.waits_for(run, *question);
            }
            Err(Unserved::Gate(_)) => {
                let times = self.runs.get(&run).map_or(1, |entry| entry.times.saturating_add(1));
                let doubled = 2_u32.saturating_pow(times.saturating_sub(1));
                let pause = PAUSE.0.saturating_mul(doubled).min(PAUSE.1);
                let pause = u64::try_from(pause.as_micros()).unwrap_or(u64::MAX);
                let until = Monotonic(now.0.saturating_add(pause));
                self.keep(run, Entry { times, until, question: None });
            }
        }
    }

    /// A run's call waits for the answer to another's question. Whether it still does is looked at each time.
    pub(super) fn waits_for(&mut self, run: RunId, question: QuestionId) {
        self.keep(run, Entry { times: 0, until: Monotonic(0), question: Some(question) });
    }

    fn keep(&mut self, run: RunId, entry: Entry) {
        self.runs.insert(run, entry);
        if self.runs.len() > MAX_REFUSED {
            self.runs.pop_first();
        }
    }

    /// Whether it is too early to try a run again.
    pub(super) fn is_early(&self, run: RunId, now: Monotonic) -> bool {
        self.runs.get(&run).is_some_and(|entry| now.0 < entry.until.0)
    }

    /// The run may be tried at once.
    pub(super) fn forget(&mut self, run: RunId) {
        self.runs.remove(&run);
    }

    /// The runs whose calls wait for the answer to this question; they are forgotten.
    pub(super) fn waited_for(&mut self, question: QuestionId) -> Vec<RunId> {
        self.runs
            .extract_if(.., |_, entry| entry.question == Some(question))
            .map(|(run, _)| run)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: RunId = RunId::from_bytes([1; 16]);

    fn at(seconds: u64) -> Monotonic {
        Monotonic(seconds.saturating_mul(1_000_000))
    }

    fn fails(refused: &mut Refused, now: u64) {
        refused.note(RUN, &Err(GateError::NoCapacity.into()), at(now));
    }

    #[test]
    fn a_run_is_left_alone_the_longer_the_more_often_it_could_not_be_driven() {
        let mut refused = Refused::default();
        assert!(!refused.is_early(RUN, at(0)));
        fails(&mut refused, 0);
        assert!(refused.is_early(RUN, Monotonic(999_999)));
        assert!(!refused.is_early(RUN, at(1)));
        fails(&mut refused, 1);
        assert!(refused.is_early(RUN, at(2)) && !refused.is_early(RUN, at(3)));
        for _ in 0..40 {
            fails(&mut refused, 3);
        }
        assert!(refused.is_early(RUN, at(302)) && !refused.is_early(RUN, at(303)));
        refused.forget(RUN);
        assert!(!refused.is_early(RUN, at(3)));
    }

    #[test]
    fn who_waits_for_an_answer_is_found_by_its_question_and_looked_at_each_time() {
        let mut refused = Refused::default();
        let question = QuestionId::from_bytes([7; 16]);
        let open = StoreError::OutcomeOpen { question };
        refused.note(RUN, &Err(GateError::from(open).into()), at(0));
        assert!(!refused.is_early(RUN, at(0)));
        assert!(refused.waited_for(QuestionId::from_bytes([8; 16])).is_empty());
        assert_eq!(refused.waited_for(question), [RUN]);
        assert!(refused.waited_for(question).is_empty());
    }
}
