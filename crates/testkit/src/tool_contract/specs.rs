//! What a source says about its tools.

use std::collections::BTreeSet;

use portcullis_canon::{Schema, Value};
use portcullis_domain::tool::ToolSpec;

use super::Subject;

pub(super) fn check(subject: &Subject) -> Vec<String> {
    let specs = subject.source.specs();
    let mut findings = Vec::new();
    if specs.is_empty() {
        findings.push("there are no tools".to_owned());
    }
    if subject.source.specs() != specs {
        findings.push("the specs differ when they are asked for again".to_owned());
    }
    let mut names = BTreeSet::new();
    for spec in &specs {
        if !names.insert(spec.name.as_str()) {
            findings.push(format!("{}: the name stands twice", spec.name));
        }
        findings.extend(check_one(spec).map(|finding| format!("{}: {finding}", spec.name)));
        if !subject.examples.iter().any(|example| example.tool == spec.name) {
            findings.push(format!("{}: there is no example", spec.name));
        }
    }
    let unknown = subject.examples.iter().filter(|example| !names.contains(example.tool.as_str()));
    findings.extend(unknown.map(|example| format!("{}: an example of no tool", example.tool)));
    findings
}

fn check_one(spec: &ToolSpec) -> impl Iterator<Item = String> {
    let schema = &spec.input_schema;
    let own = spec.check().err().map(|error| error.to_string());
    let compiled = Schema::compile(schema).err().map(|error| error.to_string());
    let object = (schema.get("type").and_then(Value::as_str) != Some("object"))
        .then(|| "the schema does not take objects only".to_owned());
    let described = spec.description.is_empty().then(|| "there is no description".to_owned());
    let astray = spec.authority.iter().filter(|pointer| !names_property(schema, pointer));
    let astray: Vec<_> =
        astray.map(|pointer| format!("`{pointer}` names no property of the schema")).collect();
    [own, compiled, object, described].into_iter().flatten().chain(astray)
}

fn names_property(schema: &Value, pointer: &str) -> bool {
    let first = pointer.strip_prefix('/').and_then(|rest| rest.split('/').next());
    let name = first.map(|token| token.replace("~1", "/").replace("~0", "~"));
    let properties = schema.get("properties").and_then(Value::as_object);
    name.zip(properties).is_some_and(|(name, properties)| properties.contains_key(&name))
}
