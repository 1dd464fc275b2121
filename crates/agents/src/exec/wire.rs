//! The messages of the agent protocol, version 1: `docs/agent-protocol.md` describes them.

use portcullis_canon::{Limits, Object, Value, parse, sanitize};
use portcullis_domain::ports::{AdvertisedTool, SeenStep, View};
use portcullis_domain::proposal::MAX_BATCH;

/// The version of the agent protocol that is spoken here.
pub const PROTOCOL_VERSION: u64 = 1;

/// The longest line to an agent, in bytes: earlier steps are left out, oldest first, until a view fits.
pub const MAX_VIEW_BYTES: usize = 16 * 1024 * 1024;

/// A hello is short: a longer one is not ours.
const HELLO: Limits = Limits { max_bytes: 4 * 1024, max_depth: 4 };

/// A view that does not fit into a line even without earlier steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ViewTooLarge;

/// The gate's first line.
pub(crate) fn hello() -> Vec<u8> {
    let mut message = message("hello");
    message.insert("protocol", "portcullis-agent");
    message.insert("versions", Value::from_iter([PROTOCOL_VERSION]));
    line(message)
}

/// The gate's last line.
pub(crate) fn end() -> Vec<u8> {
    line(message("end"))
}

/// Checks the agent's first line; the error is a sentence that says what is wrong with it.
pub(crate) fn check_hello(raw: &[u8]) -> Result<(), String> {
    let garbage = || format!("its first line is not a hello: `{}`", quote(raw));
    let Ok(Value::Object(mut hello)) = parse(raw, &HELLO) else { return Err(garbage()) };
    let kind = hello.remove("type");
    let version = hello.remove("version");
    if kind.as_ref().and_then(Value::as_str) != Some("hello") {
        return Err(garbage());
    }
    let version = version.as_ref().and_then(Value::as_u64);
    let Some(version) = version.filter(|_| hello.is_empty()) else { return Err(garbage()) };
    if version == PROTOCOL_VERSION {
        Ok(())
    } else {
        Err(format!("it answers in version {version}, and version {PROTOCOL_VERSION} was offered"))
    }
}

/// One view; `since` is the request of the last view that this process was sent.
pub(crate) fn view(mut view: View, since: Option<u64>) -> Result<Vec<u8>, ViewTooLarge> {
    if let Some(since) = since {
        let told = view.history.iter().take_while(|step| step.request < since).count();
        forget(&mut view, told);
    }
    loop {
        let line = encode(&view, since.is_none());
        if line.len() <= MAX_VIEW_BYTES {
            return Ok(line);
        }
        if view.history.is_empty() {
            return Err(ViewTooLarge);
        }
        forget(&mut view, 1);
    }
}

fn forget(view: &mut View, count: usize) {
    view.history.drain(..count);
    view.omitted = view.omitted.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
}

fn encode(view: &View, first: bool) -> Vec<u8> {
    let mut message = message("view");
    message.insert("request", view.request);
    if first {
        message.insert("goal", view.goal.as_str());
        message.insert("tools", view.tools.iter().map(tool).collect::<Value>());
        // A gate that does not say so takes one call in a reply.
        message.insert("max_calls", MAX_BATCH);
    }
    message.insert("history", view.history.iter().map(step).collect::<Value>());
    message.insert("omitted", view.omitted);
    message.insert("steps_left", view.steps_left);
    line(message)
}

fn tool(tool: &AdvertisedTool) -> Object {
    let mut object = Object::new();
    object.insert("name", tool.name.as_str());
    object.insert("description", tool.description.as_str());
    object.insert("input_schema", tool.input_schema.clone());
    object
}

fn step(step: &SeenStep) -> Object {
    let mut object = Object::new();
    object.insert("request", step.request);
    if let Some(tool) = &step.tool {
        object.insert("tool", tool.as_str());
    }
    if let Some(arguments) = &step.arguments {
        object.insert("arguments", arguments.clone());
    }
    object.insert("outcome", step.outcome.as_str());
    object.insert("content", step.content.clone());
    object.insert("external", step.external);
    object
}

fn message(kind: &str) -> Object {
    let mut object = Object::new();
    object.insert("type", kind);
    object
}

/// Canonical JSON holds no raw line end, so one message is one line.
fn line(message: Object) -> Vec<u8> {
    let mut line = Value::Object(message).to_canonical();
    line.push(b'\n');
    line
}

fn quote(raw: &[u8]) -> String {
    let beginning = raw.get(..200).unwrap_or(raw);
    sanitize::clip(&sanitize::line_bytes(beginning), 80)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn seen(request: u64, content: &str) -> SeenStep {
        SeenStep {
            request,
            tool: Some("files.read".to_owned()),
            arguments: None,
            outcome: "tool_result".to_owned(),
            content: Value::from(content),
            external: true,
        }
    }

    fn example(request: u64, history: Vec<SeenStep>) -> View {
        let tools = vec![AdvertisedTool {
            name: "files.read".to_owned(),
            description: "Reads.".to_owned(),
            input_schema: Value::Object(Object::new()),
        }];
        let goal = "tidy\nup".to_owned();
        let labels = portcullis_domain::label::Labels::none();
        View { request, goal, tools: tools.into(), history, omitted: 2, labels, steps_left: 7 }
    }

    fn text(line: Vec<u8>) -> String {
        String::from_utf8(line).unwrap()
    }

    #[test]
    fn the_first_view_has_all_and_later_ones_what_is_new() {
        let history = vec![seen(2, "a"), seen(3, "b")];
        assert_eq!(
            text(view(example(4, history.clone()), None).unwrap()),
            concat!(
                r#"{"goal":"tidy\nup","history":["#,
                r#"{"content":"a","external":true,"outcome":"tool_result","request":2,"tool":"files.read"},"#,
                r#"{"content":"b","external":true,"outcome":"tool_result","request":3,"tool":"files.read"}],"max_calls":16,"#,
                r#""omitted":2,"request":4,"steps_left":7,"#,
                r#""tools":[{"description":"Reads.","input_schema":{},"name":"files.read"}],"type":"view"}"#,
                "\n"
            )
        );
        assert_eq!(
            text(view(example(4, history), Some(3)).unwrap()),
            concat!(
                r#"{"history":["#,
                r#"{"content":"b","external":true,"outcome":"tool_result","request":3,"tool":"files.read"}],"#,
                r#""omitted":3,"request":4,"steps_left":7,"type":"view"}"#,
                "\n"
            )
        );
    }

    #[test]
    fn a_view_that_does_not_fit_loses_its_oldest_steps() {
        let six = "x".repeat(6 * 1024 * 1024);
        let line =
            view(example(4, vec![seen(1, &six), seen(2, &six), seen(3, &six)]), None).unwrap();
        assert!(line.len() <= MAX_VIEW_BYTES);
        let read = parse(&line, &Limits::ENVELOPE).unwrap();
        assert_eq!(read.pointer("/history/0/request").and_then(Value::as_u64), Some(2));
        assert_eq!(read.get("omitted").and_then(Value::as_u64), Some(3));
        let huge = View { goal: "x".repeat(MAX_VIEW_BYTES), ..example(0, Vec::new()) };
        assert_eq!(view(huge, None), Err(ViewTooLarge));
    }

    #[test]
    fn a_hello_is_checked_to_the_letter() {
        assert_eq!(check_hello(br#"{"type":"hello","version":1}"#), Ok(()));
        assert_eq!(check_hello(b" {\"version\":1,\"type\":\"hello\"}\r"), Ok(()));
        assert_eq!(
            check_hello(br#"{"type":"hello","version":2}"#).unwrap_err(),
            "it answers in version 2, and version 1 was offered"
        );
        for garbage in [
            "",
            "hello",
            "[1]",
            r#"{"type":"hello"}"#,
            r#"{"version":1}"#,
            r#"{"type":"hello","version":"1"}"#,
            r#"{"type":"view","version":1}"#,
            r#"{"type":"hello","version":1,"name":"me"}"#,
            r#"{"type":"hello","version":1,"version":1}"#,
        ] {
            let error = check_hello(garbage.as_bytes()).unwrap_err();
            assert!(error.starts_with("its first line is not a hello"), "{garbage}: {error}");
        }
        assert_eq!(
            check_hello(b"\x1b[31mWelcome").unwrap_err(),
            "its first line is not a hello: `\\x1B[31mWelcome`"
        );
        assert!(check_hello(&vec![b'x'; 1 << 20]).unwrap_err().len() < 200);
    }

    #[test]
    fn the_gates_own_lines() {
        assert_eq!(
            text(hello()),
            "{\"protocol\":\"portcullis-agent\",\"type\":\"hello\",\"versions\":[1]}\n"
        );
        assert_eq!(text(end()), "{\"type\":\"end\"}\n");
    }
}
