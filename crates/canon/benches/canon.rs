//! Medians of the work that each call costs, beside the usual parser on the same bytes.
//!
//! `cargo bench -p portcullis-canon`. Nothing here is asserted: figures are for reading.

#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a bench reads the clock, prints, and stops at the first surprise"
)]

use portcullis_canon::{Digest, Kind, Limits, Schema, Value, parse, sanitize};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// The median time of one call, over batches long enough for the clock.
fn median(mut work: impl FnMut()) -> Duration {
    let begun = Instant::now();
    let mut calls = 0_u32;
    while begun.elapsed() < Duration::from_millis(50) {
        work();
        calls += 1;
    }
    let batch = (calls / 50).max(1);
    let mut times: Vec<Duration> = (0..101)
        .map(|_| {
            let begun = Instant::now();
            for _ in 0..batch {
                work();
            }
            begun.elapsed() / batch
        })
        .collect();
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// A result as tools give it: records of text, numbers and flags, about `bytes` long.
fn records(bytes: usize) -> Vec<u8> {
    let mut text = String::from("[");
    let mut number = 1_u64;
    while text.len() < bytes {
        if number > 1 {
            text.push(',');
        }
        text.push_str(&format!(
            "{{\"path\": \"notes/{number}.md\", \"size\": {}, \"score\": {}.25, \"open\": true, \
             \"text\": \"a line of ordinary prose, \\\"quoted\\\" once\\nand broken once\", \"tags\": [\"a\", null]}}",
            number * 977,
            number % 90,
        ));
        number += 1;
    }
    text.push(']');
    text.into_bytes()
}

fn measure(name: &str, bytes: &[u8]) {
    let value = parse(bytes, &Limits::BARE).unwrap();
    let size = bytes.len();
    let show =
        |what: &str, time: Duration| println!("{name:>12} {size:>7} B  {what:<28} {time:>10.2?}");
    show("parse", median(|| drop(black_box(parse(black_box(bytes), &Limits::BARE)))));
    show("canonicalise", median(|| drop(black_box(black_box(&value).to_canonical()))));
    show(
        "canonicalise and digest",
        median(|| {
            black_box(Digest::of_value(Kind::Observation, black_box(&value)));
        }),
    );
    show(
        "parse, canonicalise, digest",
        median(|| {
            let value = parse(black_box(bytes), &Limits::BARE).unwrap();
            black_box(Digest::of_value(Kind::Observation, &value));
        }),
    );
    show(
        "serde_json parse (peer)",
        median(|| {
            drop(black_box(serde_json::from_slice::<serde_json::Value>(black_box(bytes))));
        }),
    );
}

fn main() {
    measure("records", &records(1024));
    measure("records", &records(8 * 1024));
    measure("records", &records(64 * 1024));
    let prose =
        Value::from("The quick brown fox jumps over the lazy dog. ".repeat(182)).to_canonical();
    measure("prose", &prose);
    let numbers: Value = (0..1_400_i64).map(|n| n * 977 % 100_000).collect();
    measure("numbers", &numbers.to_canonical());

    let schema =
        br#"{"type":"object","additionalProperties":false,"required":["path"],"properties":{
        "path":{"type":"string","minLength":1,"maxLength":4096,"pattern":"^[^\u0000]+$"},
        "lines":{"type":"integer","minimum":1,"maximum":10000,"default":200},
        "mode":{"enum":["text","binary"],"default":"text"},
        "note":{"type":"string"}}}"#;
    let source = parse(schema, &Limits::BARE).unwrap();
    let schema = Schema::compile(&source).unwrap();
    let arguments =
        format!(r#"{{"path":"notes/todo.md","lines":20,"note":"{}"}}"#, "x".repeat(960));
    let arguments = parse(arguments.as_bytes(), &Limits::BARE).unwrap();
    println!(
        "{:>24} {:<28} {:>10.2?}",
        "",
        "schema: compile",
        median(|| {
            drop(black_box(Schema::compile(black_box(&source))));
        })
    );
    println!(
        "{:>24} {:<28} {:>10.2?}",
        "",
        "schema: check 1 KiB",
        median(|| {
            let _ = black_box(schema.check(black_box(&arguments)));
        })
    );
    println!(
        "{:>24} {:<28} {:>10.2?}",
        "",
        "sanitize: 1 KiB of ascii",
        median(|| {
            drop(black_box(sanitize::line(black_box(&"plain ascii text".repeat(64)))));
        })
    );
}
