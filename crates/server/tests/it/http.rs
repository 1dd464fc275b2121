//! The door for hosts over HTTP: who is let in, how much of them at once, and that what holds over a pipe holds here.

use std::sync::Arc;
use std::time::Duration;

use portcullis_canon::Value;
use portcullis_domain::approval::Answer;
use portcullis_mcp::MAX_MESSAGE_BYTES;
use portcullis_server::http::{Bounds, Terms};
use portcullis_server::proxy::Settings;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::caller::{Door, TOKEN, asked, call, hear, stateless};
use crate::world::World;

const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

/// A proxy of which each connection is a conversation of its own.
fn unnamed(world: &World) -> Settings {
    Settings { thread: None, ..world.settings() }
}

/// One that holds calls; time stands still, so that only a host ends a hold.
fn holding(world: &World) -> Settings {
    Settings { hold: Duration::from_secs(15), ..unnamed(world) }
}

async fn until(mut holds: impl FnMut() -> bool) {
    tokio::time::timeout(Duration::from_secs(60), async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await
    .expect("it does not come to pass");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_with_a_session_lists_calls_and_ends_it() {
    let world = World::new();
    let door = Door::open(world.proxy_with(1, unnamed(&world))).await;
    let session = door.session().await;
    let list = r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#;
    let listed = door.in_session(&session, list).await.json();
    let tools = listed.pointer("/result/tools").and_then(Value::as_array).unwrap();
    assert_eq!(tools.len(), 7, "{listed:?}");
    let look = door.in_session(&session, &call(3, "look", 1)).await;
    assert_eq!(look.text(), r#"{"ok":true}"#);
    assert_eq!(look.json().pointer("/result/structuredContent/ok"), Some(&Value::from(true)));
    let end = door.head(&[("mcp-session-id", &session)]).replace("POST", "DELETE") + "\r\n";
    assert_eq!(door.send(&end).await.status, 204);
    let gone = door.in_session(&session, &call(4, "write", 1)).await;
    assert_eq!((gone.status, world.tools.effects("write")), (404, 0));
    assert_eq!(door.send(&end).await.status, 404);
    door.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_of_the_stateless_revision_discovers_lists_and_calls() {
    let world = World::new();
    let door = Door::open(world.proxy_with(1, unnamed(&world))).await;
    for (method, place, least) in
        [("server/discover", "/result/supportedVersions", 2), ("tools/list", "/result/tools", 7)]
    {
        let (head, body) = asked(method);
        let head: Vec<(&str, &str)> = head.iter().map(|(k, v)| (*k, v.as_str())).collect();
        let told = door.post(&head, &body).await;
        // What this revision demands of a listing.
        let said = |name: &str| told.json().pointer(&format!("/result/{name}")).cloned();
        assert_eq!(said("resultType"), Some(Value::from("complete")), "{told:?}");
        assert!(said("ttlMs").is_some() && said("cacheScope").is_some(), "{told:?}");
        let all = told.json().pointer(place).and_then(Value::as_array).map(<[Value]>::len);
        assert!(told.status == 200 && all >= Some(least), "{told:?}");
        assert_eq!(told.header("mcp-session-id"), None);
    }
    let made = door.call("write", 1).await;
    assert_eq!((made.text().as_str(), world.tools.effects("write")), (r#"{"ok":true}"#, 1));
    assert_eq!(made.json().pointer("/result/resultType"), Some(&Value::from("complete")));
    // What the headers say has to be what the message says.
    let (_, body) = stateless("write", 2);
    let other = [
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", "look"),
    ];
    let odd = door.post(&other, &body).await;
    assert_eq!((odd.status, world.tools.effects("write")), (400, 1), "{odd:?}");
    door.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_show_host_and_token_is_turned_away() {
    let world = World::new();
    let terms = Terms { origins: vec!["https://app.example".to_owned()], ..Terms::default() };
    let proxy = world.proxy_with(1, unnamed(&world));
    let door = Door::with(proxy, TOKEN, &terms, Bounds::default()).await;
    let port = door.address.port();
    let (local, evil) = (format!("localhost:{port}"), format!("evil.example:{port}"));
    let (own, long) = (format!("http://127.0.0.1:{port}"), format!("Bearer {TOKEN}0"));
    let rows: [(&[(&str, &str)], u16); 11] = [
        (&[("authorization", "")], 401),
        (&[("authorization", "Bearer ffffffffffffffffffffffffffffffff")], 401),
        (&[("authorization", &long)], 401),
        (&[("host", &evil)], 403),
        (&[("host", "127.0.0.1")], 403),
        (&[("host", "")], 400),
        (&[("origin", "https://evil.example")], 403),
        (&[("origin", "null")], 403),
        (&[("origin", &own)], 403),
        (&[("host", &local)], 200),
        (&[("origin", "https://app.example")], 200),
    ];
    let mut number = 0;
    for (more, status) in rows {
        number += 1;
        let told = door.post(more, &call(1, "write", number)).await;
        // What has no `Host` at all is no request of this version: nobody says how it is refused.
        let refused = status == 400 && matches!(told.status, 400 | 403);
        assert!(told.status == status || refused, "{more:?}: {told:?}");
        assert_eq!(told.header("www-authenticate"), (status == 401).then_some("bearer"));
        assert!(!told.body.contains(TOKEN) && told.header("access-control-allow-origin").is_none());
    }
    assert_eq!(world.tools.effects("write"), 2, "only what was let in");
    let elsewhere = door.head(&[]).replace("/mcp", "/") + "\r\n";
    assert_eq!(door.send(&elsewhere).await.status, 404);
    let get = door.head(&[]).replace("POST", "GET") + "\r\n";
    let told = door.send(&get).await;
    assert_eq!((told.status, told.header("allow")), (405, Some("post, delete")));
    door.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_long_is_not_read() {
    let world = World::new();
    let door = Door::open(world.proxy_with(1, unnamed(&world))).await;
    let fits = PING.to_owned() + &" ".repeat(MAX_MESSAGE_BYTES - PING.len());
    assert_eq!(door.post(&[], &fits).await.status, 200, "the control");
    let declared = format!("{}content-length: {}\r\n\r\n", door.head(&[]), MAX_MESSAGE_BYTES + 1);
    assert_eq!(door.send(&declared).await.status, 413);
    let chunk = format!("{:x}\r\n{fits} \r\n0\r\n\r\n", MAX_MESSAGE_BYTES + 1);
    let chunked = format!("{}transfer-encoding: chunked\r\n\r\n{chunk}", door.head(&[]));
    let told = door.send(&chunked).await;
    assert!(matches!(told.status, 413 | 0), "{told:?}");
    let long = "x".repeat(20_000);
    assert_eq!(door.post(&[("x-long", &long)], PING).await.status, 431);
    assert_eq!(door.post(&[], PING).await.status, 200);
    door.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_dawdles_is_left_and_others_are_served() {
    let world = World::new();
    let brief = Duration::from_secs(2);
    let bounds = Bounds { head: brief, body: brief, ..Bounds::default() };
    let proxy = world.proxy_with(1, unnamed(&world));
    let door = Door::with(proxy, TOKEN, &Terms::default(), bounds).await;
    let mut in_head = door.connect().await;
    in_head.write_all(b"POST /mcp HTTP/1.1\r\nhost: ").await.unwrap();
    let mut in_body = door.connect().await;
    let begun = format!("{}content-length: 1000\r\n\r\n{{", door.head(&[]));
    in_body.write_all(begun.as_bytes()).await.unwrap();
    let silent = door.connect().await;
    assert_eq!(door.call("write", 1).await.word(), "-", "meanwhile");
    // Each is ended by the door: nothing ends them on this side.
    assert!(matches!(hear(in_head).await.status, 0 | 408));
    assert_eq!(hear(in_body).await.status, 408);
    assert!(matches!(hear(silent).await.status, 0 | 408));
    assert_eq!(world.tools.effects("write"), 1);
    door.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_and_bytes_are_bounded_and_who_waits_is_served_next() {
    let world = World::new();
    let bounds = Bounds { connections: 1, ..Bounds::default() };
    let proxy = world.proxy_with(1, unnamed(&world));
    let door = Arc::new(Door::with(proxy, TOKEN, &Terms::default(), bounds).await);
    let mut first = door.connect().await;
    first.write_all(b"POST /mcp").await.unwrap();
    let second = {
        let door = Arc::clone(&door);
        tokio::spawn(async move { door.call("write", 1).await.word() })
    };
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!second.is_finished() && world.tools.effects("write") == 0, "it waits for a place");
    drop(first);
    assert_eq!(second.await.unwrap(), "-");

    let brief = Duration::from_secs(2);
    let bounds = Bounds { message_bytes: 100, body: brief, ..Bounds::default() };
    let proxy = world.proxy_with(1, unnamed(&world));
    let narrow = Door::with(proxy, TOKEN, &Terms::default(), bounds).await;
    assert_eq!(narrow.post(&[], PING).await.status, 200);
    assert_eq!(narrow.call("write", 2).await.status, 503);
    assert_eq!(world.tools.effects("write"), 1);
    narrow.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_are_read_as_strictly_as_lines() {
    let world = World::new();
    let door = Door::open(world.proxy_with(1, unnamed(&world))).await;
    let session = door.session().await;
    let deep = format!("{}{}", "[".repeat(300), "]".repeat(300));
    let with = |arguments: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{{"name":"write","arguments":{arguments}}}}}"#
        )
    };
    for (body, code) in [
        ("{".to_owned(), -32_700),
        (with(r#"{"n":1,"n":2}"#), -32_700),
        (with(&format!(r#"{{"n":{deep}}}"#)), -32_700),
        (with("{\"n\":\"\\ud800\"}"), -32_700),
        ("[]".to_owned(), -32_600),
        (format!("[{}]", with(r#"{"n":1}"#)), -32_600),
    ] {
        let told = door.in_session(&session, &body).await;
        assert_eq!((told.status, told.code()), (400, Some(code)), "{body}");
    }
    // All digits come to the gate, which refuses what would not survive.
    let digits = door.in_session(&session, &with(r#"{"n":12345678901234567890123}"#)).await;
    assert_eq!(digits.word(), "INVALID");
    let odd = door.in_session(&session, &with("[]")).await;
    assert!(odd.code().is_some(), "{odd:?}");
    assert_eq!(world.tools.effects("write"), 0);
    assert_eq!(door.in_session(&session, &with(r#"{"n":1}"#)).await.word(), "-", "the control");
    door.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_two_clients_repeat_is_made_once() {
    let world = World::new();
    let door = Door::open(world.proxy_with(1, unnamed(&world))).await;
    // Clients that name no conversation are one, whatever connection they come over.
    assert_eq!(door.call("write", 1).await.word(), "-");
    for _ in 0..2 {
        assert_eq!(door.call("write", 1).await.word(), "DUPLICATE");
    }
    assert_eq!(world.tools.effects("write"), 1);
    // A session is a conversation of its own, over as many connections.
    let (one, other) = (door.session().await, door.session().await);
    assert_ne!(one, other);
    assert_eq!(door.in_session(&one, &call(1, "write", 1)).await.word(), "-");
    assert_eq!(door.in_session(&one, &call(2, "write", 1)).await.word(), "DUPLICATE");
    assert_eq!(door.in_session(&other, &call(1, "write", 1)).await.word(), "-");
    assert_eq!((world.tools.effects("write"), world.count("thread.opened")), (3, 3));
    // After a start anew both are what they were.
    door.close().await;
    let door = Door::open(world.proxy_with(2, unnamed(&world))).await;
    assert_eq!(door.call("write", 1).await.word(), "DUPLICATE");
    assert_eq!(door.in_session(&one, &call(3, "write", 1)).await.word(), "DUPLICATE");
    // Where the operator names the conversation, all of them are one.
    let named = Door::open(world.proxy_with(3, world.settings())).await;
    let session = named.session().await;
    assert_eq!(named.in_session(&session, &call(1, "write", 2)).await.word(), "-");
    assert_eq!(named.call("write", 2).await.word(), "DUPLICATE");
    assert_eq!(world.tools.effects("write"), 4);
    named.close().await;
    door.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_good_under_its_token_alone() {
    let world = World::new();
    let proxy = world.proxy_with(1, unnamed(&world));
    let door = Door::open(Arc::clone(&proxy)).await;
    let session = door.session().await;
    let without = [("mcp-session-id", session.as_str()), ("authorization", "")];
    assert_eq!(door.post(&without, &call(1, "write", 1)).await.status, 401);
    let other = "f".repeat(32);
    let (bearer, terms) = (format!("Bearer {other}"), Terms::default());
    let others = Door::with(proxy, &other, &terms, Bounds::default()).await;
    let shown = [("mcp-session-id", session.as_str()), ("authorization", &bearer)];
    assert_eq!(others.post(&shown, &call(1, "write", 1)).await.status, 404);
    let guessed = "0".repeat(64);
    assert_eq!(door.in_session(&guessed, &call(1, "write", 1)).await.status, 404);
    assert_eq!(world.tools.effects("write"), 0);
    assert_eq!(door.in_session(&session, &call(1, "write", 1)).await.word(), "-", "the control");
    // Another token is another conversation.
    let (head, body) = stateless("write", 7);
    let mut head: Vec<(&str, &str)> = head.iter().map(|(k, v)| (*k, v.as_str())).collect();
    assert_eq!(door.post(&head, &body).await.word(), "-");
    head.push(("authorization", &bearer));
    assert_eq!(others.post(&head, &body).await.word(), "-");
    assert_eq!(world.tools.effects("write"), 3);
    others.close().await;
    door.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_waits_is_collected_over_another_connection() {
    let world = World::new();
    let door = Door::open(world.proxy_with(1, unnamed(&world))).await;
    let waits = door.call("send", 1).await;
    assert_eq!(waits.word(), "PENDING_APPROVAL");
    assert_eq!(waits.json().pointer("/result/isError"), Some(&Value::from(false)));
    world.answer(&world.question(), Answer::Approve, None);
    assert_eq!(world.tools.effects("send"), 0, "an approval alone makes nothing");
    assert_eq!(door.call("send", 1).await.text(), r#"{"ok":true}"#);
    assert_eq!(door.call("send", 1).await.word(), "DUPLICATE");
    assert_eq!((world.tools.effects("send"), world.count("approval.used")), (1, 1));
    door.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_goes_away_ends_its_hold_and_nothing_else() {
    let world = World::new();
    let proxy = world.proxy_with(1, holding(&world));
    let door = Door::open(Arc::clone(&proxy)).await;
    let (head, body) = stateless("send", 1);
    let head: Vec<(&str, &str)> = head.iter().map(|(k, v)| (*k, v.as_str())).collect();
    let request = format!("{}content-length: {}\r\n\r\n{body}", door.head(&head), body.len());
    let mut stream = door.connect().await;
    stream.write_all(request.as_bytes()).await.unwrap();
    until(|| !world.open_questions().is_empty()).await;
    drop(stream);
    tokio::time::timeout(Duration::from_secs(60), proxy.finished()).await.unwrap();
    world.answer(&world.question(), Answer::Approve, None);
    assert_eq!(door.call("send", 1).await.text(), r#"{"ok":true}"#);
    assert_eq!((world.tools.effects("send"), world.count("question.asked")), (1, 1));
    door.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_gives_up_a_call_over_another_connection() {
    let world = World::new();
    let door = Arc::new(Door::open(world.proxy_with(1, holding(&world))).await);
    let (session, stranger) = (door.session().await, door.session().await);
    let held = {
        let (door, session) = (Arc::clone(&door), session.clone());
        tokio::spawn(async move { door.in_session(&session, &call(5, "send", 1)).await.word() })
    };
    until(|| !world.open_questions().is_empty()).await;
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}"#;
    assert_eq!(door.in_session(&stranger, cancel).await.status, 202);
    assert_eq!(door.in_session(&session, PING).await.status, 200);
    assert!(!held.is_finished(), "another session's word");
    assert_eq!(door.in_session(&session, cancel).await.status, 202);
    let told = tokio::time::timeout(Duration::from_secs(60), held).await.unwrap();
    assert_eq!(told.unwrap(), "PENDING_APPROVAL");
    assert_eq!(world.open_questions().len(), 1, "what is waited for is still asked");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_wants_to_know_is_told_while_its_call_is_held() {
    let world = World::new();
    let door = Door::open(world.proxy_with(1, holding(&world))).await;
    let session = door.session().await;
    let body = r#"{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"send","arguments":{"n":1},"_meta":{"progressToken":"p"}}}"#;
    let head = door.head(&[("mcp-session-id", &session), ("mcp-protocol-version", "2025-11-25")]);
    let request = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
    let mut stream = door.connect().await;
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut heard = Vec::new();
    while !String::from_utf8_lossy(&heard).contains("waiting for a person to approve") {
        let read = tokio::time::timeout(Duration::from_secs(60), stream.read_buf(&mut heard));
        assert_ne!(read.await.unwrap().unwrap(), 0, "{}", String::from_utf8_lossy(&heard));
    }
    let heard = String::from_utf8(heard).unwrap();
    assert!(heard.contains("content-type: text/event-stream"), "{heard}");
    assert!(heard.contains(r#""progressToken":"p""#), "{heard}");
    // Closing ends the hold; the answer is still written.
    door.close().await;
    let mut rest = String::new();
    stream.read_to_string(&mut rest).await.unwrap();
    assert!(rest.contains("PENDING_APPROVAL: "), "{rest}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_calls_at_once_are_made_once_each() {
    let world = World::new();
    let door = Arc::new(Door::open(world.proxy_with(1, unnamed(&world))).await);
    let calls: Vec<_> = (0..100)
        .map(|number| {
            let door = Arc::clone(&door);
            // Each change is asked for twice at once.
            tokio::spawn(async move { door.call("write", number / 2).await.word() })
        })
        .collect();
    let mut words = Vec::new();
    for call in calls {
        words.push(call.await.unwrap());
    }
    let made = words.iter().filter(|word| *word == "-").count();
    assert_eq!((made, world.tools.effects("write")), (50, 50), "{words:?}");
    let fits = |word: &String| matches!(word.as_str(), "-" | "DUPLICATE" | "IN_PROGRESS");
    assert!(words.iter().all(fits), "{words:?}");
    assert!(world.told.faults.lock().unwrap().is_empty());
}
