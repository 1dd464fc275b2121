//! Outcomes that nobody knows: calls that are made again with their key, probes, and what may not start meanwhile.

use portcullis_domain::event::{
    Body, Event, ProbeFinished, ProbeStarted, QuestionAsked, StepRestarted,
};
use portcullis_domain::id::{RunId, StepId};
use portcullis_domain::lease::Epoch;
use portcullis_domain::observation::{Failure, Observation, ObservationKind};
use portcullis_domain::ports::Durability;
use portcullis_domain::question::QuestionKind;
use portcullis_domain::recovery::Found;

use super::naive::{Asked, Commit, Naive, Open, Start};
use super::rule;
use crate::executor::Pid;
use crate::log::Effect;
use crate::tools::{KEYED, PROBE, PROBED};

impl Commit<'_> {
    /// What a probe found about a step, where the commit says so.
    pub(super) fn found(&self, step: StepId) -> Option<Found> {
        let of = |event: &&Event| event.link.step == Some(step);
        self.events.iter().filter(of).find_map(|event| match &event.body {
            Body::ProbeFinished(body) => Some(body.found),
            _ => None,
        })
    }
}

impl Naive<'_> {
    /// Whether the lease of a run is over when an event is written.
    pub(super) fn is_over(&self, run: RunId, event: &Event) -> bool {
        let until = self.runs.get(&run).and_then(|run| run.until);
        until.is_none_or(|until| until <= event.link.at)
    }

    /// The lease of this epoch has to run.
    pub(super) fn under_lease(&mut self, run: RunId, event: &Event, epoch: Option<Epoch>) {
        let current = self.runs.entry(run).or_default().epoch.0;
        if self.is_over(run, event) || epoch.is_some_and(|epoch| epoch != current) {
            let what = event.body.name();
            let text = format!("{what} at {} under a lease that is over", event.link.at);
            self.break_rule(rule::TERM, text);
        }
    }

    /// What a tool was reached for ends only under a lease that runs; else it is late. A driver that takes the run anew
    /// has no outcome of it: it says that the call was interrupted, as any other process would.
    pub(super) fn ended_in_time(
        &mut self,
        run: RunId,
        id: StepId,
        event: &Event,
        commit: &Commit<'_>,
    ) {
        let epoch = self.runs.entry(run).or_default().epoch.0;
        let last = self.steps.get(&id).and_then(|step| step.starts.values().next_back());
        let own = |start: &Start| start.pid == commit.pid && start.epoch == epoch;
        if last.is_some_and(|start| start.reached && own(start)) {
            self.under_lease(run, event, None);
        }
    }

    /// The same call once more, by the gate itself.
    pub(super) fn restarted(
        &mut self,
        run: RunId,
        event: &Event,
        body: &StepRestarted,
        commit: &Commit<'_>,
    ) {
        self.seen.count("call made again with its key");
        let id = event.link.step.unwrap_or(StepId::from_bytes([0; 16]));
        let name = self.names.of('s', id.as_bytes());
        if commit.durability != Durability::Synced {
            self.break_rule(rule::INTENT, format!("the second intent of {name} is not synced"));
        }
        self.under_lease(run, event, Some(body.epoch));
        let step = self.steps.entry(id).or_default();
        let keyed = step.tool == KEYED && step.changes;
        let under_way = step.executing && !step.finished;
        let second = step.starts.len() == 1 && body.start == 2;
        let same = step.starts.get(&1).is_some_and(|first| first.call == body.call);
        // No further leave is asked for, and a no of today is a no.
        let leave = match body.verdict.outcome() {
            "allow" => true,
            "ask" => !step.allowed,
            _ => false,
        };
        let start = Start {
            call: body.call,
            epoch: body.epoch,
            pid: commit.pid,
            effects: 0,
            by_itself: true,
            reached: false,
            claimed_nothing: false,
        };
        step.starts.insert(body.start, start);
        self.doubted.insert(KEYED.to_owned());
        if !(keyed && under_way && second && same) {
            self.break_rule(rule::AGAIN, format!("{name} starts again"));
        }
        if !leave {
            self.break_rule(rule::GRANT, format!("{name} starts again"));
        }
    }

    /// A key belongs to one step, and a step's calls bear the same one.
    pub(super) fn key(&mut self, effect: &Effect) {
        if (effect.tool == KEYED) != effect.key.is_some() {
            return self.break_rule(rule::KEY, format!("{} and its key", effect.tool));
        }
        let Some(key) = &effect.key else { return };
        let owner = *self.keys.entry(key.clone()).or_insert(effect.step);
        let own = self.steps.entry(effect.step).or_default().key.get_or_insert_with(|| key.clone());
        if own != key || owner != effect.step {
            let name = self.names.of('s', effect.step.as_bytes());
            self.break_rule(rule::KEY, format!("the key of {name}"));
        }
    }

    pub(super) fn probe_started(
        &mut self,
        run: RunId,
        event: &Event,
        body: &ProbeStarted,
        commit: &Commit<'_>,
    ) {
        self.seen.count(if body.call.is_some() { "probe asked" } else { "host asked" });
        let id = event.link.step.unwrap_or(StepId::from_bytes([0; 16]));
        let name = self.names.of('s', id.as_bytes());
        if commit.durability != Durability::Synced {
            self.break_rule(rule::INTENT, format!("the probe of {name} is not synced"));
        }
        self.under_lease(run, event, Some(body.epoch));
        let step = self.steps.entry(id).or_default();
        let unknown = step.executing && !step.finished && step.changes;
        // The host is asked of any call, a probe of its own tool's.
        let own = body.call.as_ref().is_none_or(|call| {
            let reads = !call.admitted.effect.changes_something();
            let allowed = reads && call.verdict.outcome() == "allow";
            step.tool == PROBED && call.admitted.tool == PROBE && allowed
        });
        let call = body.call.as_ref().map(|call| call.admitted.call);
        let asked = Asked { pid: commit.pid, call, told: None, over: false, denied: false };
        step.probes.push(asked);
        let tool = step.tool.clone();
        self.doubted.insert(tool);
        if !own || !unknown {
            self.break_rule(rule::PROBE, format!("what is asked about {name}"));
        }
    }

    /// A probe was made: for a step of which it was recorded before, by the same process, and it only looked.
    pub(super) fn probe_looked(&mut self, effect: &Effect, pid: Pid) {
        let step = self.steps.entry(effect.step).or_default();
        let recorded =
            step.probes.iter().any(|asked| asked.pid == pid && asked.call == Some(effect.call));
        if !recorded {
            self.break_rule(rule::INTENT, format!("the probe {} by p{pid}", effect.tool));
        }
        if effect.changes {
            self.break_rule(rule::PROBE, format!("{} changes something", effect.tool));
        }
    }

    /// Who was asked said something.
    pub(super) fn told(&mut self, step: StepId, found: Found, pid: Pid) {
        let step = self.steps.entry(step).or_default();
        if let Some(asked) = step.probes.iter_mut().rfind(|asked| asked.pid == pid) {
            asked.told = Some(found);
        }
    }

    /// What was found is what was said; that a probe could not say may have other reasons too.
    pub(super) fn probe_finished(
        &mut self,
        event: &Event,
        body: &ProbeFinished,
        commit: &Commit<'_>,
    ) {
        let by_host = body.observation.is_none();
        self.seen.count(match (by_host, body.found) {
            (false, Found::Happened) => "probe found that it happened",
            (false, Found::DidNotHappen) => "probe found that it did not happen",
            (false, Found::Unknown | Found::Conflict) => "probe could not say",
            (true, Found::Happened) => "host found that it happened",
            (true, Found::DidNotHappen) => "host found that it did not happen",
            (true, Found::Unknown) => "host could not say",
            (true, Found::Conflict) => "host found a conflict",
        });
        let id = event.link.step.unwrap_or(StepId::from_bytes([0; 16]));
        let name = self.names.of('s', id.as_bytes());
        let step = self.steps.entry(id).or_default();
        let asked = step.probes.iter_mut().rfind(|asked| asked.pid == commit.pid && !asked.over);
        let fits = asked.is_some_and(|asked| {
            asked.over = true;
            asked.denied = body.found == Found::DidNotHappen;
            // Evidence is kept with what it is evidence of, and a host gives none.
            let evidence = asked.call.is_none() == by_host;
            let can = by_host || body.found != Found::Conflict;
            evidence && can && (body.found == Found::Unknown || asked.told == Some(body.found))
        });
        if !fits {
            let text = format!("{} is found of {name}", body.found.as_str());
            self.break_rule(rule::PROBE, text);
        }
    }

    /// The end of a step is what its probe found.
    pub(super) fn resolved(&mut self, id: StepId, found: Found, observation: &Observation) {
        let ended = (observation.kind, observation.failure);
        let fits = match found {
            Found::Happened => ended == (ObservationKind::ToolResult, None),
            Found::DidNotHappen => {
                ended == (ObservationKind::ToolError, Some(Failure::DidNotHappen))
            }
            Found::Conflict => ended == (ObservationKind::ToolError, Some(Failure::Crash)),
            Found::Unknown => false,
        };
        if !fits {
            let name = self.names.of('s', id.as_bytes());
            let text = format!("{} of {name} ends as {ended:?}", found.as_str());
            self.break_rule(rule::PROBE, text);
        }
    }

    /// A question about an outcome is open from now on.
    pub(super) fn now_open(
        &mut self,
        run: RunId,
        step: StepId,
        tool: String,
        body: &QuestionAsked,
    ) {
        self.open.retain(|_, open| open.step != step);
        if body.kind == QuestionKind::UnknownOutcome {
            self.doubted.insert(tool.clone());
            self.open.insert(body.question, Open { run, step, tool });
        }
    }

    /// Nothing that changes something begins while an outcome of its tool is open. All runs are one owner's.
    pub(super) fn nothing_open(&mut self, id: StepId) {
        let Some(step) = self.steps.get(&id).filter(|step| step.changes) else { return };
        if let Some(open) = self.open.values().find(|open| open.tool == step.tool) {
            let open = self.names.of('s', open.step.as_bytes());
            let name = self.names.of('s', id.as_bytes());
            self.break_rule(rule::OPEN, format!("{name} starts while that of {open} is open"));
        }
    }

    /// A call was refused for an outcome that is not known: one was, of that tool.
    pub(super) fn refused_while_open(&mut self, id: StepId) {
        self.seen.count("call refused while an outcome is open");
        let tool = self.steps.get(&id).map(|step| step.tool.clone()).unwrap_or_default();
        if !self.doubted.contains(&tool) {
            let name = self.names.of('s', id.as_bytes());
            self.break_rule(rule::OPEN, format!("{name} is refused for nothing"));
        }
    }
}
