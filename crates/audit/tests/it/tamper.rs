//! The tamper table: every column of every covered table, changed, deleted, inserted and swapped, in rows of every
//! type of event, on both stores. Each change is seen; the untouched record verifies before and after each row's.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use portcullis_audit::{Break, Options, Report};
use portcullis_domain::event::Body;
use portcullis_domain::row::Cell;
use portcullis_store::memory::MemoryStore;

use crate::raw::RawFile;
use crate::scene::{Drawn, START, Scene};
use crate::tables::{COVERED, Editable, Table, others};

/// One change that somebody could make.
struct Change {
    what: &'static str,
    /// The column, or nothing when the whole row is meant.
    column: Option<usize>,
    row: usize,
    table: Table,
}

/// Contents that are tampered with: more would only take longer.
const CONTENTS: usize = 8;

/// The rows of a table that are tampered with: of events one of each type, of contents some, of all others each.
fn rows(table: &Table) -> Vec<usize> {
    let all = 0..table.rows.len();
    match table.name.as_str() {
        "events" => {
            let kind = table.column("kind");
            let first = |name: &str| {
                let own = |row: &usize| table.rows[*row][kind] == Cell::Text(name.to_owned());
                all.clone().find(own).unwrap_or_else(|| panic!("the scene has no `{name}`"))
            };
            Body::TYPES.iter().map(|(name, _)| first(name)).collect()
        }
        "contents" => all.take(CONTENTS).collect(),
        _ => all.collect(),
    }
}

fn changed(table: &Table, what: &'static str, row: usize, edit: impl FnOnce(&mut Table)) -> Change {
    let mut table = table.clone();
    edit(&mut table);
    Change { what, column: None, row, table }
}

fn updates(table: &Table, row: usize) -> Vec<Change> {
    let mut changes = Vec::new();
    for column in 0..table.columns.len() {
        let values: Vec<&Cell> = table.rows.iter().map(|row| &row[column]).collect();
        for value in others(&table.rows[row][column], &values) {
            let edit = |table: &mut Table| table.rows[row][column] = value;
            changes.push(Change { column: Some(column), ..changed(table, "update", row, edit) });
        }
    }
    changes
}

/// Copies of the row under a new key, from which the first that the table takes is meant: a table may have a second
/// key, such as the place in the stream.
fn inserts(table: &Table, row: usize) -> Vec<Change> {
    let integers = (0..table.columns.len()).filter(|column| {
        !table.key.contains(column) && matches!(table.rows[row][*column], Cell::Int(_))
    });
    let further = std::iter::once(None).chain(integers.map(Some));
    let copies = further.map(|further| {
        changed(table, "insert", row, |table| {
            let mut copy = table.rows[row].clone();
            for key in table.key.iter().copied().chain(further) {
                copy[key] = match &copy[key] {
                    Cell::Int(place) => Cell::Int(place + 1_000),
                    other => others(other, &[]).swap_remove(0),
                };
            }
            table.rows.push(copy);
        })
    });
    copies.collect()
}

/// The row and the next one change places under their keys, as a whole and column by column.
fn swaps(table: &Table, row: usize) -> Vec<Change> {
    let other = (row + 1) % table.rows.len();
    let columns: Vec<usize> =
        (0..table.columns.len()).filter(|column| !table.key.contains(column)).collect();
    let swap = |table: &mut Table, column: usize| {
        let held = table.rows[row][column].clone();
        table.rows[row][column] = std::mem::replace(&mut table.rows[other][column], held);
    };
    let mut changes = vec![changed(table, "swap", row, |table| {
        columns.iter().for_each(|column| swap(table, *column));
    })];
    for column in &columns {
        let change = changed(table, "swap", row, |table| swap(table, *column));
        changes.push(Change { column: Some(*column), ..change });
    }
    changes.retain(|change| change.table != *table);
    changes
}

/// What happened to the changes of one table.
#[derive(Default)]
struct Tally {
    seen: BTreeMap<&'static str, usize>,
    /// The tables could not hold such a row.
    refused: usize,
    columns: BTreeSet<usize>,
}

fn run_table(store: &dyn Editable, options: Options<'_>, table: &Table) -> Tally {
    let mut tally = Tally::default();
    for row in rows(table) {
        let delete = |table: &mut Table| drop(table.rows.remove(row));
        let mut changes = updates(table, row);
        changes.push(changed(table, "delete", row, delete));
        changes.extend(swaps(table, row));
        for change in changes {
            tally.make(store, options, table, &change);
        }
        let taken = |change| tally.make(store, options, table, change);
        assert!(inserts(table, row).iter().any(taken), "no copy fits into `{}`", table.name);
        assert!(store.verify(options).intact, "the untouched record verifies again");
    }
    tally
}

impl Tally {
    /// Makes a change, sees that it is seen, and takes it back. False when the table could not take it.
    fn make(
        &mut self,
        store: &dyn Editable,
        options: Options<'_>,
        table: &Table,
        change: &Change,
    ) -> bool {
        // Where nothing is given, a table may put the old value back by itself.
        if store.write(&change.table).is_err() || store.table(&table.name) == *table {
            self.refused += 1;
            return false;
        }
        let report = store.verify(options);
        assert!(
            !report.intact,
            "{} of row {} of `{}`, column {:?}, was not seen: {:?} became {:?}",
            change.what,
            change.row,
            table.name,
            change.column.map(|column| &table.columns[column]),
            table.rows[change.row],
            change.table.rows.get(change.row),
        );
        check_named(table, change, &report);
        *self.seen.entry(change.what).or_default() += 1;
        self.columns.extend(change.column.filter(|_| change.what == "update"));
        store.write(table).unwrap();
        true
    }
}

/// A cell of a state table that is no key is named exactly, and nothing else is.
fn check_named(table: &Table, change: &Change, report: &Report) {
    let Some(changed) = change.column.filter(|column| !table.key.contains(column)) else { return };
    if change.what != "update" || ["events", "contents", "specs"].contains(&table.name.as_str()) {
        return;
    }
    match report.breaks.as_slice() {
        [Break::RowMismatch { table: named, column, expected, found, .. }] => {
            assert_eq!((*named, *column), (table.name.as_str(), table.columns[changed].as_str()));
            assert_ne!(expected, found);
        }
        other => panic!("expected one cell to be named, found {other:?}"),
    }
}

/// Runs the whole tamper table on one store.
fn run(store: &dyn Editable, scene: &Scene) {
    let ring = scene.ring();
    let options = Options { keys: &[&ring], ..Options::default() };
    let report = store.verify(options);
    assert_eq!(report.breaks, []);
    let tables = store.tables();
    let names: Vec<&str> = tables.iter().map(|table| table.name.as_str()).collect();
    assert_eq!(names, COVERED);
    for table in &tables {
        assert!(table.rows.len() > 1, "`{}` has too few rows to swap", table.name);
        let tally = run_table(store, options, table);
        told(table, &tally);
        assert_eq!(tally.columns.len(), table.columns.len(), "each column of `{}`", table.name);
        for what in ["update", "delete", "insert", "swap"] {
            assert!(tally.seen.get(what).is_some_and(|n| *n > 0), "{what} of `{}`", table.name);
        }
    }
}

#[expect(clippy::print_stdout, reason = "how many changes were made belongs to the test's output")]
fn told(table: &Table, tally: &Tally) {
    let (columns, seen, refused) = (table.columns.len(), &tally.seen, tally.refused);
    println!("{}: {columns} columns, {seen:?} seen, {refused} refused by the table", table.name);
}

#[test]
fn every_change_of_the_tables_in_memory_is_seen() {
    let store = MemoryStore::new(START, &Drawn::default());
    let mut scene = Scene::new(Arc::new(store.clone()));
    scene.play();
    run(&store, &scene);
}

#[test]
fn every_change_of_the_tables_in_a_file_is_seen() {
    let folder = tempfile::tempdir().unwrap();
    let file = RawFile::create(&folder.path().join("portcullis.db"));
    let mut scene = Scene::new(file.store.clone());
    scene.play();
    run(&file, &scene);
}
