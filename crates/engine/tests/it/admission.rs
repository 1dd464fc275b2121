//! What a run may call is settled when it begins, and what was proposed is kept as it came.

use std::sync::Arc;

use portcullis_domain::permit::Permit;
use portcullis_domain::ports::{BoxFuture, Store, ToolFailure, ToolOutput, ToolSource};
use portcullis_domain::refusal::Refusal;
use portcullis_domain::tool::ToolSpec;
use portcullis_engine::{Attached, Gate, HeldRun, Progress, Tools};
use portcullis_testkit::block_on;

use crate::world::{FakeTools, World, call, turn};

/// One of the tools, as a host that has no other.
struct Only(Arc<FakeTools>, &'static str);

impl ToolSource for Only {
    fn specs(&self) -> Vec<ToolSpec> {
        self.0.specs().into_iter().filter(|spec| spec.name == self.1).collect()
    }

    fn blocks(&self) -> bool {
        self.0.blocks()
    }

    fn call(&self, permit: Permit) -> BoxFuture<'_, Result<ToolOutput, ToolFailure>> {
        self.0.call(permit)
    }
}

/// A run that began where `look` was the only tool, taken up where there are more.
fn begun_with_look_alone(world: &World) -> HeldRun {
    let mut parts = world.parts(1);
    let only: Arc<dyn ToolSource> = Arc::new(Only(Arc::clone(&world.tools), "look"));
    parts.tools = Arc::new(Tools::register(vec![only]).unwrap());
    let task = world.task(portcullis_domain::limits::Limits::default());
    let held = block_on(Gate::new(parts).begin(world.scope(), task)).unwrap();
    let run = held.run();
    block_on(held.close()).unwrap();
    match world.attach(2, run).unwrap() {
        Attached::Held(held, Progress::Open) => held,
        _ => panic!("the run is open"),
    }
}

#[test]
fn a_tool_that_came_after_the_run_began_is_unknown_to_it() {
    let world = World::new();
    let mut held = begun_with_look_alone(&world);
    let run = held.run();
    assert_eq!(turn(&mut held, call("write", 1)), Progress::Observed);
    assert_eq!(world.step(run, 0).observation.unwrap().refusal, Some(Refusal::UnknownTool));
    assert_eq!(world.tools.effects("write"), 0);
    // The control: what was there at the start can be called, and elsewhere the other tool too.
    turn(&mut held, call("look", 1));
    turn(&mut world.begin(), call("write", 1));
    assert_eq!((world.tools.effects("look"), world.tools.effects("write")), (1, 1));
}

#[test]
fn a_proposal_is_recorded_byte_for_byte() {
    let spaced = [b" \n".as_slice(), &call("look", 1), b"\t"].concat();
    let deep = [b"[".repeat(5_000), b"]".repeat(5_000)].concat();
    for raw in [call("look", 1), spaced, b"\xff\x00 no json".to_vec(), Vec::new(), deep] {
        let world = World::new();
        let mut held = world.begin();
        let run = held.run();
        turn(&mut held, raw.clone());
        let proposal = world.step(run, 0).proposal.unwrap();
        let kept = block_on(world.store.content(world.scope(), proposal.digest)).unwrap().unwrap();
        assert_eq!(kept.bytes(), raw);
    }
}
