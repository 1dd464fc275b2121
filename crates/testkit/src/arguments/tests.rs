//! Each keyword that `canon` supports is kept by what is valid and broken alone by what nearly is.

use portcullis_canon::parse;

use super::*;

fn read(text: &str) -> Value {
    parse(text.as_bytes(), &Limits::BARE).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Keywords that values break, the name under which that is told, and a schema in which each can be broken alone.
const KEYWORDS: &[(&str, &str, &str)] = &[
    ("type", "type", r#"{"type":"object","properties":{"a":{"type":["integer","null"]}}}"#),
    (
        "enum",
        "enum",
        r#"{"properties":{"a":{"enum":["x","y",3]}},"required":["a"],"type":"object"}"#,
    ),
    (
        "const",
        "const",
        r#"{"properties":{"a":{"const":{"b":[1]}}},"required":["a"],"type":"object"}"#,
    ),
    (
        "multipleOf",
        "multipleOf",
        r#"{"items":{"type":"number","multipleOf":2.5},"type":"array","minItems":1}"#,
    ),
    ("maximum", "maximum", r#"{"type":"number","maximum":7}"#),
    ("minimum", "minimum", r#"{"type":"integer","minimum":-3}"#),
    ("exclusiveMaximum", "exclusiveMaximum", r#"{"type":"integer","exclusiveMaximum":100}"#),
    ("exclusiveMinimum", "exclusiveMinimum", r#"{"type":"number","exclusiveMinimum":0}"#),
    ("maxLength", "maxLength", r#"{"type":"string","maxLength":4}"#),
    ("minLength", "minLength", r#"{"type":"string","minLength":2,"maxLength":9}"#),
    ("pattern", "pattern", r#"{"type":"string","pattern":"^[a-z]{2,4}-\\d+$"}"#),
    ("maxItems", "maxItems", r#"{"type":"array","maxItems":3}"#),
    ("minItems", "minItems", r#"{"type":"array","minItems":2,"items":{"type":"boolean"}}"#),
    (
        "uniqueItems",
        "uniqueItems",
        r#"{"type":"array","uniqueItems":true,"items":{"type":"integer"}}"#,
    ),
    ("contains", "contains", r#"{"type":"array","contains":{"const":"x"}}"#),
    ("minContains", "contains", r#"{"type":"array","contains":{"const":"x"},"minContains":2}"#),
    ("maxContains", "contains", r#"{"type":"array","contains":{"const":"x"},"maxContains":2}"#),
    ("maxProperties", "maxProperties", r#"{"type":"object","maxProperties":3}"#),
    ("minProperties", "minProperties", r#"{"type":"object","minProperties":2}"#),
    ("required", "required", r#"{"type":"object","required":["a","b"]}"#),
    (
        "dependentRequired",
        "required",
        r#"{"type":"object","properties":{"a":{}},"dependentRequired":{"a":["b"]}}"#,
    ),
    (
        "additionalProperties",
        "additionalProperties",
        r#"{"type":"object","properties":{"a":{}},"additionalProperties":false}"#,
    ),
    (
        "propertyNames",
        "propertyNames",
        r#"{"type":"object","propertyNames":{"pattern":"^[a-z]+$"}}"#,
    ),
    (
        "unevaluatedProperties",
        "unevaluatedProperties",
        r#"{"type":"object","allOf":[{"properties":{"a":{}}}],"unevaluatedProperties":false}"#,
    ),
    (
        "unevaluatedItems",
        "unevaluatedItems",
        r#"{"type":"array","prefixItems":[{"type":"integer"}],"unevaluatedItems":false}"#,
    ),
    ("not", "not", r#"{"type":"string","not":{"const":"x"}}"#),
    (
        "anyOf",
        "anyOf",
        r#"{"anyOf":[{"maxLength":2,"type":"string"},{"minimum":5,"type":"integer"}]}"#,
    ),
    ("oneOf", "oneOf", r#"{"type":"integer","oneOf":[{"minimum":5},{"multipleOf":3}]}"#),
    (
        "format",
        "format",
        r#"{"$schema":"http://json-schema.org/draft-07/schema#","type":"string","format":"date"}"#,
    ),
    (
        "contentEncoding",
        "contentEncoding",
        r#"{"$schema":"http://json-schema.org/draft-07/schema#","type":"string","contentEncoding":"base64"}"#,
    ),
    (
        "additionalItems",
        "additionalItems",
        r#"{"$schema":"http://json-schema.org/draft-07/schema#","type":"array","items":[{"type":"integer"}],"additionalItems":false}"#,
    ),
    (
        "dependencies",
        "required",
        r#"{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"a":{}},"dependencies":{"a":["b"]}}"#,
    ),
    (
        "exclusiveMinimum of draft 4",
        "exclusiveMinimum",
        r#"{"$schema":"http://json-schema.org/draft-04/schema#","type":"integer","minimum":3,"exclusiveMinimum":true}"#,
    ),
];

/// Keywords that hold other schemas: what those hold is broken, wherever it stands.
const HOLDERS: &[(&str, &str, &str)] = &[
    (
        "properties",
        "minimum",
        r#"{"type":"object","properties":{"a":{"minimum":1,"type":"integer"}},"required":["a"]}"#,
    ),
    (
        "patternProperties",
        "minimum",
        r#"{"type":"object","patternProperties":{"^x+$":{"type":"integer","minimum":1}},"minProperties":1}"#,
    ),
    (
        "additionalProperties",
        "maxLength",
        r#"{"type":"object","additionalProperties":{"type":"string","maxLength":2},"minProperties":1}"#,
    ),
    (
        "items",
        "maxLength",
        r#"{"type":"array","items":{"type":"string","maxLength":2},"minItems":1}"#,
    ),
    (
        "prefixItems",
        "minimum",
        r#"{"type":"array","prefixItems":[{"type":"integer","minimum":1}],"minItems":1}"#,
    ),
    (
        "items false",
        "falseSchema",
        r#"{"type":"array","prefixItems":[{"type":"integer"}],"items":false}"#,
    ),
    ("allOf", "maximum", r#"{"type":"integer","allOf":[{"minimum":1},{"maximum":3}]}"#),
    (
        "if and then",
        "maximum",
        r#"{"type":"integer","if":{"minimum":10},"then":{"maximum":12},"else":{"multipleOf":2}}"#,
    ),
    (
        "else",
        "multipleOf",
        r#"{"type":"integer","if":{"minimum":10},"then":{"maximum":12},"else":{"multipleOf":2}}"#,
    ),
    (
        "dependentSchemas",
        "required",
        r#"{"type":"object","properties":{"a":{}},"dependentSchemas":{"a":{"required":["b"]}}}"#,
    ),
    (
        "$ref",
        "maximum",
        r##"{"$ref":"#/$defs/small","$defs":{"small":{"type":"integer","maximum":3}}}"##,
    ),
    (
        "recursion",
        "type",
        r##"{"type":"object","properties":{"next":{"$ref":"#"}},"additionalProperties":false}"##,
    ),
    ("false", "falseSchema", r#"{"type":"object","properties":{"a":false}}"#),
];

#[test]
fn every_keyword_is_kept_by_what_is_valid_and_broken_alone_by_what_nearly_is() {
    for (keyword, told, text) in KEYWORDS.iter().chain(HOLDERS) {
        let schema = read(text);
        let compiled = Schema::compile(&schema).unwrap();
        let drawn = draw(&schema, 1).unwrap();
        assert!(!drawn.valid.is_empty(), "{keyword}");
        for valid in &drawn.valid {
            assert_eq!(compiled.check(valid), Ok(()), "{keyword}: {}", valid.to_canonical_string());
        }
        for miss in &drawn.near_misses {
            let broken = compiled.check(&miss.value).unwrap_err();
            let rules: BTreeSet<&str> = broken.iter().map(|one| one.rule.as_str()).collect();
            assert_eq!(rules, BTreeSet::from([miss.keyword.as_str()]), "{keyword}");
        }
        assert!(drawn.near_misses.iter().any(|miss| miss.keyword == *told), "{keyword}: {told}");
        assert_eq!(drawn.missed, BTreeSet::new(), "{keyword}");
    }
}

#[test]
fn bounds_are_met_from_both_sides_and_lengths_are_characters() {
    let lengths = |values: &mut dyn Iterator<Item = &Value>| -> BTreeSet<(usize, usize)> {
        values.filter_map(Value::as_str).map(|text| (text.chars().count(), text.len())).collect()
    };
    let drawn = draw(&read(r#"{"type":"string","minLength":2,"maxLength":4}"#), 3).unwrap();
    let valid = lengths(&mut drawn.valid.iter());
    for at in [(2, 2), (2, 8), (4, 4), (4, 16)] {
        assert!(valid.contains(&at), "{at:?} {valid:?}");
    }
    let near = lengths(&mut drawn.near_misses.iter().map(|miss| &miss.value));
    // One character is too short however many bytes it has; five are too long in as few bytes as can be.
    assert!(near.contains(&(1, 1)) && near.iter().any(|(count, _)| *count == 5), "{near:?}");
    assert!(
        valid
            .iter()
            .chain(&near)
            .all(|(count, _)| (2..=4).contains(count) == valid.iter().any(|v| v.0 == *count))
    );

    let drawn = draw(&read(r#"{"type":"integer","minimum":-3,"maximum":7}"#), 3).unwrap();
    let numbers: BTreeSet<i64> = drawn.valid.iter().filter_map(Value::as_i64).collect();
    assert!(numbers.contains(&-3) && numbers.contains(&7), "{numbers:?}");
    let near: BTreeSet<i64> =
        drawn.near_misses.iter().filter_map(|miss| miss.value.as_i64()).collect();
    assert!(near.contains(&-4) && near.contains(&8), "{near:?}");
}

#[test]
fn raw_texts_are_read_or_refused_as_they_say() {
    let schema = r#"{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}"#;
    for schema in [schema, r#"{"type":"integer"}"#] {
        let drawn = draw(&read(schema), 5).unwrap();
        let taken = drawn.raw.iter().filter(|raw| raw.reads == Reads::Taken).count();
        assert!(taken >= 4 && drawn.raw.len() - taken >= 15, "{taken} of {}", drawn.raw.len());
        for raw in &drawn.raw {
            let read = parse(&raw.bytes, &Limits::BARE);
            assert_eq!(read.is_ok(), raw.reads == Reads::Taken, "{}: {read:?}", raw.name);
        }
    }
    // They stand where a value of the schema has its text.
    let drawn = draw(&read(schema), 5).unwrap();
    let zero = drawn.raw.iter().find(|raw| raw.name == "an escaped zero").unwrap();
    let value = parse(&zero.bytes, &Limits::BARE).unwrap();
    assert_eq!(value.get("a").and_then(Value::as_str), Some("\0"));
}

#[test]
fn a_seed_decides_what_is_drawn() {
    let (_, _, text) = KEYWORDS[9];
    let of = |seed| draw(&read(text), seed).unwrap();
    assert_eq!(of(1), of(1));
    assert_ne!(of(1).valid, of(2).valid);
}

#[test]
fn what_nothing_breaks_is_named_and_what_canon_refuses_is_an_error() {
    let missed = |text: &str| draw(&read(text), 1).unwrap().missed;
    assert_eq!(
        missed(r#"{"type":"integer","anyOf":[true]}"#),
        BTreeSet::from(["anyOf".to_owned()])
    );
    // Nothing is valid, and what breaks `type` breaks `not` as well.
    let nothing = draw(&read(r#"{"type":"integer","not":{}}"#), 1).unwrap();
    assert!(nothing.valid.is_empty());
    assert_eq!(nothing.missed, BTreeSet::from(["type".to_owned()]));
    for text in
        [r##"{"$dynamicRef":"#"}"##, r#"{"$ref":"https://example.org/a"}"#, r#"{"pattern":"("}"#]
    {
        assert!(draw(&read(text), 1).is_err(), "{text}");
    }
}
