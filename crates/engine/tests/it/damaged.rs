//! A row that cannot be read stops its own run, and no more than that.

use portcullis_domain::ports::{Page, Store, StoreError};
use portcullis_domain::row::Cell;
use portcullis_engine::{GateError, Progress, operator};
use portcullis_testkit::block_on;

use crate::world::{World, ask, call, turn};

#[test]
fn a_damaged_run_is_driven_by_nobody_and_ended_by_a_person() {
    for (table, column) in [("runs", "limits"), ("steps", "verdict"), ("questions", "kind")] {
        let world = World::new();
        let mut healthy = world.begin();
        let mut held = world.begin();
        let run = held.run();
        ask(&mut held, "send");
        drop(held);
        let question = world.question(run);
        let id = match table {
            "runs" => run.as_bytes().to_vec(),
            "steps" => question.step.as_bytes().to_vec(),
            _ => question.id.as_bytes().to_vec(),
        };
        let nonsense = Cell::Text("{".to_owned());
        assert!(
            world.store.tamper(|raw| raw.set(table, &[Cell::Blob(id)], column, nonsense)).unwrap()
        );
        let damaged = StoreError::Damaged { table };
        let attached = world.attach(2, run).map(drop);
        assert!(matches!(attached, Err(GateError::Store(error)) if error == damaged), "{table}");
        let answered = world.answer("ann", &question, portcullis_domain::approval::Answer::Approve);
        assert!(matches!(answered, Err(GateError::Store(error)) if error == damaged), "{table}");
        // Lists show it in its place, and other runs go on.
        let page = Page { offset: 0, limit: 10 };
        let rows = block_on(world.store.runs(world.scope(), None, page)).unwrap();
        assert_eq!(rows.rows.len(), 2);
        assert_eq!(turn(&mut healthy, call("look", 1)), Progress::Observed);
        let finished = world.count("run.finished");
        let parts = world.parts(9);
        let cancel = || block_on(operator::cancel(&parts, world.scope(), run, "ann", Some("odd")));
        cancel().unwrap();
        assert_eq!(world.count("run.finished"), finished + 1, "{table}");
        let again = cancel();
        assert!(matches!(again, Err(GateError::Store(StoreError::RunState { .. }))), "{table}");
        assert_eq!(world.tools.effects("send"), 0);
    }
}

#[test]
fn an_old_step_that_is_damaged_stops_nothing_that_does_not_need_it() {
    let world = World::new();
    let mut held = world.begin();
    let run = held.run();
    for n in 0..40 {
        assert_eq!(turn(&mut held, call("look", n)), Progress::Observed);
    }
    block_on(held.close()).unwrap();
    let old = world.step(run, 3).id.as_bytes().to_vec();
    let nonsense = Cell::Text("{".to_owned());
    assert!(
        world
            .store
            .tamper(|raw| raw.set("steps", &[Cell::Blob(old)], "verdict", nonsense))
            .unwrap()
    );
    let (mut held, progress) = world.take(2, run);
    assert_eq!(progress, Progress::Open);
    assert_eq!(turn(&mut held, call("look", 41)), Progress::Observed);
}
