//! Cases: what an outcome that is not known keeps from starting, until somebody has said what it was.

use portcullis_domain::approval::Answer;
use portcullis_domain::event::LeaseCause;
use portcullis_domain::observation::ObservationKind;
use portcullis_domain::ports::{Append, Durability, StoreError};
use portcullis_domain::question::QuestionKind;
use portcullis_domain::recovery::Found;
use portcullis_domain::run::EndReason;
use portcullis_domain::tool::EffectClass;

use super::{Backend, Subject, fold, ok, plain, refused, scope};
use crate::block_on;
use crate::scenario::{Scenario, allow, keyed, tool};

/// A run in the middle of its effect.
fn executing(seed: u64, store: &dyn Subject) -> Scenario {
    let mut run = Scenario::new(seed, store.instance());
    ok(store, run.begin());
    for append in run.executing() {
        ok(store, append);
    }
    run
}

/// A run that waits for somebody to say what its call did, and the refusal of others that comes of it.
fn unknown(seed: u64, store: &dyn Subject) -> (Scenario, StoreError) {
    let mut run = executing(seed, store);
    run.asked(QuestionKind::UnknownOutcome, 1);
    ok(store, run.driver(Durability::Synced));
    let question = run.question.unwrap().0;
    (run, StoreError::OutcomeOpen { question })
}

/// Another run up to the intent of its call, which is not appended.
fn intent(seed: u64, store: &dyn Subject, change: impl FnOnce(&mut Scenario)) -> Append {
    let mut run = Scenario::new(seed, store.instance());
    change(&mut run);
    ok(store, run.begin());
    let mut appends = run.executing();
    let intent = appends.pop().unwrap();
    appends.into_iter().for_each(|append| drop(ok(store, append)));
    intent
}

/// While it is open, the owner's calls of the tool that change something are refused, whatever run they are of, and
/// nothing else is.
pub fn an_unknown_outcome_keeps_its_tool_from_changing(backend: &dyn Backend) {
    let store = plain(backend);
    let mut first = executing(1, &*store);
    // The control: a call that is merely under way is in nobody's way.
    ok(&*store, intent(2, &*store, |_| {}));
    first.asked(QuestionKind::UnknownOutcome, 1);
    ok(&*store, first.driver(Durability::Synced));
    let question = first.question.unwrap().0;
    let open = StoreError::OutcomeOpen { question };
    let owner = first.owner.clone();
    let known = |owner: &str| block_on(store.open_outcomes(&scope(), owner)).unwrap();
    assert_eq!(known(&owner).iter().map(|open| open.question).collect::<Vec<_>>(), [question]);
    assert_eq!(known(&owner)[0].call.tool, first.tool.name);
    assert_eq!(known("another"), []);

    refused(&*store, intent(3, &*store, |_| {}), &open);
    refused(&*plain(backend), intent(4, &*store, |_| {}), &open);
    let elsewhere = intent(5, &*store, |run| run.tool.description = "Moves files.".to_owned());
    refused(&*store, elsewhere, &open);

    ok(&*store, intent(6, &*store, |run| run.owner = "another".to_owned()));
    ok(&*store, intent(7, &*store, |run| run.tool.name = "files.copy".to_owned()));
    ok(&*store, intent(8, &*store, |run| run.tool.target = Some("/elsewhere".to_owned())));
    ok(&*store, intent(9, &*store, |run| run.tool.effect = EffectClass::ReadOnly));

    let blocked = intent(10, &*store, |_| {});
    refused(&*store, blocked.clone(), &open);
    first.answered("ann", Answer::DidNotHappen);
    first.finished(ObservationKind::ToolError);
    ok(&*store, first.operator());
    assert_eq!(known(&owner), []);
    ok(&*store, blocked);
    fold::check(&*store);
}

/// Leave to run it again is not yet an outcome. The call itself starts, also while another one is not known: were
/// they to wait for each other, nobody could answer anything.
pub fn a_call_that_may_run_again_keeps_it_until_it_has(backend: &dyn Backend) {
    let store = plain(backend);
    let mut runs = [executing(1, &*store), executing(2, &*store)];
    for run in &mut runs {
        run.asked(QuestionKind::UnknownOutcome, 1);
        ok(&*store, run.driver(Durability::Synced));
        run.answered("ann", Answer::RunAgain);
        ok(&*store, run.operator());
    }
    let blocked = intent(3, &*store, |_| {});
    let asked = runs.iter().map(|run| run.question.unwrap().0).min();
    let open = StoreError::OutcomeOpen { question: asked.unwrap() };
    refused(&*store, blocked.clone(), &open);
    for run in &mut runs {
        run.lease_acquired(LeaseCause::Free);
        ok(&*store, run.taking(false));
        run.judged(allow());
        run.used();
        run.started();
        ok(&*store, run.driver(Durability::Synced));
    }
    ok(&*store, blocked);
    fold::check(&*store);
}

/// What nobody can answer any more keeps nothing from starting.
pub fn the_end_of_its_run_lets_the_tool_go(backend: &dyn Backend) {
    let store = plain(backend);
    let (mut run, open) = unknown(1, &*store);
    let blocked = intent(2, &*store, |_| {});
    refused(&*store, blocked.clone(), &open);
    run.run_finished(EndReason::OperatorCancelled);
    let mut cancel = run.operator();
    if let portcullis_domain::ports::Condition::Operator { question, .. } = &mut cancel.condition {
        *question = None;
    }
    ok(&*store, cancel);
    ok(&*store, blocked);
    fold::check(&*store);
}

/// By itself a call starts again once, and only when its tool said that its receiver can tell.
pub fn only_a_keyed_call_starts_again(backend: &dyn Backend) {
    let store = plain(backend);
    let mut bare = executing(1, &*store);
    bare.restarted();
    refused(&*store, bare.driver(Durability::Synced), &StoreError::NotAdmitted);

    let mut run = Scenario::new(2, store.instance());
    run.tool = keyed();
    assert_eq!(run.tool.name, tool().name);
    ok(&*store, run.begin());
    for append in run.executing() {
        ok(&*store, append);
    }
    run.restarted();
    ok(&*store, run.driver(Durability::Synced));
    let mut twice = run;
    twice.restarted();
    refused(&*store, twice.driver(Durability::Synced), &StoreError::NotAdmitted);
    fold::check(&*store);
}

/// What a probe found is recorded with what it leads to, after the probe was asked.
pub fn what_a_probe_found_ends_its_step(backend: &dyn Backend) {
    let store = plain(backend);
    let unasked = {
        let mut run = executing(1, &*store);
        run.probe_finished(Found::Happened);
        run.finished(ObservationKind::ToolResult);
        run.driver(Durability::Synced)
    };
    refused(&*store, unasked, &StoreError::NotAdmitted);
    let asked = |seed| {
        let mut run = executing(seed, &*store);
        run.probe_started(true);
        ok(&*store, run.driver(Durability::Synced));
        run
    };
    let mut alone = asked(2);
    alone.probe_finished(Found::DidNotHappen);
    refused(&*store, alone.driver(Durability::Synced), &StoreError::NotAdmitted);
    let mut whole = asked(3);
    whole.probe_finished(Found::DidNotHappen);
    whole.finished(ObservationKind::ToolError);
    ok(&*store, whole.driver(Durability::Synced));
    // One that cannot say leaves it to a person.
    let mut open = asked(4);
    open.probe_finished(Found::Unknown);
    open.asked(QuestionKind::UnknownOutcome, 1);
    ok(&*store, open.driver(Durability::Synced));
    fold::check(&*store);
}
