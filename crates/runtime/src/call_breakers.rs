//! Breakers around calls of handlers, kept in the store.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use ostler_core::{BreakerPolicy, CallAdmission, CallResult, Pass};
use ostler_exec::{BreakerStore, CallPass, TaskError};
use ostler_store::call_breakers::BreakerUse;
use ostler_store::{Error, Store};

pub(crate) struct StoredBreakers(pub(crate) Arc<dyn Store>);

impl fmt::Debug for StoredBreakers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredBreakers").finish_non_exhaustive()
    }
}

#[async_trait]
impl BreakerStore for StoredBreakers {
    async fn ask(&self, name: &str, policy: BreakerPolicy) -> Result<CallPass, TaskError> {
        let pass = self.0.call_breaker(name, policy, BreakerUse::Ask).await;
        Ok(match pass.map_err(|error| refused(name, &error))? {
            Pass::Go => CallPass::Go(CallAdmission::Usual),
            Pass::Probe => CallPass::Go(CallAdmission::Probe),
            Pass::Wait(None) => CallPass::Wait(None),
            Pass::Wait(Some(until)) => {
                let now = self.0.now().await.map_err(|error| refused(name, &error))?;
                CallPass::Wait(Some(until.since(now)))
            }
        })
    }

    async fn report(&self, name: &str, policy: BreakerPolicy, result: CallResult) -> Result<(), TaskError> {
        let reported = self.0.call_breaker(name, policy, BreakerUse::Report(result)).await;
        reported.map(drop).map_err(|error| refused(name, &error))
    }
}

fn refused(name: &str, error: &Error) -> TaskError {
    let message = format!("the breaker \"{name}\" cannot be used: {error}");
    if error.is_transient() { TaskError::transient(message) } else { TaskError::permanent(message) }
}
