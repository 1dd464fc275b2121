//! Tests of the grid: that it finds a driver which does not look at the record, notices a kill that does not fire, kills
//! the process that recovers in its turn, and kills at random times.

mod again;
mod command;
mod control;
mod random;

use super::part;

/// Does nothing in the tests themselves; in a process that was started for a part it plays it and leaves.
#[test]
fn a_part_in_another_process() {
    let mut words = std::env::args().skip_while(|word| word != "--");
    if words.next().is_none() {
        return;
    }
    let words: Vec<String> = words.collect();
    if let Some(code) = part(&words) {
        std::process::exit(code);
    }
}
