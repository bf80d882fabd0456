//! The list of pool kinds: each word that `executor = "…"` may be. A new kind is one line here.

use ostler_agent::gateway::{HttpKind, ProcessWithGateway};
use ostler_agent::{AgentKind, LlmKind};
use ostler_config::PoolKind;
use ostler_isolate::IsolateKind;
use ostler_process::{AdhocKind, CommandKind};

/// The example of the first one shows the keys of all pools.
pub(crate) const POOL_KINDS: &[&dyn PoolKind] =
    &[&CommandKind, &ProcessWithGateway, &AgentKind, &LlmKind, &HttpKind, &IsolateKind, &AdhocKind];
