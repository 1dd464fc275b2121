//! The page `docs/tools.md`: what the tools take, give and refuse, made from the code and kept equal to it. What it says
//! of HTTP stands in `http/reference.rs`.
//!
//! `PORTCULLIS_WRITE_TOOLS=1` makes it anew. What a result holds is said here, and compared with real results.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use portcullis_canon::{Limits, Object, Value, parse};
use portcullis_domain::ports::ToolFailure;
use portcullis_domain::refusal::Refusal;
use portcullis_domain::tool::ToolSpec;
use portcullis_sandbox::confined::{
    Fault, FileError, Kind, MAX_DEPTH, MAX_PART, MAX_PATH, MAX_SCAN, PathError, RelPath, Root,
    TEMP_PREFIX,
};

use super::encoding::Encoding;
use super::{VERBS, failure, list, read, search};

const INTRO: &str = "\
# The tools

`--files FOLDER` gives an agent the file tools, and `[http]` in the configuration the [HTTP tools](#the-http-tools). An agent asks
for a call as in [the protocol](agent-protocol.md); what the gate makes of it is said in [ARCHITECTURE.md](../ARCHITECTURE.md).

This page is made from the code: a test of `crates/tools` compares it.

# The file tools

All of them work beneath one folder, which is held from the start: renaming it, or putting another in its place, changes
nothing. No link is followed, no other file system entered, and a file with a second name is neither read nor changed.

";

/// What each tool gives: the field and what it means. `[]` stands for each entry of a list.
const RESULTS: [(&str, &[(&str, &str)]); 8] = [
    (
        "files.list",
        &[
            ("path", "the folder; `.` is the whole"),
            ("entries[].name", "the name; spelled out with `\\xHH` when it is no UTF-8"),
            (
                "entries[].kind",
                "`file`, `directory`, `link`, `fifo`, `socket`, `device` or `other`",
            ),
            ("entries[].size", "bytes, of a file"),
            ("entries[].hard_linked", "true when the file has other names; else absent"),
            ("entries[].unreadable_name", "true when the name is no UTF-8; else absent"),
            ("cut", "true when there are more entries"),
            (
                "unfinished_changes",
                "how many leftovers of cut-off changes lie there, hidden; absent when none",
            ),
        ],
    ),
    (
        "files.read",
        &[
            ("path", "the file"),
            ("size", "bytes of the whole file"),
            ("digest", "digest of the whole file, as `files.replace` and `files.delete` expect it"),
            ("encoding", "`utf8`, or `base64` for what is no text or holds a zero byte"),
            (
                "offset",
                "first byte that is given: at most the one asked for, since text is cut between characters",
            ),
            ("content", "the part"),
            ("next_offset", "where to go on; absent at the end of the file"),
        ],
    ),
    (
        "files.search",
        &[
            ("matches[].path", "the file"),
            ("matches[].line", "number of the line, from 1"),
            ("matches[].text", "the line, shortened around the match with `…`"),
            ("searched", "files that were searched"),
            ("skipped.binary", "files that are no text"),
            ("skipped.too_large", "files over the size limit"),
            ("skipped.not_plain", "links, pipes, devices, and files with other names"),
            ("skipped.unreadable", "what could not be opened, or whose name is no UTF-8"),
            ("cut", "true when not everything was searched, or not every match is given"),
        ],
    ),
    ("files.create", WRITTEN),
    ("files.replace", WRITTEN),
    ("files.move", &[("from", "the old path"), ("to", "the new path")]),
    ("files.make_folder", &[("path", "the folder")]),
    ("files.delete", &[("path", "what was deleted"), ("deleted", "`file` or `directory`")]),
];

const WRITTEN: &[(&str, &str)] = &[
    ("path", "the file"),
    ("size", "bytes that were written"),
    ("digest", "digest of what was written, as `files.replace` and `files.delete` expect it"),
];

/// Every fault, each once.
const FAULTS: [Fault; 18] = [
    Fault::NotFound,
    Fault::Exists,
    Fault::Link,
    Fault::NotRegular(Kind::Fifo),
    Fault::HardLinked,
    Fault::TooLarge { size: 16_777_217, cap: 16_777_216 },
    Fault::Changed,
    Fault::Denied,
    Fault::Full,
    Fault::CrossDevice,
    Fault::NotDirectory,
    Fault::NotEmpty,
    Fault::BadName,
    Fault::Busy,
    Fault::IntoItself,
    Fault::Unsupported,
    Fault::InDoubt(5),
    Fault::Io(5),
];

/// Every reason why a text is no path.
const NO_PATHS: [PathError; 9] = [
    PathError::Empty,
    PathError::Absolute,
    PathError::EmptyPart,
    PathError::DotPart,
    PathError::Nul,
    PathError::TooLong,
    PathError::PartTooLong,
    PathError::TooDeep,
    PathError::Reserved,
];

/// A new fault or reason does not compile until it is counted here, and listed above.
const fn place(fault: Fault) -> usize {
    match fault {
        Fault::NotFound => 0,
        Fault::Exists => 1,
        Fault::Link => 2,
        Fault::NotRegular(_) => 3,
        Fault::HardLinked => 4,
        Fault::TooLarge { .. } => 5,
        Fault::Changed => 6,
        Fault::Denied => 7,
        Fault::Full => 8,
        Fault::CrossDevice => 9,
        Fault::NotDirectory => 10,
        Fault::NotEmpty => 11,
        Fault::BadName => 12,
        Fault::Busy => 13,
        Fault::IntoItself => 14,
        Fault::Unsupported => 15,
        Fault::InDoubt(_) => 16,
        Fault::Io(_) => 17,
    }
}

const fn place_of_path(error: PathError) -> usize {
    match error {
        PathError::Empty => 0,
        PathError::Absolute => 1,
        PathError::EmptyPart => 2,
        PathError::DotPart => 3,
        PathError::Nul => 4,
        PathError::TooLong => 5,
        PathError::PartTooLong => 6,
        PathError::TooDeep => 7,
        PathError::Reserved => 8,
    }
}

/// The whole page.
fn page() -> String {
    let mut page = INTRO.to_owned();
    let specs: Vec<ToolSpec> = VERBS.iter().map(|verb| (verb.spec)()).collect();
    overview(&mut page, &specs);
    for spec in &specs {
        let (_, fields) = RESULTS.iter().find(|(name, _)| *name == spec.name).unwrap();
        tool(&mut page, spec, fields);
    }
    paths(&mut page);
    failures(&mut page);
    limits(&mut page);
    crate::http::reference::section(&mut page);
    page
}

pub(crate) fn line(page: &mut String, text: impl std::fmt::Display) {
    writeln!(page, "{text}").unwrap();
}

pub(crate) fn overview(page: &mut String, specs: &[ToolSpec]) {
    line(
        page,
        "| tool | effect class | what it gives comes from outside | deadline | largest result |",
    );
    line(page, "|---|---|---|---|---|");
    for spec in specs {
        let (name, class, source) = (&spec.name, spec.effect.as_str(), yes(spec.source));
        let (seconds, kib) = (spec.deadline_ms / 1_000, spec.max_result_bytes / 1_024);
        line(page, format_args!("| `{name}` | `{class}` | {source} | {seconds} s | {kib} KiB |"));
    }
    line(
        page,
        "\nThe effect class decides what the policy makes of a call: see the classes in the [README](../README.md).\n",
    );
}

const fn yes(flag: bool) -> &'static str {
    if flag { "yes" } else { "no" }
}

pub(crate) fn tool(page: &mut String, spec: &ToolSpec, fields: &[(&str, &str)]) {
    line(page, format_args!("## `{}`\n\n{}\n", spec.name, spec.description));
    line(page, "| argument | form | default | meaning |\n|---|---|---|---|");
    let schema = spec.input_schema.as_object().unwrap();
    let required: BTreeSet<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let properties = schema.get("properties").and_then(Value::as_object).unwrap();
    let mut properties: Vec<_> = properties.iter().collect();
    properties.sort_by_key(|(name, _)| !required.contains(name));
    for (name, schema) in properties {
        let schema = schema.as_object().unwrap();
        let default = match schema.get("default") {
            Some(default) => format!("`{}`", written(default)),
            None if required.contains(name) => "required".to_owned(),
            None => "none".to_owned(),
        };
        let meaning = schema.get("description").and_then(Value::as_str).unwrap();
        line(page, format_args!("| `{name}` | {} | {default} | {meaning} |", form(schema)));
    }
    line(page, "\n| result | meaning |\n|---|---|");
    for (field, meaning) in fields {
        line(page, format_args!("| `{field}` | {meaning} |"));
    }
    line(page, "");
}

fn written(value: &Value) -> String {
    match value.as_str() {
        Some(text) => text.to_owned(),
        None => String::from_utf8(value.to_canonical()).unwrap(),
    }
}

/// What a schema admits, in words.
fn form(schema: &Object) -> String {
    let number = |name| schema.get(name).and_then(Value::as_u64);
    if let Some(choices) = schema.get("enum").and_then(Value::as_array) {
        let choices: Vec<String> =
            choices.iter().map(|one| format!("`{}`", written(one))).collect();
        return choices.join(" or ");
    }
    match schema.get("type").and_then(Value::as_str).unwrap() {
        "integer" => {
            format!(
                "whole number, {} to {}",
                number("minimum").unwrap(),
                number("maximum").unwrap()
            )
        }
        "boolean" => "true or false".to_owned(),
        "string" => {
            let pattern = schema.get("pattern").and_then(Value::as_str);
            match (pattern, number("minLength"), number("maxLength")) {
                (Some(pattern), _, None) if pattern.contains("sha256") => {
                    "`sha256:` and 64 hexadecimal digits".to_owned()
                }
                (Some(pattern), _, None) if pattern.contains("{64}") => {
                    "64 hexadecimal digits".to_owned()
                }
                (Some(pattern), _, Some(most)) if pattern.contains("https:") => {
                    format!("a URL of at most {most} characters")
                }
                (Some(pattern), _, Some(most)) if pattern.starts_with("^[!-~]") => {
                    format!("at most {most} printable characters")
                }
                (Some(_), _, Some(most)) => format!("a path of at most {most} characters"),
                (None, Some(least), Some(most)) => format!("{least} to {most} characters"),
                (None, None, Some(most)) => format!("at most {most} characters"),
                _ => panic!("a form without words"),
            }
        }
        other => panic!("a type without words: {other}"),
    }
}

fn paths(page: &mut String) {
    line(page, "## Paths\n");
    line(
        page,
        format_args!(
            "A path is text, relative to the folder, its parts separated by `/`. It has at most {MAX_DEPTH} parts of {MAX_PART} \
         bytes each, and {MAX_PATH} bytes in all. Nothing is corrected: what is no path is refused. A name that is to be made \
         holds no control characters and no marks of text direction. Names that begin with `{TEMP_PREFIX}` are unfinished \
         changes: they are not listed and cannot be named.\n"
        ),
    );
    line(page, "| refused | in these words |\n|---|---|");
    for error in NO_PATHS {
        line(page, format_args!("| `{error:?}` | {error} |"));
    }
    line(
        page,
        format_args!(
            "\nArguments that do not fit the tool's schema never reach it: the gate answers `invalid_proposal` with `{}`, and names \
         the place and the rule, never the value.\n",
            Refusal::ArgumentsInvalid.as_str()
        ),
    );
    let no_base64 = Encoding::Base64.decode("content", "!").unwrap_err();
    line(
        page,
        format_args!(
            "What the schema cannot say of `content` is refused by the tool: {no_base64}.\n"
        ),
    );
}

fn failures(page: &mut String) {
    line(page, "## What goes wrong\n");
    line(
        page,
        "A failure is one sentence. When it is certain that nothing was changed, the step ends with a `tool_error`. When it is \
         not, the outcome is unknown, and the run waits until a person looks (`portcullis answer`). Looks (`files.list`, \
         `files.read`, `files.search`) change nothing, whatever goes wrong.\n",
    );
    line(page, "| fault | in these words, of `a` | a change |\n|---|---|---|");
    for fault in FAULTS {
        let error = FileError { path: RelPath::parse("a").unwrap(), fault };
        let (message, known) = match failure::of_change(&error) {
            ToolFailure::NothingHappened { message } | ToolFailure::Lacking { message, .. } => {
                (message, "did not happen")
            }
            ToolFailure::Failed { message } => (message, "failed, whatever it changed"),
            ToolFailure::Unknown { message } => (message, "may have happened"),
            ToolFailure::Abort { .. } => panic!("no file ends a run"),
        };
        let name = format!("{fault:?}");
        let name = name.split(['(', ' ']).next().unwrap_or_default();
        line(page, format_args!("| `{name}` | {message} | {known} |"));
    }
    line(
        page,
        "\nOther system errors come with their number. Those that the kernel gives before it changes anything did not happen; \
         of a medium or a network that failed, nobody knows.\n",
    );
}

fn limits(page: &mut String) {
    line(page, "## Limits\n\n| limit | value |\n|---|---|");
    let search = &search::LIMITS;
    let mib = 1_024 * 1_024;
    let rows = [
        ("a file that is read, replaced or deleted by digest", read::MAX_FILE_BYTES / mib, "MiB"),
        ("content in one answer of `files.read`", read::MAX_READ_BYTES / mib, "MiB"),
        ("entries in one answer of `files.list`", list::MAX_ENTRIES as u64, "entries"),
        ("entries of one folder that are looked at", MAX_SCAN as u64, "entries"),
        ("lines in one answer of `files.search`", search::MAX_MATCHES as u64, "lines"),
        ("a line in an answer of `files.search`", search::MAX_LINE as u64, "bytes"),
        ("paths and lines in an answer of `files.search`", search::MAX_TEXT as u64 / 1_024, "KiB"),
        ("files that one search reads", search.max_files as u64, "files"),
        ("entries that one search looks at", search.max_entries as u64, "entries"),
        ("bytes that one search reads", search.max_total_bytes / mib, "MiB"),
        ("a file that is searched", search.max_file_bytes / mib, "MiB"),
        ("folders in each other that one search enters", search.max_depth as u64, "levels"),
    ];
    for (what, most, unit) in rows {
        line(page, format_args!("| {what} | {most} {unit} |"));
    }
}

fn place_of_page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tools.md")
}

#[test]
fn the_page_says_what_the_code_says() {
    let page = page();
    if std::env::var_os("PORTCULLIS_WRITE_TOOLS").is_some() {
        std::fs::write(place_of_page(), &page).unwrap();
    }
    let kept = std::fs::read_to_string(place_of_page()).unwrap();
    assert!(
        kept == page,
        "docs/tools.md is not what the code says; PORTCULLIS_WRITE_TOOLS=1 makes it anew"
    );
}

#[test]
fn every_fault_and_every_reason_is_listed() {
    assert!(FAULTS.iter().enumerate().all(|(at, fault)| place(*fault) == at));
    assert!(NO_PATHS.iter().enumerate().all(|(at, error)| place_of_path(*error) == at));
}

/// The fields of a value, as [`RESULTS`] names them.
pub(crate) fn fields(value: &Value, at: &str, found: &mut BTreeSet<String>) {
    if let Some(object) = value.as_object() {
        for (name, value) in object.iter() {
            let below = if at.is_empty() { name.to_owned() } else { format!("{at}.{name}") };
            fields(value, &below, found);
        }
    } else if let Some(list) = value.as_array() {
        list.iter().for_each(|value| fields(value, &format!("{at}[]"), found));
    } else {
        found.insert(at.to_owned());
    }
}

#[test]
fn every_field_of_a_result_is_listed_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    put("a", "needle");
    put("b", "x");
    put(".portcullis-tmp-0", "");
    std::fs::hard_link(folder.path().join("b"), folder.path().join("c")).unwrap();
    let odd = <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(b"\xff");
    std::fs::write(folder.path().join(odd), "").unwrap();
    let root = Root::open(folder.path()).unwrap();
    let digest = portcullis_canon::Digest::of(portcullis_canon::Kind::File, b"needle");
    let calls = [
        ("files.list", "{}".to_owned()),
        ("files.read", r#"{"path":"a","limit":2}"#.to_owned()),
        ("files.search", r#"{"text":"needle"}"#.to_owned()),
        ("files.create", r#"{"path":"d","content":"d"}"#.to_owned()),
        ("files.replace", format!(r#"{{"path":"a","expect":"{digest}","content":"e"}}"#)),
        ("files.move", r#"{"from":"a","to":"e"}"#.to_owned()),
        ("files.make_folder", r#"{"path":"f"}"#.to_owned()),
        ("files.delete", r#"{"path":"e"}"#.to_owned()),
    ];
    assert_eq!(calls.each_ref().map(|(name, _)| *name), RESULTS.map(|(name, _)| name));
    for ((name, arguments), (_, listed)) in calls.iter().zip(RESULTS) {
        let verb = VERBS.iter().find(|verb| verb.name == *name).unwrap();
        let arguments = parse(arguments.as_bytes(), &Limits::BARE).unwrap();
        let output = (verb.call)(&root, arguments.as_object().unwrap()).unwrap();
        let mut found = BTreeSet::new();
        fields(&parse(&output.content, &Limits::BARE).unwrap(), "", &mut found);
        let listed: BTreeSet<String> =
            listed.iter().map(|(field, _)| (*field).to_owned()).collect();
        assert_eq!(found, listed, "{name}");
    }
}
