//! Guard: the executor of a pool with secrets. What its work says and how it ends passes here, before anything else sees it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use ostler_core::{Failure, Outcome, Overrides, WorkerId};
use serde::de::IgnoredAny;

use super::{OutputRedaction, Secrets};
use crate::contract::{AttemptResult, Control, Executor, Served, Vitals, Work, WorkerOpening};

pub(super) struct Guarded {
    executor: Arc<dyn Executor>,
    secrets: Secrets,
}

impl Guarded {
    pub(super) const fn new(executor: Arc<dyn Executor>, secrets: Secrets) -> Self {
        Self { executor, secrets }
    }

    fn without_secrets(&self, mut ended: AttemptResult) -> AttemptResult {
        if let Outcome::Failed(failure) = &mut ended.outcome {
            self.secrets.redact_failure(failure);
        }
        if let Some(shortage) = &mut ended.shortage {
            self.secrets.redact_in(shortage);
        }
        match (self.secrets.outputs(), &mut ended.output) {
            (OutputRedaction::On, Some(output)) => self.redact_json(output),
            (OutputRedaction::On, None) | (OutputRedaction::Off, _) => {}
        }
        ended
    }

    /// An output stays JSON: one that is a secret itself, such as a number or a key in JSON, becomes a string.
    fn redact_json(&self, output: &mut String) {
        let Cow::Owned(redacted) = self.secrets.redact(output) else { return };
        let is_json = serde_json::from_str::<IgnoredAny>(&redacted).is_ok();
        *output = if is_json { redacted } else { serde_json::Value::String(redacted).to_string() };
    }
}

#[async_trait]
impl Executor for Guarded {
    fn served(&self) -> Served {
        self.executor.served()
    }

    fn capacity(&self) -> Option<usize> {
        self.executor.capacity()
    }

    fn per_worker(&self) -> usize {
        self.executor.per_worker()
    }

    fn slots(&self, worker: WorkerId) -> usize {
        self.executor.slots(worker)
    }

    fn kind_options(&self) -> BTreeMap<String, Overrides> {
        self.executor.kind_options()
    }

    async fn open(&self, worker: WorkerId) -> WorkerOpening {
        match self.executor.open(worker).await {
            WorkerOpening::Ready => WorkerOpening::Ready,
            WorkerOpening::Failed(mut failure) => {
                self.secrets.redact_failure(&mut failure);
                WorkerOpening::Failed(failure)
            }
            WorkerOpening::Short(what) => WorkerOpening::Short(self.secrets.redact(&what).into_owned()),
        }
    }

    async fn close(&self, worker: WorkerId) {
        self.executor.close(worker).await;
    }

    async fn ended(&self, worker: WorkerId) -> Failure {
        let mut failure = self.executor.ended(worker).await;
        self.secrets.redact_failure(&mut failure);
        failure
    }

    fn abandon(&self, worker: WorkerId) {
        self.executor.abandon(worker);
    }

    fn vitals(&self, worker: WorkerId) -> Vitals {
        self.executor.vitals(worker)
    }

    async fn run(&self, work: Work, mut control: Control) -> AttemptResult {
        control.events.redact(&self.secrets);
        control.secrets = self.secrets.clone();
        self.without_secrets(self.executor.run(work, control).await)
    }
}
