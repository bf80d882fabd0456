//! Presence events as JSON. Fields may be added, but are never renamed or removed.

use ostler_core::{SessionId, Timestamp, Worker, WorkerState};
use serde_json::{Value, json};

use super::beat::Beat;

/// Bytes per unit of `memory_mb`.
const MB: u64 = 1_000_000;

/// A pool and the current state of its workers.
pub(super) struct PoolSnapshot {
    pub(super) name: String,
    pub(super) workers: Vec<Worker>,
}

/// The state of a node at a point in time.
pub(super) struct NodeSnapshot {
    pub(super) node: SessionId,
    /// The display name.
    pub(super) name: String,
    /// The host name of the machine.
    pub(super) host: String,
    pub(super) pools: Vec<PoolSnapshot>,
    pub(super) now: Timestamp,
}

impl NodeSnapshot {
    /// An event about the node, as one JSON object.
    pub(super) fn event(&self, word: Beat) -> String {
        let Self { node, name, host, pools, now } = self;
        json!({
            "type": word.name(),
            "node": node.to_string(),
            "name": name,
            "host": host,
            "timestamp": moment(*now),
            "pools": pools.iter().map(|seen| pool(seen, *now)).collect::<Vec<_>>(),
        })
        .to_string()
    }
}

fn pool(pool: &PoolSnapshot, now: Timestamp) -> Value {
    // As in `ostler nodes`: a draining worker is busy with its last task.
    let is_busy = |state| matches!(state, WorkerState::Busy | WorkerState::Draining);
    let count =
        |of: &dyn Fn(WorkerState) -> bool| pool.workers.iter().filter(|worker| of(worker.state)).count();
    json!({
        "name": pool.name,
        "size": pool.workers.len(),
        "idle": count(&|state| state == WorkerState::Idle),
        "busy": count(&is_busy),
        "workers": pool.workers.iter().map(|seen| worker(seen, now)).collect::<Vec<_>>(),
    })
}

fn worker(worker: &Worker, now: Timestamp) -> Value {
    let execution = worker.task.map(|(task, since)| {
        let elapsed_s = now.since(since).as_secs();
        json!({ "task": task.to_string(), "started_at": moment(since), "elapsed_s": elapsed_s })
    });
    json!({
        "id": worker.id.to_string(),
        "name": worker.name,
        "pid": worker.pid,
        "state": worker.state.name(),
        "memory_mb": worker.memory_bytes.map(|bytes| bytes.div_ceil(MB)),
        "uptime_s": now.since(worker.started_at).as_secs(),
        "done": worker.done,
        "failed": worker.failed,
        "execution": execution,
    })
}

/// RFC 3339 in UTC, with milliseconds.
fn moment(at: Timestamp) -> String {
    // The calendar ends with the year 9999.
    let last = if at.millis() < 0 { jiff::Timestamp::MIN } else { jiff::Timestamp::MAX };
    format!("{:.3}", jiff::Timestamp::from_millisecond(at.millis()).unwrap_or(last))
}

#[cfg(test)]
mod tests {
    use ostler_core::{Id, TaskId, WorkerId};

    use super::*;

    fn idle(id: u128) -> Worker {
        Worker {
            id: WorkerId(Id::from_bits(id)),
            name: format!("docs-{id}"),
            pool: "docs".to_owned(),
            pid: None,
            state: WorkerState::Idle,
            memory_bytes: None,
            started_at: Timestamp::from_millis(1_785_553_200_007),
            done: 0,
            failed: 0,
            task: None,
        }
    }

    #[test]
    fn an_event_says_who_works_on_what() {
        let task = TaskId(Id::from_bits(9));
        let since = Timestamp::from_millis(1_785_553_201_007);
        let now = Timestamp::from_millis(1_785_553_203_500);
        let busy = Worker {
            pid: Some(77),
            state: WorkerState::Busy,
            memory_bytes: Some(12_300_000),
            done: 4,
            failed: 3,
            task: Some((task, since)),
            ..idle(2)
        };
        let pools = vec![
            PoolSnapshot { name: "docs".to_owned(), workers: vec![idle(1), busy] },
            PoolSnapshot { name: "mail".to_owned(), workers: Vec::new() },
        ];
        let node = SessionId(Id::from_bits(5));
        let (name, host) = ("anna".to_owned(), "stable-1".to_owned());
        let seen = NodeSnapshot { node, name, host, pools, now };
        let said: Value = serde_json::from_str(&seen.event(Beat::Heartbeat)).expect("it is JSON");
        let worker = |id| WorkerId(Id::from_bits(id)).to_string();
        assert_eq!(
            said,
            json!({
                "type": "node_heartbeat",
                "node": node.to_string(),
                "name": "anna",
                "host": "stable-1",
                "timestamp": "2026-08-01T03:00:03.500Z",
                "pools": [
                    {
                        "name": "docs",
                        "size": 2,
                        "idle": 1,
                        "busy": 1,
                        "workers": [
                            {
                                "id": worker(1),
                                "name": "docs-1",
                                "pid": null,
                                "state": "idle",
                                "memory_mb": null,
                                "uptime_s": 3,
                                "done": 0,
                                "failed": 0,
                                "execution": null,
                            },
                            {
                                "id": worker(2),
                                "name": "docs-2",
                                "pid": 77,
                                "state": "busy",
                                "memory_mb": 13,
                                "uptime_s": 3,
                                "done": 4,
                                "failed": 3,
                                "execution": {
                                    "task": task.to_string(),
                                    "started_at": "2026-08-01T03:00:01.007Z",
                                    "elapsed_s": 2,
                                },
                            },
                        ],
                    },
                    { "name": "mail", "size": 0, "idle": 0, "busy": 0, "workers": [] },
                ],
            })
        );
    }

    #[test]
    fn who_drains_is_busy_and_who_starts_is_neither() {
        let states = [WorkerState::Starting, WorkerState::Draining, WorkerState::Unresponsive];
        let workers = states.into_iter().map(|state| Worker { state, ..idle(1) }).collect();
        let seen = pool(&PoolSnapshot { name: "docs".to_owned(), workers }, Timestamp::from_millis(0));
        assert_eq!((&seen["size"], &seen["idle"], &seen["busy"]), (&3.into(), &0.into(), &1.into()));
    }
}
