//! Asking a policy again: each recorded evaluation is handed to a policy as it was handed to the one that answered.
//!
//! What a policy is asked about is made again from the events of a run: the facts stand in the event, the arguments are
//! made from the recorded proposal, the spec lies under its digest. Nothing is written, no clock is read, and no table is
//! believed; a record that does not hold is named, and nothing behind that place counts. Somebody who can write the whole
//! file could still have made another record that holds: that is what a kept head is for.
//!
//! Memory holds one page of events, one run's window, one call and a few specs, however long the run is.
//!
//! ```
//! use portcullis_domain::id::RunId;
//! use portcullis_domain::ports::{Policy, Store, StoreError};
//! use portcullis_domain::scope::Scope;
//! use portcullis_engine::recheck::{Against, Finding, Recheck, Rules};
//!
//! async fn differences(
//!     store: &dyn Store,
//!     scope: &Scope,
//!     run: RunId,
//!     today: &dyn Policy,
//! ) -> Result<u64, StoreError> {
//!     let against = Against { rules: Rules::These(today), tools: None };
//!     let mut recheck = Recheck::of(store, scope, run, against);
//!     while let Some(evaluation) = recheck.next().await? {
//!         if let Finding::Different(now) = &evaluation.finding {
//!             println!("step {}: {:?}, now {now:?}", evaluation.index, evaluation.recorded);
//!         }
//!     }
//!     Ok(recheck.totals().different)
//! }
//! ```

use portcullis_domain::event::{Body, ProbeStarted, StepJudged};
use portcullis_domain::id::{RunId, StepId};
use portcullis_domain::ports::{Policy, ProposedCall, Store, StoreError};
use portcullis_domain::proposal::ProposalOrigin;
use portcullis_domain::question::QuestionKind;
use portcullis_domain::refusal::Refusal;
use portcullis_domain::scope::Scope;
use portcullis_domain::step::Step;
use portcullis_domain::verdict::{PolicyId, Reviewers, Verdict};

use crate::judge::{decide, deny};
use crate::retrace::{Fault, Remade, Shelf, Source, Trace, obstacle};
use crate::tools::{Described, Tools};

pub use crate::retrace::{Broken, Obstacle, Recorded};

/// Which policy is asked.
#[derive(Clone, Copy)]
pub enum Rules<'a> {
    /// For each evaluation the one of these that has the identity of the policy that answered.
    Recorded(&'a [&'a dyn Policy]),
    /// This one, whichever answered.
    These(&'a dyn Policy),
}

/// What the recorded evaluations are held against.
#[derive(Clone, Copy)]
pub struct Against<'a> {
    /// Which policy is asked.
    pub rules: Rules<'a>,
    /// The tools of today: their specs are handed to the policy, and what they would not admit any more differs. Without
    /// them each call is judged with the spec that it was judged with.
    pub tools: Option<&'a Tools>,
}

/// One recorded evaluation, asked again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evaluation {
    /// Its event's sequence in the journal.
    pub seq: u64,
    /// The step.
    pub step: StepId,
    /// The step's place in its run, from zero.
    pub index: u64,
    /// The tool, as the record names it.
    pub tool: String,
    /// The recorded verdict.
    pub recorded: Verdict,
    /// The policy that gave it.
    pub policy: PolicyId,
    /// The policy that was asked now; nothing when none was.
    pub asked: Option<PolicyId>,
    /// True when today's tool has another spec than the recorded one.
    pub spec_changed: bool,
    /// What came of it.
    pub finding: Finding,
}

/// What asking again found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The same verdict.
    Same,
    /// Another one.
    Different(Answer),
    /// It cannot be asked again.
    NotRecheckable(Obstacle),
}

/// What becomes of the call now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The policy says so.
    Verdict(Verdict),
    /// Today's tools do not admit it, so that no policy is asked.
    NotAdmitted(Refusal),
}

/// What asking again found, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Same verdict.
    pub same: u64,
    /// Another verdict.
    pub different: u64,
    /// Cannot be asked again.
    pub not_recheckable: u64,
    /// Where the record does not hold; what is recorded behind it was not looked at.
    pub broken: Option<Broken>,
}

impl Totals {
    /// Evaluations that a policy was asked about again.
    #[must_use]
    pub const fn rechecked(&self) -> u64 {
        self.same.saturating_add(self.different)
    }

    /// True when something was asked again, nothing differs, and the record holds.
    #[must_use]
    pub const fn holds(&self) -> bool {
        self.same > 0 && self.different == 0 && self.broken.is_none()
    }

    /// Counts those of another run in; of two broken records the first is kept.
    pub fn add(&mut self, other: &Self) {
        self.same = self.same.saturating_add(other.same);
        self.different = self.different.saturating_add(other.different);
        self.not_recheckable = self.not_recheckable.saturating_add(other.not_recheckable);
        self.broken = self.broken.or(other.broken);
    }

    fn count(&mut self, finding: &Finding) {
        let counter = match finding {
            Finding::Same => &mut self.same,
            Finding::Different(_) => &mut self.different,
            Finding::NotRecheckable(_) => &mut self.not_recheckable,
        };
        *counter = counter.saturating_add(1);
    }
}

/// The evaluations of one run, asked again one after another.
pub struct Recheck<'a> {
    trace: Trace<'a>,
    shelf: Shelf<'a>,
    against: Against<'a>,
    totals: Totals,
    /// Who was asked last about the open step.
    asked: Option<Reviewers>,
}

impl<'a> Recheck<'a> {
    /// Begins at the start of the run. Nothing is read yet; a run that is not there has no evaluations.
    #[must_use]
    pub fn of(store: &'a dyn Store, scope: &'a Scope, run: RunId, against: Against<'a>) -> Self {
        let source = Source { store, scope };
        Self {
            trace: Trace::of(source, run),
            shelf: Shelf::of(source),
            against,
            totals: Totals::default(),
            asked: None,
        }
    }

    /// What was counted so far; whole once [`Recheck::next`] has nothing more.
    #[must_use]
    pub const fn totals(&self) -> &Totals {
        &self.totals
    }

    /// True when the run has an event at all; known once one was looked for.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.trace.state().is_some() || self.totals.broken.is_some()
    }

    /// Asks again about the next evaluation; nothing at the end, and where the record does not hold.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot be read. A damaged record is a finding.
    pub async fn next(&mut self) -> Result<Option<Evaluation>, StoreError> {
        while let Some(event) = self.trace.next().await? {
            match &event.body {
                Body::StepOpened(_) => self.asked = None,
                Body::QuestionAsked(asked) if asked.kind == QuestionKind::Approval => {
                    self.asked = Some(asked.reviewers.clone());
                }
                _ => {}
            }
            let Some(step) = self.step(event.link.step) else { continue };
            let Some((about, judged)) = judged(&event.body, &step) else { continue };
            let evaluation = self.ask(event.link.journal_seq, &step, about, &judged).await?;
            self.totals.count(&evaluation.finding);
            return Ok(Some(evaluation));
        }
        self.totals.broken = self.trace.broken();
        Ok(None)
    }

    /// The step of an event that the fold took, so it is there.
    fn step(&self, id: Option<StepId>) -> Option<Step> {
        let batch = &self.trace.state()?.batch;
        batch.iter().find(|step| Some(step.id) == id).cloned()
    }

    async fn ask(
        &mut self,
        seq: u64,
        step: &Step,
        about: About,
        judged: &StepJudged,
    ) -> Result<Evaluation, StoreError> {
        let policy = match self.against.rules {
            Rules::These(policy) => Some(policy),
            Rules::Recorded(known) => {
                known.iter().copied().find(|policy| policy.id() == judged.policy)
            }
        };
        let remade = obstacle(self.remake(step, about, judged).await)?;
        let mut spec_changed = false;
        let finding = match (remade, policy) {
            (Err(obstacle), _) => Finding::NotRecheckable(obstacle),
            (Ok(_), None) => Finding::NotRecheckable(Obstacle::PolicyNotAtHand),
            (Ok(_), Some(_)) if is_timeout(&judged.verdict) => {
                Finding::NotRecheckable(Obstacle::PolicyTimedOut)
            }
            (Ok(remade), Some(policy)) => {
                let (answer, changed) = self.answer(policy, &remade, step, judged);
                spec_changed = changed;
                if is_same(&judged.verdict, &answer) {
                    Finding::Same
                } else {
                    Finding::Different(answer)
                }
            }
        };
        let asked = policy.filter(|_| !matches!(finding, Finding::NotRecheckable(_)));
        Ok(Evaluation {
            seq,
            step: step.id,
            index: step.index,
            tool: judged.admitted.tool.clone(),
            recorded: judged.verdict.clone(),
            policy: judged.policy,
            asked: asked.map(Policy::id),
            spec_changed,
            finding,
        })
    }

    async fn remake(
        &mut self,
        step: &Step,
        about: About,
        judged: &StepJudged,
    ) -> Result<Remade, Fault> {
        let state = self.trace.state().ok_or(Obstacle::CallDiffers)?;
        let remade = match about {
            About::Call => self.shelf.call(state, step, &judged.admitted).await?,
            About::Probe => self.shelf.probe(state, step, &judged.admitted).await?,
        };
        if remade.is_that_of(judged, self.asked.as_ref()) {
            Ok(remade)
        } else {
            Err(Obstacle::CallDiffers.into())
        }
    }

    /// What becomes of the call now, and whether its tool's spec is another one.
    fn answer(
        &self,
        policy: &dyn Policy,
        remade: &Remade,
        step: &Step,
        judged: &StepJudged,
    ) -> (Answer, bool) {
        let verdict = |spec: &Described, arguments: &portcullis_canon::Object| {
            let call = ProposedCall { tool: &spec.spec, arguments };
            Answer::Verdict(decide(policy, &call, &judged.facts).unwrap_or_else(deny))
        };
        let Some(tools) = self.against.tools else {
            return (verdict(&remade.spec, &remade.call.arguments), false);
        };
        let Some(today) = tools.get(&remade.call.tool) else {
            return (Answer::NotAdmitted(Refusal::UnknownTool), true);
        };
        let today = &today.described;
        let answer = match remade.under(step, today) {
            Ok(call) => verdict(today, &call.arguments),
            Err(refusal) => Answer::NotAdmitted(refusal),
        };
        (answer, today.digest != remade.spec.digest)
    }
}

/// What a policy was asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum About {
    /// The step's own call: the first time, at the moment of use, or before it was started again.
    Call,
    /// The call of a probe that asks what the step's call did.
    Probe,
}

/// The evaluation that an event carries, in the form of the one that most carry.
fn judged(body: &Body, step: &Step) -> Option<(About, StepJudged)> {
    match body {
        Body::StepJudged(judged) => Some((About::Call, judged.clone())),
        Body::StepRestarted(again) => {
            let judged = StepJudged {
                origin: step.origin?,
                admitted: step.admitted.clone()?,
                verdict: again.verdict.clone(),
                policy: again.policy,
                facts: again.facts.clone(),
            };
            Some((About::Call, judged))
        }
        Body::ProbeStarted(ProbeStarted { call: Some(probe), .. }) => {
            let judged = StepJudged {
                origin: ProposalOrigin::Operator,
                admitted: probe.admitted.clone(),
                verdict: probe.verdict.clone(),
                policy: probe.policy,
                facts: probe.facts.clone(),
            };
            Some((About::Probe, judged))
        }
        _ => None,
    }
}

/// What the policy said is not recorded then.
const fn is_timeout(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Deny { reason: Refusal::PolicyTimeout, .. })
}

/// Whether the policy says now what it said then. Who could be asked is no part of what it said: where nobody could,
/// the gate made a deny of its question.
fn is_same(recorded: &Verdict, answer: &Answer) -> bool {
    let Answer::Verdict(now) = answer else { return false };
    match (recorded, now) {
        (Verdict::Deny { reason: Refusal::NoReviewer, rules }, Verdict::Ask { .. }) => {
            rules.as_slice() == now.rules()
        }
        _ => recorded == now,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_domain::verdict::OnRejection;

    fn allow(rule: &str) -> Verdict {
        Verdict::Allow { rules: vec![rule.to_owned()] }
    }

    fn deny_for(reason: Refusal, rule: &str) -> Verdict {
        Verdict::Deny { reason, rules: vec![rule.to_owned()] }
    }

    fn ask(rule: &str) -> Verdict {
        Verdict::Ask {
            reason: Refusal::ClassAsks,
            rules: vec![rule.to_owned()],
            reviewers: Reviewers { role: "operator".to_owned(), count: 1 },
            on_rejection: OnRejection::EndRun,
        }
    }

    #[track_caller]
    fn check(recorded: &Verdict, now: Verdict, same: bool) {
        assert_eq!(is_same(recorded, &Answer::Verdict(now)), same, "{recorded:?}");
    }

    #[test]
    fn the_same_is_outcome_reason_rules_and_people() {
        check(&allow("a"), allow("a"), true);
        check(&allow("a"), allow("b"), false);
        check(&allow("a"), ask("a"), false);
        check(&deny_for(Refusal::ClassDenied, "a"), deny_for(Refusal::ClassUnmapped, "a"), false);
        check(&ask("a"), ask("a"), true);
        let refused = Answer::NotAdmitted(Refusal::UnknownTool);
        assert!(!is_same(&deny_for(Refusal::UnknownTool, "a"), &refused));
    }

    #[test]
    fn a_question_that_nobody_could_answer_was_the_policys_all_the_same() {
        check(&deny_for(Refusal::NoReviewer, "a"), ask("a"), true);
        check(&deny_for(Refusal::NoReviewer, "a"), ask("b"), false);
        check(&deny_for(Refusal::NoReviewer, "a"), allow("a"), false);
        check(&deny_for(Refusal::ClassDenied, "a"), ask("a"), false);
    }

    #[test]
    fn what_was_never_asked_again_does_not_hold() {
        let none = Totals { not_recheckable: 3, ..Totals::default() };
        assert!(!none.holds());
        let mut totals = Totals { same: 1, ..none };
        assert!(totals.holds());
        totals.add(&Totals { different: 1, ..Totals::default() });
        assert_eq!((totals.holds(), totals.rechecked()), (false, 2));
    }
}
