//! Taking a run up is a moment of its life too: the process that recovers is killed in its turn.

use portcullis_testkit::stage::Side;

use crate::counting::Counting;
use crate::grid::Rehearsals;
use crate::place::Medium;
use crate::points::Point;
use crate::story::{STORIES, Story};

use super::control::no_faults;

/// Over both stores; the writes inside a transaction are left to the grid.
#[test]
fn killed_again_while_it_is_taken_up_no_change_is_made_twice() {
    let counting = Counting::start();
    let stories: Vec<&'static Story> = STORIES.iter().collect();
    let rehearsals = Rehearsals::recover(&stories, &Medium::ALL, &counting.counter);
    let mut points: Vec<Point<'_>> = rehearsals.points();
    points.retain(|point| point.at.side() != Side::Inside);
    no_faults(&points);
    // The recovery's own appends were hit, and so was the second start of a call.
    for wanted in
        ["lease.acquired", "question.asked", "question.answered", "approval.used", "write"]
    {
        let hit = points.iter().filter(|point| point.at.what.iter().any(|what| what == wanted));
        assert!(hit.count() >= 4, "no process was killed at {wanted}");
    }
}
