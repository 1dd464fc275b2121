//! Runs with ids that follow from a request of a host: begun once, in a thread that is opened once.

use portcullis_canon::Object;
use portcullis_domain::limits::Limits;
use portcullis_domain::ports::StoreError;
use portcullis_domain::request::Request;
use portcullis_domain::thread::conversation;
use portcullis_engine::{GateError, Progress, Task};
use portcullis_testkit::block_on;

use crate::world::{World, call, turn};

#[test]
fn of_two_processes_that_begin_one_request_one_does() {
    let world = World::new();
    let thread = conversation("ann", "mcp", "editor");
    let task = || Task { thread: Some(thread), ..world.task(Limits::default()) };
    let request = Request::new("write", &Object::new(), None);
    let begin = |pid, number| {
        block_on(world.gate(pid).begin_as(world.scope(), request.run(thread, number), task()))
    };
    let mut first = begin(1, 0).unwrap();
    let second = begin(2, 0).err().expect("the run is there");
    assert!(matches!(second, GateError::Store(StoreError::Stale)), "{second}");
    assert_eq!(turn(&mut first, call("write", 1)), Progress::Observed);
    // The next number is a run of its own, in the same thread, which reads what the first one read.
    let next = begin(2, 1).unwrap();
    assert_eq!(world.state(next.run()).run.thread, thread);
    assert_eq!((world.count("run.created"), world.count("thread.opened")), (2, 1));
    assert_eq!(world.tools.effects("write"), 1);
}

#[test]
fn a_thread_of_another_owner_takes_no_run() {
    let world = World::new();
    let thread = conversation("ann", "mcp", "editor");
    let request = Request::new("write", &Object::new(), None);
    let begin = |owner: &str, number| {
        let task =
            Task { thread: Some(thread), owner: owner.to_owned(), ..world.task(Limits::default()) };
        block_on(world.gate(1).begin_as(world.scope(), request.run(thread, number), task))
    };
    begin("ann", 0).unwrap();
    let refused = begin("ben", 1).err().expect("the thread is ann's");
    assert!(matches!(refused, GateError::Store(StoreError::NotAdmitted)), "{refused}");
}
