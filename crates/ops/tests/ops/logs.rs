//! Logs: all events of a task, in order, until it has ended.

use ostler_core::{EventBody, Outcome};
use ostler_ops::Missing;
use ostler_ops::logs::{LogPage, LogTail};
use ostler_ops::output::AttemptOutput;
use ostler_store::Store as _;
use ostler_store::views::TaskRef;

use crate::world::{QUEUE, World};

fn stdout(text: &str) -> EventBody {
    EventBody::Stdout { text: text.to_owned() }
}

#[tokio::test]
async fn a_log_is_read_to_its_end_and_a_task_that_waits_may_write_more() {
    let world = World::new();
    let id = world.enqueue(1).await[0];
    let mut tail = LogTail::new(id, 0);
    assert_eq!(tail.next(world.store()).await, Ok(LogPage::UpToDate));
    let lines = ["one", "two"].map(EventBody::line);
    world.run(QUEUE, 1, &Outcome::Success, &lines).await;
    let Ok(LogPage::Events(events)) = tail.next(world.store()).await else { panic!("there are events") };
    assert_eq!(events.iter().filter_map(|event| event.body.text()).collect::<Vec<_>>(), ["one", "two"]);
    assert_eq!(tail.next(world.store()).await, Ok(LogPage::Ended));
    let mut rest = LogTail::new(id, events[0].number);
    assert_eq!(rest.next(world.store()).await, Ok(LogPage::Events(events[1..].to_vec())));
    let unknown = world.ids.task();
    let gone = LogTail::new(unknown, 0).next(world.store()).await;
    assert_eq!(gone, Err(Missing::Removed(unknown).into()));
}

#[tokio::test]
async fn the_output_of_an_attempt_is_put_together_from_its_events() {
    let world = World::new();
    let id = world.enqueue(1).await[0];
    let events = [
        EventBody::line("low disk"),
        stdout(r#""half a ""#),
        stdout("[255]"),
        EventBody::warning("it was cut"),
    ];
    let failure = ostler_core::Failure::new(ostler_core::ErrorClass::Permanent, "no");
    world.run(QUEUE, 1, &Outcome::Failed(failure), &events).await;
    let found = world.store.show(TaskRef::Id(id)).await.expect("read").expect("it is there");
    let output = AttemptOutput::of_last(world.store(), &found).await.expect("read");
    assert_eq!(
        (output.stdout.as_slice(), output.stderr.as_slice()),
        (&b"half a \xff"[..], &b"low disk\n"[..])
    );
    assert_eq!(output.warnings, ["it was cut"]);
}
