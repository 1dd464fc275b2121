//! Which tools can be registered, and what an operator fixed of them.

use std::sync::Arc;

use portcullis_canon::{Limits as JsonLimits, Object, SchemaError, Value, parse};
use portcullis_domain::limits::Limits;
use portcullis_domain::permit::Permit;
use portcullis_domain::ports::{BoxFuture, ToolFailure, ToolOutput, ToolSource};
use portcullis_domain::recovery::Probe;
use portcullis_domain::refusal::Refusal;
use portcullis_domain::tool::{EffectClass, SpecError, ToolSpec};
use portcullis_engine::{Gate, Progress, RegisterError, Tools};
use portcullis_testkit::block_on;

use crate::world::{World, turn};

/// Tools that give their arguments back.
struct Echo(Vec<ToolSpec>);

impl ToolSource for Echo {
    fn specs(&self) -> Vec<ToolSpec> {
        self.0.clone()
    }

    fn blocks(&self) -> bool {
        false
    }

    fn call(&self, permit: Permit) -> BoxFuture<'_, Result<ToolOutput, ToolFailure>> {
        let content = Value::Object(permit.arguments().clone()).to_canonical();
        Box::pin(async { Ok(ToolOutput { content, labels: None }) })
    }
}

fn spec(name: &str, schema: &str) -> ToolSpec {
    ToolSpec {
        name: name.to_owned(),
        description: "Gives back what it was given.".to_owned(),
        input_schema: parse(schema.as_bytes(), &JsonLimits::BARE).unwrap(),
        effect: EffectClass::ReadOnly,
        source: false,
        sink: false,
        authority: Vec::new(),
        deadline_ms: 1_000,
        terminal: false,
        fixed: Object::new(),
        max_result_bytes: 4_096,
        target: None,
        probe: None,
        idempotency_key: None,
    }
}

fn refused(specs: Vec<Vec<ToolSpec>>) -> RegisterError {
    let sources = specs.into_iter().map(|specs| Arc::new(Echo(specs)) as Arc<dyn ToolSource>);
    Tools::register(sources.collect()).err().unwrap()
}

const ANY: &str = r#"{"type":"object","properties":{"to":{"type":"string"},"n":{}}}"#;

#[test]
fn a_name_is_registered_once_in_one_source_and_in_two() {
    for specs in [
        vec![vec![spec("a", ANY), spec("a", ANY)]],
        vec![vec![spec("a", ANY)], vec![spec("b", ANY), spec("a", ANY)]],
    ] {
        assert!(matches!(refused(specs), RegisterError::Repeated(name) if name == "a"));
    }
}

#[test]
fn a_spec_that_does_not_hold_is_refused() {
    type Change = fn(&mut ToolSpec);
    let changes: [(SpecError, Change); 6] = [
        (SpecError::Name, |spec| spec.name.clear()),
        (SpecError::Name, |spec| spec.name = "a\u{1b}[2J".to_owned()),
        (SpecError::Deadline, |spec| spec.deadline_ms = 0),
        (SpecError::ResultBound, |spec| spec.max_result_bytes = 0),
        (SpecError::ResultBound, |spec| spec.max_result_bytes = u64::MAX),
        // A misspelled name: it would fix nothing.
        (SpecError::Fixed, |spec| drop(spec.fixed.insert("too", "x"))),
    ];
    for (expected, change) in changes {
        let mut bad = spec("a", ANY);
        change(&mut bad);
        let error = refused(vec![vec![bad]]);
        assert!(
            matches!(&error, RegisterError::Spec { error, .. } if *error == expected),
            "{error:?}"
        );
    }
}

/// A tool that changes something and has a parameter for a key.
fn keyed(property: &str) -> ToolSpec {
    let schema = format!(r#"{{"type":"object","properties":{{"n":{{}},"key":{property}}}}}"#);
    ToolSpec {
        effect: EffectClass::LocalMutation,
        sink: true,
        idempotency_key: Some("key".to_owned()),
        ..spec("a", &schema)
    }
}

fn probing(tool: &str, mapping: &[(&str, &str)]) -> ToolSpec {
    let owned = |(name, place): &(&str, &str)| ((*name).to_owned(), (*place).to_owned());
    let probe = Probe {
        tool: tool.to_owned(),
        arguments: (!mapping.is_empty()).then(|| mapping.iter().map(owned).collect()),
    };
    ToolSpec { probe: Some(probe), idempotency_key: None, ..keyed(r#"{"type":"string"}"#) }
}

#[test]
fn an_idempotency_key_needs_a_parameter_that_takes_one() {
    for property in [r#"{"type":"string"}"#, r#"{"type":"string","pattern":"^[0-9a-f]{64}$"}"#] {
        assert!(Tools::register(vec![Arc::new(Echo(vec![keyed(property)]))]).is_ok(), "{property}");
    }
    let mut fixed = keyed(r#"{"type":"string"}"#);
    fixed.fixed.insert("key", "mine");
    let mut absent = keyed(r#"{"type":"string"}"#);
    absent.idempotency_key = Some("token".to_owned());
    let others = [r#"{}"#, r#"{"type":"integer"}"#, r#"{"type":"string","maxLength":63}"#];
    for bad in others.map(keyed).into_iter().chain([fixed, absent]) {
        let shown = format!("{bad:?}");
        let error = refused(vec![vec![bad]]);
        let expected = SpecError::IdempotencyKey;
        assert!(matches!(error, RegisterError::Spec { error, .. } if error == expected), "{shown}");
    }
    let reads = ToolSpec { effect: EffectClass::ReadOnly, ..keyed(r#"{"type":"string"}"#) };
    let error = refused(vec![vec![reads]]);
    assert!(matches!(error, RegisterError::Spec { error: SpecError::Recovery, .. }), "{error:?}");
}

#[test]
fn a_probe_is_another_tool_that_reads_and_takes_what_it_is_handed() {
    let reads = spec("seen", r#"{"type":"object","properties":{"id":{}}}"#);
    let both = |spec: ToolSpec| vec![vec![spec, reads.clone()]];
    for fine in [probing("seen", &[]), probing("seen", &[("id", "/key")])] {
        assert!(Tools::register(vec![Arc::new(Echo(both(fine).remove(0)))]).is_ok());
    }
    for bad in
        [probing("a", &[]), probing("seen", &[("id", "key")]), probing("seen", &[("id", "/no")])]
    {
        let error = refused(both(bad));
        assert!(matches!(error, RegisterError::Spec { error: SpecError::Probe, .. }), "{error:?}");
    }
    let changes = ToolSpec { name: "burn".to_owned(), ..keyed(r#"{"type":"string"}"#) };
    for (bad, more) in [
        (probing("gone", &[]), reads.clone()),
        (probing("burn", &[]), changes),
        (probing("seen", &[("di", "/key")]), reads.clone()),
    ] {
        let error = refused(vec![vec![bad, more]]);
        assert!(matches!(error, RegisterError::Probe { .. }), "{error:?}");
    }
}

#[test]
fn a_schema_that_cannot_be_used_is_refused_and_never_dropped() {
    for (schema, expected) in [
        (r#"{"$ref":"file:///etc/passwd"}"#, SchemaError::Reference),
        (r#"{"properties":{"a":{"$ref":"http://127.0.0.1:1/"}}}"#, SchemaError::Reference),
        (r#"{"$schema":"file:///dev/stdin"}"#, SchemaError::Dialect),
        (r#"{"properties":{"n":{"minimum":1e-10000}}}"#, SchemaError::Number),
        (r#"{"properties":{"n":{"maximum":0.1e-9999}}}"#, SchemaError::Number),
        (r#"{"properties":{"n":{"multipleOf":1e10000}}}"#, SchemaError::Number),
        (r#"{"properties":{"n":{"exclusiveMinimum":1e309}}}"#, SchemaError::Number),
        (r#"{"type":"nothing"}"#, SchemaError::Invalid),
    ] {
        let error = refused(vec![vec![spec("a", schema)]]);
        assert!(
            matches!(&error, RegisterError::Schema { error, .. } if *error == expected),
            "{schema}: {error:?}"
        );
    }
}

/// What became of one call to a tool with these schema and fixed values.
fn called(schema: &str, fixed: &[(&str, &str)], arguments: &str) -> (Option<Refusal>, String) {
    let world = World::new();
    let mut fixed_spec = spec("tool", schema);
    for (name, value) in fixed {
        fixed_spec.fixed.insert(*name, *value);
    }
    let mut parts = world.parts(1);
    parts.tools = Arc::new(Tools::register(vec![Arc::new(Echo(vec![fixed_spec]))]).unwrap());
    let task = world.task(Limits::default());
    let mut held = block_on(Gate::new(parts).begin(world.scope(), task)).unwrap();
    let run = held.run();
    let raw = format!(r#"{{"kind":"tool_call","tool":"tool","arguments":{arguments}}}"#);
    assert_eq!(turn(&mut held, raw.into_bytes()), Progress::Observed, "{arguments}");
    let refusal = world.step(run, 0).observation.unwrap().refusal;
    (refusal, world.observed(run, 0).to_canonical_string())
}

#[test]
fn a_value_for_a_fixed_parameter_is_refused_and_never_overridden() {
    let fixed = [("to", "office")];
    let (refusal, seen) = called(ANY, &fixed, r#"{"n":1}"#);
    assert_eq!((refusal, seen.as_str()), (None, r#"{"n":1,"to":"office"}"#));
    for arguments in [r#"{"to":"mallory"}"#, r#"{"to":"office"}"#, r#"{"to":null,"n":1}"#] {
        let (refusal, _) = called(ANY, &fixed, arguments);
        assert_eq!(refusal, Some(Refusal::FixedParameter), "{arguments}");
    }
}

#[test]
fn a_number_that_no_machine_type_holds_is_refused_at_every_keyword_and_kills_nothing() {
    let keywords = [
        r#""minimum":0"#,
        r#""maximum":9"#,
        r#""exclusiveMinimum":0"#,
        r#""exclusiveMaximum":9"#,
        r#""multipleOf":0.1"#,
        r#""type":"number""#,
    ];
    for keyword in keywords {
        let schema = format!(
            r#"{{"type":"object","properties":{{"n":{{{keyword}}},"list":{{"uniqueItems":true}}}}}}"#
        );
        for number in ["1e-10000", "0.1e-9999", "1e10000", "-1e400", "18446744073709551616"] {
            for arguments in
                [format!(r#"{{"n":{number}}}"#), format!(r#"{{"list":[{number},{number}]}}"#)]
            {
                let (refusal, seen) = called(&schema, &[], &arguments);
                assert_eq!(refusal, Some(Refusal::NumberNotExact), "{keyword} {arguments}");
                assert!(!seen.contains("10000"), "{seen}");
            }
        }
        for number in ["1e-10000000", "0.1e-9223372036854775808", "1e99999999999999999999"] {
            let (refusal, _) = called(&schema, &[], &format!(r#"{{"n":{number}}}"#));
            assert_eq!(refusal, Some(Refusal::NotJson), "{keyword} {number}");
        }
    }
}
