//! A worker process: a child that runs many tasks. From its start to its ready frame, between two tasks, and to its exit.

use std::pin::Pin;
use std::time::Duration;

use ostler_core::{ErrorClass, Failure, WorkerId};
use tokio::time::{Instant, Sleep};

use super::attempt::Attempt;
use super::connection::{Connection, ConnectionEvent, Listening, Nonsense};
use super::end_reason::strange;
use super::extension::{KnownContents, WorkerExtension, WorkerSocket};
use super::incoming::{IncomingFrame, ReadyFrame};
use super::outgoing::{self, PROTOCOL};
use super::policy::{ProcessPolicy, Recycle};
use super::ready::{Announced, announced};
use super::recent_attempts::RecentAttempts;
use crate::command::verdict;
use crate::folders::TaskFolders;
use crate::lines::{Tail, reason};
use crate::sandbox::{Private, SandboxInstance};
use crate::stall::StallWatch;
use crate::supervisor::{
    Child, Exit, Launch, SOCKET_FD, Socket, SpawnError, Stdin, Supervisor, SupervisorGone, Variables,
};

/// The variable with the descriptor of the worker's socket.
const FD_VARIABLE: &str = "OSTLER_FD";
/// How long a kill may take. A process that is still alive then hangs in the kernel, and is not waited for.
const MAX_KILL: Duration = Duration::from_secs(2);

pub(super) struct WorkerProcess {
    pub(super) child: Child,
    pub(super) link: Connection,
    /// The end of its output between attempts. Output during an attempt belongs to the attempt, and never appears here.
    pub(super) idle_tail: Tail,
    /// The end of its output while it ran several attempts.
    pub(super) crowd_tail: Tail,
    pub(super) recent: RecentAttempts,
    /// Those in flight.
    pub(super) attempts: Vec<Attempt>,
    /// How many it can run at once.
    pub(super) slots: usize,
    pub(super) stage: ProcessStage,
    /// When the current stage has lasted too long, unless it is serving.
    pub(super) timer: Pin<Box<Sleep>>,
    pub(super) cause: EndCause,
    /// It has exited, or cannot be killed.
    pub(super) is_over: bool,
    pub(super) stuck_after: Option<Duration>,
    pub(super) stall: StallWatch,
    /// Attempts that it has run.
    pub(super) tasks: u64,
    pub(super) recycle: Recycle,
    /// When its memory was last measured for recycling.
    pub(super) weighed: Instant,
    /// It exits when its attempt has its result.
    pub(super) is_leaving: bool,
    pub(super) known: KnownContents,
    /// What its first task should say about it.
    pub(super) warning: Option<String>,
    /// Its temporary folder, if it is in a sandbox.
    _private: Option<Private>,
}

/// How far the end of a worker process has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProcessStage {
    Serving,
    /// It has closed its socket, and is about to exit.
    Leaving,
    /// SIGTERM was sent.
    Terminating,
    /// SIGKILL was sent.
    Killed,
}

/// Why the node ends a worker process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndCause {
    /// One of its attempts did not stop. The others did nothing wrong.
    Attempt,
    /// It broke the protocol, does nothing, or died.
    Process,
}

/// Why a worker did not start.
pub(super) enum NotUp {
    /// The node lacks a resource that any child needs; this names it.
    Short(String),
    Failed(Failure),
}

impl From<Failure> for NotUp {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl WorkerProcess {
    /// Starts a worker, and waits until it is ready. `spawned` learns its pid before that.
    pub(super) async fn start(
        supervisor: &Supervisor,
        policy: &ProcessPolicy,
        sandbox: Option<&SandboxInstance>,
        folders: &TaskFolders,
        extension: Option<&dyn WorkerExtension>,
        id: WorkerId,
        spawned: impl FnOnce(i32) + Send,
    ) -> Result<(Self, Announced), NotUp> {
        let until = Instant::now() + policy.ready_timeout;
        let late = || {
            let message = format!("the worker was not ready within {:?}", policy.ready_timeout);
            Failure::new(ErrorClass::Crash, message)
        };
        let mut set = policy.environment.variables(&policy.secrets);
        let socket = extension.map_or(WorkerSocket::Inherited, WorkerExtension::socket);
        let (stdin, socket, descriptor) = match socket {
            WorkerSocket::Inherited => (Stdin::Nothing, Socket::Pair, SOCKET_FD),
            WorkerSocket::StandardInput => (Stdin::Socket, Socket::None, 0),
        };
        set.push((FD_VARIABLE.to_owned(), descriptor.to_string()));
        let (confinement, private, own) = match sandbox {
            None => (None, None, None),
            Some(sandbox) => {
                let own = folders.root()?.map(|(root, _)| root);
                let confined = sandbox.confine(own.as_deref(), &mut set);
                let (confinement, private) = confined.map_err(|error| error.failure())?;
                (Some(confinement), Some(private), own)
            }
        };
        let launch = Launch {
            argv: policy.argv.iter().cloned().map(Into::into).collect(),
            start: None,
            own,
            folder: policy.folders.start(),
            keep: policy.environment.keep.clone(),
            set: Variables(set),
            stdin,
            socket,
            confinement,
        };
        let child = tokio::time::timeout_at(until, supervisor.spawn(launch)).await.map_err(|_| late())?;
        let program = policy.argv.first().map_or("", String::as_str);
        let folder = policy.folders.start();
        let mut child = child.map_err(|error| match error {
            SpawnError::Short { .. } => NotUp::Short(error.to_string()),
            SpawnError::Pipe(_) | SpawnError::Refused { .. } | SpawnError::TooLarge | SpawnError::Gone(_) => {
                verdict::not_spawned(program, folder.as_deref(), &error).into()
            }
        })?;
        spawned(child.pid());
        let link = Connection::to(&mut child, &policy.secrets);
        let now = Instant::now();
        let mut worker = Self {
            stall: StallWatch::new(None, child.pid()),
            child,
            link,
            idle_tail: Tail::default(),
            crowd_tail: Tail::default(),
            recent: RecentAttempts::new(policy.per_worker),
            attempts: Vec::new(),
            slots: 1,
            stage: ProcessStage::Serving,
            timer: Box::pin(tokio::time::sleep_until(now)),
            cause: EndCause::Attempt,
            is_over: false,
            stuck_after: policy.stuck_after,
            tasks: 0,
            recycle: policy.recycle,
            weighed: now,
            is_leaving: false,
            known: KnownContents::default(),
            warning: None,
            _private: private,
        };
        let name = format!("w-{id}");
        let more = extension.map(WorkerExtension::hello).unwrap_or_default();
        worker.link.say(|into| outgoing::hello(into, &policy.pool, &name, policy.per_worker, &more));
        match tokio::time::timeout_at(until, worker.become_ready(policy.per_worker)).await {
            Ok(Ok(announced)) => {
                worker.slots = announced.slots;
                worker.warning.clone_from(&announced.warning);
                Ok((worker, announced))
            }
            Ok(Err(failure)) => Err(worker.with_last_words(failure).into()),
            Err(_) => Err(worker.with_last_words(late()).into()),
        }
    }

    /// Adds the output before the failure as its details.
    fn with_last_words(&mut self, failure: Failure) -> Failure {
        self.link.read_rest(|_, chunk| self.idle_tail.take(chunk));
        let details = self.idle_tail.text();
        let last = details.as_deref().and_then(reason);
        let message = match last {
            Some(line) => format!("{}: {line}", failure.message),
            None => failure.message,
        };
        Failure { message, details, ..failure }
    }

    async fn become_ready(&mut self, per_worker: usize) -> Result<Announced, Failure> {
        loop {
            match self.next().await {
                IdleEvent::Said(IncomingFrame::Ready(ready @ ReadyFrame { protocol: PROTOCOL, .. })) => {
                    return announced(ready, per_worker).map_err(crash);
                }
                IdleEvent::Said(IncomingFrame::Ready(ReadyFrame { protocol, .. })) => {
                    return Err(crash(format!(
                        "speaks version {protocol} of the protocol, but this node speaks {PROTOCOL}"
                    )));
                }
                IdleEvent::Said(IncomingFrame::Unknown | IncomingFrame::Leaving) => {}
                IdleEvent::Said(IncomingFrame::Of { id, token, .. }) => {
                    return Err(crash(strange(&id, token, &[])));
                }
                IdleEvent::Nonsense(nonsense) => return Err(senseless(&nonsense)),
                IdleEvent::Ended(exit) => return Err(died(exit, "before it was ready")),
            }
        }
    }

    /// Waits, between two tasks, until the worker is gone. Its output belongs to no task.
    pub(super) async fn rest(&mut self) -> Failure {
        loop {
            let failure = match self.next().await {
                IdleEvent::Said(
                    IncomingFrame::Unknown | IncomingFrame::Leaving | IncomingFrame::Ready(_),
                ) => continue,
                IdleEvent::Said(IncomingFrame::Of { id, token, .. }) if self.recent.has(&id, token) => {
                    continue;
                }
                IdleEvent::Said(IncomingFrame::Of { id, token, .. }) => crash(strange(&id, token, &[])),
                IdleEvent::Nonsense(nonsense) => senseless(&nonsense),
                IdleEvent::Ended(exit) => died(exit, "while it was idle"),
            };
            return self.with_last_words(failure);
        }
    }

    async fn next(&mut self) -> IdleEvent {
        loop {
            match self.link.next() {
                Ok(Some(frame)) => return IdleEvent::Said(frame),
                Ok(None) => {}
                Err(nonsense) => return IdleEvent::Nonsense(nonsense),
            }
            tokio::select! {
                biased;
                exit = self.child.ended() => return IdleEvent::Ended(exit),
                moved = self.link.moved(Listening::Open) => match moved {
                    ConnectionEvent::Received => {}
                    ConnectionEvent::Wrote(_) => self.idle_tail.take(&self.link.chunk),
                    ConnectionEvent::Closed => return IdleEvent::Ended(self.gasp().await),
                },
            }
        }
    }

    /// Handles a closed socket: the worker has died, or is of no more use.
    async fn gasp(&mut self) -> Result<Exit, SupervisorGone> {
        const LAST_GASP: Duration = Duration::from_secs(1);
        if let Ok(exit) = tokio::time::timeout(LAST_GASP, self.child.ended()).await {
            return exit;
        }
        self.child.kill();
        self.child.ended().await
    }

    /// Ends the worker: by a frame, after the grace period by SIGTERM, after another one by SIGKILL.
    pub(super) async fn end(mut self, grace: Duration) {
        self.link.say(outgoing::stop);
        if self.is_over_within(grace).await {
            return;
        }
        self.child.terminate();
        if self.is_over_within(grace).await {
            return;
        }
        self.child.kill();
        let _ = tokio::time::timeout(MAX_KILL, self.child.ended()).await;
    }

    /// Reads until the worker has exited, so that its output does not block it.
    async fn is_over_within(&mut self, time: Duration) -> bool {
        let over = async {
            loop {
                tokio::select! {
                    biased;
                    _ = self.child.ended() => return,
                    _ = self.link.moved(Listening::Open) => while let Ok(Some(_)) = self.link.next() {},
                }
            }
        };
        tokio::time::timeout(time, over).await.is_ok()
    }
}

/// The next event of a worker between attempts.
enum IdleEvent {
    Said(IncomingFrame),
    Nonsense(Nonsense),
    Ended(Result<Exit, SupervisorGone>),
}

fn crash(what: impl std::fmt::Display) -> Failure {
    Failure::new(ErrorClass::Crash, format!("the worker {what}"))
}

fn senseless(nonsense: &Nonsense) -> Failure {
    match nonsense {
        Nonsense::Bad(error) => Failure::new(ErrorClass::Crash, error.to_string()),
        Nonsense::Long(_) => crash("sent a frame that is longer than 16 MiB"),
    }
}

fn died(exit: Result<Exit, SupervisorGone>, when: &str) -> Failure {
    match exit {
        Ok(exit) => Failure { hint: verdict::hint(exit), ..crash(format!("{} {when}", verdict::how(exit))) },
        Err(gone) => Failure::new(ErrorClass::Crash, gone.to_string()),
    }
}
