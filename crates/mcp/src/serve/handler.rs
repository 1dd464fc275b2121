//! What the protocol asks of a server, answered by what is served.

use std::sync::Arc;

use portcullis_canon::{Object, Value, from_value, to_value};
use portcullis_domain::ports::BoxFuture;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorCode, ErrorData,
    Implementation, ListToolsResult, PaginatedRequestParams, ProgressNotificationParam,
    ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServerHandler};

use super::message::RawCall;
use super::mirror::mirrored;
use super::open::OpenCall;
use super::{Hearing, HostBlob, HostCall, Served, ServedTool};
use crate::needs;

/// The name by which a host knows what it talks to.
const NAME: &str = "gated-tools";

/// What each request of the revision without sessions says beside its parameters.
const STATELESS: &str = "io.modelcontextprotocol/protocolVersion";

/// Speaks for what is served.
pub(super) struct Handler {
    served: Arc<dyn Served>,
}

impl Handler {
    pub(super) fn new(served: Arc<dyn Served>) -> Self {
        Self { served }
    }
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        let mut info = ServerConfig::new(ServerCapabilities::builder().enable_tools().build());
        info.server_info = Implementation::new(NAME, env!("CARGO_PKG_VERSION"));
        info.with_instructions(self.served.instructions())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools: Vec<Value> =
            self.served.tools().iter().map(|tool| Value::Object(advertised(tool))).collect();
        let mut listing = Object::new();
        listing.insert("tools", tools);
        // Each listing says what can be called now, to whoever asked for it.
        listing.insert("resultType", "complete");
        listing.insert("ttlMs", 0_u64);
        listing.insert("cacheScope", "private");
        from_value(&Value::Object(listing))
            .map_err(|_| ErrorData::internal_error("the tools cannot be listed", None))
    }

    /// Asked for before a call over HTTP, whose headers have to say what the marked arguments say.
    fn get_tool(&self, name: &str) -> Option<Tool> {
        let tool = self.served.tool(name)?;
        mirrored(&tool.input_schema, &Value::Null)?;
        from_value(&Value::Object(advertised(&tool))).ok()
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let malformed =
            |message: &'static str| ErrorData::new(ErrorCode::INVALID_PARAMS, message, None);
        let raw = RawCall::of(&context.extensions)
            .cloned()
            .ok_or_else(|| malformed("the call came without its bytes"))?;
        let Value::Object(arguments) = raw.arguments else {
            return Err(malformed("`arguments` has to be an object"));
        };
        if self.served.tool(&request.name).is_none() {
            return Err(malformed("there is no tool of that name"));
        }
        let RawCall { meta, connection, open, .. } = raw;
        let stateless = meta.contains_key(STATELESS);
        let call = HostCall { tool: request.name.into_owned(), arguments, meta, connection };
        let reply = self.served.call(call, &Ear { context, open }).await;
        if let Some(needs) = reply.needs.filter(|_| stateless) {
            let data = from_value(&needs.data()).ok();
            return Err(ErrorData::new(ErrorCode(needs::CODE), reply.text, data));
        }
        let mut content = vec![ContentBlock::text(reply.text)];
        content.extend(reply.blobs.into_iter().map(block));
        let mut result = match reply.failed {
            true => CallToolResult::error(content),
            false => CallToolResult::success(content),
        };
        result.structured_content = reply.structured.map(Value::Object).and_then(exact);
        Ok(result.into())
    }
}

/// The entry of one tool in a listing.
fn advertised(tool: &ServedTool) -> Object {
    let mut hints = Object::new();
    hints.insert("readOnlyHint", tool.read_only);
    hints.insert("destructiveHint", tool.destructive);
    let mut entry = Object::new();
    entry.insert("name", tool.name.as_str());
    entry.insert("description", tool.description.as_str());
    entry.insert("inputSchema", tool.input_schema.clone());
    entry.insert("annotations", hints);
    entry
}

/// A blob as the protocol has it.
fn block(blob: HostBlob) -> ContentBlock {
    let HostBlob { media_type, base64 } = blob;
    match media_type.starts_with("audio/") {
        true => ContentBlock::audio(base64, media_type),
        false => ContentBlock::image(base64, media_type),
    }
}

/// A value as the library holds it; nothing where that is another one.
fn exact<T: serde::de::DeserializeOwned + serde::Serialize>(value: Value) -> Option<T> {
    let held: T = from_value(&value).ok()?;
    (to_value(&held).ok()? == value).then_some(held)
}

/// The host, while it waits for one call.
struct Ear {
    context: RequestContext<RoleServer>,
    open: Option<Arc<OpenCall>>,
}

impl Hearing for Ear {
    fn progress<'a>(&'a self, so_far: u64, message: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let Some(token) = self.context.meta.get_progress_token() else { return };
            let so_far = f64::from(u32::try_from(so_far).unwrap_or(u32::MAX));
            let notice = ProgressNotificationParam::new(token, so_far).with_message(message);
            // Whoever does not hear it misses nothing: the answer comes by itself.
            let _ = self.context.peer.notify_progress(notice).await;
        })
    }

    fn cancelled(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            match &self.open {
                Some(open) => tokio::select! {
                    () = self.context.ct.cancelled() => {}
                    () = open.given_up() => {}
                },
                None => self.context.ct.cancelled().await,
            }
        })
    }
}
