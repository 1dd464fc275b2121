//! What was proposed is kept byte for byte, apart from what was read of it.

use portcullis_domain::ports::Store;
use portcullis_domain::refusal::Refusal;
use portcullis_engine::Progress;
use portcullis_testkit::block_on;

use crate::world::{World, call, turn};

/// The recorded bytes of a step's proposal.
fn recorded(world: &World, run: portcullis_domain::id::RunId, index: u64) -> Vec<u8> {
    let reference = world.step(run, index).proposal.unwrap();
    let content = block_on(world.store.content(world.scope(), reference.digest)).unwrap().unwrap();
    assert_eq!(content.reference(), reference);
    content.into_bytes()
}

#[test]
fn a_proposal_is_kept_as_it_came_whatever_it_is() {
    let deep = [b"[".repeat(10_000), b"]".repeat(10_000)].concat();
    let good = b"{ \"kind\":\"tool_call\",\"tool\":\"look\",\r\n \"arguments\":{\"to\":\"<&>\xE2\x80\xA8\",\"n\":1.0}}";
    let cases: [(&[u8], Option<Refusal>); 10] = [
        (good, None),
        (b"", Some(Refusal::NotJson)),
        (b" \n", Some(Refusal::NotJson)),
        (b"\xff\xfe\x00", Some(Refusal::NotJson)),
        (b"\xEF\xBB\xBF{}", Some(Refusal::NotJson)),
        (
            b"{\"kind\":\"tool_call\",\"tool\":\"look\",\"tool\":\"burn\"}",
            Some(Refusal::RepeatedKey),
        ),
        (
            b"{\"kind\":\"tool_call\",\"tool\":\"look\",\"arguments\":{\"to\":\"\\ud800\"}}",
            Some(Refusal::NotJson),
        ),
        (&deep, Some(Refusal::TooDeep)),
        (b"{\"kind\":\"truncated\"}", Some(Refusal::UnknownKind)),
        (b"{}", Some(Refusal::NoKind)),
    ];
    for (raw, refusal) in cases {
        let world = World::new();
        let mut held = world.begin();
        let run = held.run();
        assert_eq!(turn(&mut held, raw.to_vec()), Progress::Observed);
        let shown = String::from_utf8_lossy(raw);
        let shown: String = shown.chars().take(80).collect();
        assert_eq!(world.step(run, 0).observation.unwrap().refusal, refusal, "{shown}");
        assert_eq!(recorded(&world, run, 0), raw, "{shown}");
        assert_eq!(world.tools.effects("look"), u32::from(refusal.is_none()), "{shown}");
    }
}

#[test]
fn arguments_that_look_like_a_record_of_bad_ones_are_arguments() {
    let world = World::new();
    let mut held = world.begin();
    let run = held.run();
    // What could not be read, and a call whose text is what a wrapper around it might look like.
    let bad = br#"{"kind":"tool_call","tool":"look","arguments":{x}}"#;
    let twin = br#"{"kind":"tool_call","tool":"look","arguments":{"to":"{x}"}}"#;
    turn(&mut held, bad.to_vec());
    turn(&mut held, twin.to_vec());
    let (first, second) = (world.step(run, 0), world.step(run, 1));
    assert!(first.admitted.is_none() && second.admitted.is_some());
    assert_eq!(first.observation.unwrap().refusal, Some(Refusal::NotJson));
    assert_eq!(second.observation.unwrap().refusal, None);
    assert_eq!((recorded(&world, run, 0), recorded(&world, run, 1)), (bad.to_vec(), twin.to_vec()));
}

#[test]
fn equal_proposals_are_each_kept() {
    let world = World::new();
    let mut held = world.begin();
    let run = held.run();
    for _ in 0..2 {
        turn(&mut held, call("look", 1));
    }
    let digest = |index| world.step(run, index).proposal.unwrap().digest;
    assert_ne!(digest(0), digest(1), "each has a salt of its own");
    assert_eq!(recorded(&world, run, 0), recorded(&world, run, 1));
    assert_eq!(world.count("step.proposed"), 2);
}
