//! What every store must do, as named cases that each back end runs.
//!
//! A back end implements [`Backend`] and names a function that makes a fresh one in
//! `portcullis_testkit::store_contract!(fresh)`; each case becomes a test of that name.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    reason = "a case fails by panicking"
)]

pub mod admission;
pub mod budgets;
pub mod chain;
pub mod counts;
pub mod facts;
pub mod fold;
pub mod leases;
pub mod operators;
pub mod outcomes;
pub mod reads;
pub mod walk;

use std::sync::Arc;

use portcullis_domain::ports::{
    Append, Committed, Durability, Ledgers, MAX_PAGE, Observer, Store, StoreError, StoredEvent,
};
use portcullis_domain::row::Cell;
use portcullis_domain::scope::Scope;

use crate::block_on;

/// A store under test.
pub trait Subject: Store + Ledgers {}

impl<T: Store + Ledgers> Subject for T {}

/// One installation under test.
pub trait Backend {
    /// Another handle to the same state, as a process of its own would have it.
    fn open(&self, observers: Vec<Arc<dyn Observer>>) -> Arc<dyn Subject>;

    /// Changes a cell of a state table behind the store's back. Handles opened later see it.
    fn set_cell(&self, table: &str, key: &[Cell], column: &str, value: Cell);
}

/// Makes a test of each case; `$fresh` is the path, from `crate`, of a function that returns a new [`Backend`](crate::store_contract::Backend).
#[macro_export]
macro_rules! store_contract {
    ($fresh:path) => {
        $crate::store_contract! { @cases $fresh;
            chain { opens_with_its_journal, every_event_is_chained_and_folded, two_handles_write_one_chain,
                the_state_read_back_is_the_state_folded, observers_see_commits_in_order,
                threads_of_this_process_lose_no_write, random_histories_fold_to_their_rows }
            admission { a_refused_append_stores_nothing, contents_are_named_and_brought,
                specs_are_named_and_brought, a_run_needs_its_thread_and_parent, a_run_exists_once,
                ids_are_used_once, kinds_keep_to_their_condition, nothing_follows_the_end }
            leases { a_lease_excludes_and_expires, a_dead_holder_is_replaced_at_once,
                an_old_epoch_stores_nothing, a_lease_can_be_required_to_run, a_lease_is_prolonged_while_it_runs,
                letting_go_ends_the_term, moved_labels_are_noticed }
            operators { an_answer_names_what_was_shown, an_answer_comes_once, two_people_answer,
                an_answer_comes_in_time, a_sweep_comes_when_due, a_sweep_ends_a_grant_when_due,
                what_has_no_term_is_never_due, people_are_reminded_once, a_late_outcome_changes_nothing,
                a_person_ends_a_run_that_somebody_drives }
            outcomes { an_unknown_outcome_keeps_its_tool_from_changing,
                a_call_that_may_run_again_keeps_it_until_it_has, the_end_of_its_run_lets_the_tool_go,
                only_a_keyed_call_starts_again, what_a_probe_found_ends_its_step }
            budgets { a_hold_needs_room, each_cap_is_named, an_attempt_is_in_all_its_budgets,
                a_child_debits_its_parents, only_the_holder_can_hold, a_charge_is_at_most_what_was_held,
                only_a_days_caps_change, what_has_no_price_meets_no_cap_on_cost, what_holds_something_is_listed,
                many_at_once_cross_no_cap, random_trees_cross_no_cap }
            counts { a_limit_holds_over_all_runs_of_a_conversation, a_limit_keeps_questions_out_too,
                only_what_happens_is_counted, nothing_is_left_out_of_a_counted_conversation,
                a_burst_crosses_no_limit }
            facts { a_person_records_answers_and_ends, time_records_the_end_of_its_question,
                a_driver_says_nothing_for_people_and_time, a_grant_is_used_with_its_start }
            reads { pages_are_capped_and_counted, questions_come_in_order, a_damaged_row_is_shown_in_place,
                a_damaged_row_does_not_wedge_its_run,
                contents_are_checked, an_erased_content_is_gone_and_recorded,
                an_erased_content_is_not_brought_again, another_tenant_sees_nothing,
                a_ledger_is_a_snapshot, events_are_filtered }
        }
    };
    (@cases $fresh:path; $($module:ident { $($case:ident),* $(,)? })*) => {
        $(mod $module {
            $(#[test]
            fn $case() {
                $crate::store_contract::$module::$case(&$fresh());
            })*
        })*
    };
}

/// The scope of every case.
fn scope() -> Scope {
    Scope::of_file_owner()
}

/// Appends what must be admitted, and sees that the answer promises no less than was asked.
#[track_caller]
fn ok(store: &dyn Subject, append: Append) -> Committed {
    let tried = format!("{append:?}");
    let asked = append.durability;
    match block_on(store.append(&scope(), append)) {
        Ok(committed) => {
            let kept = asked == Durability::Written || committed.durability == Durability::Synced;
            assert!(kept, "was only written: {tried}");
            committed
        }
        Err(error) => panic!("refused ({error:?}): {tried}"),
    }
}

/// Appends what must be refused, and sees that nothing was stored.
#[track_caller]
fn refused(store: &dyn Subject, append: Append, expected: &StoreError) {
    let tried = format!("{append:?}");
    let before = everything(store);
    let answer = block_on(store.append(&scope(), append));
    assert_eq!(answer.as_ref().err(), Some(expected), "{tried}");
    assert_eq!(everything(store), before, "something of a refused append was stored: {tried}");
}

/// All events, and how many rows each table has.
#[track_caller]
fn everything(store: &dyn Subject) -> (Vec<StoredEvent>, Vec<u64>) {
    let mut ledger = store.begin().unwrap();
    let mut events = Vec::new();
    for journal in ledger.journals().unwrap() {
        let mut after = i64::MIN;
        loop {
            let page = ledger.events_after(journal, after, MAX_PAGE).unwrap();
            let Some(last) = page.last() else { break };
            after = last.journal_seq;
            events.extend(page);
        }
    }
    let tables = [
        "events",
        "contents",
        "specs",
        "runs",
        "steps",
        "questions",
        "approvals",
        "threads",
        "budgets",
    ];
    let counts = tables.into_iter().map(|table| ledger.count(table).unwrap()).collect();
    (events, counts)
}

/// A case's own store, without observers.
fn plain(backend: &dyn Backend) -> Arc<dyn Subject> {
    backend.open(Vec::new())
}
