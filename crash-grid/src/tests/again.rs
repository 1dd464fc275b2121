//! Taking a run up is a moment of its life too: the process that recovers is killed in its turn.

use crate::cast::Mode;
use crate::counting::Counting;
use crate::place::Medium;
use crate::points::{Leg, Point, rehearse_from};
use crate::stage::Side;
use crate::story::Story;

use super::control::{killed_after, no_faults};

/// Over both stores; the writes inside a transaction are left to the grid.
#[test]
fn killed_again_while_it_is_taken_up_no_change_is_made_twice() {
    let counting = Counting::start();
    let starts = [("host", "write"), ("host", "look"), ("two-people", "shred"), ("late", "slow")];
    let rehearsed: Vec<(&'static Story, Medium, Vec<Leg>)> = Medium::ALL
        .into_iter()
        .flat_map(|medium| starts.into_iter().map(move |start| (medium, start)))
        .map(|(medium, (name, tool))| {
            let story = Story::named(name);
            let place = killed_after(story, medium, tool, &counting.counter);
            (story, medium, rehearse_from(story, &place, Mode::Again))
        })
        .collect();
    let points: Vec<Point<'_>> = rehearsed
        .iter()
        .flat_map(|(story, medium, legs)| {
            (0..).zip(&legs[..3]).map(move |(leg, part)| (*story, *medium, leg, part))
        })
        .flat_map(|(story, medium, leg, part)| {
            let outside = part.sighted.iter().filter(|sight| sight.side() != Side::Inside);
            outside.map(move |at| Point { story, medium, leg, part, at, mode: Mode::Again })
        })
        .collect();
    no_faults(&points);
    // The recovery's own appends were hit, and so was the second start of a call.
    for wanted in
        ["lease.acquired", "question.asked", "question.answered", "approval.used", "write"]
    {
        let hit = points.iter().filter(|point| point.at.what.iter().any(|what| what == wanted));
        assert!(hit.count() >= 4, "no process was killed at {wanted}");
    }
}
