//! Sites that mean no good: slow, cut, endless, redirecting, lying, and names that lead where nobody may go.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use portcullis_canon::{Limits, Value, parse};
use portcullis_domain::ports::{BoxFuture, ToolSource as _};
use portcullis_egress::{Credentials, Egress, Names, Unresolved};
use portcullis_testkit::permit::permit_for;
use portcullis_testkit::ports::ManualClock;
use portcullis_tools::HttpPlace;

use crate::bench::nothing;
use crate::web::{ALL, KEY, Site, Web, answer, rules, text, unknown};

/// Reading says that nothing happened, sending that nobody knows, in the same words.
#[track_caller]
fn both(site: &Site) -> String {
    let web = Web::with_key(site);
    let read = nothing(web.get(site, "/canary-path?canary-query"));
    let sent = unknown(web.post(site, "canary-body"));
    assert_eq!(read, sent);
    assert!(!read.contains("canary"), "{read}");
    assert_eq!(site.received().len(), 2, "the controls: both arrived, once");
    read
}

#[test]
fn a_redirect_is_not_followed_and_only_its_host_is_named() {
    let elsewhere = Site::answering(text("here"));
    let to = elsewhere.origin();
    let head = format!("location: {to}/canary-path?canary-query\r\n");
    let said = both(&Site::answering(answer("302 Found", &head, "")));
    assert!(said.starts_with("`127.0.0.1` answered with a redirect (302)"), "{said}");
    assert!(elsewhere.received().is_empty());
}

#[test]
fn a_site_that_says_nothing_is_waited_for_as_long_as_the_operator_said() {
    let silent = Site::acting(|_, stream| {
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let began = Instant::now();
    let said = both(&silent);
    assert!(said.contains("too slow"), "{said}");
    assert!(began.elapsed() >= Duration::from_secs(2), "a second each");
}

#[test]
fn a_body_that_drips_is_cut_off_by_the_same_time() {
    let drips = Site::acting(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n");
        while stream.write_all(b".").is_ok() {
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    let said = both(&drips);
    assert!(said.contains("not complete in time"), "{said}");
}

#[test]
fn a_body_that_is_cut_is_no_answer() {
    let cut = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\nconnection: close\r\n\r\nhalf";
    let said = both(&Site::answering(cut));
    assert_eq!(said, "the answer of `127.0.0.1` was cut off");
}

#[test]
fn what_is_no_http_is_no_answer() {
    for bytes in ["SSH-2.0-OpenSSH_9.6\r\n", "HTTP/1.1 999999 OK\r\n\r\n", ""] {
        let said = both(&Site::answering(bytes));
        assert_eq!(said, "the connection to `127.0.0.1` was lost before an answer", "{bytes:?}");
    }
}

#[test]
fn a_compressed_body_is_not_unpacked() {
    let bomb = answer("200 OK", "content-encoding: gzip\r\n", b"\x1f\x8b\x08\0");
    let said = both(&Site::answering(bomb));
    assert!(said.contains("encoded body"), "{said}");
}

#[test]
fn a_key_that_a_site_repeats_reaches_nobody() {
    let in_body = answer("200 OK", "", format!("you sent {KEY}"));
    let in_header = answer("200 OK", &format!("etag: {KEY}\r\n"), "");
    for repeating in [in_body, in_header] {
        let said = both(&Site::answering(repeating.clone()));
        assert!(said.contains("repeated the credential"), "{said}");
        // The control: without the credential the same answer is handed out.
        let site = Site::answering(repeating);
        let output = Web::of([site.place()]).get(&site, "/").unwrap();
        assert!(String::from_utf8(output.content).unwrap().contains(KEY));
    }
}

#[test]
fn an_endless_body_is_cut_and_said_to_be() {
    let endless = Site::acting(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\na");
        while stream.write_all("é".repeat(4096).as_bytes()).is_ok() {}
    });
    let web = Web::of([endless.place().methods(ALL)]);
    for output in [web.get(&endless, "/"), web.post(&endless, "x")] {
        let result = parse(&output.unwrap().content, &Limits::BARE).unwrap();
        assert_eq!(result.get("cut"), Some(&Value::from(true)));
        let content = result.get("content").and_then(Value::as_str).unwrap();
        // 1,024 bytes end within a character, of which nothing is shown.
        assert_eq!((content.len(), content.chars().last()), (1023, Some('é')));
    }
}

#[test]
fn the_largest_result_is_within_what_the_spec_says() {
    // Control characters become six bytes each, in the body and in headers.
    let headers: String = ["allow", "date", "etag", "location"]
        .map(|name| format!("{name}: {}\r\n", "\t\"".repeat(2_000)))
        .concat();
    let site = Site::answering(answer("200 OK", &headers, "\u{1}".repeat(5_000)));
    let web = Web::of([site.place()]);
    let most = web.http.specs()[0].max_result_bytes;
    let size = web.get(&site, "/").unwrap().content.len();
    assert!(size > 6 * 1024 && u64::try_from(size).unwrap() <= most, "{size} of {most}");
}

#[test]
fn a_body_that_says_it_is_huge_is_refused_before_it_comes() {
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\nconnection: close\r\n\r\n";
    let said = both(&Site::answering(head));
    assert_eq!(said, "the answer of `127.0.0.1` is longer than 16777216 bytes");
}

/// Names that all lead to one address.
struct Leading(IpAddr);

impl Names for Leading {
    fn resolve<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Vec<IpAddr>, Unresolved>> {
        Box::pin(std::future::ready(Ok(vec![self.0])))
    }
}

#[test]
fn a_name_that_leads_to_a_private_place_is_not_dialled() {
    let site = Site::answering(text("inside"));
    let origin = format!("http://public.example:{}", site.at.port());
    let asked = format!(r#"{{"url":"{origin}/canary-path","method":"POST"}}"#);
    let web = |place: HttpPlace, address: &str| {
        let rules = rules([place.methods(ALL)]);
        let names = Arc::new(Leading(address.parse().unwrap()));
        let clock = Arc::new(ManualClock::default());
        let reachable = rules.reachable().unwrap();
        let egress = Egress::with_names(reachable, Credentials::none(), clock, names).unwrap();
        Web::over(egress, rules)
    };
    for address in ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "fd00::1", "100.64.0.1"] {
        let place = HttpPlace::new(&origin).unwrap();
        let said = nothing(web(place, address).call("http.send", &asked));
        assert!(said.starts_with("`public.example` is, or leads to,"), "{said}");
    }
    let metadata = HttpPlace::new(&origin).unwrap().private();
    nothing(web(metadata, "169.254.169.254").call("http.send", &asked));
    assert!(site.received().is_empty());
    // The control: where the operator says that the place is private, it is reached.
    web(HttpPlace::new(&origin).unwrap().private(), "127.0.0.1").call("http.send", &asked).unwrap();
    assert_eq!(site.received().len(), 1);
}

#[test]
fn a_place_that_is_not_there_was_sent_nothing() {
    let site = Site::answering(text("x"));
    let (place, at) = (site.place().methods(ALL), site.at);
    drop(site);
    assert!(TcpStream::connect(at).is_err(), "nobody listens");
    let web = Web::of([place]);
    let call = format!(r#"{{"url":"http://{at}/","method":"POST","body":"x"}}"#);
    let said = nothing(web.call("http.send", &call));
    assert_eq!(said, "no connection to `127.0.0.1` could be made");
}

#[test]
fn nothing_is_sent_before_the_first_poll() {
    let site = Site::answering(text("x"));
    let web = Web::of([site.place()]);
    let arguments =
        portcullis_canon::Object::from_iter([("url", site.origin()), ("method", "GET".to_owned())]);
    drop(web.http.call(permit_for("http.read", arguments.clone())));
    assert!(site.received().is_empty());
    web.unchecked("http.read", arguments).unwrap();
    assert_eq!(site.received().len(), 1);
}
