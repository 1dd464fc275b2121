//! Histories: none breaks a rule, a seed is a history, and each planted fault is found by a seed that finds it again.

use portcullis_simulate::{KINDS, Planted, Seen, simulate};

/// What a test plays; `cargo xtask simulate` plays as many as it is told.
const SEEDS: u64 = 300;

/// Plays these seeds, none of which may break a rule.
fn well(seeds: std::ops::Range<u64>) {
    let mut seen = Seen::default();
    for seed in seeds {
        let outcome = simulate(seed, None).unwrap();
        assert_eq!(outcome.broken, None, "seed {seed}\n{}", outcome.trace());
        seen.add(&outcome.seen);
    }
    let never: Vec<_> = seen.never().collect();
    // All of them come in a thousand seeds, which the command sees to.
    assert!(never.len() * 6 <= KINDS.len(), "never: {never:?}");
    for kind in ["effect", "grant used", "process crashed with a call open", "lease lost"] {
        assert!(seen.of(kind) > 0, "{kind}");
    }
}

#[test]
fn no_history_breaks_a_rule_and_most_kinds_of_things_happen() {
    well(0..SEEDS / 2);
}

#[test]
fn no_other_history_does_either() {
    well(SEEDS / 2..SEEDS);
}

/// A process takes its run anew, under a lease that is over once it is committed, and interrupts a call that it had
/// reached before and whose outcome it recorded as late.
#[test]
fn a_driver_that_comes_back_ends_what_it_reached_before_as_any_other_would() {
    let outcome = simulate(7976, None).unwrap();
    let trace = outcome.trace();
    assert_eq!(outcome.broken, None, "{trace}");
    let late = trace.find("outcome.late r3 s6").expect("the seed tells another history");
    let rest = trace.get(late..).unwrap_or_default();
    assert!(rest.contains("step.finished r3 s6 interrupted"), "{trace}");
}

#[test]
fn the_same_seed_is_the_same_history_byte_for_byte() {
    for seed in [0, 3, 11, 42] {
        let (one, two) = (simulate(seed, None).unwrap(), simulate(seed, None).unwrap());
        assert_eq!(one.trace(), two.trace(), "seed {seed}");
        assert_eq!((&one.seen, one.events, &one.broken), (&two.seen, two.events, &two.broken));
        assert!(one.trace().lines().count() > 40, "seed {seed} tells nothing");
    }
    assert_ne!(simulate(0, None).unwrap().trace(), simulate(1, None).unwrap().trace());
}

fn is_found(planted: Planted) {
    let name = planted.name();
    let found = (0..SEEDS)
        .map(|seed| simulate(seed, Some(planted)).unwrap())
        .find(|outcome| outcome.broken.is_some())
        .unwrap_or_else(|| panic!("no history finds `{name}`"));
    let again = simulate(found.seed, Some(planted)).unwrap();
    assert_eq!((&again.broken, again.trace()), (&found.broken, found.trace()), "{name}");
    assert_eq!(simulate(found.seed, None).unwrap().broken, None, "{name}");
}

#[test]
fn a_store_that_does_not_check_the_epoch_is_found() {
    is_found(Planted::EpochNotChecked);
}

#[test]
fn a_store_that_does_not_check_the_term_is_found() {
    is_found(Planted::TermNotChecked);
}

#[test]
fn a_lost_commit_that_is_taken_as_done_is_found() {
    is_found(Planted::LostCommitTakenAsDone);
}

#[test]
fn a_call_that_is_made_twice_is_found() {
    is_found(Planted::CallMadeTwice);
}

#[test]
fn a_key_ring_that_takes_anybody_is_found() {
    is_found(Planted::AnySignatureCounts);
}

#[test]
fn an_answer_that_is_kept_and_denied_is_found() {
    is_found(Planted::RefusedAnswerKept);
}

#[test]
fn an_answer_that_is_forgotten_is_found() {
    is_found(Planted::AnswerForgotten);
}

#[test]
fn an_intent_that_is_not_synced_is_found() {
    is_found(Planted::IntentNotSynced);
}

#[test]
fn a_table_that_is_not_the_fold_is_found() {
    is_found(Planted::TableChanged);
}
