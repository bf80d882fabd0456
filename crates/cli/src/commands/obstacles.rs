//! What keeps an enqueued task from starting, on standard error: `ostler submit` is not silent when nothing will happen.

use std::convert::Infallible;
use std::time::Duration;

use ostler::RemoteClient;
use ostler_core::TaskId;
use ostler_ops::obstacle::{Candidate, ObstacleWatch, at_once};
use ostler_ops::submit::LOOK;
use ostler_store::{Clock as _, Store, SystemClock};
use ostler_wire::task::ObstacleView;

use crate::exit::say;

/// How long an enqueued task is looked at. What is not known by then is not reported.
const MAX_LOOK: Duration = Duration::from_secs(2);

/// Looks once at tasks that have just been enqueued, and says why they will not start. That they are enqueued does not depend on it:
/// errors are ignored.
pub(super) async fn tell_at_once(store: &dyn Store, tasks: &[Candidate<'_>]) {
    let found = tokio::time::timeout(MAX_LOOK, at_once(store, tasks, SystemClock.now())).await;
    found.ok().and_then(Result::ok).unwrap_or_default().iter().for_each(tell);
}

/// The same by a node.
pub(super) async fn tell_at_once_by(node: &RemoteClient, id: TaskId) {
    let found = tokio::time::timeout(MAX_LOOK, node.show(id)).await;
    let found = found.ok().and_then(Result::ok).map(|shown| shown.detail.obstacles).unwrap_or_default();
    found.iter().filter(|obstacle| obstacle.code != "concurrency").for_each(tell);
}

/// Asks a node again and again what keeps the task from starting, until the caller drops this.
pub(super) async fn keep_telling(node: &RemoteClient, id: TaskId) -> Infallible {
    let mut watch = ObstacleWatch::default();
    loop {
        if let Ok(shown) = node.show(id).await {
            watch.news(shown.detail.obstacles).iter().for_each(tell);
        }
        tokio::time::sleep(LOOK).await;
    }
}

pub(super) fn tell(obstacle: &ObstacleView) {
    say(&sentence(obstacle));
}

fn sentence(obstacle: &ObstacleView) -> String {
    let Some(frees) = &obstacle.frees else { return obstacle.sentence.clone() };
    let mut what = frees.what.chars();
    let what: String =
        what.next().map(|first| first.to_lowercase().chain(what).collect()).unwrap_or_default();
    format!("{}; {what}: {}", obstacle.sentence, frees.command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_obstacle_ends_with_the_command_that_removes_it() {
        let read = |frees: &str| -> ObstacleView {
            let text =
                format!(r#"{{"code":"paused","sentence":"it is paused","attempt":null,"frees":{frees}}}"#);
            serde_json::from_str(&text).expect("an obstacle")
        };
        let paused = read(r#"{"what":"Resume the queue","command":"ostler resume shell"}"#);
        assert_eq!(sentence(&paused), "it is paused; resume the queue: ostler resume shell");
        assert_eq!(sentence(&read("null")), "it is paused");
    }
}
