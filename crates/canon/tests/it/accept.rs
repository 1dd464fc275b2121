//! What the parser accepts, what it refuses, and under which name.

use crate::vectors::{rows, text, unhex};
use portcullis_canon::{Fault, Limits, Value, parse};

/// Compares the answer to one document with what a vector wants: `accept`, `refuse` or a fault.
fn check(name: &str, want: &str, input: &[u8]) {
    match (parse(input, &Limits::BARE), want) {
        (Ok(value), "accept") => {
            let canonical = value.to_canonical();
            let again = parse(&canonical, &Limits::BARE)
                .unwrap_or_else(|error| panic!("{name}: own bytes refused: {error}"));
            assert_eq!(again, value, "{name}");
            assert_eq!(again.to_canonical(), canonical, "{name}");
        }
        (Ok(_), want) => panic!("{name}: accepted, want {want}"),
        (Err(error), "refuse") => {
            // A malformed text is one whatever its fault is called, but never one of these.
            let stricter = [Fault::TooDeep, Fault::TooLarge, Fault::DuplicateKey];
            assert!(!stricter.contains(&error.fault), "{name}: {error}");
            assert!(error.offset <= input.len(), "{name}");
        }
        (Err(error), want) => {
            assert_eq!(error.fault.name(), want, "{name}: {error}");
            assert!(error.offset <= input.len(), "{name}");
        }
    }
}

#[test]
fn acceptance_table() {
    for row in rows("acceptance.jsonl", 150) {
        let repeated = |parts: &serde_json::Value, bytes: fn(&str) -> Vec<u8>| -> Vec<u8> {
            let parts = parts.as_array().unwrap().iter();
            parts
                .flat_map(|part| {
                    let count = usize::try_from(part[1].as_u64().unwrap()).unwrap();
                    bytes(part[0].as_str().unwrap()).repeat(count)
                })
                .collect()
        };
        let input = match row.get("hex") {
            Some(hex) => repeated(hex, unhex),
            None => repeated(&row["parts"], |text| text.as_bytes().to_vec()),
        };
        check(text(&row, "name"), text(&row, "want"), &input);
    }
}

#[test]
fn public_parsing_suite() {
    let mut counts = [0, 0];
    for row in rows("json_test_suite.jsonl", 290) {
        let want = text(&row, "want");
        check(text(&row, "name"), want, text(&row, "input").as_bytes());
        counts[usize::from(want == "accept")] += 1;
    }
    // The two cases of the suite that are left out of the file for their size.
    check("n_structure_100000_opening_arrays", "too_deep", &b"[".repeat(100_000));
    check("n_structure_open_array_object", "too_deep", &b"[{\"\":".repeat(50_000));
    assert!(counts[0] > 150 && counts[1] > 90, "{counts:?}");
}

#[test]
fn canonical_text() {
    for row in rows("canonical.jsonl", 11) {
        let name = text(&row, "name");
        let value = parse(text(&row, "input").as_bytes(), &Limits::BARE).unwrap();
        assert_eq!(value.to_canonical_string(), text(&row, "canonical"), "{name}");
        check(name, "accept", text(&row, "canonical").as_bytes());
    }
}

#[test]
fn limits_are_inclusive() {
    let limits = Limits::BARE.with_max_bytes(4);
    assert!(parse(b"1234", &limits).is_ok());
    let error = parse(b"12345", &limits).unwrap_err();
    assert_eq!((error.fault, error.offset), (Fault::TooLarge, 4));
    // Size comes before everything, even before bytes that are no text.
    assert_eq!(parse(b"\xFF\xFF\xFF\xFF\xFF", &limits).unwrap_err().fault, Fault::TooLarge);
    for (limits, depth) in [(Limits::BARE, 256), (Limits::ENVELOPE, 272)] {
        let nested = |depth: usize| [b"[".repeat(depth), b"]".repeat(depth)].concat();
        assert_eq!(parse(&nested(depth), &limits).unwrap().depth(), u32::try_from(depth).unwrap());
        let error = parse(&nested(depth + 1), &limits).unwrap_err();
        assert_eq!((error.fault, error.offset), (Fault::TooDeep, depth));
    }
    assert_eq!(
        parse(&vec![b' '; Limits::BARE.max_bytes + 1], &Limits::BARE).unwrap_err().fault,
        Fault::TooLarge
    );
}

#[test]
fn offsets_point_at_the_fault() {
    let offset = |input: &str| parse(input.as_bytes(), &Limits::BARE).unwrap_err().offset;
    assert_eq!(offset("[1,]"), 3);
    assert_eq!(offset("[1, x]"), 4);
    assert_eq!(offset("{\"a\":1,\"a\":2}"), 12);
    assert_eq!(offset("\"ab\\q\""), 4);
    assert_eq!(offset("\"\\ud800\""), 3);
    assert_eq!(offset("[1e99999]"), 1);
    assert_eq!(offset("[1"), 2);
    assert_eq!(offset("nul"), 3);
    assert_eq!(offset("01"), 1);
    assert_eq!(parse(b"\"a\xFF\"", &Limits::BARE).unwrap_err().offset, 2);
}

#[test]
fn an_error_never_repeats_what_stood_there() {
    for input in
        ["\"s3cret", "{\"s3cret\":1,\"s3cret\":2}", "[s3cret]", "\"s3cret\\ud800\"", "1 s3cret"]
    {
        let error = parse(input.as_bytes(), &Limits::BARE).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("s3cret"), "{input}");
    }
}

#[test]
fn equality_is_that_of_the_canonical_bytes() {
    let read = |text: &str| parse(text.as_bytes(), &Limits::BARE).unwrap();
    assert_eq!(read(r#"{"a":1,"b":[1.0,"x"]}"#), read(r#"{ "b":[1e0,"\u0078"], "a":10e-1 }"#));
    assert_ne!(read("[1,2]"), read("[2,1]"));
    assert_ne!(read("1"), read("\"1\""));
    assert_ne!(read("9007199254740992"), read("9007199254740993"));
    assert_ne!(read("{}"), read("[]"));
    assert_ne!(read("null"), read("{\"a\":null}"));
}

#[test]
fn pointers_name_places() {
    // The document of RFC 6901, section 5.
    let text = r#"{"foo":["bar","baz"],"":0,"a/b":1,"c%d":2,"e^f":3,"g|h":4,"i\\j":5,"k\"l":6," ":7,"m~n":8}"#;
    let value = parse(text.as_bytes(), &Limits::BARE).unwrap();
    let at = |pointer: &str| value.pointer(pointer).map(Value::to_canonical_string);
    assert_eq!(at("").unwrap(), value.to_canonical_string());
    assert_eq!(at("/foo").as_deref(), Some(r#"["bar","baz"]"#));
    for (pointer, want) in [
        ("/foo/0", "\"bar\""),
        ("/", "0"),
        ("/a~1b", "1"),
        ("/c%d", "2"),
        ("/e^f", "3"),
        ("/g|h", "4"),
        ("/i\\j", "5"),
        ("/k\"l", "6"),
        ("/ ", "7"),
        ("/m~0n", "8"),
    ] {
        assert_eq!(at(pointer).as_deref(), Some(want), "{pointer}");
    }
    for pointer in [
        "foo", "/foo/2", "/foo/00", "/foo/-", "/foo/+1", "/foo/", "/m~n", "/m~2n", "/m~",
        "/foo/0/x", "/absent",
    ] {
        assert_eq!(at(pointer), None, "{pointer}");
    }
}

#[test]
fn objects_keep_one_entry_a_key() {
    use portcullis_canon::Object;
    let mut object = Object::new();
    assert_eq!(object.insert("b", 1), None);
    assert_eq!(object.insert("a", true), None);
    assert_eq!(object.insert("b", "x"), Some(Value::from(1)));
    assert_eq!(object.keys().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!((object.len(), object.is_empty(), object.contains_key("a")), (2, false, true));
    assert_eq!(object.remove("a"), Some(Value::Bool(true)));
    assert_eq!(object.remove("a"), None);
    *object.get_mut("b").unwrap() = Value::Null;
    assert_eq!(Value::from(object).to_canonical_string(), r#"{"b":null}"#);
    let collected: Object =
        [("x", 1), ("\u{10000}", 2), ("x", 3), ("\u{E000}", 4), ("x", 5)].into_iter().collect();
    assert_eq!(
        Value::from(collected).to_canonical_string(),
        "{\"x\":5,\"\u{10000}\":2,\"\u{E000}\":4}"
    );
}
