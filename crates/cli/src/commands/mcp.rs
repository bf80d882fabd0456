//! `ostler mcp`: tools for agents on the standard streams, over a store and without a node.

use std::sync::Arc;

use anyhow::Context as _;
use async_trait::async_trait;
use ostler_exec::ThreadEnvironment;
use ostler_server::{Access, Audit, Examiner, LocalApi, LocalParts, mcp};
use ostler_store::SystemClock;
use ostler_wire::system::FindingView;

use super::{Console, config};
use crate::args::McpArgs;
use crate::config::StoreUrl;
use crate::doctor::{Subject, examine};
use crate::exit::{Code, refused};
use crate::store_location::{IfMissing, OpenMode};
use crate::up::beside;

/// The name of changes in the audit.
const WHO: &str = "mcp";

pub(super) async fn run(console: &Console, what: &McpArgs) -> anyhow::Result<Code> {
    if what.skill {
        console.out.text(mcp::SKILL)?;
        return Ok(Code::Done);
    }
    let (access, missing) = match what.allow_changes {
        true => (Access::Full, IfMissing::Make),
        false => (Access::Read, IfMissing::Refuse),
    };
    let place = console.place()?;
    let audit = Audit::at(&beside(place.url(), "audit.jsonl")?);
    // It stays, and waits for the ends of tasks.
    let store = place.open_for(OpenMode::Long, missing).await?.store();
    let api = LocalApi::new(LocalParts {
        store,
        clock: Arc::new(SystemClock),
        ids: ostler::ids().context("cannot get random bytes from the system")?,
        bounds: place.bounds(),
        keep: place.keep(),
        strays: place.strays(),
        audit,
        examiner: Arc::new(StoreExaminer { store: place.url().clone() }),
        who: WHO,
        access,
    });
    let served = mcp::serve(api, env!("CARGO_PKG_VERSION")).await;
    served.map_err(|error| refused(Code::BadInput, format!("mcp: {error}")))?;
    Ok(Code::Done)
}

/// `ostler doctor`, with the config of this folder and without a supervisor.
struct StoreExaminer {
    store: StoreUrl,
}

#[async_trait]
impl Examiner for StoreExaminer {
    async fn examine(&self) -> Vec<FindingView> {
        examine(Subject {
            store: Some(self.store.clone()),
            config: config::here().map(|path| config::read(&path)),
            containment: None,
            threads: Some(ThreadEnvironment::here()),
            clock: Arc::new(SystemClock),
        })
        .await
    }
}
