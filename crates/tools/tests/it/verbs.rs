//! Every verb on ordinary files.

use std::fs;

use portcullis_canon::{Limits, Value, parse};
use portcullis_tools::files::{MAX_ENTRIES, MAX_FILE_BYTES, MAX_MATCHES, MAX_READ_BYTES};

use crate::bench::{Bench, digest, names};

#[track_caller]
fn is(value: &Value, expected: &str) {
    assert_eq!(*value, parse(expected.as_bytes(), &Limits::BARE).unwrap());
}

#[test]
fn list_gives_name_kind_and_size_in_order() {
    let bench = Bench::new();
    bench.put("b.txt", "12345");
    bench.put("a/inner.txt", "x");
    std::os::unix::fs::symlink("/etc/passwd", bench.inside.join("c")).unwrap();
    is(
        &bench.ok("files.list", "{}"),
        r#"{"path":".","cut":false,"entries":[
            {"name":"a","kind":"directory"},
            {"name":"b.txt","kind":"file","size":5},
            {"name":"c","kind":"link"}]}"#,
    );
    assert_eq!(bench.ok("files.list", r#"{"path":""}"#), bench.ok("files.list", r#"{"path":"."}"#));
    assert_eq!(names(&bench.ok("files.list", r#"{"path":"a"}"#)), ["inner.txt"]);
    assert_eq!(bench.no("files.list", r#"{"path":"d"}"#), "`d` does not exist");
    assert_eq!(bench.no("files.list", r#"{"path":"b.txt"}"#), "`b.txt` is not a directory");
}

#[test]
fn a_long_listing_is_cut_and_says_so() {
    let bench = Bench::new();
    for n in 0..MAX_ENTRIES {
        bench.put(&format!("{n:04}"), "");
    }
    let whole = bench.ok("files.list", "{}");
    assert_eq!((names(&whole).len(), whole.get("cut")), (MAX_ENTRIES, Some(&Value::from(false))));
    bench.put("0000a", "");
    let cut = bench.ok("files.list", "{}");
    assert_eq!((names(&cut).len(), cut.get("cut")), (MAX_ENTRIES, Some(&Value::from(true))));
    assert_eq!(names(&cut)[..3], ["0000", "0000a", "0001"]);
}

#[test]
fn read_gives_text_with_size_and_digest_of_the_whole() {
    let bench = Bench::new();
    bench.put("a.txt", "héllo\n");
    let digest = digest("héllo\n");
    is(
        &bench.ok("files.read", r#"{"path":"a.txt"}"#),
        &format!(
            r#"{{"path":"a.txt","size":7,"digest":"{digest}","encoding":"utf8","offset":0,"content":"héllo\n"}}"#
        ),
    );
    is(
        &bench.ok("files.read", r#"{"path":"a.txt","offset":1,"limit":2}"#),
        &format!(
            r#"{{"path":"a.txt","size":7,"digest":"{digest}","encoding":"utf8","offset":1,"content":"é","next_offset":3}}"#
        ),
    );
    let end = bench.ok("files.read", r#"{"path":"a.txt","offset":100}"#);
    assert_eq!((end.get("content"), end.get("next_offset")), (Some(&Value::from("")), None));
}

#[test]
fn read_gives_anything_else_as_base64() {
    let bench = Bench::new();
    for (content, base64) in [(&b"\xff\x00"[..], "/wA="), (b"a\0", "YQA=")] {
        bench.put("b", content);
        is(
            &bench.ok("files.read", r#"{"path":"b"}"#),
            &format!(
                r#"{{"path":"b","size":2,"digest":"{}","encoding":"base64","offset":0,"content":"{base64}"}}"#,
                digest(content)
            ),
        );
    }
}

#[test]
fn a_large_file_is_read_in_parts_and_a_huge_one_not_at_all() {
    let bench = Bench::new();
    let text = "日本語\n".repeat(200_000);
    bench.put("large", &text);
    let mut read = String::new();
    let mut offset = 0;
    let mut parts = 0;
    loop {
        let part = bench.ok("files.read", &format!(r#"{{"path":"large","offset":{offset}}}"#));
        let content = part.get("content").and_then(Value::as_str).unwrap();
        assert!(content.len() as u64 <= MAX_READ_BYTES);
        read.push_str(content);
        parts += 1;
        match part.get("next_offset").and_then(Value::as_u64) {
            Some(next) => offset = next,
            None => break,
        }
    }
    assert!(parts == 2 && read == text);

    let huge = fs::File::create(bench.inside.join("huge")).unwrap();
    huge.set_len(MAX_FILE_BYTES).unwrap();
    bench.ok("files.read", r#"{"path":"huge","limit":1}"#);
    huge.set_len(MAX_FILE_BYTES + 1).unwrap();
    assert_eq!(
        bench.no("files.read", r#"{"path":"huge"}"#),
        "`huge` holds 16777217 bytes, more than the cap of 16777216"
    );
}

#[test]
fn search_names_file_line_and_text() {
    let bench = Bench::new();
    bench.put("a.txt", "one\nneedle two\r\nthree");
    bench.put("d/b.txt", "NEEDLE (x)\n");
    bench.put("bin", b"needle\0");
    is(
        &bench.ok("files.search", r#"{"text":"needle"}"#),
        r#"{"matches":[{"path":"a.txt","line":2,"text":"needle two"}],"searched":2,"cut":false,
            "skipped":{"binary":1,"too_large":0,"not_plain":0,"unreadable":0}}"#,
    );
    let both = bench.ok("files.search", r#"{"text":"nEEdle","ignore_case":true}"#);
    assert_eq!(both.pointer("/matches/1/path"), Some(&Value::from("d/b.txt")));
    let beneath = bench.ok("files.search", r#"{"text":"NEEDLE","path":"d"}"#);
    assert_eq!(beneath.pointer("/matches/0/path"), Some(&Value::from("d/b.txt")));
    // Literal: nothing of it is a pattern.
    let literal = bench.ok("files.search", r#"{"text":"(x)"}"#);
    assert_eq!(literal.pointer("/matches/0/line"), Some(&Value::from(1_u64)));
    assert_eq!(bench.no("files.search", r#"{"text":"x","path":"no"}"#), "`no` does not exist");
}

#[test]
fn search_is_bounded_in_matches_and_text() {
    let bench = Bench::new();
    bench.put("many", "x\n".repeat(MAX_MATCHES));
    let all = bench.ok("files.search", r#"{"text":"x"}"#);
    assert_eq!(all.get("cut"), Some(&Value::from(false)));
    assert_eq!(all.get("matches").and_then(Value::as_array).unwrap().len(), MAX_MATCHES);
    bench.put("more", "x");
    let cut = bench.ok("files.search", r#"{"text":"x"}"#);
    assert_eq!(cut.get("cut"), Some(&Value::from(true)));
    assert_eq!(cut.get("matches").and_then(Value::as_array).unwrap().len(), MAX_MATCHES);
    bench.put("many", format!("{}{}", "\u{1}".repeat(100_000), "x"));
    let line = bench.ok("files.search", r#"{"text":"x"}"#);
    assert!(line.pointer("/matches/0/text").and_then(Value::as_str).unwrap().len() < 400);
}

#[test]
fn create_writes_a_new_file_and_never_another() {
    let bench = Bench::new();
    let digest = digest("hello");
    is(
        &bench.ok("files.create", r#"{"path":"a.txt","content":"hello"}"#),
        &format!(r#"{{"path":"a.txt","size":5,"digest":"{digest}"}}"#),
    );
    assert_eq!(bench.on_disk("a.txt"), b"hello");
    let taken = "`a.txt` already exists, and nothing is ever overwritten";
    assert_eq!(bench.no("files.create", r#"{"path":"a.txt","content":"other"}"#), taken);
    bench.ok("files.create", r#"{"path":"b","content":"AP8=","encoding":"base64"}"#);
    assert_eq!(bench.on_disk("b"), b"\x00\xff");
    let odd = bench.no("files.create", r#"{"path":"c","content":"AP8","encoding":"base64"}"#);
    assert_eq!(odd, "`content` is not base64 with padding");
    let nowhere = bench.no("files.create", r#"{"path":"no/c","content":""}"#);
    assert_eq!(nowhere, "`no/c` does not exist");
    bench.assert_clean();
}

#[test]
fn replace_names_what_it_replaces() {
    let bench = Bench::new();
    bench.put("a.txt", "one");
    let call = |expect: &str, content: &str| {
        format!(r#"{{"path":"a.txt","expect":"{expect}","content":"{content}"}}"#)
    };
    let stale = bench.no("files.replace", &call(&digest("other"), "two"));
    assert_eq!(stale, "`a.txt` is not, or is no longer, what was expected; read it again");
    // The digest of a read is the one that is asked for.
    let read = bench.ok("files.read", r#"{"path":"a.txt","limit":1}"#);
    let seen = read.get("digest").and_then(Value::as_str).unwrap();
    let written = bench.ok("files.replace", &call(seen, "two"));
    assert_eq!(bench.on_disk("a.txt"), b"two");
    // And that of a write goes on from there.
    let next = written.get("digest").and_then(Value::as_str).unwrap();
    bench.ok("files.replace", &call(next, "three"));
    assert_eq!(bench.on_disk("a.txt"), b"three");
    bench.no("files.replace", &call(next, "four"));
    bench.assert_clean();
}

#[test]
fn move_never_lands_on_a_name_that_is_taken() {
    let bench = Bench::new();
    bench.put("a.txt", "a");
    bench.put("d/b.txt", "b");
    is(
        &bench.ok("files.move", r#"{"from":"a.txt","to":"d/a.txt"}"#),
        r#"{"from":"a.txt","to":"d/a.txt"}"#,
    );
    assert_eq!(bench.on_disk("d/a.txt"), b"a");
    let taken = bench.no("files.move", r#"{"from":"d/a.txt","to":"d/b.txt"}"#);
    assert_eq!(taken, "`d/b.txt` already exists, and nothing is ever overwritten");
    bench.ok("files.move", r#"{"from":"d","to":"e"}"#);
    assert_eq!(bench.on_disk("e/b.txt"), b"b");
    let inside = bench.no("files.move", r#"{"from":"e","to":"e/f"}"#);
    assert_eq!(inside, "`e/f` cannot move into itself");
    let gone = bench.no("files.move", r#"{"from":"d","to":"f"}"#);
    assert_eq!(gone, "`d` does not exist");
}

#[test]
fn make_folder_makes_one_level() {
    let bench = Bench::new();
    is(&bench.ok("files.make_folder", r#"{"path":"d"}"#), r#"{"path":"d"}"#);
    assert!(bench.inside.join("d").is_dir());
    let taken = bench.no("files.make_folder", r#"{"path":"d"}"#);
    assert_eq!(taken, "`d` already exists, and nothing is ever overwritten");
    assert_eq!(bench.no("files.make_folder", r#"{"path":"x/y"}"#), "`x/y` does not exist");
}

#[test]
fn delete_takes_a_file_or_an_empty_folder() {
    let bench = Bench::new();
    bench.put("a.txt", "a");
    bench.put("d/b.txt", "b");
    let changed = format!(r#"{{"path":"a.txt","expect":"{}"}}"#, digest("b"));
    let said = bench.no("files.delete", &changed);
    assert_eq!(said, "`a.txt` is not, or is no longer, what was expected; read it again");
    let right = format!(r#"{{"path":"a.txt","expect":"{}"}}"#, digest("a"));
    is(&bench.ok("files.delete", &right), r#"{"path":"a.txt","deleted":"file"}"#);
    assert!(!bench.inside.join("a.txt").exists());
    let full = bench.no("files.delete", r#"{"path":"d"}"#);
    assert_eq!(full, "`d` is a directory that is not empty");
    bench.ok("files.delete", r#"{"path":"d/b.txt"}"#);
    is(&bench.ok("files.delete", r#"{"path":"d"}"#), r#"{"path":"d","deleted":"directory"}"#);
    assert_eq!(bench.no("files.delete", r#"{"path":"d"}"#), "`d` does not exist");
    bench.assert_clean();
}
