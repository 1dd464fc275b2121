//! What a source does when it is called.

use std::panic::{AssertUnwindSafe, catch_unwind};

use portcullis_canon::{Limits, Object, Schema, Value, parse, sanitize};
use portcullis_domain::ports::{ToolFailure, ToolOutput, ToolSource};
use portcullis_domain::tool::{EffectClass, ToolSpec};

use super::arguments::{listed, rolled};
use super::{Example, Subject};
use crate::arguments::draw;
use crate::block_on;
use crate::dice::Dice;
use crate::permit::permit_for;

/// Random calls of each tool.
const ROLLS: usize = 300;
/// The most calls that are drawn from the schema on either side of its bounds.
const MOST_DRAWN: usize = 100;
/// The same for every run of a test.
const SEED: u64 = 0x0070_6F72_7463_756C;
/// The longest message, in bytes.
const MAX_MESSAGE: usize = 2 * 1024;

type Outcome = Result<ToolOutput, ToolFailure>;

/// Each example on a subject of its own.
pub(super) fn check_examples(fresh: &dyn Fn() -> Subject) -> Vec<String> {
    let count = fresh().examples.len();
    (0..count).flat_map(|index| check_example(&fresh(), index)).collect()
}

fn check_example(subject: &Subject, index: usize) -> Vec<String> {
    let Some(example) = subject.examples.get(index) else {
        return vec!["the examples differ from subject to subject".to_owned()];
    };
    let Some((spec, schema)) = spec_of(subject, &example.tool) else {
        return vec![format!("{}: the specs differ from subject to subject", example.tool)];
    };
    let arguments = filled(&schema, &example.arguments);
    let mut findings = Vec::new();
    if let Err(violations) = schema.check(&Value::Object(arguments.clone())) {
        findings.push(format!("an example breaks the schema: {violations:?}"));
    }
    let before = (subject.state)();
    drop(subject.source.call(permit_for(&spec.name, arguments.clone())));
    if (subject.state)() != before {
        findings.push("a call that was never polled changed something".to_owned());
    }
    match call(subject.source.as_ref(), &spec.name, arguments) {
        None => findings.push("an example panics".to_owned()),
        Some(Err(failure)) => findings.push(format!("an example fails: {failure:?}")),
        Some(outcome) => findings.extend(judged(subject, &spec, &outcome, before)),
    }
    findings.into_iter().map(|finding| format!("{}: {finding}", spec.name)).collect()
}

/// Hostile calls of each tool, all on one subject, since what they do to each other may matter too.
pub(super) fn check_hostile(fresh: &dyn Fn() -> Subject) -> Vec<String> {
    let subject = fresh();
    let mut dice = Dice::new(SEED);
    let mut findings = Vec::new();
    for example in &subject.examples {
        let Some((spec, schema)) = spec_of(&subject, &example.tool) else { continue };
        let properties = properties(&spec);
        let mut calls = listed(&example.arguments, &properties);
        calls.extend((0..ROLLS).map(|_| rolled(&example.arguments, &properties, &mut dice)));
        calls.extend(drawn(&spec));
        for arguments in calls {
            // As they are, and as the gate would hand them over: a tool may rely on neither.
            let whole = filled(&schema, &arguments);
            for arguments in [Some(&arguments), (whole != arguments).then_some(&whole)] {
                let Some(arguments) = arguments else { continue };
                findings.extend(check_call(&subject, &spec, example, arguments));
            }
            if findings.len() > 20 {
                findings.push("and perhaps more".to_owned());
                return findings;
            }
        }
    }
    findings
}

/// Calls at the bounds of the schema, on both sides of them.
fn drawn(spec: &ToolSpec) -> Vec<Object> {
    let Ok(drawn) = draw(&spec.input_schema, SEED) else { return Vec::new() };
    let misses = drawn.near_misses.into_iter().map(|miss| miss.value);
    let values = drawn.valid.into_iter().take(MOST_DRAWN).chain(misses.take(MOST_DRAWN));
    values
        .filter_map(|value| match value {
            Value::Object(object) => Some(object),
            _ => None,
        })
        .collect()
}

fn check_call(
    subject: &Subject,
    spec: &ToolSpec,
    example: &Example,
    arguments: &Object,
) -> Vec<String> {
    let before = (subject.state)();
    let findings = match call(subject.source.as_ref(), &example.tool, arguments.clone()) {
        None => vec!["a call panics".to_owned()],
        Some(outcome) => judged(subject, spec, &outcome, before),
    };
    let shown = Value::Object(arguments.clone()).to_canonical_string();
    let shown = sanitize::clip(&sanitize::line(&shown), 300);
    findings.into_iter().map(|finding| format!("{}: {finding}, with {shown}", spec.name)).collect()
}

/// What an outcome may not be, given what was there before it.
fn judged(
    subject: &Subject,
    spec: &ToolSpec,
    outcome: &Outcome,
    before: portcullis_canon::Digest,
) -> Vec<String> {
    let mut findings = Vec::new();
    let changed = (subject.state)() != before;
    if changed && spec.effect == EffectClass::ReadOnly {
        findings.push("a read-only tool changed something".to_owned());
    }
    match outcome {
        Ok(output) => findings.extend(judged_output(spec, output)),
        Err(failure) => {
            let certain =
                !matches!(failure, ToolFailure::Unknown { .. } | ToolFailure::Failed { .. });
            if changed && certain {
                findings.push("it says that nothing happened, and something did".to_owned());
            }
            findings.extend(match failure {
                ToolFailure::Failed { message } => judged_answer(spec, message),
                other => judged_message(&other.to_string()),
            });
        }
    }
    findings
}

fn judged_output(spec: &ToolSpec, output: &ToolOutput) -> Vec<String> {
    let mut findings = Vec::new();
    let size = u64::try_from(output.content.len()).unwrap_or(u64::MAX);
    if size > spec.max_result_bytes {
        findings.push(format!("a result has {size} bytes, more than its spec says"));
    }
    if !output.content.is_empty()
        && let Err(error) = parse(&output.content, &Limits::BARE)
    {
        findings.push(format!("a result is no strict json: {error}"));
    }
    findings
}

/// What the receiver itself answered may be as long as a result, and in its own words.
fn judged_answer(spec: &ToolSpec, message: &str) -> Option<String> {
    let size = u64::try_from(message.len()).unwrap_or(u64::MAX);
    (size > spec.max_result_bytes)
        .then(|| format!("a failure has {size} bytes, more than its spec says of a result"))
}

fn judged_message(message: &str) -> Option<String> {
    let fits = (1..=MAX_MESSAGE).contains(&message.len()) && !message.chars().any(char::is_control);
    (!fits).then(|| format!("a message is not one short line: {message:.300?}"))
}

/// The outcome, or nothing when the call panicked.
fn call(source: &dyn ToolSource, tool: &str, arguments: Object) -> Option<Outcome> {
    let permit = permit_for(tool, arguments);
    catch_unwind(AssertUnwindSafe(|| block_on(source.call(permit)))).ok()
}

fn spec_of(subject: &Subject, tool: &str) -> Option<(ToolSpec, Schema)> {
    let spec = subject.source.specs().into_iter().find(|spec| spec.name == tool)?;
    let schema = Schema::compile(&spec.input_schema).ok()?;
    Some((spec, schema))
}

fn properties(spec: &ToolSpec) -> Vec<String> {
    let properties = spec.input_schema.get("properties").and_then(Value::as_object);
    properties.into_iter().flat_map(Object::keys).map(str::to_owned).collect()
}

fn filled(schema: &Schema, arguments: &Object) -> Object {
    match schema.fill_defaults(Value::Object(arguments.clone())) {
        Value::Object(object) => object,
        _ => Object::new(),
    }
}
