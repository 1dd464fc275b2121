//! Two runs beside each other: alike, parted, one longer than the other, and a record that does not give all.

use std::sync::Arc;

use portcullis_canon::Value;
use portcullis_domain::approval::Answer as Word;
use portcullis_domain::id::RunId;
use portcullis_domain::limits::Limits;
use portcullis_domain::ports::{Clock as _, Store as _};
use portcullis_domain::tool::EffectClass;
use portcullis_engine::diff::{Diff, Obstacle, Part, Recorded, Section, Side, Totals, Where};
use portcullis_engine::{Gate, Task};
use portcullis_policy::Outcome;
use portcullis_testkit::block_on;

use crate::world::{Does, World, ask, call, turn};

fn all(world: &World, one: RunId, other: RunId) -> (Vec<Section>, Totals) {
    let mut diff = Diff::of(&world.store, world.scope(), one, other);
    let mut found = Vec::new();
    while let Some(section) = block_on(diff.next()).unwrap() {
        found.push(section);
    }
    assert_eq!(diff.absent(), None);
    (found, *diff.totals())
}

/// Each difference as its place, its part and its pointer.
fn named(found: &[Section]) -> Vec<(Where, Part, &str)> {
    let of = |section: &Section| section.place;
    found
        .iter()
        .flat_map(|section| {
            section.differences.iter().map(move |d| (of(section), d.part, d.at.as_str()))
        })
        .collect()
}

/// A run of these proposals.
fn run_of(world: &World, proposals: &[Vec<u8>]) -> RunId {
    let mut held = world.begin();
    for raw in proposals {
        turn(&mut held, raw.clone());
    }
    let run = held.run();
    block_on(held.close()).unwrap();
    run
}

fn done() -> Vec<u8> {
    br#"{"kind":"complete","result":{"n":1}}"#.to_vec()
}

#[test]
fn two_runs_of_the_same_proposals_are_the_same() {
    let world = World::new();
    let proposals =
        [call("look", 1), b"{not json".to_vec(), call("burn", 2), call("write", 3), done()];
    let (one, other) = (run_of(&world, &proposals), run_of(&world, &proposals));
    let (found, totals) = all(&world, one, other);
    assert_eq!(named(&found), []);
    assert_eq!(totals, Totals { same: 5, ..Totals::default() });
    assert!(totals.is_same());
    let places: Vec<Where> = found.iter().map(|section| section.place).collect();
    let steps = (0..5).map(Where::Step);
    assert!(places.into_iter().eq([Where::Beginning].into_iter().chain(steps).chain([Where::End])));
    // What is stated beside it, and how a reply names its request, is no difference.
    let reasons =
        run_of(&world, &[br#"{"kind":"complete","result":{"n":1},"reason":"I am done"}"#.to_vec()]);
    let bare = run_of(&world, &[done()]);
    assert!(all(&world, reasons, bare).1.is_same());
}

#[test]
fn each_part_of_a_step_is_compared() {
    let world = World::new();
    let one = run_of(&world, &[call("look", 1), call("look", 2), done()]);
    let check = |proposals: &[Vec<u8>], expected: &[(Where, Part, &str)], parted: Option<u64>| {
        let other = run_of(&world, proposals);
        let (found, totals) = all(&world, one, other);
        assert_eq!(named(&found), expected);
        assert_eq!(totals.parted, parted);
        assert!(!totals.is_same());
    };
    let (first, second, third) = (Where::Step(0), Where::Step(1), Where::Step(2));
    check(&[call("look", 1), call("look", 7), done()], &[(second, Part::Arguments, "/n")], Some(1));
    check(
        &[call("write", 1), call("look", 2), done()],
        &[(first, Part::Tool, ""), (first, Part::Verdict, "/rules/0")],
        Some(0),
    );
    let end = br#"{"kind":"complete","result":{"n":2}}"#.to_vec();
    check(
        &[call("look", 1), call("look", 2), end],
        &[(third, Part::Proposal, "/result/n"), (Where::End, Part::Result, "/n")],
        Some(2),
    );
    world.tools.set("look", Does::Answer(br#"{"ok":[1,2]}"#.to_vec()));
    let (found, _) = all(&world, one, run_of(&world, &[call("look", 1)]));
    let at = named(&found);
    assert_eq!(at[0], (first, Part::Result, "/ok"), "{at:?}");
    world.tools.set("look", Does::Fail);
    let (found, _) = all(&world, one, run_of(&world, &[call("look", 1)]));
    assert!(named(&found).contains(&(first, Part::Outcome, "/failure")), "{:?}", named(&found));
}

#[test]
fn what_only_one_has_is_named_with_what_it_is() {
    let world = World::new();
    let (short, long) =
        (run_of(&world, &[call("look", 1)]), run_of(&world, &[call("look", 1), call("burn", 2)]));
    let (found, totals) = all(&world, short, long);
    // Each run has one step more, which is open and has no proposal.
    assert_eq!((totals.same, totals.different, totals.only_one, totals.only_other), (1, 1, 0, 1));
    assert_eq!(totals.parted, Some(1));
    let turned = all(&world, long, short).1;
    assert_eq!((turned.only_one, turned.only_other), (1, 0));
    let second = &found[2];
    assert_eq!((second.place, second.tool.as_deref()), (Where::Step(1), Some("burn")));
    let verdict = second.differences.iter().find(|d| d.part == Part::Verdict).unwrap();
    assert_eq!(verdict.one, None);
    assert_eq!(
        verdict.other.as_ref().unwrap().get("outcome").and_then(Value::as_str),
        Some("deny")
    );
    let last = &found[3];
    assert!(last.one.is_none() && last.other.is_some());
}

#[test]
fn what_they_were_begun_with_is_compared() {
    let world = World::new();
    let one = run_of(&world, &[]);
    world.tools.describe("Another tool.");
    world.policy.set(EffectClass::ReadOnly, Outcome::Deny);
    let task = Task {
        goal: "tidy up".to_owned(),
        owner: "ben".to_owned(),
        agent: "other".to_owned(),
        unconfined_agent: true,
        ..world.task(Limits { max_steps: 99, ..Limits::default() })
    };
    let held = block_on(world.gate(1).begin(world.scope(), task)).unwrap();
    let other = held.run();
    block_on(held.close()).unwrap();
    let (found, totals) = all(&world, one, other);
    let begun = named(&found);
    let at = |part, at| (Where::Beginning, part, at);
    assert_eq!(
        begun,
        [
            at(Part::Goal, ""),
            at(Part::Owner, ""),
            at(Part::Agent, "/agent"),
            at(Part::Agent, "/unconfined"),
            at(Part::Limits, "/max_steps"),
            at(Part::Tools, "/burn"),
            at(Part::Tools, "/end"),
            at(Part::Tools, "/finish"),
            at(Part::Tools, "/look"),
            at(Part::Tools, "/send"),
            at(Part::Tools, "/write"),
            at(Part::Policy, ""),
        ]
    );
    assert!(totals.around && totals.parted.is_none() && !totals.is_same());
    // A tool that only one run has.
    let mut parts = world.parts(1);
    parts.tools = Arc::default();
    let held =
        block_on(Gate::new(parts).begin(world.scope(), world.task(Limits::default()))).unwrap();
    let bare = held.run();
    block_on(held.close()).unwrap();
    let (found, _) = all(&world, other, bare);
    let look = found[0].differences.iter().find(|d| d.at == "/look").unwrap();
    assert!(look.one.is_some() && look.other.is_none());
}

#[test]
fn rules_and_tools_that_changed_on_the_way_are_told_at_their_step() {
    let world = World::new();
    let run = |change: &dyn Fn()| {
        let mut held = world.begin();
        let id = held.run();
        turn(&mut held, call("look", 1));
        block_on(held.close()).unwrap();
        change();
        let (mut held, _) = world.take(2, id);
        turn(&mut held, call("look", 2));
        block_on(held.close()).unwrap();
        id
    };
    let plain = run(&|| ());
    let rules = run(&|| world.policy.set(EffectClass::Destructive, Outcome::Allow));
    let (found, totals) = all(&world, plain, rules);
    assert_eq!(named(&found), [(Where::Step(1), Part::Policy, "")]);
    assert_eq!(totals.parted, Some(1));
    let after = run(&|| world.tools.describe("Changed."));
    let (found, _) = all(&world, rules, after);
    let expected = [
        (Where::Beginning, Part::Policy, ""),
        (Where::Step(1), Part::Spec, ""),
        (Where::Step(1), Part::Policy, ""),
    ];
    assert_eq!(named(&found), expected);
}

#[test]
fn a_yes_and_a_no_part_two_runs_at_their_outcome() {
    let world = World::new();
    let answered = |word| {
        let mut held = world.begin();
        let run = held.run();
        ask(&mut held, "send");
        world.answer("ann", &world.question(run), word).unwrap();
        if word == Word::Approve {
            let (mut held, _) = world.take(2, run);
            block_on(held.execute()).unwrap();
            block_on(held.close()).unwrap();
        }
        run
    };
    let (yes, no) = (answered(Word::Approve), answered(Word::Reject));
    let (found, totals) = all(&world, yes, no);
    assert_eq!(totals.parted, Some(0));
    let parts: Vec<Part> = found[1].differences.iter().map(|d| d.part).collect();
    assert!(parts.iter().all(|part| matches!(part, Part::Outcome | Part::Result)), "{parts:?}");
    assert!(all(&world, yes, answered(Word::Approve)).1.is_same());
}

#[test]
fn what_was_erased_cannot_be_called_the_same() {
    let world = World::new();
    let (one, other) = (run_of(&world, &[call("look", 1)]), run_of(&world, &[call("look", 1)]));
    assert!(all(&world, one, other).1.is_same(), "the control");
    let erase = |digest| {
        block_on(world.store.erase(world.scope(), digest, "ann", world.clock.now())).unwrap();
    };
    erase(world.step(other, 0).proposal.unwrap().digest);
    erase(world.state(one).run.goal.digest);
    let (found, totals) = all(&world, one, other);
    assert_eq!((named(&found), totals.unknown, totals.is_same()), (vec![], 2, false));
    // Nothing is known to differ: a step that cannot all be compared is counted apart.
    assert_eq!((totals.different, totals.uncompared), (0, 1));
    let [goal] = found[0].unknown.as_slice() else { panic!("{found:?}") };
    let [arguments] = found[1].unknown.as_slice() else { panic!("{found:?}") };
    assert_eq!((goal.part, goal.side), (Part::Goal, Side::One));
    assert_eq!(goal.why, Obstacle::ContentGone(Recorded::Goal));
    assert_eq!((arguments.part, arguments.side), (Part::Arguments, Side::Other));
    assert_eq!(arguments.why, Obstacle::ContentGone(Recorded::Proposal));
}

#[test]
fn a_long_result_is_compared_to_its_end() {
    let world = World::new();
    let long = |last: char| {
        let text = format!("\"{}{last}\"", "x".repeat(3_000));
        world.tools.set("look", Does::Answer(text.into_bytes()));
        run_of(&world, &[call("look", 1)])
    };
    let (one, same, other) = (long('a'), long('a'), long('b'));
    assert!(all(&world, one, same).1.is_same());
    let (found, _) = all(&world, one, other);
    assert_eq!(named(&found), [(Where::Step(0), Part::Result, "")]);
}

#[test]
fn a_record_that_was_changed_is_said_to_be_broken() {
    let world = World::new();
    let (one, other) = (run_of(&world, &[call("look", 1)]), run_of(&world, &[call("look", 1)]));
    let whole = world.store.tamper(|raw| raw.events.clone()).unwrap();
    let mine =
        |at: &usize| whole[*at].stream_id == other.as_bytes() && whole[*at].stream_kind == "run";
    for at in (0..whole.len()).filter(mine) {
        world
            .store
            .tamper(|raw| {
                raw.events = whole.clone();
                raw.events[at].payload.push(b' ');
            })
            .unwrap();
        let (_, totals) = all(&world, one, other);
        assert_eq!(totals.broken_one, None);
        assert_eq!(totals.broken_other.map(|broken| broken.seq), Some(whole[at].journal_seq));
        assert!(!totals.is_same());
    }
}

#[test]
fn a_run_that_is_not_there_is_said_to_be_absent() {
    let world = World::new();
    let run = run_of(&world, &[]);
    let absent = RunId::from_bytes([9; 16]);
    for (one, other, side) in [(run, absent, Side::Other), (absent, run, Side::One)] {
        let mut diff = Diff::of(&world.store, world.scope(), one, other);
        block_on(diff.next()).unwrap();
        assert_eq!(diff.absent(), Some(side));
    }
}
