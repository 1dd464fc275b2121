//! What the protocol asks of a server, answered by what is served.

use std::sync::Arc;

use portcullis_canon::{Object, Value, from_value, to_value};
use portcullis_domain::ports::BoxFuture;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CompleteRequestMethod,
    CompleteRequestParams, CompleteResult, CompletionInfo, ConstString, ContentBlock, ErrorCode,
    ErrorData, GetPromptRequestMethod, GetPromptRequestParams, GetPromptResponse, GetPromptResult,
    Implementation, JsonObject, ListPromptsRequestMethod, ListPromptsResult,
    ListResourceTemplatesRequestMethod, ListResourceTemplatesResult, ListResourcesRequestMethod,
    ListResourcesResult, ListToolsResult, PaginatedRequestParams, ProgressNotificationParam,
    PromptsCapability, ReadResourceRequestMethod, ReadResourceRequestParams, ReadResourceResponse,
    ReadResourceResult, ResourcesCapability, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServerHandler};
use serde::de::DeserializeOwned;

use super::block::{block, message, resource};
use super::message::RawCall;
use super::mirror::mirrored;
use super::open::OpenCall;
use super::{
    Hearing, HostAsk, HostCall, HostCompletion, HostProgress, HostRefusal, Served, ServedTool,
};
use crate::needs;
use crate::offer::OfferKind;

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
    /// What is offered follows from what is served. Nothing is subscribed to, and no list changes while a connection lasts.
    fn get_info(&self) -> ServerConfig {
        let kinds = self.served.kinds();
        let mut capabilities = ServerCapabilities::builder().enable_tools().build();
        capabilities.resources = kinds.resources.then(ResourcesCapability::default);
        capabilities.prompts = kinds.prompts.then(PromptsCapability::default);
        capabilities.completions = kinds.completions.then(JsonObject::default);
        let mut info = ServerConfig::new(capabilities);
        info.server_info = Implementation::new(NAME, env!("CARGO_PKG_VERSION"));
        info.with_instructions(self.served.instructions())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = self.served.tools();
        given("tools", tools.iter().map(|tool| Value::Object(advertised(tool))).collect())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        self.offered::<ListResourcesRequestMethod, _>(OfferKind::Resource)
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        self.offered::<ListResourceTemplatesRequestMethod, _>(OfferKind::Template)
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        self.offered::<ListPromptsRequestMethod, _>(OfferKind::Prompt)
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        if !self.served.kinds().resources {
            return Err(ErrorData::method_not_found::<ReadResourceRequestMethod>());
        }
        let (_, ask, ear) = asked(context);
        let uri = request.uri.clone();
        let contents = self.served.read(request.uri, ask, &ear).await;
        let contents = contents.map_err(|refusal| missing(refused(refusal), &uri))?;
        let read: ReadResourceResult = given("contents", contents.iter().map(resource).collect())?;
        Ok(read.into())
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        if !self.served.kinds().prompts {
            return Err(ErrorData::method_not_found::<GetPromptRequestMethod>());
        }
        let (arguments, ask, ear) = asked(context);
        let Value::Object(arguments) = arguments else {
            return Err(ErrorData::invalid_params("`arguments` has to be an object", None));
        };
        let prompt = self.served.prompt(request.name, arguments, ask, &ear).await;
        let messages = prompt.map_err(refused)?;
        let got: GetPromptResult = given("messages", messages.iter().map(message).collect())?;
        Ok(got.into())
    }

    async fn complete(
        &self,
        mut request: CompleteRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        if !self.served.kinds().completions {
            return Err(ErrorData::method_not_found::<CompleteRequestMethod>());
        }
        request.meta = None;
        let Ok(Value::Object(params)) = to_value(&request) else {
            return Err(ErrorData::invalid_params("the parameters have to be an object", None));
        };
        let (_, ask, ear) = asked(context);
        let completion = self.served.complete(params, ask, &ear).await.map_err(refused)?;
        let HostCompletion { values, total, has_more } = completion;
        let info = CompletionInfo::with_pagination(values, total, has_more.unwrap_or(false));
        let info = info.map_err(|_| ErrorData::internal_error("too many values", None))?;
        Ok(CompleteResult::new(info))
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
        content.extend(reply.blocks.iter().filter_map(|given| from_value(&block(given)).ok()));
        let mut result = match reply.failed {
            true => CallToolResult::error(content),
            false => CallToolResult::success(content),
        };
        result.structured_content = reply.structured.map(Value::Object).and_then(exact);
        Ok(result.into())
    }
}

impl Handler {
    /// A listing of a kind that is served.
    fn offered<M: ConstString, T: DeserializeOwned>(
        &self,
        kind: OfferKind,
    ) -> Result<T, ErrorData> {
        let kinds = self.served.kinds();
        let served = match kind {
            OfferKind::Resource | OfferKind::Template => kinds.resources,
            OfferKind::Prompt => kinds.prompts,
        };
        if !served {
            return Err(ErrorData::method_not_found::<M>());
        }
        let entries = self.served.offers(kind);
        given(kind.member(), entries.into_iter().map(Value::Object).collect())
    }
}

/// A result with these entries, as the library holds it. Each says what holds now, to whoever asked for it.
fn given<T: DeserializeOwned>(member: &str, entries: Vec<Value>) -> Result<T, ErrorData> {
    let mut object = Object::new();
    object.insert(member, entries);
    object.insert("resultType", "complete");
    object.insert("ttlMs", 0_u64);
    object.insert("cacheScope", "private");
    from_value(&Value::Object(object))
        .map_err(|_| ErrorData::internal_error("the answer cannot be given", None))
}

/// The arguments of a request, what stands beside it, and the host while it waits.
fn asked(context: RequestContext<RoleServer>) -> (Value, HostAsk, Ear) {
    let raw = RawCall::of(&context.extensions).cloned().unwrap_or_default();
    let RawCall { arguments, meta, connection, open } = raw;
    (arguments, HostAsk { meta, connection }, Ear { context, open })
}

/// The number of an answer that has a word for the model, where the protocol has no other place for it.
const REFUSED: ErrorCode = ErrorCode(-32_000);

fn refused(refusal: HostRefusal) -> ErrorData {
    match refusal {
        HostRefusal::Unknown => ErrorData::resource_not_found("there is no such thing", None),
        HostRefusal::Told(words) => ErrorData::new(REFUSED, words, None),
    }
}

/// What there is not is named by its URI.
fn missing(error: ErrorData, uri: &str) -> ErrorData {
    let mut named = Object::new();
    named.insert("uri", uri);
    let data = from_value(&Value::Object(named)).ok();
    match error.code {
        ErrorCode::RESOURCE_NOT_FOUND => ErrorData { data, ..error },
        _ => error,
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

/// A value as the library holds it; nothing where that is another one.
fn exact<T: DeserializeOwned + serde::Serialize>(value: Value) -> Option<T> {
    let held: T = from_value(&value).ok()?;
    (to_value(&held).ok()? == value).then_some(held)
}

/// The host, while it waits for one call.
struct Ear {
    context: RequestContext<RoleServer>,
    open: Option<Arc<OpenCall>>,
}

impl Hearing for Ear {
    fn progress(&self, progress: HostProgress) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let Some(token) = self.context.meta.get_progress_token() else { return };
            let mut notice = ProgressNotificationParam::new(token, progress.so_far);
            notice.total = progress.total;
            notice.message = progress.message.map(str::to_owned);
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
