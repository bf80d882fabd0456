//! Pruning: finished tasks past their retention, in batches.

use std::time::Duration;

use ostler_core::StateName;
use ostler_ops::prune::prune;
use ostler_store::calls::Retention;

use crate::world::World;

const HOUR: Duration = Duration::from_secs(3_600);

#[tokio::test]
async fn all_finished_tasks_past_their_time_go_however_small_a_batch_is() {
    let world = World::new();
    let done = world.enqueue(5).await;
    world.complete(5).await;
    world.clock.advance(2 * HOUR);
    let late = world.enqueue(2).await;
    world.complete(1).await;
    let keep = Retention { completed: HOUR, failed: HOUR, most: 100, batch: 2 };
    let removed = prune(world.store(), keep, HOUR).await.expect("it is pruned");
    assert_eq!((removed.tasks, removed.strays), (5, 0));
    for id in done {
        assert_eq!(world.state(id).await, None);
    }
    assert_eq!(world.state(late[0]).await, Some(StateName::Completed), "it is not old enough");
    assert_eq!(world.state(late[1]).await, Some(StateName::Queued));
}
