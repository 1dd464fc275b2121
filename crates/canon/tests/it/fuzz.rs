//! Fuzz targets, a fixed number of iterations each.
//!
//! Each target judges a stand-in for our own function: the real one must pass, and each planted
//! fault must be found by the same target with as many iterations and without a seed corpus.
//! Corpora lie under `__fuzz__/TARGET/corpus`; `BOLERO_RANDOM_SEED` replays a finding.

use crate::draw::Draw;
use crate::oracle::{self, Finding, agrees, forbidden_on_a_line};
use portcullis_canon::{
    Fault, Limits, Object, Schema, Value, from_value, parse, sanitize, to_value, to_vec,
};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// Runs a target over seeds and random bytes.
macro_rules! fuzz {
    ($name:literal, $iterations:expr, $target:expr) => {
        bolero::check!(name = $name)
            .with_iterations($iterations)
            .with_shrink_time(Duration::ZERO)
            .for_each($target)
    };
}

/// Runs a target over random bytes alone and wants it to fail.
macro_rules! finds {
    ($what:literal, $iterations:expr, $target:expr) => {
        let found = catch_unwind(AssertUnwindSafe(|| fuzz!("control", $iterations, $target)));
        assert!(found.is_err(), "the fuzz target does not see: {}", $what);
    };
}

type Parser = fn(&[u8]) -> Result<Value, Fault>;

fn ours(bytes: &[u8]) -> Result<Value, Fault> {
    parse(bytes, &Limits::BARE).map_err(|error| error.fault)
}

fn judge_parser(parser: Parser, bytes: &[u8]) {
    judge_document(parser, bytes);
    judge_document(parser, &Draw::new(bytes).document());
}

fn judge_document(parser: Parser, bytes: &[u8]) {
    let finding = oracle::examine(bytes);
    match parser(bytes) {
        Ok(value) => {
            // A number too large for a double stops the other parser before the end.
            let allowed =
                matches!(finding, Finding::Clean | Finding::OutOfRange) || value.depth() > 126;
            assert!(allowed, "accepted, though {finding:?}: {}", String::from_utf8_lossy(bytes));
            if finding == Finding::Clean {
                assert!(agrees(&value, &serde_json::from_slice(bytes).unwrap()), "another value");
            }
            let canonical = value.to_canonical();
            let again = parser(&canonical).expect("own bytes refused");
            assert_eq!(again, value);
            assert_eq!(again.to_canonical(), canonical);
            // Other spellings of a number are other bytes, but never another number.
            for (literal, number) in literals(bytes).zip(numbers(&value)) {
                assert!(same_decimal(&literal, &number), "{literal} became {number}");
            }
        }
        Err(Fault::DuplicateKey) => {
            assert!(matches!(finding, Finding::Repeats | Finding::OutOfRange))
        }
        Err(Fault::NumberExponent | Fault::NumberTooLong) => {
            assert_ne!(finding, Finding::Malformed)
        }
        Err(Fault::TooDeep) => {}
        Err(fault) => assert!(
            matches!(finding, Finding::Malformed | Finding::OutOfRange),
            "{fault:?} though {finding:?}"
        ),
    }
}

/// The number literals of an accepted document, when they stand in the order of the value: that
/// is, when it has no object.
fn literals(bytes: &[u8]) -> impl Iterator<Item = String> {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let flat = !text.contains(['{', '"']);
    let numeric = |c: char| c.is_ascii_digit() || "+-.eE".contains(c);
    let words: Vec<String> = text.split(|c| !numeric(c)).map(str::to_owned).collect();
    words.into_iter().filter(move |word| flat && word.bytes().any(|b| b.is_ascii_digit()))
}

fn numbers(value: &Value) -> Vec<String> {
    match value {
        Value::Number(number) => vec![number.to_string()],
        Value::Array(items) => items.iter().flat_map(numbers).collect(),
        _ => Vec::new(),
    }
}

/// Compares two literals digit by digit, without any floating point.
fn same_decimal(left: &str, right: &str) -> bool {
    let parts = |text: &str| {
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let (int, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = format!("{}{fraction}", int.trim_start_matches('-'));
        let kept = digits.trim_end_matches('0').len();
        let exponent = exponent.parse::<i64>().unwrap()
            + i64::try_from(digits.len() - kept).unwrap()
            - i64::try_from(fraction.len()).unwrap();
        match digits[..kept].trim_start_matches('0') {
            "" => (false, String::new(), 0),
            digits => (int.starts_with('-'), digits.to_owned(), exponent),
        }
    };
    parts(left) == parts(right)
}

/// What a careless build would do: the usual parser, then our value.
fn careless(bytes: &[u8]) -> Result<Value, Fault> {
    fn convert(value: serde_json::Value) -> Value {
        match value {
            serde_json::Value::Null => Value::Null,
            serde_json::Value::Bool(value) => value.into(),
            serde_json::Value::Number(number) => Value::Number(number.to_string().parse().unwrap()),
            serde_json::Value::String(text) => text.into(),
            serde_json::Value::Array(items) => items.into_iter().map(convert).collect(),
            serde_json::Value::Object(members) => Value::from(
                members.into_iter().map(|(key, value)| (key, convert(value))).collect::<Object>(),
            ),
        }
    }
    match serde_json::from_slice(bytes) {
        Ok(value) => Ok(convert(value)),
        Err(_) => ours(bytes).and(Err(Fault::NumberExponent)),
    }
}

#[test]
fn parser() {
    fuzz!("parser", 2_500, |bytes: &[u8]| judge_parser(ours, bytes));
}

/// The control of the generator: each answer that matters comes up often enough to be tried.
#[test]
fn drawn_documents_try_each_answer() {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut state = 1_u64;
    for _ in 0..4_000 {
        let bytes: Vec<u8> = (0..400)
            .map(|_| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                state.to_be_bytes()[0]
            })
            .collect();
        let answer = match ours(&Draw::new(&bytes).document()) {
            Ok(value) if value.depth() > 2 => "accepted, nested",
            Ok(_) => "accepted",
            Err(fault) => fault.name(),
        };
        *counts.entry(answer).or_default() += 1;
    }
    let least = [
        ("accepted, nested", 400),
        ("accepted", 400),
        ("duplicate_key", 100),
        ("syntax", 100),
        ("lone_surrogate", 20),
        ("number_exponent", 20),
        ("unexpected_end", 5),
        ("utf8", 20),
        ("trailing_data", 5),
    ];
    for (answer, least) in least {
        assert!(counts.get(answer).is_some_and(|count| *count >= least), "{answer}: {counts:?}");
    }
}

#[test]
fn parser_target_finds_planted_faults() {
    finds!("repeated keys accepted, numbers rounded", 2_500, |bytes: &[u8]| judge_parser(
        careless, bytes
    ));
    finds!("lone surrogates replaced", 2_500, |bytes: &[u8]| judge_parser(
        |bytes| match ours(bytes) {
            Err(Fault::LoneSurrogate) => Ok(Value::from("\u{FFFD}")),
            other => other,
        },
        bytes
    ));
    finds!("numbers rounded to doubles", 2_500, |bytes: &[u8]| judge_parser(
        |bytes| match ours(bytes)? {
            Value::Number(number) => {
                let rounded: f64 = number.to_string().parse().unwrap();
                Ok(portcullis_canon::Number::from_f64(rounded)
                    .map_or(Value::Number(number), Value::Number))
            }
            other => Ok(other),
        },
        bytes
    ));
    finds!("trailing bytes ignored", 2_500, |bytes: &[u8]| judge_parser(
        |bytes| match ours(bytes) {
            Err(Fault::TrailingData) => Ok(Value::Null),
            other => other,
        },
        bytes
    ));
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    id: u64,
    offset: i64,
    ratio: f64,
    note: Option<String>,
    kind: Kind,
    values: Vec<Value>,
    named: BTreeMap<String, Value>,
    numbered: BTreeMap<u16, bool>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    Plain,
    Held(Value),
    Pair(i8, String),
    Named { a: Option<u8>, b: Vec<Kind> },
}

fn draw_value(draw: &mut Draw<'_>) -> Value {
    let mut text = String::new();
    draw.value(&mut text, 5);
    ours(text.as_bytes()).unwrap_or_default()
}

fn draw_kind(draw: &mut Draw<'_>, depth: usize) -> Kind {
    match draw.below(4) {
        0 => Kind::Plain,
        1 => Kind::Held(draw_value(draw)),
        2 => Kind::Pair(draw.byte().cast_signed(), draw.text()),
        _ => Kind::Named {
            a: Some(draw.byte()).filter(|byte| byte % 2 == 0),
            b: (0..draw.below(3) * usize::from(depth < 4))
                .map(|_| draw_kind(draw, depth + 1))
                .collect(),
        },
    }
}

fn draw_wire(draw: &mut Draw<'_>) -> Wire {
    let eight = |draw: &mut Draw<'_>| std::array::from_fn(|_| draw.byte());
    let ratio = f64::from_bits(u64::from_be_bytes(eight(draw)));
    Wire {
        id: u64::from_be_bytes(eight(draw)),
        offset: i64::from_be_bytes(eight(draw)),
        ratio: if ratio.is_finite() && ratio != 0.0 { ratio } else { 1.0 },
        kind: draw_kind(draw, 0),
        values: (0..draw.below(4)).map(|_| draw_value(draw)).collect(),
        named: (0..draw.below(4)).map(|_| (draw.text(), draw_value(draw))).collect(),
        numbered: (0..draw.below(4)).map(|_| (u16::from(draw.byte()) * 257, true)).collect(),
        note: Some(draw.text()).filter(|text| !text.is_empty()),
    }
}

type Bridge = fn(&Wire) -> Option<Wire>;

fn our_bridge(wire: &Wire) -> Option<Wire> {
    let value = to_value(wire).ok()?;
    let bytes = to_vec(wire).ok()?;
    // Two serializers, one canonical form.
    assert_eq!(bytes, value.to_canonical());
    assert_eq!(to_vec(&value).ok()?, bytes);
    assert_eq!(parse(&bytes, &Limits::ENVELOPE).unwrap(), value);
    from_value(&value).ok()
}

fn judge_bridge(bridge: Bridge, bytes: &[u8]) {
    let mut draw = Draw::new(bytes);
    let wire = draw_wire(&mut draw);
    assert_eq!(bridge(&wire).as_ref(), Some(&wire));
    // A stranger's document: whatever it becomes, it becomes the same again.
    if let Ok(value) = ours(&draw.document()) {
        let _ = from_value::<Wire>(&value);
        if let Ok(kind) = from_value::<Kind>(&value) {
            assert_eq!(from_value::<Kind>(&to_value(&kind).unwrap()).unwrap(), kind);
        }
        assert_eq!(from_value::<Value>(&value).unwrap(), value);
    }
}

#[test]
fn bridge() {
    fuzz!("bridge", 1_200, |bytes: &[u8]| judge_bridge(our_bridge, bytes));
}

#[test]
fn bridge_target_finds_planted_faults() {
    finds!("numbers through doubles", 1_200, |bytes: &[u8]| judge_bridge(
        |wire| serde_json::from_slice(&serde_json::to_vec(wire).ok()?).ok(),
        bytes
    ));
    finds!("a field that is lost", 1_200, |bytes: &[u8]| judge_bridge(
        |wire| {
            let Value::Object(mut object) = to_value(wire).ok()? else { return None };
            object.insert("note", Value::Null);
            from_value(&Value::Object(object)).ok()
        },
        bytes
    ));
}

type Line = for<'a> fn(&'a str) -> Cow<'a, str>;

fn judge_line(line: Line, bytes: &[u8]) {
    let mut draw = Draw::new(bytes);
    let drawn = draw.text();
    for text in [drawn.as_str(), &String::from_utf8_lossy(bytes)] {
        let out = line(text);
        assert!(!out.chars().any(forbidden_on_a_line), "{out:?}");
        assert_eq!(line(&out), out, "not settled: {text:?}");
        let marks = out.chars().fold((0, 0), |(run, most), c| {
            let run = if unicode_normalization::char::is_combining_mark(c) { run + 1 } else { 0 };
            (run, most.max(run))
        });
        assert!(marks.1 <= 4, "{out:?}");
        // Letters are never lost.
        let letters = |text: &str| text.chars().filter(char::is_ascii_lowercase).count();
        assert!(letters(&out) >= letters(text), "{text:?} {out:?}");
        let max = draw.below(40);
        let clipped = sanitize::clip(&out, max);
        assert!(clipped.len() <= max && !clipped.chars().any(forbidden_on_a_line));
    }
}

#[test]
fn line() {
    fuzz!("line", 4_000, |bytes: &[u8]| judge_line(sanitize::line, bytes));
}

#[test]
fn line_target_finds_planted_faults() {
    finds!("control characters alone", 4_000, |bytes: &[u8]| judge_line(
        |text| text
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect::<String>()
            .into(),
        bytes
    ));
    finds!("marks that pile up", 4_000, |bytes: &[u8]| judge_line(
        |text| {
            let shown = |c: char| if forbidden_on_a_line(c) { '?' } else { c };
            text.chars().map(shown).collect::<String>().into()
        },
        bytes
    ));
    finds!("text that is dropped", 4_000, |bytes: &[u8]| judge_line(
        |text| if sanitize::line(text) == text { text.into() } else { "".into() },
        bytes
    ));
}

/// The rules that an instance breaks, as `path rule` lines; none when it follows the schema.
type Check = fn(&Schema, &Value) -> Vec<String>;

fn our_check(schema: &Schema, instance: &Value) -> Vec<String> {
    let listed = schema.check(instance).err().map(|violations| violations.listed().to_vec());
    listed.unwrap_or_default().into_iter().map(|v| format!("{} {}", v.path, v.rule)).collect()
}

const MARK: &str = "s3cret";

fn judge_schema(check: Check, bytes: &[u8]) {
    let mut draw = Draw::new(bytes);
    let text = draw.schema(0);
    let Ok(source) = ours(text.as_bytes()) else { return };
    let Ok(schema) = Schema::compile(&source) else { return };
    for _ in 0..3 {
        let Ok(instance) = ours(&draw.document()) else { continue };
        let instance = if draw.below(8) == 7 { Value::from(MARK) } else { instance };
        let broken = check(&schema, &instance);
        assert!(broken.iter().all(|line| !line.contains(MARK)), "{broken:?}");
        // The validator alone, on what it can hold, is the judge of yes and no.
        let inexact = instance.to_canonical_string();
        if let Ok(plain) = serde_json::from_str::<serde_json::Value>(&inexact)
            && agrees_exactly(&instance, &plain)
            && let Some(expected) = plainly(&source, &plain)
        {
            assert_eq!(broken.is_empty(), expected, "{text} {instance:?}");
        }
        let filled = schema.fill_defaults(instance);
        assert_eq!(schema.fill_defaults(filled.clone()), filled);
    }
}

fn agrees_exactly(ours: &Value, theirs: &serde_json::Value) -> bool {
    to_value(theirs).is_ok_and(|back| back == *ours)
}

fn plainly(source: &Value, instance: &serde_json::Value) -> Option<bool> {
    let schema = serde_json::from_str(&source.to_canonical_string()).ok()?;
    let validator = jsonschema::options()
        .with_pattern_options(jsonschema::PatternOptions::regex())
        .build(&schema)
        .ok()?;
    Some(validator.is_valid(instance))
}

#[test]
fn schema() {
    fuzz!("schema", 1_200, |bytes: &[u8]| judge_schema(our_check, bytes));
}

#[test]
fn schema_target_finds_planted_faults() {
    finds!("the value in a violation", 1_200, |bytes: &[u8]| judge_schema(
        |schema, instance| {
            let mut broken = our_check(schema, instance);
            broken.iter_mut().for_each(|line| line.push_str(&instance.to_canonical_string()));
            broken
        },
        bytes
    ));
    finds!("a panic", 1_200, |bytes: &[u8]| judge_schema(
        |schema, instance| {
            assert!(instance.depth() < 3, "planted");
            our_check(schema, instance)
        },
        bytes
    ));
    finds!("everything accepted", 1_200, |bytes: &[u8]| judge_schema(|_, _| Vec::new(), bytes));
}
