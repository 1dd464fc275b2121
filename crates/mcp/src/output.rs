//! An answer as the result of a tool: structured content where there is some, else its text.

use portcullis_canon::{Object, Value, sanitize};
use portcullis_domain::ports::ToolFailure;
use portcullis_domain::tool::ToolSpec;

use crate::session::{Answer, Block};

/// The longest message of a failure, in bytes.
const MAX_MESSAGE: usize = 1024;

/// The canonical bytes of a result, within the tool's bound. A tool that only reads and fails has changed nothing; of any
/// other that says that it failed, that is the result.
pub(crate) fn output(answer: Answer, spec: &ToolSpec) -> Result<Vec<u8>, ToolFailure> {
    let text = answer.blocks.iter().map(words).collect::<Vec<_>>().join("\n");
    if answer.failed && !spec.effect.changes_something() {
        let message = sanitize::clip(&sanitize::line(&text), MAX_MESSAGE);
        let message = if message.is_empty() { "the tool failed".to_owned() } else { message };
        return Err(ToolFailure::NothingHappened { message });
    }
    let most = usize::try_from(spec.max_result_bytes).unwrap_or(usize::MAX);
    let fits = |bytes: &Vec<u8>| bytes.len() <= most;
    let failed = answer.failed;
    let whole = answer.structured.filter(|_| !failed).map(|value| value.to_canonical());
    if let Some(bytes) = whole.filter(fits) {
        return Ok(bytes);
    }
    let wrapped = |text: &str, cut: bool| {
        let mut object = Object::new();
        object.insert("text", text);
        if failed {
            object.insert("failed", true);
        }
        if cut {
            object.insert("cut", true);
        }
        object.to_canonical()
    };
    // A byte of text takes six bytes at most, and what is around it less than 64.
    let room = most.saturating_sub(64) / 6;
    let cut = || wrapped(&sanitize::clip(&text, room), true);
    let bytes = Some(wrapped(&text, false)).filter(fits).unwrap_or_else(cut);
    Ok(if fits(&bytes) { bytes } else { Value::Null.to_canonical() })
}

fn words(block: &Block) -> String {
    match block {
        Block::Text(text) => text.clone(),
        Block::Blob { media_type, bytes } => format!("[{} bytes of {media_type}]", bytes.len()),
        Block::Link { uri, name } => format!("[link {name}: {uri}]"),
    }
}
