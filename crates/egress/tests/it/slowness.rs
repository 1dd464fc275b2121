//! Servers that are slow, each in the phase whose deadline it is.

use std::time::Duration;

use portcullis_domain::ports::Disposition;
use portcullis_egress::{
    Credentials, Deadlines, EgressError, EgressRules, Fault, Method, Phase, Request, Sent, Target,
};
use tokio::io::AsyncWriteExt as _;

use crate::server::{Server, client, get, local, short};

fn is(error: &EgressError, phase: Phase, sent: Sent) {
    assert_eq!(error.fault, Fault::Deadline { host: "127.0.0.1".to_owned(), phase });
    assert_eq!((error.sent, error.disposition()), (sent, Disposition::Retry));
}

/// Writes the first bytes, and then a byte now and then for ever.
async fn dripping(first: &'static str, drip: &'static str, every: Duration) -> Server {
    Server::acting(move |_, mut wire| async move {
        let _ = wire.write_all(first.as_bytes()).await;
        loop {
            tokio::time::sleep(every).await;
            if wire.write_all(drip.as_bytes()).await.is_err() {
                return;
            }
        }
    })
    .await
}

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn headers_have_a_deadline_that_dripping_does_not_move() {
    for (first, drip, every) in
        [("", "", HOUR), ("HTTP/1.1 200 OK\r\n", "x", Duration::from_millis(20))]
    {
        let server = dripping(first, drip, every).await;
        let error = local().send(get(&server.url("/")).deadlines(short())).await.expect_err("slow");
        is(&error, Phase::Header, Sent::Perhaps);
    }
}

#[tokio::test]
async fn a_body_has_a_deadline_between_its_pieces() {
    let server = dripping("HTTP/1.1 200 OK\r\n\r\nfirst", "", HOUR).await;
    // Only the pause is short, so that a busy machine is not taken for a slow server.
    let pause = Deadlines { header: short().total, ..short() };
    let error = local().send(get(&server.url("/")).deadlines(pause)).await.expect_err("slow");
    is(&error, Phase::Idle, Sent::Answered);
    // In pieces: what came before is handed out.
    let mut incoming = local().open(get(&server.url("/")).deadlines(pause)).await.expect("a head");
    assert_eq!(incoming.piece().await, Ok(Some(b"first".to_vec())));
    is(&incoming.piece().await.expect_err("slow"), Phase::Idle, Sent::Answered);
}

#[tokio::test]
async fn the_whole_has_a_deadline_that_dripping_does_not_move() {
    let server = dripping("HTTP/1.1 200 OK\r\n\r\n", "x", Duration::from_millis(20)).await;
    let total = Duration::from_secs(2);
    let deadlines = Deadlines { header: total, idle: total, total };
    let error = local().send(get(&server.url("/")).deadlines(deadlines)).await.expect_err("slow");
    is(&error, Phase::Total, Sent::Answered);
}

#[tokio::test]
async fn a_connection_has_a_deadline_and_nothing_was_sent() {
    // A socket that listens and whose queue is full: the kernel does not answer further connections.
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket.bind("127.0.0.1:0".parse().expect("an address")).expect("bound");
    let listener = socket.listen(1).expect("listening");
    let at = listener.local_addr().expect("an address");
    let mut filling = Vec::new();
    for _ in 0..8 {
        let connecting = tokio::net::TcpStream::connect(at);
        match tokio::time::timeout(Duration::from_millis(200), connecting).await {
            Ok(Ok(stream)) => filling.push(stream),
            _ => break,
        }
    }
    assert!(filling.len() < 8, "the queue is full");
    let rules = EgressRules::closed().loopback();
    let rules =
        rules.deadlines(Duration::from_millis(300), Deadlines::default()).expect("deadlines");
    let error = client(rules, Credentials::none()).send(get(&format!("http://{at}/"))).await;
    is(&error.expect_err("slow"), Phase::Connect, Sent::Nothing);
}

#[tokio::test]
async fn a_server_that_is_not_there_got_nothing() {
    let gone = Server::json("{}").await.at;
    // The port is closed once the listener's task has ended.
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while tokio::net::TcpStream::connect(gone).await.is_ok() {
        assert!(tokio::time::Instant::now() < deadline, "the port stays open");
        tokio::task::yield_now().await;
    }
    let error = local().send(get(&format!("http://{gone}/"))).await.expect_err("nobody there");
    assert_eq!(error.fault, Fault::Connect { host: "127.0.0.1".to_owned() });
    assert_eq!((error.sent, error.disposition()), (Sent::Nothing, Disposition::Retry));
}

#[tokio::test]
async fn unusable_deadlines_send_nothing() {
    let server = Server::json("{}").await;
    let zero = Deadlines { header: Duration::ZERO, ..short() };
    let error = local().send(get(&server.url("/")).deadlines(zero)).await.expect_err("refused");
    assert_eq!((error.sent, error.disposition()), (Sent::Nothing, Disposition::Bug));
    assert_eq!(server.connections(), 0);
    local().send(get(&server.url("/")).deadlines(short())).await.expect("an answer");
}

#[tokio::test]
async fn what_is_withdrawn_before_it_leaves_does_not_leave() {
    let server = Server::json("{}").await;
    for body in [b"pay".to_vec(), Vec::new()] {
        let request =
            Request::new(Method::Post, Target::parse(&server.url("/")).unwrap()).body(body.clone());
        let error =
            local().send(request.clone().while_true(|| false)).await.expect_err("withdrawn");
        assert_eq!(error.fault, Fault::Withdrawn { host: "127.0.0.1".to_owned() });
        assert_eq!((error.sent, error.disposition()), (Sent::Nothing, Disposition::Refuse));
        assert!(server.seen().is_empty(), "{body:?}");
    }
    let kept =
        Request::new(Method::Post, Target::parse(&server.url("/")).unwrap()).body(b"pay".to_vec());
    local().send(kept.while_true(|| true)).await.expect("the control");
    let seen = server.seen();
    assert_eq!((seen.len(), seen[0].body.as_slice()), (1, b"pay".as_slice()));
    assert_eq!(seen[0].header("content-length"), Some("3"));
}
