//! Events of a task as a live stream: numbered and durable, so a reader that was cut off goes on at any node, without a gap.
//!
//! A reader catches up from the store by itself. Then it joins the watcher of its task, of which a server has one however many readers
//! there are: it reads each new event once, and keeps the newest in a ring. A reader that falls behind the ring catches up again. The
//! watcher ends with its last reader.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, Weak};

use bytes::Bytes;
use ostler_core::TaskId;
use ostler_ops::logs::{LogPage, LogTail};
use ostler_store::Store;
use ostler_store::events::Event;
use ostler_wire::event::EventView;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::sse::{EventWriter, Gone, PING, event, notice};

/// Events that a ring keeps, and their bytes.
const RING_EVENTS: usize = 1_000;
const RING_BYTES: usize = 4 << 20;

/// Whether a stream has the raw lines of agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum RawLines {
    Sent,
    LeftOut,
}

type Watched = (TaskId, RawLines);

/// The watchers of a server.
pub(crate) struct TaskStreams {
    store: Arc<dyn Store>,
    watched: Mutex<HashMap<Watched, Weak<TaskWatch>>>,
    /// One permit is taken by each watcher that runs.
    running: Arc<Semaphore>,
}

/// Watchers at once; there are never more than streams.
const MAX_WATCHERS: usize = 1 << 20;

/// One watcher, shared by the readers of a task.
struct TaskWatch {
    state: watch::Receiver<WatchState>,
    ring: Arc<Mutex<EventRing>>,
    /// Ends the watcher with its last reader.
    _stop: DropGuard,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WatchState {
    /// All events up to this number are in the ring, or were.
    Open {
        newest: u64,
    },
    Ended {
        newest: u64,
    },
    /// The store failed, or the task was removed: readers are closed, and may come back.
    Lost,
}

/// The newest events, as they are sent.
struct EventRing {
    /// It has all events after this number.
    from: u64,
    events: VecDeque<(u64, Bytes)>,
    bytes: usize,
}

impl EventRing {
    fn push(&mut self, number: u64, piece: Bytes) {
        self.bytes += piece.len();
        self.events.push_back((number, piece));
        while self.events.len() > RING_EVENTS || self.bytes > RING_BYTES {
            let Some((number, piece)) = self.events.pop_front() else { break };
            self.bytes -= piece.len();
            self.from = number;
        }
    }

    /// The events after this number; `None` if some of them are gone.
    fn after(&self, number: u64) -> Option<Vec<(u64, Bytes)>> {
        if number < self.from {
            return None;
        }
        Some(self.events.iter().filter(|(known, _)| *known > number).cloned().collect())
    }
}

/// How a stream ended.
enum StreamEnd {
    TaskEnded,
    Lost,
    Gone,
}

impl From<Gone> for StreamEnd {
    fn from(Gone: Gone) -> Self {
        Self::Gone
    }
}

impl TaskStreams {
    pub(crate) fn new(store: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self { store, watched: Mutex::default(), running: Arc::new(Semaphore::new(MAX_WATCHERS)) })
    }

    /// Sends the events after this number to one reader, until the task has ended, the reader is gone, or the node stops.
    pub(crate) async fn serve(
        self: Arc<Self>,
        task: TaskId,
        raw: RawLines,
        after: u64,
        mut writer: EventWriter,
    ) {
        match self.follow(task, raw, after, &mut writer).await {
            Err(StreamEnd::TaskEnded) | Ok(()) => {
                let _ = writer.write(notice("end", "{}")).await;
            }
            // The reader comes back to where it was.
            Err(StreamEnd::Lost | StreamEnd::Gone) => {}
        }
    }

    async fn follow(
        &self,
        task: TaskId,
        raw: RawLines,
        after: u64,
        writer: &mut EventWriter,
    ) -> Result<(), StreamEnd> {
        let mut position = self.catch_up(task, raw, after, writer).await?;
        let watch = self.join(task, raw, position);
        let mut state = watch.state.clone();
        loop {
            // The state is read before the ring: what it promises is in the ring by then.
            let seen = *state.borrow_and_update();
            let next = watch.ring.lock().expect("no panic while a ring is held").after(position);
            match next {
                None => position = self.catch_up(task, raw, position, writer).await?,
                Some(events) => {
                    for (number, piece) in events {
                        writer.write(piece).await?;
                        position = number;
                    }
                }
            }
            match seen {
                WatchState::Open { newest } if newest > position => continue,
                WatchState::Ended { newest } if newest > position => continue,
                WatchState::Ended { .. } => return Ok(()),
                WatchState::Lost => return Err(StreamEnd::Lost),
                WatchState::Open { .. } => {}
            }
            tokio::select! {
                changed = tokio::time::timeout(PING, state.changed()) => match changed {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) => return Err(StreamEnd::Lost),
                    Err(_) => writer.comment().await?,
                },
                () = writer.stopped() => return Err(StreamEnd::Gone),
            }
        }
    }

    /// Sends what the store has after this number. Returns the number of the last event.
    async fn catch_up(
        &self,
        task: TaskId,
        raw: RawLines,
        after: u64,
        writer: &mut EventWriter,
    ) -> Result<u64, StreamEnd> {
        let (mut tail, mut position) = (tail(task, raw, after), after);
        loop {
            match tail.next(self.store.as_ref()).await {
                Ok(LogPage::Events(events)) => {
                    for one in &events {
                        writer.write(piece(one)).await?;
                        position = one.number;
                    }
                }
                Ok(LogPage::UpToDate) => return Ok(position),
                Ok(LogPage::Ended) => return Err(StreamEnd::TaskEnded),
                Err(_) => return Err(StreamEnd::Lost),
            }
        }
    }

    /// The watcher of a task, started after this number if there is none.
    fn join(&self, task: TaskId, raw: RawLines, position: u64) -> Arc<TaskWatch> {
        let mut watched = self.watched.lock().expect("no panic while watchers are held");
        watched.retain(|_, watch| watch.strong_count() > 0);
        if let Some(watch) = watched.get(&(task, raw)).and_then(Weak::upgrade)
            && !matches!(*watch.state.borrow(), WatchState::Lost | WatchState::Ended { .. })
        {
            return watch;
        }
        let running = Arc::clone(&self.running).try_acquire_owned().ok();
        let tail = tail(task, raw, position);
        let watch = Arc::new(TaskWatch::start(Arc::clone(&self.store), tail, position, running));
        watched.insert((task, raw), Arc::downgrade(&watch));
        watch
    }

    /// The number of watchers that run, for tests and statistics.
    pub(crate) fn watchers(&self) -> usize {
        MAX_WATCHERS - self.running.available_permits()
    }
}

impl TaskWatch {
    fn start(
        store: Arc<dyn Store>,
        tail: LogTail,
        position: u64,
        running: Option<OwnedSemaphorePermit>,
    ) -> Self {
        let ring = Arc::new(Mutex::new(EventRing { from: position, events: VecDeque::new(), bytes: 0 }));
        let (sender, state) = watch::channel(WatchState::Open { newest: position });
        let stop = CancellationToken::new();
        let (stopped, shared) = (stop.clone(), Arc::clone(&ring));
        tokio::spawn(async move {
            tokio::select! {
                () = watch_task(store, tail, position, &shared, &sender) => {}
                () = stopped.cancelled() => {}
            }
            drop(running);
        });
        Self { state, ring, _stop: stop.drop_guard() }
    }
}

async fn watch_task(
    store: Arc<dyn Store>,
    mut tail: LogTail,
    position: u64,
    ring: &Mutex<EventRing>,
    state: &watch::Sender<WatchState>,
) {
    let (mut changes, mut newest) = (store.changes(), position);
    loop {
        match tail.next(store.as_ref()).await {
            Ok(LogPage::Events(events)) => {
                {
                    let mut ring = ring.lock().expect("no panic while a ring is held");
                    for one in &events {
                        ring.push(one.number, piece(one));
                        newest = one.number;
                    }
                }
                state.send_replace(WatchState::Open { newest });
            }
            Ok(LogPage::UpToDate) => {
                changes.wait().await;
            }
            Ok(LogPage::Ended) => {
                state.send_replace(WatchState::Ended { newest });
                return;
            }
            Err(_) => {
                state.send_replace(WatchState::Lost);
                return;
            }
        }
    }
}

fn tail(task: TaskId, raw: RawLines, after: u64) -> LogTail {
    let tail = LogTail::new(task, after);
    match raw {
        RawLines::Sent => tail.with_raw(),
        RawLines::LeftOut => tail,
    }
}

fn piece(one: &Event) -> Bytes {
    let data = serde_json::to_string(&EventView::from(one)).expect("an event is JSON");
    event(&one.number.to_string(), None, &data)
}
