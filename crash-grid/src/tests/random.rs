//! Kills at random times: they fall into everything, the opening of a new database included.

use std::time::{Duration, Instant};

use portcullis::domain::ports::Entropy as _;
use portcullis::domain::run::EndReason;
use portcullis_testkit::counter::Counter;
use portcullis_testkit::ports::SeededEntropy;

use crate::cast::{Mode, Role};
use crate::counting::Counting;
use crate::judge::{Fault, judge};
use crate::life::{ACTED, ENDED, LET_GO, WAITING};
use crate::place::{Exit, Medium, Place, wait};
use crate::story::{Story, WHOLE};

/// How many processes are killed that had come to a moment of their run.
const KILLS: u32 = 30;

/// More processes than that takes.
const MOST: u32 = 400;

/// How long the first process of the story lives when nobody kills it, in microseconds.
fn a_life(story: &Story, counter: &Counter) -> u64 {
    let begun = Instant::now();
    let exit = Place::fresh(Medium::Sqlite, counter).play(story, Role::Drive, Mode::Story, None);
    assert_eq!(exit, Exit::Code(WAITING));
    u64::try_from(begun.elapsed().as_micros()).unwrap()
}

#[test]
fn killed_at_random_times_no_change_is_made_twice() {
    let counting = Counting::start();
    let story = WHOLE;
    let entropy = SeededEntropy::new(20);
    let life_us = a_life(story, &counting.counter);
    let delay = || {
        let mut bytes = [0_u8; 8];
        entropy.fill(&mut bytes);
        Duration::from_micros(u64::from_le_bytes(bytes) % (life_us + life_us / 4))
    };
    let (mut kills, mut early, mut asked, mut runs, mut started) =
        (0_u32, 0_u32, 0_u32, 0_u32, 0_u32);
    while kills < KILLS {
        runs += 1;
        let place = Place::fresh(Medium::Sqlite, &counting.counter);
        let (mut role, mut events) = (Role::Drive, 0);
        loop {
            started += 1;
            assert!(started <= MOST, "only {kills} kills in {MOST} processes");
            let mut child = place.start(story, role, Mode::Story, None);
            let patience = if kills < KILLS { delay() } else { Duration::from_secs(60) };
            let code = match wait(&mut child, patience) {
                Some(status) => status.code(),
                None => {
                    child.kill().unwrap();
                    child.wait().unwrap();
                    assert!(kills < KILLS, "hangs: {}", place.said());
                    let reached = !place.sighted().is_empty();
                    kills += u32::from(reached);
                    early += u32::from(!reached);
                    None
                }
            };
            let judged = judge(story, &place);
            assert_eq!(judged.faults(), Vec::<Fault>::new());
            assert!(judged.events >= events, "{} events of {events} are left", judged.events);
            events = judged.events;
            asked += u32::from(code == Some(WAITING) && judged.waits_for_outcome());
            role = match code {
                Some(ENDED) => break,
                Some(WAITING) => Role::Person,
                // Whoever was killed, the run is taken up next.
                None | Some(LET_GO | ACTED) => Role::Drive,
                code => panic!("{code:?}: {}", place.said()),
            };
        }
        let end = judge(story, &place);
        // A decision that was cut off twice ends its run; it is not tried for ever.
        let reasons = [Some(EndReason::GoalCompleted), Some(EndReason::DeciderCrashed)];
        assert!(reasons.contains(&end.reason()), "{:?}", end.reason());
    }
    println!(
        "{kills} kills and {early} before the first moment in {runs} runs, {asked} questions about an outcome"
    );
}
