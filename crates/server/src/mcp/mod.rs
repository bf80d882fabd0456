//! The Model Context Protocol: tools for agents, made from the table of operations, on the standard streams of a program.
//!
//! - `tools.rs`: the tools, and the schemas of their arguments. `arguments.rs`: from arguments to a request of an operation.
//! - `answers.rs`: answers as text within a bound. `SKILL.md`: for agents that read how to use a tool before they do.
//!
//! The protocol itself is that of the crate `rmcp`, which only this file knows (docs/decisions/0051-mcp.md). A caller without access to
//! changes sees no changing tool, and the guard refuses one that is called all the same.

mod answers;
mod arguments;
mod tools;

use std::sync::Arc;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool, ToolAnnotations,
};
use rmcp::service::{RequestContext, RoleServer, ServerInitializeError};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::io::stdio_pipes;
use rmcp::{ErrorData, ServerHandler, ServiceExt as _};
use tokio::sync::Semaphore;

use crate::answer::RequestError;
use crate::local::LocalApi;
use crate::operations::{Danger, OperationEffect};
use crate::tokens::Access;
use arguments::ToolCall;
pub use tools::{TOOLS, ToolSpec};

/// How agents use the tools, as a file of their skills.
pub const SKILL: &str = include_str!("SKILL.md");
/// The longest line of a client.
const MAX_LINE_BYTES: usize = 64 << 20;
/// Calls at once; more wait.
const MAX_CALLS: usize = 16;

const INSTRUCTIONS: &str = "Ostler is a durable worker pool: tasks in queues, jobs over many items, run by nodes. Start with `stats` and \
    `doctor`. `task` says in `waits_for` why a task has not started. A changed or stopped client loses nothing: tasks go on.";

/// Why the protocol ended.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct McpError(String);

/// Serves a client on the standard streams until it closes them.
///
/// # Errors
/// When the client does not speak the protocol.
pub async fn serve(api: LocalApi, version: &str) -> Result<(), McpError> {
    let (reader, writer) = stdio_pipes();
    let transport = AsyncRwTransport::new(reader, writer).with_max_line_length(MAX_LINE_BYTES);
    let tools = Tools { api: Arc::new(api), places: Semaphore::new(MAX_CALLS), version: version.to_owned() };
    match tools.serve(transport).await {
        Ok(service) => service.waiting().await.map(drop).map_err(|error| McpError(error.to_string())),
        // It went away before it said a word.
        Err(ServerInitializeError::ConnectionClosed(_)) => Ok(()),
        Err(error) => Err(McpError(error.to_string())),
    }
}

/// Answers the requests of one client.
struct Tools {
    api: Arc<LocalApi>,
    places: Semaphore,
    version: String,
}

impl ServerHandler for Tools {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("ostler", self.version.as_str()))
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(ToolSpec::allowed(self.api.access()).map(described).collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(tool) = TOOLS.iter().find(|tool| tool.name == request.name) else {
            return Err(ErrorData::invalid_params(format!("there is no tool {}", request.name), None));
        };
        let _place = self.places.acquire().await;
        let api = Arc::clone(&self.api);
        let done = async move { answer(&api, tool, request.arguments.unwrap_or_default()).await };
        let text = match tool.hints().effect {
            // A change is made to its end, though its client has lost interest.
            OperationEffect::Change => {
                tokio::spawn(done).await.unwrap_or_else(|error| Err(RequestError::busy(error.to_string())))
            }
            OperationEffect::Look => tokio::select! {
                text = done => text,
                () = context.ct.cancelled() => Err(RequestError::busy("the call was cancelled")),
            },
        };
        let result = match text {
            Ok(text) => CallToolResult::success(vec![ContentBlock::text(text)]),
            Err(error) => CallToolResult::error(vec![ContentBlock::text(sentence(&error))]),
        };
        Ok(result.into())
    }
}

async fn answer(
    api: &LocalApi,
    tool: &ToolSpec,
    arguments: serde_json::Map<String, serde_json::Value>,
) -> Result<String, RequestError> {
    if api.access() == Access::Read && tool.hints().effect == OperationEffect::Change {
        let message = format!(
            "{} changes something, and this server only looks: start it with --allow-changes",
            tool.name
        );
        return Err(RequestError::new(hyper::StatusCode::FORBIDDEN, "read_only", message));
    }
    let ToolCall { operation, request } = ToolCall::read(tool, arguments)?;
    answers::text(operation, api.run(operation, request).await?).await
}

/// An error for an agent: the sentence, and the code of the API.
fn sentence(error: &RequestError) -> String {
    format!("{} ({})", error.message, error.code)
}

fn described(tool: &ToolSpec) -> Tool {
    let hints = tool.hints();
    let annotations = ToolAnnotations::with_title(tool.title).open_world(false);
    let annotations = match hints.effect {
        OperationEffect::Look => annotations.read_only(true).destructive(false).idempotent(true),
        OperationEffect::Change => annotations.read_only(false).destructive(match hints.danger {
            Danger::None => false,
            Danger::Disruptive | Danger::Destructive => true,
        }),
    };
    Tool::new(tool.name, tool.description(), Arc::new(tool.schema()))
        .with_title(tool.title)
        .with_annotations(annotations)
}
