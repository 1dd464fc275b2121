//! What a step of a long run costs beside the network: rendering the last decision, putting the request together, and
//! reading a reply. `cargo bench -p portcullis-models`. Nothing here is asserted: figures are for reading.

#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a bench reads the clock, prints, and stops at the first surprise"
)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use portcullis_canon::{Object, Value};
use portcullis_domain::ports::AdvertisedTool;
use portcullis_models::{Dialect, FenceSeed, Head, Profile, Said, StepResult, Transcript};
use portcullis_testkit::ports::SeededEntropy;

/// A result as `files.read` gives it: 8 KiB of text with line ends and quotes.
fn content() -> Value {
    let line = "    let \"name\" = value; // a line of some source, of sixty bytes\n";
    let text: String = line.repeat(8 * 1024 / line.len() + 1).chars().take(8 * 1024).collect();
    Value::Object(Object::from_iter([("path", "src/main.rs"), ("text", &text)]))
}

fn push(transcript: &mut Transcript, request: u64, content: &Value) {
    let said = Said { text: "I look at the next file.".to_owned(), verbatim: None };
    let result = StepResult {
        id: format!("step_{request}_0"),
        tool: "files.read",
        arguments: Object::from_iter([("path", format!("src/file_{request}.rs"))]),
        request,
        index: 0,
        outcome: "tool_result",
        content,
        external: true,
    };
    transcript.push(said, &[result]);
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn rendering(dialect: Dialect) {
    let tools: Arc<[AdvertisedTool]> = [].into();
    let head = Head {
        model: "m".to_owned(),
        system: Profile::LATEST.system(None),
        tools,
        max_output_tokens: 4_096,
        strict_tools: false,
        extra: Object::new(),
    };
    let frame = dialect.frame(&head).unwrap();
    let content = content();
    let seed = FenceSeed::draw(&SeededEntropy::new(1));
    // The decisions of many runs at the same place: the median of each place over all of them.
    let marks = [10_u64, 100, 400, 2_000];
    let mut at: Vec<(Vec<Duration>, Vec<Duration>)> = vec![(Vec::new(), Vec::new()); marks.len()];
    for _ in 0..40 {
        let mut transcript = Transcript::new(dialect, Profile::LATEST, seed.clone(), "tidy up");
        for request in 0..2_010 {
            let begun = Instant::now();
            push(&mut transcript, request, &content);
            let rendered = begun.elapsed();
            black_box(transcript.body(&frame));
            let whole = begun.elapsed();
            for (mark, (render, all)) in marks.iter().zip(&mut at) {
                if request.abs_diff(*mark) < 5 {
                    render.push(rendered);
                    all.push(whole);
                }
            }
        }
    }
    for (mark, (render, all)) in marks.iter().zip(at) {
        let (render, all) = (median(render), median(all));
        println!(
            "{:10} step {mark:5}: rendered {render:>9.1?}, with the whole request {all:>9.1?}",
            dialect.as_str()
        );
    }
}

fn reading() {
    let text = "word ".repeat(400);
    let body = format!(
        r#"{{"id":"x","choices":[{{"index":0,"finish_reason":"tool_calls","message":{{"role":"assistant","content":"{text}","tool_calls":[{{"id":"c","type":"function","function":{{"name":"files__read","arguments":"{{\"path\":\"a\"}}"}}}}]}}}}],"usage":{{"prompt_tokens":9,"completion_tokens":9}}}}"#
    );
    let times = (0..2_000).map(|_| {
        let begun = Instant::now();
        black_box(Dialect::OpenAi.read(body.as_bytes()).unwrap());
        begun.elapsed()
    });
    println!("a reply of {} bytes is read in {:?}", body.len(), median(times.collect()));
}

fn main() {
    for dialect in Dialect::ALL {
        rendering(dialect);
    }
    reading();
}
