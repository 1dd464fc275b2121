//! Wire types through the bridge.

use portcullis_canon::{
    BridgeError, DecodeError, Fault, Limits, Object, Value, from_slice, from_value, parse, to_text,
    to_value, to_vec,
};
use serde::ser::{SerializeMap as _, SerializeSeq as _};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

fn read(text: &str) -> Value {
    parse(text.as_bytes(), &Limits::BARE).unwrap()
}

fn decode<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, DecodeError> {
    from_slice(text.as_bytes(), &Limits::BARE)
}

/// Both ways, and through the bytes.
fn same<T>(value: &T, text: &str)
where
    T: Serialize + serde::de::DeserializeOwned + PartialEq + std::fmt::Debug,
{
    assert_eq!(to_value(value).unwrap().to_canonical_string(), text);
    assert_eq!(to_text(value).unwrap(), text);
    assert_eq!(&from_value::<T>(&to_value(value).unwrap()).unwrap(), value);
    assert_eq!(&from_slice::<T>(&to_vec(value).unwrap(), &Limits::BARE).unwrap(), value);
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    id: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    arguments: Value,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum Tagged {
    Hello { version: u32 },
    Call { wire: Value },
    Bye,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Plain {
    Unit,
    One(i64),
    Two(i64, String),
    Named { a: bool },
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Loose {
    Int(i64),
    Text(String),
    Any(Value),
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Flat {
    id: u32,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Newtype(i64);

#[test]
fn shapes() {
    same(&(), "null");
    same(&true, "true");
    same(&-5_i8, "-5");
    same(&u64::MAX, "18446744073709551615");
    same(&i64::MIN, "-9223372036854775808");
    same(&0.5_f64, "0.5");
    same(&1e300_f64, "1e+300");
    same(&0.1_f32, "0.1");
    same(&'é', "\"é\"");
    same(&String::from("a\"\n"), r#""a\"\n""#);
    same(&Some(1_u8), "1");
    same(&None::<u8>, "null");
    same(&vec![Some(1_u8), None], "[1,null]");
    same(&(1_u8, String::from("x")), r#"[1,"x"]"#);
    same(&Newtype(3), "3");
    same(&Plain::Unit, "\"unit\"");
    same(&Plain::One(1), r#"{"one":1}"#);
    same(&Plain::Two(1, "x".into()), r#"{"two":[1,"x"]}"#);
    same(&Plain::Named { a: true }, r#"{"named":{"a":true}}"#);
    same(&Tagged::Hello { version: 1 }, r#"{"type":"hello","version":1}"#);
    same(&Tagged::Bye, r#"{"type":"bye"}"#);
    same(&Loose::Int(1), "1");
    same(&Loose::Text("x".into()), "\"x\"");
    same(&BTreeMap::from([(1_u32, 'a'), (10, 'b'), (2, 'c')]), r#"{"1":"a","10":"b","2":"c"}"#);
    same(&BTreeMap::from([(-1_i64, true)]), r#"{"-1":true}"#);
    same(&Wire { id: 1, note: None, arguments: read("{}") }, r#"{"arguments":{},"id":1}"#);
}

#[test]
fn embedded_values_keep_every_digit() {
    for number in [
        "9007199254740993",
        "1e+400",
        "123456789012345678901.25",
        "1e-10000",
        "18446744073709551616",
        "0.5",
    ] {
        let text = format!(r#"{{"a":[{number}],"b":{{"c":{number}}}}}"#);
        same(&read(&text), &text);
        same(
            &Wire { id: 1, note: None, arguments: read(&text) },
            &format!(r#"{{"arguments":{text},"id":1}}"#),
        );
        same(&Tagged::Call { wire: read(&text) }, &format!(r#"{{"type":"call","wire":{text}}}"#));
        same(&Loose::Any(read(&text)), &text);
        same(
            &Flat { id: 1, rest: BTreeMap::from([("x".into(), read(&text))]) },
            &format!(r#"{{"id":1,"x":{text}}}"#),
        );
        same(&read(&text).as_object().unwrap().clone(), &text);
    }
    assert!(from_value::<Object>(&read("[]")).is_err());
    same(&vec![read("1e400").as_number().unwrap().clone()], "[1e+400]");
    assert!(from_value::<portcullis_canon::Number>(&read("\"1\"")).is_err());
}

/// With a foreign serializer nothing is rounded either: what does not fit becomes its spelling.
#[test]
fn foreign_formats_see_no_wrong_number() {
    let foreign = |text: &str| serde_json::to_string(&read(text)).unwrap();
    assert_eq!(
        foreign(r#"{"a":[1,2.5,18446744073709551615,null]}"#),
        r#"{"a":[1,2.5,18446744073709551615,null]}"#
    );
    assert_eq!(foreign("9007199254740993.5"), "\"9007199254740993.5\"");
    let back: Value = serde_json::from_str(r#"{"b":1,"a":[true,"x",0.5]}"#).unwrap();
    assert_eq!(back, read(r#"{"a":[true,"x",0.5],"b":1}"#));
    assert!(serde_json::from_str::<Value>(r#"{"a":1,"a":2}"#).is_err());
}

#[test]
fn integers_take_any_spelling_and_floats_only_what_they_hold() {
    assert_eq!(decode::<u8>("255"), Ok(255));
    assert_eq!(decode::<i64>("1e1"), Ok(10));
    assert_eq!(decode::<i64>("-0"), Ok(0));
    assert_eq!(decode::<f64>("10"), Ok(10.0));
    assert_eq!(decode::<f64>("9007199254740993"), Err(BridgeError::NotExact.into()));
    assert_eq!(decode::<f64>("1e400"), Err(BridgeError::NotExact.into()));
    assert_eq!(decode::<i64>("1.5"), Err(BridgeError::NotExact.into()));
    assert_eq!(decode::<u64>("18446744073709551616"), Err(BridgeError::NotExact.into()));
    for text in ["256", "-1", "\"1\"", "true", "null", "[1]"] {
        assert!(
            matches!(decode::<u8>(text), Err(DecodeError::Bridge(BridgeError::Shape { .. }))),
            "{text}"
        );
    }
}

#[test]
fn what_has_no_json_form() {
    struct Bytes;
    impl Serialize for Bytes {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_bytes(b"x")
        }
    }
    refused(&Bytes, &BridgeError::Bytes);
    for float in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        refused(&float, &BridgeError::NotFinite);
    }
    refused(&f32::NAN, &BridgeError::NotFinite);
    refused(&BTreeMap::from([(vec![1], 1)]), &BridgeError::Key);
    refused(&BTreeMap::from([(true, 1)]), &BridgeError::Key);
    let optional = BTreeMap::from([(Some('a'), 1)]);
    assert_eq!(to_value(&optional).unwrap().to_canonical_string(), r#"{"a":1}"#);
    assert_eq!(to_text(&optional).unwrap(), r#"{"a":1}"#);
    // A flattened map may bring a field's own name back in.
    let twice = Flat { id: 1, rest: BTreeMap::from([("id".into(), Value::Null)]) };
    refused(&twice, &BridgeError::DuplicateKey);
}

/// Goes on when an item, an entry or a text cannot be written.
struct Careless;

impl Serialize for Careless {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Bad;
        impl std::fmt::Display for Bad {
            fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                Err(std::fmt::Error)
            }
        }
        struct Text;
        impl Serialize for Text {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(&Bad)
            }
        }
        struct List;
        impl Serialize for List {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut list = serializer.serialize_seq(None)?;
                let _ = list.serialize_element(&f64::NAN);
                list.serialize_element(&1)?;
                let _ = list.serialize_element(&vec![1.0, f64::NAN]);
                list.serialize_element(&2)?;
                list.end()
            }
        }
        let mut map = serializer.serialize_map(None)?;
        let _ = map.serialize_entry("b", &f64::NAN);
        map.serialize_entry("c", &List)?;
        let _ = map.serialize_entry("d", &Text);
        map.serialize_entry("a", &true)?;
        map.end()
    }
}

#[test]
fn what_a_type_leaves_out_is_left_out() {
    let text = r#"{"a":true,"c":[1,2]}"#;
    assert_eq!(to_value(&Careless).unwrap().to_canonical_string(), text);
    assert_eq!(to_text(&Careless).unwrap(), text);
}

/// Neither as a value nor as text.
fn refused<T: Serialize>(source: &T, error: &BridgeError) {
    assert_eq!(&to_value(source).unwrap_err(), error);
    assert_eq!(&to_text(source).unwrap_err(), error);
}

#[test]
fn shapes_that_are_refused() {
    let shape = |text: &str| {
        matches!(decode::<Wire>(text), Err(DecodeError::Bridge(BridgeError::Shape { .. })))
    };
    assert!(shape("[1,null,{}]"), "a struct from an array");
    assert!(shape("null") && shape("\"x\""));
    assert_eq!(
        decode::<Wire>(r#"{"id":1,"arguments":{},"other":1}"#),
        Err(BridgeError::UnknownField { field: "other".into() }.into())
    );
    assert_eq!(
        decode::<Wire>(r#"{"id":1}"#),
        Err(BridgeError::MissingField { field: "arguments" }.into())
    );
    assert_eq!(
        decode::<Plain>("\"absent\""),
        Err(BridgeError::UnknownVariant { variant: "absent".into() }.into())
    );
    for text in [
        r#"{"unit":null}"#,
        "\"one\"",
        r#"{"one":1,"named":{"a":true}}"#,
        "{}",
        r#"{"two":[1]}"#,
        r#"{"two":[1,"x",2]}"#,
        r#"{"named":[true]}"#,
        "0",
    ] {
        assert!(decode::<Plain>(text).is_err(), "{text}");
    }
    for text in [
        r#"{"type":"hello"}"#,
        r#"{"type":"hello","version":1,"x":1}"#,
        r#"{"version":1}"#,
        r#"{"type":"none"}"#,
    ] {
        assert!(decode::<Tagged>(text).is_err(), "{text}");
    }
    for text in [
        r#"{"01":"a"}"#,
        r#"{"1.0":"a"}"#,
        r#"{"+1":"a"}"#,
        r#"{" 1":"a"}"#,
        r#"{"x":"a"}"#,
        r#"{"-1":"a"}"#,
        r#"{"4294967296":"a"}"#,
    ] {
        assert!(decode::<BTreeMap<u32, char>>(text).is_err(), "{text}");
    }
    assert!(decode::<(u8, u8)>("[1]").is_err() && decode::<(u8, u8)>("[1,2,3]").is_err());
    assert!(
        decode::<()>("0").is_err()
            && decode::<char>("\"ab\"").is_err()
            && decode::<bool>("1").is_err()
    );
    assert_eq!(
        decode::<Wire>("{\"id\":1,\"id\":2}").unwrap_err(),
        DecodeError::Parse(portcullis_canon::ParseError { fault: Fault::DuplicateKey, offset: 14 })
    );
}

#[test]
fn errors_are_one_safe_line_without_the_value() {
    let message = |text: &str| decode::<Wire>(text).unwrap_err().to_string();
    let long = "x".repeat(5_000);
    let unknown = message(&format!(r#"{{"id":1,"arguments":1,"\u001b[31m\n{long}":1}}"#));
    assert!(unknown.starts_with("unknown field \\x1B[31m x") && unknown.len() < 300, "{unknown}");
    for text in [
        r#"{"id":"s3cret","arguments":1}"#,
        r#"{"id":1,"note":["s3cret"],"arguments":1}"#,
        "\"s3cret\"",
    ] {
        assert!(!message(text).contains("s3cret"), "{}", message(text));
    }
    assert!(!decode::<u8>("77777").unwrap_err().to_string().contains("77777"));
}

/// What serde itself lets through, stated so that a change of it is noticed.
#[test]
fn leniencies_of_serde_inside_internally_tagged_enums() {
    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
    enum Strict {
        Bye {},
    }
    // An array whose first item is the tag.
    assert_eq!(decode::<Tagged>(r#"["hello",1]"#), Ok(Tagged::Hello { version: 1 }));
    // Unknown fields beside a unit variant; one with braces refuses them.
    assert_eq!(decode::<Tagged>(r#"{"type":"bye","x":1}"#), Ok(Tagged::Bye));
    assert_eq!(decode::<Strict>(r#"{"type":"bye"}"#), Ok(Strict::Bye {}));
    assert_eq!(
        decode::<Strict>(r#"{"type":"bye","x":1}"#),
        Err(BridgeError::UnknownField { field: "x".into() }.into())
    );
}
