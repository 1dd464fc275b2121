//! The store in memory against the contract, and its planned faults.

use std::sync::Arc;

use portcullis_domain::ports::{Observer, Store, StoreError};
use portcullis_domain::row::Cell;
use portcullis_domain::scope::Scope;
use portcullis_domain::time::Timestamp;
use portcullis_store::memory::{Fault, MemoryStore};
use portcullis_testkit::block_on;
use portcullis_testkit::ports::SeededEntropy;
use portcullis_testkit::scenario::Scenario;
use portcullis_testkit::store_contract::{Backend, Subject, fold};

pub struct Memory(MemoryStore);

pub fn fresh() -> Memory {
    Memory(MemoryStore::new(Timestamp::from_micros(0), &SeededEntropy::new(1)))
}

impl Backend for Memory {
    fn open(&self, observers: Vec<Arc<dyn Observer>>) -> Arc<dyn Subject> {
        Arc::new(self.0.handle(observers))
    }

    fn set_cell(&self, table: &str, key: &[Cell], column: &str, value: Cell) {
        let set = self.0.tamper(|raw| match (table, column, value) {
            ("contents" | "specs", _, value) => {
                let [Cell::Blob(key)] = key else { return false };
                match (table, column, value) {
                    ("contents", "bytes", Cell::Blob(bytes)) => {
                        raw.contents.get_mut(key).map(|row| row.bytes = bytes).is_some()
                    }
                    ("contents", "tenant", Cell::Text(tenant)) => {
                        raw.contents.get_mut(key).map(|row| row.tenant = tenant).is_some()
                    }
                    ("specs", "bytes", Cell::Blob(bytes)) => {
                        raw.specs.insert(key.clone(), bytes).is_some()
                    }
                    _ => false,
                }
            }
            (table, column, value) => raw.set(table, key, column, value),
        });
        assert_eq!(set, Ok(true));
    }
}

portcullis_testkit::store_contract!(crate::memory::fresh);

#[test]
fn planned_faults_come_in_their_order() {
    let store = fresh().0;
    let scope = Scope::of_file_owner();
    let mut run = Scenario::new(1, store.instance());
    let begin = run.begin();
    store.plan([Some(Fault::BeforeCommit), Some(Fault::Full), None]);
    let append = |append| block_on(store.append(&scope, append));
    assert_eq!(append(begin.clone()).unwrap_err(), StoreError::Medium { code: 0 });
    assert_eq!(append(begin.clone()).unwrap_err(), StoreError::Full);
    assert!(fold::check(&store).runs.is_empty());
    assert!(append(begin.clone()).is_ok());
    store.plan([Some(Fault::AfterCommit)]);
    run.step_opened();
    let opened = run.driver(portcullis_domain::ports::Durability::Synced);
    assert_eq!(append(opened.clone()).unwrap_err(), StoreError::InDoubt);
    // It was stored: the same append is stale now.
    assert_eq!(append(opened).unwrap_err(), StoreError::Stale);
    assert_eq!(fold::check(&store).runs[&run.run].run.step_count, 1);
}

#[test]
fn a_fork_is_the_same_installation_and_goes_its_own_way() {
    let store = fresh().0;
    let scope = Scope::of_file_owner();
    let mut run = Scenario::new(1, store.instance());
    block_on(store.append(&scope, run.begin())).unwrap();
    let fork = store.fork().unwrap();
    assert_eq!(fork.instance(), store.instance());
    assert_eq!(block_on(fork.lease(&scope, run.run)), block_on(store.lease(&scope, run.run)));
    run.step_opened();
    let opened = run.driver(portcullis_domain::ports::Durability::Synced);
    block_on(fork.append(&scope, opened)).unwrap();
    let steps = |store: &MemoryStore| fold::check(store).runs[&run.run].run.step_count;
    assert_eq!((steps(&fork), steps(&store)), (1, 0));
    // A fault that is planned for one is none of the other's.
    fork.plan([Some(Fault::Full)]);
    let mut other = Scenario::new(2, store.instance());
    assert!(block_on(store.append(&scope, other.begin())).is_ok());
}
