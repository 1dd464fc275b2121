//! The naive reading of a log: what each run, step and question is worth at each moment, in plain words.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use portcullis_canon::Digest;
use portcullis_domain::approval::Signature;
use portcullis_domain::event::{Body, Event, LeaseAcquired, LeaseCause, RunFinished};
use portcullis_domain::id::{QuestionId, RunId, StepId};
use portcullis_domain::lease::Epoch;
use portcullis_domain::ports::Durability;
use portcullis_domain::question::QuestionKind;
use portcullis_domain::recovery::Found;
use portcullis_domain::run::{EndReason, RunStatus};
use portcullis_domain::stream::StreamKind;
use portcullis_domain::time::Timestamp;

use super::batch::Batches;
use super::{Broken, rule};
use crate::executor::Pid;
use crate::log::{self, Effect, Heard, Names, Said, What};
use crate::seen::Seen;

/// A run as the events tell it.
#[derive(Default)]
pub(super) struct Run {
    pub(super) holder: Option<Pid>,
    pub(super) epoch: Epoch0,
    pub(super) until: Option<Timestamp>,
    pub(super) ended: bool,
}

/// An epoch that begins with none.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Epoch0(pub(super) Epoch);

impl Default for Epoch0 {
    fn default() -> Self {
        Self(Epoch::NONE)
    }
}

/// One start of a call.
pub(super) struct Start {
    pub(super) call: Digest,
    pub(super) epoch: Epoch,
    pub(super) pid: Pid,
    pub(super) effects: u32,
    /// The gate made it by itself, after a start whose outcome is not known.
    pub(super) by_itself: bool,
    /// The tool was there: it did something, or said that it did not.
    pub(super) reached: bool,
    /// The record says that nothing came of it, and nobody but the gate says so.
    pub(super) claimed_nothing: bool,
}

/// A step as the events tell it.
#[derive(Default)]
pub(super) struct Step {
    /// The latest verdict, in its stable name, and the call that it is about.
    pub(super) verdict: Option<(&'static str, Digest)>,
    pub(super) tool: String,
    pub(super) changes: bool,
    pub(super) question: Option<QuestionId>,
    pub(super) starts: BTreeMap<u32, Start>,
    pub(super) executing: bool,
    pub(super) finished: bool,
    /// Whether it was started first on the policy's word alone.
    pub(super) allowed: bool,
    pub(super) questions: Vec<QuestionId>,
    pub(super) probes: Vec<Asked>,
    pub(super) key: Option<String>,
}

/// A probe that was asked about a step's call.
pub(super) struct Asked {
    pub(super) pid: Pid,
    /// The probe's call; none where the host is asked.
    pub(super) call: Option<Digest>,
    /// What it said, once it said something.
    pub(super) told: Option<Found>,
    /// The record says what was found.
    pub(super) over: bool,
    /// The record says that it did not happen.
    pub(super) denied: bool,
}

/// A question as the events tell it.
pub(super) struct Question {
    pub(super) step: StepId,
    pub(super) kind: QuestionKind,
    pub(super) call: Digest,
    pub(super) needed: usize,
    pub(super) uses: u32,
    pub(super) used: u32,
    pub(super) yes: BTreeSet<String>,
    pub(super) answered: BTreeSet<String>,
    /// Closed by a no, by its time, or by something that took its place.
    pub(super) closed: bool,
    pub(super) expires_at: Option<Timestamp>,
    pub(super) grant_ttl_ms: Option<u64>,
    pub(super) granted_at: Option<Timestamp>,
}

/// A question about an outcome that is still to be settled.
pub(super) struct Open {
    pub(super) run: RunId,
    pub(super) step: StepId,
    pub(super) tool: String,
}

/// An answer that somebody gave.
pub(super) struct Given {
    pub(super) said: Said,
    pub(super) heard: Vec<Heard>,
    pub(super) recorded: u32,
}

/// The reader.
pub(super) struct Naive<'a> {
    pub(super) seen: &'a mut Seen,
    pub(super) names: Names,
    pub(super) runs: BTreeMap<RunId, Run>,
    pub(super) steps: BTreeMap<StepId, Step>,
    pub(super) questions: BTreeMap<QuestionId, Question>,
    pub(super) given: BTreeMap<[u8; 64], Given>,
    /// Questions about outcomes that nobody has settled yet.
    pub(super) open: BTreeMap<QuestionId, Open>,
    /// Tools of which an outcome was unknown at some time.
    pub(super) doubted: BTreeSet<String>,
    /// Whose key it is.
    pub(super) keys: BTreeMap<String, StepId>,
    pub(super) batch: Batches,
    pub(super) broken: Vec<Broken>,
}

/// One commit: whose, how durable, and all that it holds.
pub(super) struct Commit<'a> {
    pub(super) pid: Pid,
    pub(super) durability: Durability,
    pub(super) events: &'a [Event],
}

impl Commit<'_> {
    pub(super) fn has(&self, body: impl Fn(&Body) -> bool) -> bool {
        self.events.iter().any(|event| body(&event.body))
    }

    /// Whether a person's answer came with it: then no holder wrote it.
    pub(super) fn of_a_person(&self) -> bool {
        self.has(|body| matches!(body, Body::QuestionAnswered(_)))
    }
}

impl<'a> Naive<'a> {
    pub(super) fn new(seen: &'a mut Seen) -> Self {
        Self {
            seen,
            names: Names::default(),
            runs: BTreeMap::new(),
            steps: BTreeMap::new(),
            questions: BTreeMap::new(),
            given: BTreeMap::new(),
            open: BTreeMap::new(),
            doubted: BTreeSet::new(),
            keys: BTreeMap::new(),
            batch: Batches::default(),
            broken: Vec::new(),
        }
    }

    pub(super) fn break_rule(&mut self, rule: &'static str, why: impl Into<String>) {
        self.broken.push((rule, why.into()));
    }

    /// Reads one entry.
    pub(super) fn read(&mut self, entry: &log::Entry) {
        match &entry.what {
            What::Committed { durability, events } => {
                let commit = Commit { pid: entry.pid, durability: *durability, events };
                for event in events {
                    self.event(event, &commit);
                }
                self.batches(&commit);
            }
            What::Term { run, epoch, until } => {
                let run = self.runs.entry(*run).or_default();
                if run.epoch.0 == *epoch {
                    run.until = Some(*until).max(run.until);
                }
            }
            What::Effect(effect) => self.effect(effect, entry.pid),
            What::Said(said) => {
                let given = Given { said: said.clone(), heard: Vec::new(), recorded: 0 };
                match self.given.entry(said.signature.0) {
                    Entry::Vacant(place) => drop(place.insert(given)),
                    // Word for word the same, signed in the same microsecond: which of the two was taken is anybody's guess.
                    Entry::Occupied(mut place) => place.get_mut().heard.push(Heard::Doubt),
                }
            }
            What::Heard { signature: Signature(bytes), heard } => {
                if let Some(given) = self.given.get_mut(bytes) {
                    given.heard.push(*heard);
                }
            }
            What::SaidNothing { step, start } => {
                let start = self.steps.get_mut(step).and_then(|step| step.starts.get_mut(start));
                if let Some(start) = start {
                    start.reached = true;
                }
            }
            What::Told { step, found } => self.told(*step, *found, entry.pid),
            What::Note(_) => {}
        }
    }

    fn event(&mut self, event: &Event, commit: &Commit<'_>) {
        if event.link.stream.kind != StreamKind::Run {
            return;
        }
        let run = RunId::from_bytes(event.link.stream.id);
        let name = self.names.of('r', run.as_bytes());
        if self.runs.entry(run).or_default().ended && !matches!(event.body, Body::OutcomeLate(_)) {
            self.break_rule(rule::NO, format!("{} follows the end of {name}", event.body.name()));
        }
        match &event.body {
            Body::LeaseAcquired(body) => self.lease_acquired(run, body, commit),
            Body::LeaseReleased(_) => {
                self.by_holder(run, event, commit);
                self.runs.entry(run).or_default().holder = None;
            }
            Body::StepOpened(_) | Body::StepProposed(_) => self.by_writer(run, event, commit),
            Body::StepJudged(body) => {
                self.by_holder(run, event, commit);
                self.judged(event, body);
            }
            Body::StepStarted(body) => {
                self.by_holder(run, event, commit);
                self.started(run, event, body, commit);
            }
            Body::StepRestarted(body) => {
                self.by_holder(run, event, commit);
                self.restarted(run, event, body, commit);
            }
            Body::ProbeStarted(body) => {
                self.by_holder(run, event, commit);
                self.probe_started(run, event, body, commit);
            }
            Body::ProbeFinished(body) => {
                self.by_holder(run, event, commit);
                self.probe_finished(event, body, commit);
            }
            Body::StepFinished(body) => {
                self.by_writer(run, event, commit);
                self.finished(run, event, body, commit);
            }
            Body::OutcomeLate(body) => self.late(run, event, body, commit),
            Body::QuestionAsked(body) => {
                self.by_holder(run, event, commit);
                self.asked(run, event, body);
            }
            Body::QuestionAnswered(body) => self.answered(event, body),
            Body::QuestionClosed(body) => self.closed(event, body),
            Body::ApprovalUsed(body) => self.used(event, body.question),
            Body::RunFinished(body) => self.run_finished(run, body, commit),
            _ => {}
        }
    }

    fn lease_acquired(&mut self, run: RunId, body: &LeaseAcquired, commit: &Commit<'_>) {
        match body.cause {
            LeaseCause::Expired => self.seen.count("lease taken after its term"),
            LeaseCause::HolderDead => self.seen.count("lease taken from a proven dead"),
            LeaseCause::Begin | LeaseCause::Free => {}
        }
        let known = self.runs.entry(run).or_default();
        let next = body.epoch == known.epoch.0.next() && body.holder.process.pid == commit.pid;
        known.holder = Some(commit.pid);
        known.epoch = Epoch0(body.epoch);
        known.until = None;
        if !next {
            self.break_rule(rule::HOLDER, "a lease that is not the next one, or another's");
        }
    }

    /// Only the holder writes this.
    fn by_holder(&mut self, run: RunId, event: &Event, commit: &Commit<'_>) {
        let holder = self.runs.get(&run).and_then(|run| run.holder);
        if holder != Some(commit.pid) {
            let name = self.names.of('r', run.as_bytes());
            let text = format!(
                "{} of {name} by p{}, and {} holds it",
                event.body.name(),
                commit.pid,
                holder.map_or_else(|| "nobody".to_owned(), |pid| format!("p{pid}"))
            );
            self.break_rule(rule::HOLDER, text);
        }
    }

    /// The holder writes this, or a person's answer brings it.
    fn by_writer(&mut self, run: RunId, event: &Event, commit: &Commit<'_>) {
        if !commit.of_a_person() {
            self.by_holder(run, event, commit);
        }
    }

    fn run_finished(&mut self, run: RunId, body: &RunFinished, commit: &Commit<'_>) {
        self.open.retain(|_, open| open.run != run);
        let known = self.runs.entry(run).or_default();
        known.ended = true;
        let holder = known.holder.take();
        match body.reason.status() {
            RunStatus::Completed => self.seen.count("run completed"),
            RunStatus::Failed => self.seen.count("run failed"),
            _ => self.seen.count("run cancelled"),
        }
        match body.reason {
            EndReason::LimitSteps
            | EndReason::LimitDenials
            | EndReason::LimitElapsedTime
            | EndReason::RepeatedFailures
            | EndReason::LoopDetected => self.seen.count("limit ended a run"),
            EndReason::PolicyAbort => self.seen.count("run aborted by the policy"),
            _ => {}
        }
        let closes = commit.has(|body| matches!(body, Body::QuestionClosed(_)));
        let allowed = match body.reason {
            EndReason::OperatorCancelled => true,
            EndReason::ApprovalExpired => closes,
            EndReason::ApprovalRejected => commit.of_a_person(),
            EndReason::ReconcileConflict => {
                let found = |body: &Body| matches!(body, Body::ProbeFinished(b) if b.found == Found::Conflict);
                holder == Some(commit.pid) && commit.has(found)
            }
            _ => holder == Some(commit.pid) || commit.of_a_person(),
        };
        if !allowed {
            let text = format!("p{} ends it as {}", commit.pid, body.reason.as_str());
            self.break_rule(rule::HOLDER, text);
        }
    }

    fn effect(&mut self, effect: &Effect, pid: Pid) {
        if effect.start == 0 {
            return self.probe_looked(effect, pid);
        }
        self.key(effect);
        let name = self.names.of('s', effect.step.as_bytes());
        let step = self.steps.entry(effect.step).or_default();
        let under_way = step.probes.iter().any(|asked| asked.denied);
        let mut broken = Vec::new();
        match step.starts.get_mut(&effect.start) {
            Some(start) if start.call == effect.call && start.pid == pid => {
                start.reached = true;
                start.effects += u32::from(!effect.known);
                if start.effects > 1 {
                    broken.push((rule::LEAVE, format!("start {} of {name} has two", effect.start)));
                }
                if start.claimed_nothing && !effect.known {
                    let text =
                        format!("{name} has an effect after the record said that it has none");
                    broken.push((rule::TRUE, text));
                }
                if step.finished && effect.is_a_change() {
                    self.seen.count(if under_way {
                        "call under way when its probe answered"
                    } else {
                        "call under way when its question was answered"
                    });
                }
            }
            _ => broken.push((rule::INTENT, format!("{} for {name} by p{pid}", effect.tool))),
        }
        let effects: u32 = step.starts.values().map(|start| start.effects).sum();
        let (allowed, questions) = (u32::from(step.allowed), step.questions.clone());
        let granted = questions.iter().filter(|id| self.people_granted(id)).count();
        let leave = allowed.saturating_add(u32::try_from(granted).unwrap_or(0));
        if effects > leave {
            broken
                .push((rule::LEAVE, format!("{name} has {effects} effects and leave for {leave}")));
        }
        self.broken.extend(broken);
    }

    /// Whether enough different people said yes, by what they said and not by what is recorded.
    fn people_granted(&self, id: &QuestionId) -> bool {
        let said = self.given.values().map(|given| &given.said);
        let yes: BTreeSet<&str> = said
            .filter(|said| said.question == *id && said.answer.grants())
            .map(|said| said.person)
            .collect();
        self.questions.get(id).is_some_and(|question| yes.len() >= question.needed)
    }

    /// What holds at the end of the log.
    pub(super) fn end(mut self) -> Vec<Broken> {
        for given in self.given.values() {
            let taken = given.heard.contains(&Heard::Taken);
            let refused =
                !given.heard.is_empty() && given.heard.iter().all(|heard| *heard == Heard::Refused);
            let fits = match given.recorded {
                0 => !taken,
                1 => !refused,
                _ => false,
            };
            if !fits {
                let text = format!(
                    "{} said {} and heard {:?}; it is recorded {} times",
                    given.said.person,
                    given.said.answer.as_str(),
                    given.heard,
                    given.recorded
                );
                self.broken.push((rule::ANSWERS, text));
            }
        }
        self.broken
    }
}
