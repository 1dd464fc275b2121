//! What can happen in a state, and the state after it. Each append goes through the real store.

use std::time::Duration;

use portcullis_domain::approval::Answer;
use portcullis_domain::event::{
    ApprovalUsed, Body, LeaseCause, OutcomeLate, QuestionClosed, StepStarted,
};
use portcullis_domain::fold::RunState;
use portcullis_domain::grant::Grant;
use portcullis_domain::observation::ObservationKind;
use portcullis_domain::permit::{Intent, commit};
use portcullis_domain::ports::{Append, Condition, Durability, Store as _, StoreError, TakeLease};
use portcullis_domain::question::{Question, QuestionKind, QuestionStatus};
use portcullis_domain::run::{EndReason, RunStatus};
use portcullis_domain::standing::Standing;
use portcullis_domain::step::StepStatus;
use portcullis_domain::verdict::Verdict;
use portcullis_testkit::block_on;

use super::call::{Batch, Call, LEAP, RUN, STEP, TERM};
use super::node::Ready;
use super::{Action, Gate, Local, Node, Who, Word, Wrong};

/// How long the call may take.
const DEADLINE: Duration = Duration::from_secs(1);

impl Gate {
    /// The one first state.
    pub(crate) fn begin(&self) -> Option<Node> {
        let (store, now) = self.call.begin(&self.rules)?;
        let run = block_on(store.run(&self.call.scope, RUN)).ok()??;
        Some(Node {
            tip: run.run.hash.as_bytes().to_vec(),
            store,
            run: Box::new(run),
            term: None,
            now,
            local: [Local::Idle, Local::Idle],
            dead: [false; 2],
            effects: 0,
            leave: 0,
            granted: 0,
            uses: 0,
            crashes: self.bounds.crashes,
            leaps: self.bounds.leaps,
            doubts: self.bounds.doubts,
            again: self.bounds.again,
            finished_by_another: false,
            refused_as_wrong: false,
            finished: false,
            rejected: false,
            expired: false,
            asked_about_outcome: false,
            late: false,
        })
    }

    /// What can happen.
    pub(crate) fn offer(&self, node: &Node, actions: &mut Vec<Action>) {
        for (who, local) in node.local.iter().enumerate() {
            match local {
                Local::Idle if self.can_take(node).is_some() => actions.push(Action::Look(who)),
                Local::Idle => {}
                Local::Looked { .. } => actions.push(Action::Take(who)),
                Local::Holds { .. } => actions.push(Action::Decide(who)),
                Local::Ready { .. } => {
                    actions.push(Action::Start(who));
                    if node.doubts > 0 {
                        actions.push(Action::StartInDoubt(who, true));
                        actions.push(Action::StartInDoubt(who, false));
                    }
                }
                Local::Doubt { .. } => actions.push(Action::Settle(who)),
                Local::May { .. } => actions.push(Action::Call(who)),
                Local::Made { .. } => actions.push(Action::Finish(who)),
            }
            if node.crashes > 0 && !matches!(local, Local::Idle) {
                actions.push(Action::Crash(who));
            }
        }
        if node.ended() {
            return;
        }
        actions.push(Action::Cancel);
        if node.leaps > 0 {
            actions.push(Action::Leap);
        }
        let Some(question) = &node.run.question else { return };
        if question.is_over(node.now) {
            actions.push(Action::Sweep);
        } else if question.status == QuestionStatus::Open {
            offer_answers(node, question, actions);
        }
    }

    /// How the lease could be had, as it looks now.
    fn can_take(&self, node: &Node) -> Option<LeaseCause> {
        let run = &node.run.run;
        let granted = node.run.question.as_ref().is_some_and(|question| {
            question.status == QuestionStatus::Granted && !question.is_over(node.now)
        });
        if node.ended() || (run.status == RunStatus::Waiting && !granted) {
            return None;
        }
        let Some(holder) = &run.holder else { return Some(LeaseCause::Free) };
        let pid = usize::try_from(holder.process.pid).unwrap_or(usize::MAX);
        if node.dead.get(pid).copied().unwrap_or(false) {
            return Some(LeaseCause::HolderDead);
        }
        let runs = node.term.is_some_and(|t| t.epoch == run.epoch && t.until >= node.now);
        (!runs).then_some(LeaseCause::Expired)
    }

    /// The state after an action; nothing when the action is none there.
    pub(crate) fn make(&self, node: &Node, action: Action) -> Option<Node> {
        let mut next = node.clone();
        match action {
            Action::Look(who) => {
                let dead = self.can_take(node)? == LeaseCause::HolderDead;
                let looked = Local::Looked { state: node.run.clone(), at: node.now, dead };
                next.set(who, looked);
            }
            Action::Take(who) => self.take(&mut next, who)?,
            Action::Decide(who) => self.decide(&mut next, who)?,
            Action::Start(who) => self.start(&mut next, who, true, true)?,
            Action::StartInDoubt(who, stored) => {
                next.doubts = next.doubts.checked_sub(1)?;
                self.start(&mut next, who, stored, false)?;
            }
            Action::Settle(who) => self.settle(&mut next, who)?,
            Action::Call(who) => {
                let Local::May { state } = node.local(who)? else { return None };
                next.effects += 1;
                next.set(who, Local::Made { state: state.clone() });
            }
            Action::Finish(who) => self.finish(&mut next, who)?,
            Action::Crash(who) => {
                next.crashes = next.crashes.checked_sub(1)?;
                next.set(who, Local::Idle);
                *next.dead.get_mut(who)? = true;
            }
            Action::Leap => {
                next.leaps = next.leaps.checked_sub(1)?;
                next.now = next.now.after(LEAP);
            }
            Action::Answer(who, word) => self.answer(&mut next, who, word)?,
            Action::Sweep => self.sweep(&mut next)?,
            Action::Cancel => {
                let events =
                    vec![Call::event(node.now, false, Call::run_end(EndReason::OperatorCancelled))];
                let statuses = vec![RunStatus::Running, RunStatus::Waiting];
                let condition = Condition::Operator { run: RUN, statuses, question: None };
                self.append(&mut next, condition, (events, Vec::new())).ok()?;
            }
        }
        Some(next)
    }

    /// Appends in a store of its own, and reads what became of the run.
    fn append(
        &self,
        node: &mut Node,
        condition: Condition,
        (events, contents): Batch,
    ) -> Result<(), StoreError> {
        let durability = Durability::Synced;
        let append = Append { condition, events, contents, specs: Vec::new(), durability };
        node.store = node.store.fork()?;
        let appended = block_on(node.store.append(&self.call.scope, append));
        self.look_again(node)?;
        match appended {
            Ok(committed) => {
                if let Some(last) = committed.events.last() {
                    node.tip = last.hash.as_bytes().to_vec();
                }
                Ok(())
            }
            Err(error) => {
                node.refused_as_wrong |= error == StoreError::NotAdmitted;
                Err(error)
            }
        }
    }

    fn look_again(&self, node: &mut Node) -> Result<(), StoreError> {
        let run = block_on(node.store.run(&self.call.scope, RUN))?;
        *node.run = run.ok_or(StoreError::NotFound("run"))?;
        node.term = block_on(node.store.lease(&self.call.scope, RUN))?;
        Ok(())
    }

    fn take(&self, node: &mut Node, who: Who) -> Option<()> {
        let Local::Looked { state, dead, .. } = node.local(who)?.clone() else { return None };
        let epoch = state.run.epoch.next();
        let cause = if dead { LeaseCause::HolderDead } else { LeaseCause::Free };
        let events = vec![Call::event(node.now, false, Call::lease(epoch, who, cause))];
        let (now, until) = (node.now, node.now.after(TERM));
        let condition = Condition::Driver {
            run: RUN,
            seq: state.run.seq,
            epoch: state.run.epoch,
            take: Some(TakeLease { now, until, holder_dead: dead }),
            live_at: None,
            label_seq: None,
        };
        let taken = self.append(node, condition, (events, Vec::new()));
        if taken.is_ok() {
            *node.dead.get_mut(who)? = false;
        }
        let local = match taken {
            Ok(()) => Local::Holds { state: node.run.clone() },
            Err(_) => Local::Idle,
        };
        node.set(who, local);
        Some(())
    }

    fn decide(&self, node: &mut Node, who: Who) -> Option<()> {
        let Local::Holds { state } = node.local(who)?.clone() else { return None };
        let (judged, card) = self.call.judge(&self.rules, &state)?;
        let before = vec![Call::event(node.now, true, Body::StepJudged(judged.clone()))];
        match state.step()?.status {
            StepStatus::Executing if self.is(Wrong::RecoveryMakesTheCall) => {
                node.set(who, Local::May { state });
                return Some(());
            }
            StepStatus::Executing => {
                let kind = QuestionKind::UnknownOutcome;
                let batch = self.call.ask(&node.store, &state, node.now, &card, kind)?;
                node.asked_about_outcome |= self.append(node, driver(&state), batch).is_ok();
                node.set(who, Local::Idle);
                return Some(());
            }
            StepStatus::Awaiting => {
                let question = state.question.as_ref()?;
                let stands =
                    self.amounts(node, &state, question) && judged.admitted.call == question.call;
                let grant = stands.then_some(question.id);
                let ready = Ready { judged, card, grant, at: node.now };
                let local = match grant {
                    Some(_) => Local::Ready { state: state.clone(), ready: Box::new(ready) },
                    None => Local::Idle,
                };
                node.set(who, local);
                return Some(());
            }
            _ => {}
        }
        match &judged.verdict {
            Verdict::Allow { .. } => {
                node.effects += u32::from(self.is(Wrong::CallBeforeIntent));
                let ready = Box::new(Ready { judged, card, grant: None, at: node.now });
                node.set(who, Local::Ready { state, ready });
            }
            Verdict::Ask { .. } => {
                let kind = QuestionKind::Approval;
                let (asked, contents) =
                    self.call.ask(&node.store, &state, node.now, &card, kind)?;
                let events = before.into_iter().chain(asked).collect();
                let _refused = self.append(node, driver(&state), (events, contents));
                node.set(who, Local::Idle);
            }
            Verdict::Deny { .. } | Verdict::Abort { .. } => return None,
        }
        Some(())
    }

    /// The product's own judgement of the recorded answers.
    fn amounts(&self, node: &Node, state: &RunState, question: &Question) -> bool {
        let scope = &self.call.scope;
        let card = block_on(node.store.content(scope, question.card.digest)).ok().flatten();
        let approvals = block_on(node.store.approvals(scope, question.id)).unwrap_or_default();
        card.is_some_and(|card| {
            let grant = Grant {
                question,
                approvals: &approvals,
                card: card.bytes(),
                salt: self.call.salt.bytes(),
                run: &state.run,
                instance: node.store.instance(),
            };
            grant.amounts(node.now, &self.call.ring).is_ok()
        })
    }

    /// Commit 1, as far as it reaches the store, and whether the holder hears of it.
    fn start(&self, node: &mut Node, who: Who, stored: bool, heard: bool) -> Option<()> {
        let Local::Ready { state, ready } = node.local(who)?.clone() else { return None };
        let committed = if stored { self.commit(node, &state, &ready) } else { Ok(()) };
        if stored && committed.is_ok() {
            node.uses += u32::from(ready.grant.is_some());
            node.leave += u32::from(ready.grant.is_none());
        }
        let local = match committed {
            Ok(()) if heard || self.is(Wrong::DoubtTakenAsStored) => {
                Local::May { state: node.run.clone() }
            }
            Ok(()) => Local::Doubt { state },
            Err(error) => self.after(node, &state, &error),
        };
        node.set(who, local);
        Some(())
    }

    fn commit(&self, node: &mut Node, state: &RunState, ready: &Ready) -> Result<(), StoreError> {
        let start = state.step().map_or(1, |step| step.starts.saturating_add(1));
        let call = ready.judged.admitted.call;
        let mut events = vec![Call::event(ready.at, true, Body::StepJudged(ready.judged.clone()))];
        let uses = ready.grant.filter(|_| !self.is(Wrong::GrantNotUsed));
        events.extend(uses.map(|question| {
            Call::event(ready.at, true, Body::ApprovalUsed(ApprovalUsed { question }))
        }));
        let deadline_ms = self.call.spec.deadline_ms;
        let started = StepStarted { call, epoch: state.run.epoch, deadline_ms, start };
        events.push(Call::event(ready.at, true, Body::StepStarted(started)));
        let mut condition = driver(state);
        if let Condition::Driver { live_at, label_seq, .. } = &mut condition {
            (*live_at, *label_seq) = (Some(ready.at), Some(0));
        }
        let durability = Durability::Synced;
        let append =
            Append { condition, events, contents: Vec::new(), specs: Vec::new(), durability };
        let salt = self.call.salt.bytes().to_vec();
        let card = ready.card.clone();
        let intent = Intent { run: RUN, step: STEP, card, salt, deadline: DEADLINE, append };
        node.store = node.store.fork()?;
        let receipt = block_on(commit(&node.store, &self.call.scope, intent));
        self.look_again(node)?;
        match receipt {
            Ok(receipt) => {
                let (permit, committed) = receipt.into_permit(Standing::always());
                debug_assert_eq!((permit.call(), permit.start()), (call, start));
                if let Some(last) = committed.events.last() {
                    node.tip = last.hash.as_bytes().to_vec();
                }
                Ok(())
            }
            Err(error) => {
                node.refused_as_wrong |= error == StoreError::NotAdmitted;
                Err(error)
            }
        }
    }

    /// What a holder knows after an append was refused.
    fn after(&self, node: &Node, state: &RunState, error: &StoreError) -> Local {
        let mine = node.run.run.epoch == state.run.epoch && node.run.run.holder.is_some();
        match error {
            StoreError::Stale | StoreError::LabelsMoved if mine && !node.ended() => {
                Local::Holds { state: node.run.clone() }
            }
            _ => Local::Idle,
        }
    }

    /// The intent is in doubt, and no receipt was made: the call is not made.
    fn settle(&self, node: &mut Node, who: Who) -> Option<()> {
        let Local::Doubt { state } = node.local(who)?.clone() else { return None };
        let mine = node.run.run.epoch == state.run.epoch && node.run.run.holder.is_some();
        let local = if node.ended() || !mine {
            Local::Idle
        } else if node.run.step()?.status == StepStatus::Executing {
            let events = Call::end(node.now, ObservationKind::ToolError, EndReason::GoalFailed);
            let fresh = node.run.clone();
            let _refused = self.append(node, driver(&fresh), (events, Vec::new()));
            Local::Idle
        } else {
            Local::Holds { state: node.run.clone() }
        };
        node.set(who, local);
        Some(())
    }

    /// Commit 2; what comes too late for it is recorded as late.
    fn finish(&self, node: &mut Node, who: Who) -> Option<()> {
        let Local::Made { state } = node.local(who)?.clone() else { return None };
        let pid = u32::try_from(who).ok();
        let holds = node.run.run.holder.as_ref().map(|holder| holder.process.pid) == pid
            && node.run.run.epoch == state.run.epoch;
        let borrowed = self.is(Wrong::BorrowedEpoch) && !node.ended();
        let base = if borrowed { node.run.clone() } else { state.clone() };
        let events = Call::end(node.now, ObservationKind::ToolResult, EndReason::GoalCompleted);
        let recorded = self.append(node, driver(&base), (events, Vec::new()));
        let mine = node.run.run.epoch == state.run.epoch && node.run.run.holder.is_some();
        let local = match recorded {
            Ok(()) => {
                node.finished = true;
                node.finished_by_another |= !holds;
                Local::Idle
            }
            // Something else was recorded, and the lease is still there: composed anew.
            Err(StoreError::Stale) if mine && !node.ended() => {
                Local::Made { state: node.run.clone() }
            }
            Err(_) => {
                let observation = Call::observation(ObservationKind::ToolResult, None);
                let body = OutcomeLate { epoch: state.run.epoch, observation };
                let events = vec![Call::event(node.now, true, Body::OutcomeLate(body))];
                node.late |= self.append(node, Condition::Late, (events, Vec::new())).is_ok();
                Local::Idle
            }
        };
        node.set(who, local);
        Some(())
    }

    fn answer(&self, node: &mut Node, who: Who, word: Word) -> Option<()> {
        let question = node.run.question.clone()?;
        let now = node.now;
        let (answer, end) = match word {
            Word::Yes => (Answer::Approve, None),
            Word::Again => (Answer::RunAgain, None),
            Word::No => {
                (Answer::Reject, Some((ObservationKind::Denied, EndReason::ApprovalRejected)))
            }
            Word::Happened => {
                (Answer::Happened, Some((ObservationKind::ToolResult, EndReason::GoalCompleted)))
            }
            Word::DidNot => {
                (Answer::DidNotHappen, Some((ObservationKind::ToolError, EndReason::GoalFailed)))
            }
        };
        if word == Word::Again {
            node.again = node.again.checked_sub(1)?;
        }
        let answered = self.call.answer(&question, who, answer, now)?;
        let mut events = vec![Call::event(now, true, Body::QuestionAnswered(answered))];
        events.extend(end.into_iter().flat_map(|(kind, reason)| Call::end(now, kind, reason)));
        let condition = Condition::Operator {
            run: RUN,
            statuses: vec![RunStatus::Waiting],
            question: Some((question.id, question.digest)),
        };
        self.append(node, condition, (events, Vec::new())).ok()?;
        node.rejected |= word == Word::No;
        let granted =
            node.run.question.as_ref().is_some_and(|q| q.status == QuestionStatus::Granted);
        if granted {
            node.granted += question.uses;
            node.leave += question.uses;
        }
        Some(())
    }

    fn sweep(&self, node: &mut Node) -> Option<()> {
        let question = node.run.question.clone()?;
        let (now, due) = (node.now, question.ends_at()?);
        let closed = QuestionClosed { question: question.id, status: QuestionStatus::Expired };
        let events = vec![
            Call::event(now, true, Body::QuestionClosed(closed)),
            Call::event(now, false, Call::run_end(EndReason::ApprovalExpired)),
        ];
        let status = question.status;
        let condition = Condition::Sweep { run: RUN, question: question.id, status, now, due };
        node.expired |= self.append(node, condition, (events, Vec::new())).is_ok();
        Some(())
    }

    fn is(&self, wrong: Wrong) -> bool {
        self.bounds.wrong == Some(wrong)
    }
}

impl Node {
    fn local(&self, who: Who) -> Option<&Local> {
        self.local.get(who)
    }

    fn set(&mut self, who: Who, local: Local) {
        if let Some(place) = self.local.get_mut(who) {
            *place = local;
        }
    }
}

fn offer_answers(node: &Node, question: &Question, actions: &mut Vec<Action>) {
    let words: &[Word] = match question.kind {
        QuestionKind::Approval => &[Word::Yes, Word::No],
        QuestionKind::UnknownOutcome if node.again == 0 => &[Word::Happened, Word::DidNot],
        QuestionKind::UnknownOutcome => &[Word::Happened, Word::DidNot, Word::Again],
    };
    for who in 0..2 {
        if !Call::has_answered(&node.run, who) {
            actions.extend(words.iter().map(|word| Action::Answer(who, *word)));
        }
    }
}

/// A driver's condition on what it saw.
fn driver(state: &RunState) -> Condition {
    Condition::Driver {
        run: RUN,
        seq: state.run.seq,
        epoch: state.run.epoch,
        take: None,
        live_at: None,
        label_seq: None,
    }
}
