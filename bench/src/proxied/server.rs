//! An MCP server over standard input and output that does next to nothing: what is measured is what stands before it.

use std::io::{BufRead as _, Write as _};

use anyhow::{Context as _, Result};
use portcullis::canon::{Limits, Value, parse};

/// The word that makes this program be the server.
pub(crate) const SERVER: &str = "mcp-server";

/// The name of its tool with this number.
pub(crate) fn tool(number: usize) -> String {
    format!("look_{number}")
}

/// Serves as many tools as the first argument says until its input ends.
pub(crate) fn serve(mut arguments: impl Iterator<Item = String>) -> Result<()> {
    let tools: usize = arguments.next().context("how many tools?")?.parse()?;
    let listing = listing(tools);
    let mut output = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let message = parse(line?.as_bytes(), &Limits::ENVELOPE)?;
        let Some(id) = message.get("id") else { continue };
        let answer = match message.get("method").and_then(Value::as_str) {
            Some("initialize") => {
                r#""result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"bench","version":"1"}}"#
            }
            Some("tools/list") => &listing,
            Some("tools/call") => r#""result":{"content":[{"type":"text","text":"seen"}]}"#,
            _ => r#""error":{"code":-32601,"message":"no such method"}"#,
        };
        writeln!(output, r#"{{"jsonrpc":"2.0","id":{},{answer}}}"#, id.to_canonical_string())?;
        output.flush()?;
    }
    Ok(())
}

/// All tools on one page, each with a description and a schema of the usual size.
fn listing(tools: usize) -> String {
    let tools: Vec<String> = (0..tools)
        .map(|number| {
            format!(
                r#"{{"name":"{}","description":"Looks a record up by its number and gives the fields that are asked for, newest first.","inputSchema":{{"type":"object","additionalProperties":false,"required":["record"],"properties":{{"record":{{"type":"integer","minimum":0,"description":"The number of the record."}},"fields":{{"type":"array","maxItems":32,"items":{{"type":"string","maxLength":64}},"description":"The names of fields; all without them."}},"since":{{"type":"string","description":"A day, as in 2026-01-31."}}}}}},"annotations":{{"readOnlyHint":true}}}}"#,
                tool(number)
            )
        })
        .collect();
    format!(r#""result":{{"tools":[{}]}}"#, tools.join(","))
}
