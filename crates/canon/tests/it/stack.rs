//! Deep values on a small stack.

use portcullis_canon::{Limits, Schema, Value, from_value, parse, to_text, to_value};

/// Runs on a thread whose stack is a quarter of what threads get.
fn on_a_small_stack(test: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().stack_size(512 * 1024).spawn(test).unwrap().join().unwrap();
}

fn nested(depth: usize) -> Vec<u8> {
    let half = depth / 2;
    [br#"[{"a":"#.repeat(half), b"1".to_vec(), b"}]".repeat(half)].concat()
}

#[test]
fn an_envelope_is_parsed_compared_written_and_dropped() {
    on_a_small_stack(|| {
        let value = parse(&nested(272), &Limits::ENVELOPE).unwrap();
        assert_eq!(value.depth(), 272);
        let copy = value.clone();
        assert_eq!(copy, value);
        assert_eq!(copy.to_canonical(), nested(272));
        assert!(format!("{value:?}").len() > 272);
    });
}

#[test]
fn an_envelope_passes_the_bridge_and_a_level_more_does_not() {
    on_a_small_stack(|| {
        let value = parse(&nested(272), &Limits::ENVELOPE).unwrap();
        assert_eq!(from_value::<Value>(&value).unwrap(), value);
        assert_eq!(to_value(&value).unwrap(), value);
        assert_eq!(to_text(&value).unwrap(), value.to_canonical_string());
        let deeper = vec![value];
        assert_eq!(to_value(&deeper).unwrap_err(), to_text(&deeper).unwrap_err());
    });
}

#[test]
fn a_million_brackets_are_refused_without_a_deep_stack() {
    on_a_small_stack(|| {
        assert!(parse(&b"[".repeat(1_000_000), &Limits::BARE).is_err());
        assert!(parse(&br#"{"a":"#.repeat(1_000_000), &Limits::BARE).is_err());
        let deep = Limits { max_depth: u32::MAX, ..Limits::BARE };
        // With the depth check out of the way the parser itself still does not recurse.
        assert!(parse(&b"[".repeat(1_000_000), &deep).is_err());
    });
}

#[test]
fn a_schema_refuses_what_is_too_deep_before_it_looks() {
    let mut deep = Value::Null;
    for _ in 0..1_000 {
        deep = Value::Array(vec![deep]);
    }
    let schema = Schema::compile(&parse(b"{}", &Limits::BARE).unwrap()).unwrap();
    let refused = schema.check(&deep).unwrap_err();
    assert_eq!(refused.listed()[0].rule, "depth");
    assert!(Schema::compile(&deep).is_err());
    assert_eq!(deep.depth(), 1_000);
    assert_eq!(deep.to_canonical().len(), 2_004);
}

/// A schema that follows the instance all the way down, in a thread of the usual size.
#[test]
fn a_schema_follows_an_envelope_to_its_end() {
    std::thread::Builder::new()
        .stack_size(2 * 1024 * 1024)
        .spawn(|| {
            let text = br##"{"anyOf":[{"type":["object","array"]},{"type":"number"}],
                "items":{"$ref":"#"},"additionalProperties":{"$ref":"#"}}"##;
            let schema = Schema::compile(&parse(text, &Limits::BARE).unwrap()).unwrap();
            let fits = parse(&nested(272), &Limits::ENVELOPE).unwrap();
            assert_eq!(schema.check(&fits), Ok(()));
            let broken = parse(
                &[br#"[{"a":"#.repeat(136), b"null".to_vec(), b"}]".repeat(136)].concat(),
                &Limits::ENVELOPE,
            );
            assert_eq!(schema.check(&broken.unwrap()).unwrap_err().listed()[0].rule, "anyOf");
        })
        .unwrap()
        .join()
        .unwrap();
}
