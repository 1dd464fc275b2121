//! Answers of every shape: whole, redirecting, encoded, endless, cut, lying.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use portcullis_domain::ports::Disposition;
use portcullis_egress::{Credentials, EgressRules, Fault, Method, Request, Sent, Target};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::server::{Server, client, fetch, get, local, ok};

#[tokio::test]
async fn a_whole_answer_comes_with_status_headers_and_body() {
    let server = Server::json(r#"{"a":1}"#).await;
    let request =
        Request::new(Method::Post, Target::parse(&server.url("/v1?x=%20")).expect("a URL"))
            .header("content-type", "application/json")
            .expect("a header")
            .only("application/json")
            .body(b"{}".to_vec());
    let answer = local().send(request).await.expect("an answer");
    assert_eq!((answer.status, answer.body.as_slice()), (200, br#"{"a":1}"#.as_slice()));
    assert_eq!(answer.headers.text("content-type"), Some("application/json"));
    assert_eq!(answer.disposition(), None);
    let seen = server.seen().remove(0);
    assert!(seen.head.starts_with("POST /v1?x=%20 HTTP/1.1\r\n"), "{}", seen.head);
    assert_eq!(seen.header("accept-encoding"), Some("identity"));
    assert_eq!(seen.header("accept"), Some("application/json"));
    assert_eq!(seen.body, b"{}");
}

#[tokio::test]
async fn a_status_that_is_no_success_is_an_answer() {
    let bytes = "HTTP/1.1 429 Slow Down\r\nretry-after: 31536000\r\ncontent-length: 4\r\n\r\nwait";
    let answer = fetch(bytes).await.expect("an answer");
    assert_eq!(answer.disposition(), Some(Disposition::Retry));
    let wait = answer.retry_after(portcullis_domain::time::Timestamp::from_micros(0));
    assert_eq!(wait, Some(portcullis_egress::MAX_RETRY_AFTER), "a year is bounded");
    assert_eq!(answer.body, b"wait");
}

#[tokio::test]
async fn no_redirect_is_followed() {
    let elsewhere = Server::json("{}").await;
    for status in [300, 301, 302, 303, 304, 307, 308] {
        let to = elsewhere.url("/canary-path?canary-query");
        let bytes = format!("HTTP/1.1 {status} Go\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n");
        let error = fetch(bytes).await.expect_err("a redirect");
        let host = "127.0.0.1".to_owned();
        assert_eq!(error.fault, Fault::Redirect { host, status });
        assert_eq!((error.sent, error.disposition()), (Sent::Answered, Disposition::Operator));
        assert!(!format!("{error} {error:?}").contains("canary"), "only the host is named");
    }
    assert_eq!(elsewhere.connections(), 0, "nobody went there");
    // Whoever does go there is seen.
    local().send(get(&elsewhere.url("/"))).await.expect("an answer");
    assert_eq!(elsewhere.connections(), 1);
}

#[tokio::test]
async fn a_page_in_place_of_json_is_named() {
    let server = Server::answering(ok("text/html; charset=utf-8", "<html>Sign in</html>")).await;
    let only_json = get(&server.url("/")).only("application/json");
    let error = local().send(only_json).await.expect_err("a page");
    let host = "127.0.0.1".to_owned();
    assert_eq!(error.fault, Fault::Media { host, expected: "application/json" });
    assert_eq!((error.sent, error.disposition()), (Sent::Answered, Disposition::Operator));
    assert!(local().send(get(&server.url("/"))).await.is_ok(), "who wants pages gets them");
    // A failure may be explained in any form.
    let bytes = "HTTP/1.1 502 Bad\r\ncontent-type: text/html\r\ncontent-length: 2\r\n\r\nno";
    let server = Server::answering(bytes).await;
    let answer = local().send(get(&server.url("/")).only("application/json")).await;
    assert_eq!(answer.expect("an answer").status, 502);
}

#[tokio::test]
async fn an_encoded_body_is_not_read() {
    // Whatever it would blow up to: it is refused by its head, and no decoder sees it.
    for encoding in ["gzip", "br", "zstd", "deflate", "x-gzip", "identity, gzip", "GZIP"] {
        let bytes = format!(
            "HTTP/1.1 200 OK\r\ncontent-encoding: {encoding}\r\ncontent-length: 4\r\n\r\n\x1f\x0b\x08\x00"
        );
        let error = fetch(bytes).await.expect_err(encoding);
        assert_eq!(error.fault, Fault::Encoded { host: "127.0.0.1".to_owned() }, "{encoding}");
        assert_eq!((error.sent, error.disposition()), (Sent::Answered, Disposition::Refuse));
    }
    let bytes = "HTTP/1.1 200 OK\r\ncontent-encoding: identity\r\ncontent-length: 2\r\n\r\nok";
    assert_eq!(fetch(bytes).await.expect("plain").body, b"ok");
    let bytes = "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
    assert!(fetch(bytes).await.is_err(), "an encoding for the way is one too");
}

#[tokio::test]
async fn a_body_is_bounded_while_it_comes() {
    // Endless, in chunks and without any length.
    for head in ["transfer-encoding: chunked\r\n", ""] {
        let written = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&written);
        let server = Server::acting(move |_, mut wire| {
            let counted = Arc::clone(&counted);
            async move {
                let start = format!("HTTP/1.1 200 OK\r\n{head}\r\n");
                let chunked = !head.is_empty();
                let piece = [b'x'; 4096];
                let _ = wire.write_all(start.as_bytes()).await;
                loop {
                    if chunked && wire.write_all(b"1000\r\n").await.is_err() {
                        return;
                    }
                    if wire.write_all(&piece).await.is_err() {
                        return;
                    }
                    counted.fetch_add(4096, Ordering::SeqCst);
                    if chunked && wire.write_all(b"\r\n").await.is_err() {
                        return;
                    }
                }
            }
        })
        .await;
        let rules = EgressRules::closed().loopback().max_body(100_000).expect("a bound");
        let egress = client(rules, Credentials::none());
        let error = egress.send(get(&server.url("/"))).await.expect_err("endless");
        let host = "127.0.0.1".to_owned();
        assert_eq!(error.fault, Fault::TooLarge { host, limit: 100_000 });
        assert_eq!((error.sent, error.disposition()), (Sent::Answered, Disposition::Refuse));
        let total = written.load(Ordering::SeqCst);
        assert!(total >= 100_000, "it was read up to the bound: {total}");

        // In pieces: no more than the bound is handed out, and after the error there is only the error.
        let mut incoming =
            egress.open(get(&server.url("/")).max_body(50_000)).await.expect("a head");
        let mut taken = 0;
        let error = loop {
            match incoming.piece().await {
                Ok(Some(piece)) => taken += piece.len(),
                Ok(None) => panic!("an endless body ended"),
                Err(error) => break error,
            }
        };
        assert!(taken <= 50_000 && taken > 0, "{taken}");
        assert_eq!(incoming.piece().await, Err(error));
    }
}

#[tokio::test]
async fn the_bound_is_exact_and_a_request_can_only_tighten_it() {
    let server = Server::json("0123456789").await;
    let rules = EgressRules::closed().loopback().max_body(10).expect("a bound");
    let egress = client(rules, Credentials::none());
    assert!(egress.send(get(&server.url("/"))).await.is_ok());
    assert!(egress.send(get(&server.url("/")).max_body(10)).await.is_ok());
    let tight = egress.send(get(&server.url("/")).max_body(9)).await.expect_err("one too many");
    assert_eq!(tight.fault, Fault::TooLarge { host: "127.0.0.1".to_owned(), limit: 9 });
    // Without an announcement, by counting.
    let bytes = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\n01234\r\n5\r\n56789\r\n0\r\n\r\n";
    let counted = Server::answering(bytes).await;
    let whole = egress.send(get(&counted.url("/"))).await.expect("just within");
    assert_eq!(whole.body, b"0123456789");
    let over = egress.send(get(&counted.url("/")).max_body(9)).await.expect_err("one too many");
    assert_eq!(over.fault, tight.fault);
    let rules = EgressRules::closed().loopback().max_body(9).expect("a bound");
    let error =
        client(rules, Credentials::none()).send(get(&server.url("/")).max_body(1_000)).await;
    assert_eq!(error.expect_err("no more").fault, tight.fault);
}

#[tokio::test]
async fn a_huge_announcement_is_refused_before_a_byte_of_it() {
    let bytes = "HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n";
    let error = fetch(bytes).await.expect_err("too large");
    assert!(matches!(error.fault, Fault::TooLarge { limit: 16_777_216, .. }), "{error:?}");
    // To HEAD the same announcement is no body.
    let server = Server::answering(bytes).await;
    let head = Request::new(Method::Head, Target::parse(&server.url("/")).expect("a URL"));
    assert_eq!(local().send(head).await.expect("an answer").body, b"");
}

#[tokio::test]
async fn a_cut_or_lying_body_is_no_answer() {
    for (what, bytes) in [
        ("short of its length", "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf"),
        ("no last chunk", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n"),
        ("a chunk cut off", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n40\r\nhalf"),
        (
            "a size that is none",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nhalf\r\n0\r\n\r\n",
        ),
        (
            "a size that is too big",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffffff\r\nx",
        ),
        (
            "longer than its size",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nlonger\r\n0\r\n\r\n",
        ),
    ] {
        let error = fetch(bytes).await.expect_err(what);
        assert_eq!(error.fault, Fault::Cut { host: "127.0.0.1".to_owned() }, "{what}");
        assert_eq!(
            (error.sent, error.disposition()),
            (Sent::Answered, Disposition::Retry),
            "{what}"
        );
    }
    let whole = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n0\r\n\r\n";
    assert_eq!(fetch(whole).await.expect("whole").body, b"half");
}

#[tokio::test]
async fn what_is_no_http_leaves_it_open_what_happened() {
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "x-a: b\r\n".repeat(500));
    let long = format!("HTTP/1.1 200 OK\r\nx-a: {}\r\n\r\n", "b".repeat(1 << 20));
    for (what, bytes) in [
        ("silence", String::new()),
        ("noise", "SSH-2.0-OpenSSH_9.6\r\n\r\n".to_owned()),
        ("half a head", "HTTP/1.1 200 OK\r\ncontent-le".to_owned()),
        (
            "two lengths",
            "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab".to_owned(),
        ),
        ("a negative length", "HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\nab".to_owned()),
        ("too many headers", many),
        ("a header without end", long),
    ] {
        let error = fetch(bytes).await.expect_err(what);
        assert_eq!(error.fault, Fault::Lost { host: "127.0.0.1".to_owned() }, "{what}");
        assert_eq!(
            (error.sent, error.disposition()),
            (Sent::Perhaps, Disposition::Retry),
            "{what}"
        );
    }
}

/// Memory of this process that is in use, in bytes.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("a kernel that counts");
    let pages: u64 = text.split(' ').nth(1).expect("a column").parse().expect("a number");
    // The smallest page that Linux has; a machine with larger ones is judged more mildly.
    pages * 4096
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_streams_at_once_stay_small() {
    const STREAMS: usize = 200;
    const BODY: usize = 3 * 1024 * 1024;
    let all_open = Arc::new(tokio::sync::Barrier::new(STREAMS));
    let server = Server::acting(|_, mut wire| async move {
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {BODY}\r\n\r\n");
        let _ = wire.write_all(head.as_bytes()).await;
        let piece = [b'x'; 16 * 1024];
        for _ in 0..BODY / piece.len() {
            if wire.write_all(&piece).await.is_err() {
                return;
            }
        }
    })
    .await;
    let before = resident();
    let egress = local();
    let mut streams = tokio::task::JoinSet::new();
    for _ in 0..STREAMS {
        let opening = egress.open(get(&server.url("/")));
        let all_open = Arc::clone(&all_open);
        streams.spawn(async move {
            let mut incoming = opening.await.expect("a head");
            // Nobody reads until everybody is open, and the kernel's buffers are full.
            all_open.wait().await;
            let mut taken = 0;
            while let Some(piece) = incoming.piece().await.expect("a piece") {
                taken += piece.len();
            }
            taken
        });
    }
    let mut most = 0;
    while let Some(taken) = streams.join_next().await {
        assert_eq!(taken.expect("no panic"), BODY);
        most = most.max(resident());
    }
    let each = most.saturating_sub(before) / u64::try_from(STREAMS).expect("a count");
    assert!(each < 2 * 1024 * 1024, "{each} bytes for each stream, the server's side included");
}

#[tokio::test]
async fn a_request_that_was_read_is_not_sent_again() {
    // Answers the first request, keeps the connection, reads the second one whole, and closes without a word.
    let second = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&second);
    let server = Server::acting(move |_, mut wire| {
        let counted = Arc::clone(&counted);
        async move {
            let _ = wire.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
            let mut bytes = Vec::new();
            while !bytes.ends_with(b"second") {
                if wire.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
                    return;
                }
            }
            counted.fetch_add(1, Ordering::SeqCst);
        }
    })
    .await;
    let egress = local();
    let post = |body: &str| {
        let target = Target::parse(&server.url("/")).expect("a URL");
        egress.send(Request::new(Method::Post, target).body(body.as_bytes().to_vec()))
    };
    post("first").await.expect("an answer");
    let error = post("second").await.expect_err("no answer");
    assert_eq!(error.fault, Fault::Lost { host: "127.0.0.1".to_owned() });
    assert_eq!(error.sent, Sent::Perhaps);
    assert_eq!(second.load(Ordering::SeqCst), 1, "it was read, on the connection that was kept");
    assert_eq!(server.connections(), 1, "and nobody came back with it");
}

#[tokio::test]
async fn a_dropped_answer_closes_the_connection() {
    let (gone, told) = tokio::sync::oneshot::channel();
    let gone = std::sync::Mutex::new(Some(gone));
    let server = Server::acting(move |_, mut wire| {
        let gone = gone.lock().expect("not poisoned").take();
        async move {
            let _ = wire.write_all(b"HTTP/1.1 200 OK\r\n\r\nfirst").await;
            // Writes until nobody takes it any more.
            while wire.write_all(&[b'x'; 4096]).await.is_ok() {
                tokio::task::yield_now().await;
            }
            if let Some(gone) = gone {
                let _ = gone.send(());
            }
        }
    })
    .await;
    let mut incoming = local().open(get(&server.url("/"))).await.expect("a head");
    assert!(incoming.piece().await.expect("a piece").is_some());
    drop(incoming);
    tokio::time::timeout(std::time::Duration::from_secs(20), told)
        .await
        .expect("closed")
        .expect("told");
}
