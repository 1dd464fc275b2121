//! What the HTTP tools send, and what they give.

use std::io::Write as _;

use portcullis_canon::{Object, Schema, Value};
use portcullis_domain::label::{Labels, Origin};
use portcullis_domain::ports::ToolSource as _;
use portcullis_egress::Method;

use crate::bench::nothing;
use crate::web::{ALL, KEY, Site, Web, answer, rules, text, unknown};

fn at<'v>(value: &'v Value, pointer: &str) -> &'v str {
    value.pointer(pointer).and_then(Value::as_str).unwrap()
}

#[test]
fn a_page_is_read_with_those_headers_that_are_handed_out() {
    let headers =
        "content-type: text/html\r\nset-cookie: a=b\r\nx-secret: c\r\nETag: \"v1\"\r\netag: 2\r\n";
    let site = Site::answering(answer("200 OK", headers, "grüße\r\n"));
    let web = Web::of([site.place()]);
    let url = site.origin() + "/a/b?c=%20d";
    let result = web.ok("http.read", &format!(r#"{{"url":"{url}","accept":"text/html, */*"}}"#));
    assert_eq!(result.get("status").and_then(Value::as_u64), Some(200));
    assert_eq!((at(&result, "/encoding"), at(&result, "/content")), ("utf8", "grüße\r\n"));
    let kept: Vec<&str> =
        result.get("headers").and_then(Value::as_object).unwrap().keys().collect();
    assert_eq!(kept, ["content-type", "etag"]);
    assert_eq!(at(&result, "/headers/etag"), "\"v1\"");
    assert!(result.get("cut").is_none());
    let [seen] = site.received().try_into().unwrap();
    assert_eq!(seen.line(), "GET /a/b?c=%20d HTTP/1.1");
    assert_eq!(seen.header("accept"), Some("text/html, */*"));
    assert_eq!(seen.header("accept-encoding"), Some("identity"));
    assert!(seen.header("user-agent").unwrap().starts_with("portcullis/"));
    assert_eq!(seen.header("authorization"), None);
}

#[test]
fn further_headers_are_handed_out_when_the_operator_names_them() {
    let site = Site::answering(answer("200 OK", "x-rate: 7\r\nx-other: 8\r\n", ""));
    let named = rules([site.place()]).headers(["X-Rate"]).unwrap();
    let web = Web::under(named, portcullis_egress::Credentials::none());
    let result = web.ok("http.read", &format!(r#"{{"url":"{}"}}"#, site.origin()));
    assert_eq!(at(&result, "/headers/x-rate"), "7");
    assert!(result.pointer("/headers/x-other").is_none());
}

#[test]
fn what_is_no_text_comes_as_base64_whatever_it_is_called() {
    let site = Site::answering(answer("200 OK", "content-type: text/plain\r\n", b"a\0\xff"));
    let result = Web::of([site.place()]);
    let result = result.ok("http.read", &format!(r#"{{"url":"{}"}}"#, site.origin()));
    assert_eq!((at(&result, "/encoding"), at(&result, "/content")), ("base64", "YQD/"));
}

#[test]
fn an_answer_is_from_its_host_and_an_error_is_an_answer() {
    let site = Site::answering(answer("404 Not Found", "", "no such page"));
    let web = Web::of([site.place().methods(ALL)]);
    for output in [web.get(&site, "/"), web.post(&site, "x")] {
        let output = output.unwrap();
        assert_eq!(output.labels, Some(Labels::of(Origin::external("127.0.0.1"))));
        let said = String::from_utf8(output.content).unwrap();
        assert!(said.contains("404") && said.contains("no such page"), "{said}");
    }
}

#[test]
fn only_the_headers_of_a_page_are_asked_for() {
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 99999999\r\nconnection: close\r\n\r\n";
    let site = Site::answering(head);
    let web = Web::of([site.place()]);
    let asked = format!(r#"{{"url":"{}/","method":"HEAD"}}"#, site.origin());
    assert_eq!(at(&web.ok("http.read", &asked), "/content"), "");
    assert_eq!(site.received()[0].line(), "HEAD / HTTP/1.1");
}

#[test]
fn a_request_is_sent_as_it_is_asked_for_with_the_key_of_its_place() {
    let site = Site::answering(answer("201 Created", "location: /7\r\n", "{}"));
    let web = Web::with_key(&site);
    let url = site.origin() + "/things";
    let call = |more: &str| web.ok("http.send", &format!(r#"{{"url":"{url}",{more}}}"#));
    let result = call(r#""method":"POST","body":"{\"a\":1}""#);
    assert_eq!(at(&result, "/headers/location"), "/7");
    call(r#""method":"PUT","body":"AP8=","encoding":"base64","content_type":"image/png""#);
    call(r#""method":"POST""#);
    call(r#""method":"DELETE""#);
    let seen = site.received();
    let lines: Vec<&str> = seen.iter().map(|seen| seen.line().split(' ').next().unwrap()).collect();
    assert_eq!(lines, ["POST", "PUT", "POST", "DELETE"]);
    assert_eq!(
        (seen[0].body.as_slice(), seen[1].body.as_slice()),
        (&b"{\"a\":1}"[..], &b"\0\xff"[..])
    );
    let types: Vec<_> = seen.iter().map(|seen| seen.header("content-type")).collect();
    assert_eq!(types, [Some("application/json"), Some("image/png"), None, None]);
    let lengths: Vec<_> = seen.iter().map(|seen| seen.header("content-length")).collect();
    assert_eq!(lengths, [Some("7"), Some("2"), Some("0"), None]);
    let bearer = format!("Bearer {KEY}");
    assert!(seen.iter().all(|seen| seen.header("authorization") == Some(bearer.as_str())));
    assert!(seen.iter().all(|seen| seen.header("idempotency-key").is_none()));
    assert!(!format!("{:?} {:?}", web.http, web.http.specs()).contains(KEY));
}

#[test]
fn a_key_goes_only_to_a_place_that_keeps_keys() {
    let (plain, keeps) = (Site::answering(text("a")), Site::answering(text("b")));
    let keyed = keeps.place().methods([Method::Post, Method::Get]);
    let keyed = keyed.keeps_keys("Idempotency-Key").unwrap();
    let web = Web::of([plain.place().methods(ALL), keyed]);
    web.ok("http.send_keyed", &format!(r#"{{"url":"{}/","method":"POST"}}"#, keeps.origin()));
    let sent = keeps.received();
    assert_eq!(sent[0].header("idempotency-key"), Some("ab".repeat(32).as_str()));
    // Reading needs none.
    web.get(&keeps, "/").unwrap();
    assert_eq!(keeps.received()[1].header("idempotency-key"), None);
    // Neither tool goes to the places of the other, not even without the schema that says so.
    let key = "ab".repeat(32);
    let call = |tool: &str, site: &Site, key: Option<&str>| {
        let url = site.origin() + "/";
        let mut arguments = Object::from_iter([("url", url.as_str()), ("method", "POST")]);
        key.map(|key| arguments.insert("idempotency_key", key));
        nothing(web.unchecked(tool, arguments))
    };
    call("http.send", &keeps, None);
    call("http.send", &keeps, Some(&key));
    call("http.send_keyed", &plain, Some(&key));
    call("http.send_keyed", &keeps, None);
    call("http.send_keyed", &keeps, Some("x\r\ny: z"));
    call("http.send", &plain, Some(&key));
    assert_eq!((plain.received().len(), keeps.received().len()), (0, 2));
}

#[test]
fn the_schema_and_the_tool_name_the_same_urls() {
    let site = Site::answering(text("x"));
    let web =
        Web::of([site.place(), portcullis_tools::HttpPlace::new("https://a.example").unwrap()]);
    let spec = web.http.specs().remove(0);
    let schema = Schema::compile(&spec.input_schema).unwrap();
    let admits = |url: &str| {
        let arguments = Object::from_iter([("url", url), ("method", "GET")]);
        schema.check(&Value::Object(arguments)).is_ok()
    };
    let origin = site.origin();
    for tail in ["", "/", "/a?b", "?b=%20", "/a/b.c~;=@:!$&'()*+,[]"] {
        assert!(admits(&format!("{origin}{tail}")) && admits(&format!("https://a.example{tail}")));
    }
    for other in [
        "https://b.example/",
        "http://a.example/",
        "https://a.example.b.example/",
        "https://aXexample/",
        "https://a.example:8443/",
        "https://u@a.example/",
        "https://a.example@b.example/",
        "https://a.example/#x",
        "https://a.example/\\x",
        "https://a.example/ x",
        "https://a.example/\u{e9}",
        "https://A.example/",
        "x https://a.example/",
    ] {
        assert!(!admits(other), "{other}");
        let call = |url: &str| {
            web.unchecked("http.read", Object::from_iter([("url", url), ("method", "GET")]))
        };
        nothing(call(other));
    }
    assert!(site.received().is_empty());
}

#[test]
fn an_answer_that_leaves_open_whether_it_acted_is_unknown() {
    for status in ["408", "500", "503", "504"] {
        let site = Site::answering(answer(&format!("{status} Sorry"), "", "sorry"));
        let web = Web::of([site.place().methods(ALL)]);
        let said = unknown(web.post(&site, "x"));
        assert!(said.starts_with("`127.0.0.1` answered ") && said.contains(status), "{said}");
        // To a reader it is an answer.
        assert!(web.get(&site, "/").is_ok());
    }
    for status in ["409 Conflict", "429 Slow Down"] {
        let site = Site::answering(answer(status, "retry-after: 3\r\n", "no"));
        assert!(Web::of([site.place().methods(ALL)]).post(&site, "x").is_ok());
    }
}

#[test]
fn a_place_is_asked_with_its_own_methods_only() {
    let (a, b) = (Site::answering(text("a")), Site::answering(text("b")));
    let web = Web::of([a.place().methods([Method::Post]), b.place().methods([Method::Delete])]);
    let send = |site: &Site, method: &str| {
        web.call("http.send", &format!(r#"{{"url":"{}/","method":"{method}"}}"#, site.origin()))
    };
    let said = nothing(send(&a, "DELETE"));
    assert!(said.ends_with("is not asked by `http.send` with DELETE"), "{said}");
    nothing(send(&b, "POST"));
    send(&a, "POST").unwrap();
    send(&b, "DELETE").unwrap();
    assert_eq!((a.received().len(), b.received().len()), (1, 1));
}

#[test]
fn one_call_is_one_request() {
    // A server that closes without an answer is not asked again.
    let site = Site::acting(|_, stream| {
        let _ = stream.flush();
    });
    let web = Web::of([site.place().methods(ALL)]);
    nothing(web.get(&site, "/"));
    unknown(web.post(&site, "x"));
    assert_eq!(site.received().len(), 2);
}
