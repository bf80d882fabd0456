//! A hook that runs a command, as a child of the node's supervisor.

use std::time::Duration;

use async_trait::async_trait;
use ostler_core::{Id, Outcome, WorkerId};
use ostler_exec::{Control, Executor as _, Work, event_channel};
use ostler_ops::hooks::{HookAttempt, HookError, HookNotice};
use ostler_process::supervisor::Supervisor;
use ostler_process::{Command, CommandPolicy, PolicyError};

/// How long a command may take to stop after its timeout. Then it is killed.
const GRACE: Duration = Duration::from_secs(2);

pub(super) struct CommandHook(Command);

impl CommandHook {
    pub(super) fn new(supervisor: Supervisor, policy: CommandPolicy) -> Result<Self, PolicyError> {
        Command::new(supervisor, policy).map(Self)
    }
}

#[async_trait]
impl HookAttempt for CommandHook {
    async fn run(&self, notice: &HookNotice, timeout: Duration) -> Result<(), HookError> {
        let work = Work {
            task: notice.task,
            token: 0,
            // The hook is not a worker of a pool.
            worker: WorkerId(Id::from_bits(0)),
            attempt: notice.attempt,
            queue: notice.queue.as_str().into(),
            kind: notice.kind.as_str().into(),
            payload: notice.view.json(),
            timeout,
            grace: GRACE,
            folder: None,
            traceparent: None,
        };
        // If the command fails, the last line of its stderr is part of the message.
        let (said, _unheard) = event_channel();
        match self.0.run(work, Control::new(said)).await.outcome {
            Outcome::Success => Ok(()),
            Outcome::Failed(failure) => Err(HookError::MayPass(failure.message)),
            Outcome::NodeDied | Outcome::HandedBack | Outcome::Cancelled => {
                Err(HookError::MayPass("stopped".to_owned()))
            }
        }
    }
}
