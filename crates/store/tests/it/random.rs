//! The same random histories through both stores.

use std::sync::Arc;

use portcullis_domain::ports::{Append, MAX_PAGE, Page};
use portcullis_domain::scope::Scope;
use portcullis_testkit::block_on;
use portcullis_testkit::store_contract::{Backend, Subject, fold, walk};
use proptest::prelude::*;

use crate::{memory, sqlite};

/// Everything that can be read of a store.
fn contents(store: &dyn Subject) -> Vec<String> {
    let scope = Scope::of_file_owner();
    let page = Page { offset: 0, limit: MAX_PAGE };
    let mut seen = Vec::new();
    let runs = block_on(store.runs(&scope, None, page)).unwrap();
    for run in &runs.rows {
        let id = run.as_ref().unwrap().id;
        seen.push(format!("{:?}", block_on(store.run(&scope, id)).unwrap()));
        seen.push(format!("{:?}", block_on(store.lease(&scope, id)).unwrap()));
        seen.push(format!("{:?}", block_on(store.steps(&scope, id, page)).unwrap()));
        let questions = block_on(store.questions(&scope, Some(id), None, page)).unwrap();
        for question in &questions.rows {
            let id = question.as_ref().unwrap().id;
            seen.push(format!("{:?}", block_on(store.approvals(&scope, id)).unwrap()));
        }
        seen.push(format!("{questions:?}"));
    }
    seen.push(format!("{runs:?}"));
    seen
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    /// Appends of several runs, interleaved, some of them twice or out of turn: both stores give the same
    /// answer to each, hold the same events and rows, and the rows are what a fresh fold says.
    #[test]
    fn both_stores_are_one(seed in 0_u64..1_000_000, turns in prop::collection::vec(0_usize..4, 40..160)) {
        let (memory, file) = (memory::fresh(), sqlite::fresh());
        let stores: [Arc<dyn Subject>; 2] = [memory.open(vec![]), file.open(vec![])];
        prop_assert_eq!(stores[0].instance(), stores[1].instance());
        let scope = Scope::of_file_owner();
        let mut queues: Vec<Vec<Append>> = (0..3)
            .map(|run| {
                let mut history = walk::history(seed * 3 + run, stores[0].instance(), 60);
                history.reverse();
                history
            })
            .collect();
        let mut last = None;
        let mut admitted = 0;
        for turn in turns {
            // The fourth turn repeats the append before it, which can no longer fit.
            let next = match queues.get_mut(turn) {
                Some(queue) => queue.pop(),
                None => last.clone(),
            };
            let Some(next) = next else { continue };
            last = Some(next.clone());
            let [one, other] = [0, 1].map(|store: usize| {
                block_on(stores[store].append(&scope, next.clone())).map(|committed| committed.events)
            });
            admitted += usize::from(one.is_ok());
            prop_assert_eq!(one, other);
        }
        prop_assert!(admitted > 0);
        fold::check(&*stores[0]);
        let folded = fold::check(&*stores[1]);
        prop_assert_eq!(contents(&*stores[0]), contents(&*stores[1]));
        // A handle that remembers nothing reads the same states from the rows.
        let cold = file.open(vec![]);
        for (id, state) in &folded.runs {
            let read = block_on(cold.run(&scope, *id)).unwrap();
            prop_assert_eq!(read.as_ref(), Some(state));
        }
    }
}
