//! Batches: begun whole, of calls that only look and are allowed, and ended whole, in their order.

use std::collections::BTreeMap;

use portcullis_domain::event::{Body, Event};
use portcullis_domain::id::{RunId, StepId};
use portcullis_domain::observation::ObservationKind;
use portcullis_domain::refusal::Refusal;
use portcullis_domain::tool::EffectClass;

use super::naive::{Commit, Naive};
use super::rule;

/// The steps of the latest batch of each run, in the order of their calls, until it has ended.
#[derive(Default)]
pub(super) struct Batches(BTreeMap<RunId, Vec<StepId>>);

/// Whether calls that came together were refused for this.
pub(super) const fn is_of_a_batch(refusal: Refusal) -> bool {
    matches!(
        refusal,
        Refusal::BatchNotReadOnly
            | Refusal::BatchTerminal
            | Refusal::BatchDenied
            | Refusal::BatchAsks
            | Refusal::BatchOverLimit
    )
}

impl Naive<'_> {
    /// Looks at what a commit makes of batches.
    pub(super) fn batches(&mut self, commit: &Commit<'_>) {
        let members = commit.events.iter().filter_map(|event| match &event.body {
            Body::StepOpened(body) if body.batch_index > 0 => Some((event, body.batch)),
            _ => None,
        });
        let members: Vec<_> = members.collect();
        if let Some((event, size)) = members.first() {
            let run = RunId::from_bytes(event.link.stream.id);
            self.begun(run, *size, commit);
        }
        for (run, steps) in std::mem::take(&mut self.batch.0) {
            self.go_on(run, steps, commit);
        }
    }

    /// All verdicts and all starts come with the first of its openings, for the same steps in the same order.
    fn begun(&mut self, run: RunId, size: u32, commit: &Commit<'_>) {
        let of = |wanted: &str| -> Vec<StepId> {
            let named = commit.events.iter().filter(|event| event.body.name() == wanted);
            named.filter_map(|event| event.link.step).collect()
        };
        let (opened, judged, started) = (of("step.opened"), of("step.judged"), of("step.started"));
        let looks = commit.events.iter().all(|event| match &event.body {
            Body::StepJudged(body) => {
                body.admitted.effect == EffectClass::ReadOnly && body.verdict.outcome() == "allow"
            }
            _ => true,
        });
        let whole = usize::try_from(size) == Ok(started.len())
            && judged == started
            && started.get(1..) == Some(opened.as_slice());
        if !whole || !looks {
            self.break_rule(rule::BATCH, format!("{size} calls come together, not whole"));
        }
        self.seen.count("batch begun");
        self.batch.0.insert(run, started);
    }

    /// A commit ends all of a batch or none of it.
    fn go_on(&mut self, run: RunId, steps: Vec<StepId>, commit: &Commit<'_>) {
        let own = |event: &&Event| event.link.step.is_some_and(|step| steps.contains(&step));
        let ends: Vec<_> = commit
            .events
            .iter()
            .filter(own)
            .filter_map(|event| match &event.body {
                Body::StepFinished(body) => Some((event.link.step, body)),
                _ => None,
            })
            .collect();
        let over = commit.events.iter().any(|event| {
            event.link.stream == run.into() && matches!(event.body, Body::RunFinished(_))
        });
        if ends.is_empty() {
            if !over {
                self.batch.0.insert(run, steps);
            }
            return;
        }
        if !ends.iter().map(|(step, _)| *step).eq(steps.iter().copied().map(Some)) {
            self.break_rule(rule::BATCH, "a batch ends in part, or in another order");
        }
        let is_cut = ends.iter().all(|(_, body)| {
            let observation = body.observation.as_ref();
            observation.is_some_and(|seen| seen.kind == ObservationKind::Interrupted)
        });
        self.seen.count(if is_cut { "batch interrupted" } else { "batch ended" });
    }
}
