//! What a server started ends with its session, and with the process that holds it.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio as Pipe};

use portcullis_mcp::Session as _;

use crate::scene::{PATIENT, Scene, alive, call, ends, odd};

/// The numbers of the server's descendants: one beside it, and one that left and lost its parent.
fn family(scene: &Scene) -> Vec<u32> {
    let family: Vec<u32> = scene.noted()[0].split(' ').map(|pid| pid.parse().unwrap()).collect();
    assert_eq!(family.len(), 2);
    family
}

#[tokio::test(flavor = "multi_thread")]
async fn descendants_die_with_the_session() {
    for how in ["dropped", "dead", "flooded"] {
        let scene = Scene::new("family");
        let session = scene.connect().await;
        session.list().await.unwrap();
        let family = family(&scene);
        assert!(family.iter().all(|pid| alive(*pid)), "control: they are there while it is open");
        let keeper = session.pid().unwrap();
        let kept = match how {
            "dropped" => {
                drop(session);
                None
            }
            // The server dies by itself, or is ended for what it did, while somebody still holds the session.
            "dead" => {
                call(&session, "count-die", PATIENT).await.unwrap_err();
                Some(session)
            }
            _ => {
                call(&session, "flood", PATIENT).await.unwrap_err();
                Some(session)
            }
        };
        assert!(family.iter().all(|pid| ends(*pid)), "{how}");
        assert!(ends(keeper), "{how}");
        drop(kept);
    }
}

#[test]
fn descendants_die_with_the_process_that_holds_the_session() {
    let scene = Scene::new("family");
    let room = scene.server().room;
    let mut host = Command::new(odd())
        .args(["host".as_ref(), scene.file().as_os_str(), room.as_os_str()])
        .stdout(Pipe::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(host.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let family = family(&scene);
    assert!(family.iter().all(|pid| alive(*pid)), "control: they are there while it is");
    host.kill().unwrap();
    host.wait().unwrap();
    assert!(family.iter().all(|pid| ends(*pid)));
}
