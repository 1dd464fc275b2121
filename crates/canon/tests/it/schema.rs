//! Schemas: what is refused before the validator, what violations say, and defaults.

use portcullis_canon::{Limits, Schema, SchemaError, Value, Violation, parse};
use std::time::{Duration, Instant};

fn read(text: &str) -> Value {
    parse(text.as_bytes(), &Limits::BARE).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn compile(text: &str) -> Schema {
    Schema::compile(&read(text)).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn refused(text: &str) -> SchemaError {
    Schema::compile(&read(text)).err().unwrap_or_else(|| panic!("accepted: {text}"))
}

fn broken(schema: &Schema, instance: &str) -> Vec<(String, String)> {
    let violations = schema.check(&read(instance)).unwrap_err();
    violations.iter().map(|Violation { path, rule }| (path.clone(), rule.clone())).collect()
}

fn pair(path: &str, rule: &str) -> (String, String) {
    (path.to_owned(), rule.to_owned())
}

const TOOL: &str = r#"{"type":"object","additionalProperties":false,"required":["path"],
    "properties":{"path":{"type":"string","minLength":1,"pattern":"^[a-z/]+$"},
        "lines":{"type":"integer","minimum":1,"maximum":100,"default":10},
        "mode":{"enum":["text","binary"],"default":"text"},
        "tags":{"type":"array","items":{"type":"string"},"uniqueItems":true}}}"#;

#[test]
fn instances_are_checked() {
    let schema = compile(TOOL);
    assert_eq!(
        schema.check(&read(r#"{"path":"a/b","lines":100,"mode":"binary","tags":["x","y"]}"#)),
        Ok(())
    );
    assert_eq!(schema.check(&read(r#"{"path":"a","lines":1e1}"#)), Ok(()));
    assert_eq!(broken(&schema, "{}"), [pair("/path", "required")]);
    assert_eq!(broken(&schema, "[]"), [pair("", "type")]);
    assert_eq!(broken(&schema, r#"{"path":""}"#).len(), 2);
    assert_eq!(broken(&schema, r#"{"path":"A"}"#), [pair("/path", "pattern")]);
    assert_eq!(broken(&schema, r#"{"path":"a","lines":101}"#), [pair("/lines", "maximum")]);
    assert_eq!(broken(&schema, r#"{"path":"a","lines":1.5}"#), [pair("/lines", "type")]);
    assert_eq!(broken(&schema, r#"{"path":"a","mode":"x"}"#), [pair("/mode", "enum")]);
    assert_eq!(broken(&schema, r#"{"path":"a","tags":["x",1]}"#), [pair("/tags/1", "type")]);
    assert_eq!(broken(&schema, r#"{"path":"a","tags":["x","x"]}"#), [pair("/tags", "uniqueItems")]);
    assert_eq!(broken(&schema, r#"{"path":"a","more":1}"#), [pair("", "additionalProperties")]);
}

#[test]
fn every_draft_is_known_and_no_other_dialect() {
    for dialect in [
        "http://json-schema.org/draft-04/schema#",
        "http://json-schema.org/draft-06/schema#",
        "http://json-schema.org/draft-07/schema#",
        "http://json-schema.org/draft-07/schema",
        "https://json-schema.org/draft/2019-09/schema",
        "https://json-schema.org/draft/2020-12/schema",
    ] {
        let schema = compile(&format!(r#"{{"$schema":"{dialect}","type":"integer"}}"#));
        assert!(
            schema.check(&Value::from(1)).is_ok() && schema.check(&Value::Null).is_err(),
            "{dialect}"
        );
    }
    for dialect in [
        "file:///etc/passwd",
        "http://example.com/schema",
        "http://json-schema.org/draft-08/schema#",
        "",
        "draft-07",
    ] {
        assert_eq!(
            refused(&format!(r#"{{"$schema":"{dialect}"}}"#)),
            SchemaError::Dialect,
            "{dialect}"
        );
    }
    assert_eq!(refused(r#"{"$schema":1}"#), SchemaError::Dialect);
    let below =
        r#"{"properties":{"a":{"$schema":"https://json-schema.org/draft/2020-12/schema"}}}"#;
    assert_eq!(refused(below), SchemaError::Dialect);
    // The dialects differ, so the name is really followed.
    let draft4 = r#"{"$schema":"http://json-schema.org/draft-04/schema#","minimum":1,"exclusiveMinimum":true}"#;
    assert!(compile(draft4).check(&Value::from(1)).is_err());
    assert_eq!(refused(r#"{"minimum":1,"exclusiveMinimum":true}"#), SchemaError::Invalid);
}

#[test]
fn nothing_outside_the_schema_is_referred_to() {
    for reference in [
        "http://127.0.0.1:1/x",
        "file:///etc/passwd",
        "/etc/passwd",
        "other.json",
        "other.json#/a",
        "https://json-schema.org/draft/2020-12/schema",
        "#anchor",
        "urn:x",
        "",
        "?x",
        "//host/x",
        "#%2",
        "#%ff",
    ] {
        for text in [
            format!(r#"{{"$ref":"{reference}"}}"#),
            format!(
                r#"{{"properties":{{"a":{{"items":{{"anyOf":[{{"$ref":"{reference}"}}]}}}}}}}}"#
            ),
            format!(r#"{{"$defs":{{"a":{{"$ref":"{reference}"}}}}}}"#),
            format!(r#"{{"definitions":{{"a":{{"not":{{"$ref":"{reference}"}}}}}}}}"#),
            format!(r##"{{"$ref":"#/odd/a","odd":{{"a":{{"$ref":"{reference}"}}}}}}"##),
        ] {
            assert_eq!(refused(&text), SchemaError::Reference, "{text}");
        }
    }
    assert_eq!(refused(r#"{"$ref":1}"#), SchemaError::Reference);
    for keyword in ["$dynamicRef", "$recursiveRef"] {
        assert_eq!(refused(&format!(r##"{{"items":{{"{keyword}":"#"}}}}"##)), SchemaError::Keyword);
    }
    for id in ["$id", "id"] {
        let text = format!(r#"{{"properties":{{"a":{{"{id}":"http://example.com/a"}}}}}}"#);
        assert_eq!(refused(&text), SchemaError::Keyword);
    }
    assert_eq!(refused(r##"{"$ref":"#/$defs/absent"}"##), SchemaError::Dangling);
    assert_eq!(refused(r##"{"$ref":"#/type","type":"string"}"##), SchemaError::Shape);
}

/// A root that claims to be a dialect's own document must not make `#` mean that document.
#[test]
fn a_root_name_does_not_move_references() {
    for id in [
        "http://json-schema.org/draft-07/schema#",
        "https://json-schema.org/draft/2020-12/schema",
        "http://example.com/x",
        "file:///etc/passwd",
        "x y",
    ] {
        for keyword in ["$id", "id"] {
            let text = format!(
                r##"{{"{keyword}":"{id}","$ref":"#/$defs/a","$defs":{{"a":{{"const":7}}}}}}"##
            );
            let schema = compile(&text);
            assert_eq!(schema.check(&Value::from(7)), Ok(()), "{text}");
            assert!(schema.check(&Value::from(8)).is_err(), "{text}");
        }
    }
}

#[test]
fn data_that_looks_like_a_schema_is_left_alone() {
    let schema = compile(
        r#"{"properties":{"$ref":{"type":"string"},"$id":{"type":"string"},"$schema":{"type":"string"}},
        "const":{"$ref":"http://example.com","$id":"x"},"default":{"$ref":"x"},"examples":[{"$ref":"y"}]}"#,
    );
    assert_eq!(schema.check(&read(r#"{"$ref":"http://example.com","$id":"x"}"#)), Ok(()));
}

#[test]
fn references_inside_the_schema_work() {
    let schema = compile(
        r##"{"$defs":{"a b/c~d":{"type":"integer"}},"items":{"$ref":"#/$defs/a%20b~1c~0d"}}"##,
    );
    assert_eq!(schema.check(&read("[1,2]")), Ok(()));
    assert_eq!(broken(&schema, "[1,null]"), [pair("/1", "type")]);
    let list = compile(
        r##"{"type":"object","properties":{"next":{"$ref":"#"}},"additionalProperties":false}"##,
    );
    let chain = [r#"{"next":"#.repeat(200), "{}".into(), "}".repeat(200)].concat();
    assert_eq!(list.check(&read(&chain)), Ok(()));
    assert_eq!(
        broken(&list, r#"{"next":{"next":{"x":1}}}"#),
        [pair("/next/next", "additionalProperties")]
    );
}

#[test]
fn budgets() {
    assert_eq!(
        refused(&format!("{}{{}}{}", r#"{"not":"#.repeat(32), "}".repeat(32))),
        SchemaError::TooDeep
    );
    compile(&format!("{}{{}}{}", r#"{"not":"#.repeat(31), "}".repeat(31)));
    assert_eq!(
        refused(&format!(r#"{{"title":"{}"}}"#, "x".repeat(64 * 1024))),
        SchemaError::TooLarge
    );
    compile(&format!(r#"{{"title":"{}"}}"#, "x".repeat(64 * 1024 - 12)));
    let many = |count: usize| {
        format!(
            r#"{{"enum":[{}]}}"#,
            (0..count).map(|n| n.to_string()).collect::<Vec<_>>().join(",")
        )
    };
    compile(&many(1_998));
    assert_eq!(refused(&many(1_999)), SchemaError::TooManyNodes);
    let patterns =
        |count: usize| format!(r#"{{"allOf":[{}]}}"#, vec![r#"{"pattern":"a"}"#; count].join(","));
    compile(&patterns(64));
    assert_eq!(refused(&patterns(65)), SchemaError::TooManyPatterns);
    for text in [
        "1",
        "\"x\"",
        "null",
        "[]",
        r#"{"items":1}"#,
        r#"{"allOf":{}}"#,
        r#"{"properties":[]}"#,
        r#"{"not":"x"}"#,
    ] {
        assert_eq!(refused(text), SchemaError::Shape, "{text}");
    }
    for text in [
        r#"{"type":"nothing"}"#,
        r#"{"minLength":-1}"#,
        r#"{"pattern":"("}"#,
        r#"{"pattern":"(?=a)"}"#,
        r#"{"pattern":"(a)\\1"}"#,
        r#"{"required":"a"}"#,
        r#"{"multipleOf":0}"#,
    ] {
        assert_eq!(refused(text), SchemaError::Invalid, "{text}");
    }
    assert!(compile("true").check(&Value::Null).is_ok());
    assert!(compile("false").check(&Value::Null).is_err());
}

#[test]
fn patterns_are_bounded_in_memory_and_time() {
    let started = Instant::now();
    assert_eq!(refused(r#"{"pattern":"(\\w{100}){100}"}"#), SchemaError::Invalid);
    let heavy = format!(
        r#"{{"anyOf":[{}]}}"#,
        (0..64).map(|n| format!(r#"{{"pattern":"x{n}\\w{{9}}y"}}"#)).collect::<Vec<_>>().join(",")
    );
    compile(&heavy);
    let schema = compile(r#"{"pattern":"^(a+)+$"}"#);
    let text = "a".repeat(50_000) + "b";
    assert!(schema.check(&Value::from(text)).is_err());
    assert!(started.elapsed() < Duration::from_secs(60));
}

fn ladder(rungs: usize) -> String {
    let rung = |n: usize| {
        let next = format!(r##"{{"$ref":"#/$defs/r{}"}}"##, n + 1);
        format!(r#""r{n}":{{"anyOf":[{next},{next}]}}"#)
    };
    let defs: Vec<String> = (0..rungs).map(rung).collect();
    format!(
        r##"{{"$ref":"#/$defs/r0","$defs":{{{},"r{rungs}":{{"type":"integer"}}}}}}"##,
        defs.join(",")
    )
}

#[test]
fn work_is_bounded() {
    assert_eq!(refused(&ladder(28)), SchemaError::TooMuchWork);
    assert_eq!(refused(&ladder(300)), SchemaError::TooMuchWork);
    let started = Instant::now();
    let schema = compile(&ladder(11));
    assert!(schema.check(&Value::from("x")).is_err());
    assert_eq!(schema.check(&Value::from(1)), Ok(()));
    assert!(started.elapsed() < Duration::from_secs(20));
    for text in [
        r##"{"$ref":"#"}"##,
        r##"{"allOf":[{"$ref":"#"}]}"##,
        r##"{"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},"items":{"$ref":"#/$defs/a"}}"##,
        r##"{"if":{"$ref":"#"}}"##,
        r##"{"dependentSchemas":{"a":{"$ref":"#"}}}"##,
    ] {
        assert_eq!(refused(text), SchemaError::Circle, "{text}");
    }
    let twice = r##"{"allOf":[{"items":{"$ref":"#"}},{"items":{"$ref":"#"}}]}"##;
    assert_eq!(refused(twice), SchemaError::TooMuchWork);
}

/// Each rung leads to the next by two names: few evaluations at a place, though many paths.
#[test]
fn paths_that_part_by_name_compile_quickly() {
    let rung = |n: usize| {
        let next = format!(r##"{{"$ref":"#/$defs/r{}"}}"##, n + 1);
        format!(r#""r{n}":{{"properties":{{"a":{next},"b":{next}}}}}"#)
    };
    let defs: Vec<String> = (0..100).map(rung).collect();
    let text = format!(
        r##"{{"$ref":"#/$defs/r0","$defs":{{{},"r100":{{"type":"integer"}}}}}}"##,
        defs.join(",")
    );
    let started = Instant::now();
    let schema = compile(&text);
    assert_eq!(schema.check(&read(r#"{"a":{"b":{"a":1}}}"#)), Ok(()));
    assert!(started.elapsed() < Duration::from_secs(20));
}

/// The largest schema that the budget lets through is judged and compiled in bounded time.
#[test]
fn the_worst_admitted_schemas_are_judged_quickly() {
    let started = Instant::now();
    let wide = format!(
        r#"{{"properties":{{{}}}}}"#,
        (0..660).map(|n| format!(r#""p{n}":{{"type":"string"}}"#)).collect::<Vec<_>>().join(",")
    );
    compile(&wide);
    // A long chain in place, each link with a name of its own, that comes back to its start.
    let link = |n: usize| {
        format!(
            r##""l{n}":{{"allOf":[{{"$ref":"#/$defs/l{}"}}],"properties":{{"p{n}":{{"$ref":"#/$defs/l0"}}}}}}"##,
            n + 1
        )
    };
    let chain: Vec<String> = (0..200).map(link).collect();
    let text = format!(r##"{{"$ref":"#/$defs/l0","$defs":{{{},"l200":{{}}}}}}"##, chain.join(","));
    let _ = Schema::compile(&read(&text));
    assert!(started.elapsed() < Duration::from_secs(60), "{:?}", started.elapsed());
}

#[test]
fn numbers_that_no_machine_type_holds_never_reach_the_validator() {
    let schema = compile(
        r#"{"properties":{"a":{"multipleOf":0.01,"minimum":-5,"exclusiveMaximum":1e300}}}"#,
    );
    for number in [
        "1e-10000",
        "0.1e-9999",
        "1e10000",
        "9007199254740993.5",
        "18446744073709551616",
        "0.10000000000000000001",
    ] {
        assert_eq!(
            broken(&schema, &format!(r#"{{"a":{number}}}"#)),
            [pair("/a", "number")],
            "{number}"
        );
        assert_eq!(
            broken(&compile("true"), &format!(r#"{{"x/y":[0,{{"~":{number}}}]}}"#)),
            [pair("/x~1y/1/~0", "number")]
        );
        for keyword in ["minimum", "maximum", "multipleOf", "const", "default", "x-own"] {
            assert_eq!(
                refused(&format!(r#"{{"{keyword}":{number}}}"#)),
                SchemaError::Number,
                "{keyword} {number}"
            );
        }
    }
    assert_eq!(schema.check(&read(r#"{"a":9007199254740993}"#)), Ok(()));
}

/// The extremes that machine types do hold, against each keyword that judges numbers.
#[test]
fn extreme_numbers_do_not_panic() {
    let numbers = [
        "5e-324",
        "-5e-324",
        "1.7976931348623157e308",
        "-9223372036854775808",
        "18446744073709551615",
        "1e-300",
        "0",
        "1e22",
        "0.1",
    ];
    for limit in numbers {
        for keyword in
            ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "const"]
        {
            let Ok(schema) =
                Schema::compile(&read(&format!(r#"{{"{keyword}":{limit},"uniqueItems":true}}"#)))
            else {
                assert_eq!(keyword, "multipleOf");
                continue;
            };
            for number in numbers {
                let rules = schema
                    .check(&read(number))
                    .err()
                    .map(|v| v.listed().to_vec())
                    .unwrap_or_default();
                assert!(
                    rules.iter().all(|v| v.rule == keyword),
                    "{keyword} {limit} {number}: {rules:?}"
                );
                let _ = schema.check(&read(&format!("[{number},{limit},[{number}]]")));
            }
        }
    }
}

#[test]
fn violations_are_counted_and_never_carry_the_value() {
    let schema = compile(
        r#"{"items":{"type":"integer"},"additionalProperties":{"enum":[1]},"not":{"const":"s3cret"}}"#,
    );
    let items = vec![r#""s3cret""#; 40].join(",");
    let violations = schema.check(&read(&format!("[{items}]"))).unwrap_err();
    assert_eq!((violations.listed().len(), violations.more()), (16, 24));
    assert!(violations.to_string().ends_with("; and 24 more"));
    for instance in [format!("[{items}]"), r#"{"a":"s3cret"}"#.into(), r#""s3cret""#.into()] {
        let violations = schema.check(&read(&instance)).unwrap_err();
        assert!(!format!("{violations} {violations:?}").contains("s3cret"));
    }
    let many = vec!["null"; 5_000].join(",");
    assert_eq!(schema.check(&read(&format!("[{many}]"))).unwrap_err().more(), 984);
    // A path holds names from the instance: one line, and no longer than its cap.
    let name = format!("\\u001b[2J\\n{}", "x".repeat(5_000));
    let violations = schema.check(&read(&format!(r#"{{"{name}":2}}"#))).unwrap_err();
    let path = &violations.listed()[0].path;
    assert!(path.starts_with("/\\x1B[2J x") && path.len() <= 256, "{path}");
}

#[test]
fn defaults_are_filled_where_properties_say_so() {
    let fill = |schema: &str, instance: &str| {
        compile(schema).fill_defaults(read(instance)).to_canonical_string()
    };
    assert_eq!(fill(TOOL, r#"{"path":"a"}"#), r#"{"lines":10,"mode":"text","path":"a"}"#);
    assert_eq!(fill(TOOL, r#"{"lines":3,"mode":null}"#), r#"{"lines":3,"mode":null}"#);
    assert_eq!(fill(TOOL, "[1]"), "[1]");
    let nested = r#"{"properties":{"o":{"properties":{"x":{"default":1}}},"d":{"default":{},"properties":{"y":{"default":[2]}}},
        "l":{"items":{"properties":{"z":{"default":null}}}}}}"#;
    assert_eq!(
        fill(nested, r#"{"l":[{},{"z":1},3],"o":{}}"#),
        r#"{"d":{"y":[2]},"l":[{"z":null},{"z":1},3],"o":{"x":1}}"#
    );
    // An absent object is not invented, and combinators are not looked into.
    assert_eq!(fill(nested, "{}"), r#"{"d":{"y":[2]}}"#);
    assert_eq!(
        fill(r#"{"allOf":[{"properties":{"a":{"default":1}}}],"default":{"b":2}}"#, "{}"),
        "{}"
    );
    assert_eq!(
        fill(
            r#"{"items":[{"properties":{"a":{"default":1}}}],"$schema":"http://json-schema.org/draft-07/schema#"}"#,
            "[{}]"
        ),
        "[{}]"
    );
    let schema = compile(nested);
    let once = schema.fill_defaults(read(r#"{"l":[{}]}"#));
    assert_eq!(schema.fill_defaults(once.clone()), once);
}

/// Lists in the defaults of list items multiply: five levels of a hundred would be 10^10 items.
#[test]
fn defaults_that_multiply_are_left_out() {
    let level = |inner: &str, count: usize| {
        let items = vec!["{}"; count].join(",");
        format!(r#"{{"properties":{{"a":{{"default":[{items}],"items":{inner}}}}}}}"#)
    };
    let nested = |count: usize| (0..5).fold("{}".to_owned(), |inner, _| level(&inner, count));
    let schema = compile(&nested(100));
    assert_eq!(schema.fill_defaults(read("{}")), read("{}"));
    // The control: the same levels with few items are filled.
    let filled = compile(&nested(2)).fill_defaults(read("{}"));
    assert_eq!(filled.to_canonical_string().matches("\"a\"").count(), 1 + 2 + 4 + 8 + 16);
    let long =
        format!(r#"{{"items":{{"properties":{{"a":{{"default":"{}"}}}}}}}}"#, "x".repeat(60_000));
    let (few, many) = (vec!["{}"; 17].join(","), vec!["{}"; 18].join(","));
    assert_ne!(compile(&long).fill_defaults(read(&format!("[{few}]"))), read(&format!("[{few}]")));
    assert_eq!(
        compile(&long).fill_defaults(read(&format!("[{many}]"))),
        read(&format!("[{many}]"))
    );
}
