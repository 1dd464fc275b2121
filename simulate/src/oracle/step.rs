//! Steps: verdicts, starts, ends and late outcomes.

use portcullis_domain::event::{Body, Event, OutcomeLate, StepFinished, StepJudged, StepStarted};
use portcullis_domain::id::{RunId, StepId};
use portcullis_domain::observation::{Failure, ObservationKind};
use portcullis_domain::ports::Durability;
use portcullis_domain::refusal::Refusal;

use super::batch::is_of_a_batch;
use super::naive::{Commit, Naive, Start};
use super::rule;

/// The step that an event is about; events of steps always name one.
fn step_of(event: &Event) -> StepId {
    event.link.step.unwrap_or(StepId::from_bytes([0; 16]))
}

impl Naive<'_> {
    pub(super) fn judged(&mut self, event: &Event, body: &StepJudged) {
        let kind = match body.verdict.outcome() {
            "allow" => Some("call allowed"),
            "ask" => Some("call asked"),
            "deny" => Some("call denied"),
            _ => None,
        };
        if let Some(kind) = kind {
            self.seen.count(kind);
        }
        let step = self.steps.entry(step_of(event)).or_default();
        step.verdict = Some((body.verdict.outcome(), body.admitted.call));
        step.tool.clone_from(&body.admitted.tool);
        step.changes = body.admitted.effect.changes_something();
    }

    pub(super) fn started(
        &mut self,
        run: RunId,
        event: &Event,
        body: &StepStarted,
        commit: &Commit<'_>,
    ) {
        let id = step_of(event);
        let name = self.names.of('s', id.as_bytes());
        if commit.durability != Durability::Synced {
            self.break_rule(rule::INTENT, format!("the intent of {name} is not synced"));
        }
        self.under_lease(run, event, Some(body.epoch));
        if body.start == 1 {
            self.nothing_open(id);
        }
        let step = self.steps.entry(id).or_default();
        let next = u32::try_from(step.starts.len()).unwrap_or(u32::MAX).saturating_add(1);
        let (verdict, question) = (step.verdict, step.question);
        let open = !step.finished && !step.executing && next == body.start;
        let start = Start {
            call: body.call,
            epoch: body.epoch,
            pid: commit.pid,
            effects: 0,
            by_itself: false,
            reached: false,
            claimed_nothing: false,
        };
        step.starts.insert(body.start, start);
        step.executing = true;
        if question.is_none() {
            step.allowed = true;
        }
        if !open {
            self.break_rule(rule::NO, format!("{name} starts and is not open"));
        }
        // What the grant is worth was judged when it was used, in the same commit.
        let uses =
            |id| commit.has(|body| matches!(body, Body::ApprovalUsed(used) if used.question == id));
        let leave = match (verdict, question.and_then(|id| Some((id, self.questions.get(&id)?)))) {
            (Some(("allow", call)), None) => call == body.call,
            (Some(("allow", call)), Some((id, _))) => call == body.call && uses(id),
            (Some(("ask", call)), Some((id, asked))) => {
                call == body.call && asked.call == body.call && uses(id)
            }
            _ => false,
        };
        if !leave {
            self.break_rule(rule::GRANT, format!("{name} starts"));
        }
    }

    pub(super) fn late(
        &mut self,
        run: RunId,
        event: &Event,
        body: &OutcomeLate,
        commit: &Commit<'_>,
    ) {
        let holds = self.runs.get(&run).and_then(|run| run.holder) == Some(commit.pid);
        let lost = self.runs.get(&run).is_some_and(|run| run.epoch.0 != body.epoch) && !holds;
        let over = self.is_over(run, event);
        self.seen.count(match (lost, over) {
            (true, _) => "outcome late after a lost lease",
            (false, true) => "outcome late after its term",
            (false, false) => "outcome late after a deadline",
        });
        let step = self.steps.entry(step_of(event)).or_default();
        let mut starts = step.starts.values().filter(|start| start.epoch == body.epoch).peekable();
        let started = starts.peek().is_some();
        let result = body.observation.kind == ObservationKind::ToolResult;
        let done = step.starts.values().any(|start| start.effects > 0);
        // A receiver that knows the call by its key answers for the start before too.
        let by_key = step.key.is_some() && done;
        let true_result = !result || by_key || starts.any(|start| start.effects > 0);
        if !started || !true_result {
            self.break_rule(rule::LATE, "an outcome of a call that was not made");
        }
    }

    pub(super) fn finished(
        &mut self,
        run: RunId,
        event: &Event,
        body: &StepFinished,
        commit: &Commit<'_>,
    ) {
        let id = step_of(event);
        let name = self.names.of('s', id.as_bytes());
        let of_a_person = commit.of_a_person();
        let step = self.steps.entry(id).or_default();
        let again = std::mem::replace(&mut step.finished, true);
        let executing = std::mem::replace(&mut step.executing, false);
        let changes = step.changes;
        let asked = step.question.take();
        if let Some(question) = asked.and_then(|id| self.questions.get_mut(&id)) {
            question.closed = true;
        }
        self.open.retain(|_, open| open.step != id);
        let observation = body.observation.as_ref();
        if observation.is_some_and(|seen| seen.kind == ObservationKind::InvalidProposal) {
            self.seen.count("proposal that is not admitted");
        }
        if observation.is_some_and(|seen| seen.refusal == Some(Refusal::NoCapacity)) {
            self.seen.count("no place for a blocking call");
        }
        if observation.and_then(|seen| seen.refusal).is_some_and(is_of_a_batch) {
            self.seen.count("batch refused");
        }
        if observation.is_some_and(|seen| seen.refusal == Some(Refusal::OutcomeUnknown)) {
            self.refused_while_open(id);
        }
        if again {
            self.break_rule(rule::NO, format!("{name} ends twice"));
        }
        if of_a_person || !executing {
            return;
        }
        let Some(observation) = observation else {
            return self.break_rule(rule::TRUE, format!("{name} ran and nothing is said of it"));
        };
        if let Some(found) = commit.found(id) {
            return self.resolved(id, found, observation);
        }
        self.ended_in_time(run, id, event, commit);
        let step = self.steps.entry(id).or_default();
        let total: u32 = step.starts.values().map(|start| start.effects).sum();
        let by_key = step.key.is_some();
        let Some((_, start)) = step.starts.iter_mut().next_back() else { return };
        let nothing = match (observation.kind, observation.failure) {
            (ObservationKind::ToolResult, _) => false,
            (ObservationKind::ToolError, Some(Failure::InvalidContent)) => false,
            (ObservationKind::ToolError, Some(Failure::Error | Failure::Abort)) => true,
            (ObservationKind::Denied, _) => true,
            // What a read was cut off from changes nothing; of anything else a person has to be asked.
            (ObservationKind::ToolError | ObservationKind::Interrupted, _) if !changes => return,
            _ => {
                let text = format!("what became of {name} is unknown, and nobody is asked");
                return self.break_rule(rule::TRUE, text);
            }
        };
        start.claimed_nothing = nothing;
        // What a start that the gate made by itself says, it says of the one before too; and a receiver that knows the
        // call by its key gives the result of the one before.
        let effects = if start.by_itself || (by_key && !nothing) { total } else { start.effects };
        if nothing == (effects > 0) {
            let text =
                format!("{name} ended as {} with {effects} effects", observation.kind.as_str());
            self.break_rule(rule::TRUE, text);
        }
    }
}
