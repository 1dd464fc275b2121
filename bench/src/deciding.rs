//! Deciding alone, without a disk: reading, schema and defaults, policy with labels, digests.
//!
//! Composed of the public pieces in the way in which the engine composes them for one call. The engine itself is
//! not called, since its admission cannot be had without a record; what it adds are copies.

use std::hint::black_box;
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow, ensure};
use portcullis::canon::{Digest, Kind, Object, Schema, Value};
use portcullis::domain::label::{Labels, Origin};
use portcullis::domain::ports::{Policy, ProposedCall};
use portcullis::domain::proposal::{Ask, Proposal, ProposalOrigin};
use portcullis::domain::question::Card;
use portcullis::domain::scope::Tenant;
use portcullis::domain::tool::ToolSpec;
use portcullis::domain::verdict::{Facts, Verdict};
use portcullis::policy::ClassTable;

use crate::figures::{load, median, micros, quantile, ratio};
use crate::gated;

/// What a decision may take at the median, in microseconds.
const MAX_MICROS: f64 = 20.0;

/// Bytes of the arguments.
const ARGUMENTS: usize = 1024;

const ROUNDS: usize = 20_000;

/// Times of the parts of one decision, in microseconds.
#[derive(Default)]
struct Times {
    whole: Vec<f64>,
    read: Vec<f64>,
    schema: Vec<f64>,
    policy: Vec<f64>,
    digests: Vec<f64>,
}

/// Measures and prints.
pub(crate) fn report() -> Result<()> {
    println!("\n## deciding alone, {ARGUMENTS} bytes of arguments (load {})\n", load());
    let spec = gated::spec()?;
    let schema = Schema::compile(&spec.input_schema)?;
    let policy = ClassTable::default();
    let labels = Labels::of(Origin::external(&spec.name));
    let salt = [7_u8; 32];
    let raw = raw();
    let mut times = Times::default();
    for _ in 0..ROUNDS {
        decide(&raw, &spec, &schema, &policy, &labels, &salt, &mut times)?;
    }
    for (name, part) in [
        ("read", &times.read),
        ("schema and defaults", &times.schema),
        ("policy and labels", &times.policy),
        ("digests", &times.digests),
        ("all", &times.whole),
    ] {
        println!("{name:<20} {:>7.2}  p99 {:>7.2}", median(part), quantile(part, 0.99));
    }
    ratio("microseconds of deciding, 1 KiB arguments", median(&times.whole), Some(MAX_MICROS));
    Ok(())
}

fn raw() -> Vec<u8> {
    let note = "a note of some length, \"quoted\" once; ".repeat(ARGUMENTS / 40);
    let mut arguments = Object::new();
    arguments.insert("path", "reports/2024/part-000001.txt");
    arguments.insert("from_line", 120_u64);
    arguments.insert("note", note);
    let mut object = Object::new();
    object.insert("kind", "tool_call");
    object.insert("request", 1_u64);
    object.insert("tool", "bench.read");
    object.insert("arguments", arguments);
    Value::Object(object).to_canonical()
}

fn decide(
    raw: &[u8],
    spec: &ToolSpec,
    schema: &Schema,
    policy: &ClassTable,
    labels: &Labels,
    salt: &[u8],
    times: &mut Times,
) -> Result<()> {
    let begun = Instant::now();
    let proposal = Proposal::read(raw, Some(1)).map_err(|refusal| anyhow!(refusal.as_str()))?;
    let Ask::ToolCall { tool, arguments } = proposal.ask else { return Err(anyhow!("no call")) };
    let read = Instant::now();
    let whole = schema.fill_defaults(Value::Object(arguments));
    schema.check(&whole).map_err(|violations| anyhow!("{violations}"))?;
    let arguments = whole.as_object().cloned().context("arguments are an object")?;
    let checked = Instant::now();
    let facts = Facts {
        tenant: Tenant::local(),
        owner: "bench".to_owned(),
        origin: ProposalOrigin::Model,
        steps: 1,
        failures: 0,
        denials: 0,
        active_us: 0,
        labels: labels.clone(),
        label_seq: 1,
    };
    let call = ProposedCall { tool: spec, arguments: &arguments };
    let verdict = policy.decide(&call, &facts)?;
    ensure!(matches!(verdict, Verdict::Allow { .. }), "the call is not allowed");
    let decided = Instant::now();
    let canonical = whole.to_canonical();
    let request = Digest::of_parts(Kind::Arguments, &[salt, tool.as_bytes(), &canonical]);
    let card = Card {
        capability: tool.clone(),
        tool,
        arguments,
        spec: Digest::ZERO,
        effect: spec.effect,
        source: spec.source,
        sink: spec.sink,
        authority: spec.authority.clone(),
        target: None,
        sandbox: None,
        rules: verdict.rules().to_vec(),
        reviewers: None,
    };
    black_box((request, card.call_digest(salt)));
    let done = Instant::now();
    times.whole.push(micros(done - begun));
    times.read.push(micros(read - begun));
    times.schema.push(micros(checked - read));
    times.policy.push(micros(decided - checked));
    times.digests.push(micros(done - decided));
    Ok(())
}
