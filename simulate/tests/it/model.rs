//! The model: every property holds in every state within small bounds, and each wrong step is found there.

use portcullis_simulate::{Bounds, Wrong, explore};

const NOTHING_GOES_WRONG: Bounds =
    Bounds { reviewers: 0, crashes: 0, leaps: 0, doubts: 0, again: 0, wrong: None };

/// More is explored by `cargo xtask simulate --model`.
#[test]
fn properties_hold_whatever_crashes_and_however_time_leaps() {
    let asked = |reviewers| Bounds { reviewers, ..NOTHING_GOES_WRONG };
    let explored = [
        ("allowed", Bounds { crashes: 1, leaps: 1, ..NOTHING_GOES_WRONG }, 1_000),
        (
            "allowed, in doubt",
            Bounds { crashes: 1, doubts: 1, again: 1, ..NOTHING_GOES_WRONG },
            500,
        ),
        ("one is asked", Bounds { leaps: 1, ..asked(1) }, 500),
        ("two are asked", Bounds { crashes: 1, leaps: 0, ..asked(2) }, 200),
    ];
    for (name, bounds, least) in explored {
        let found = explore(bounds);
        println!("{name}: {} states, {} deep", found.states, found.depth);
        assert_eq!(found.broken, [], "{name}");
        assert!(found.states > least, "{name}: {} states", found.states);
    }
}

#[test]
fn each_wrong_step_is_found() {
    for wrong in Wrong::ALL {
        let reviewers = u32::from(*wrong == Wrong::GrantNotUsed);
        let bounds = Bounds { reviewers, crashes: 1, leaps: 1, doubts: 1, ..NOTHING_GOES_WRONG };
        let found = explore(Bounds { wrong: Some(*wrong), ..bounds });
        assert!(!found.broken.is_empty(), "{}: {} states", wrong.name(), found.states);
    }
}
