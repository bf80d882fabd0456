//! Commands to nodes: drain, resize, and recycle with its bounded wait.

use ostler_core::{SessionId, WorkerState};
use ostler_ops::nodes::{ResizeRequest, drain, resize, resume};
use ostler_ops::recycle::{WorkersToRecycle, recycle};
use ostler_ops::reply::MAX_REPLY;
use ostler_ops::{Missing, OpsError, Refusal, Unsuccessful};
use ostler_store::Store as _;
use ostler_store::calls::Renewed;
use ostler_store::node_commands::{
    NodeAnswer, NodeCommand, NumberedCommand, RecycleAnswer, Reply, ResumeAnswer,
};
use ostler_wire::action::NodeResumption;
use tokio::time::Instant;

use crate::world::World;

async fn commands(world: &World, node: SessionId) -> Vec<NumberedCommand> {
    match world.store.renew(node, &[]).await.expect("it is renewed") {
        Renewed::Held { commands, .. } => commands,
        Renewed::Ended => panic!("it is alive"),
    }
}

#[tokio::test]
async fn a_node_is_drained_by_its_name_or_its_id_and_two_of_one_name_are_told_apart() {
    let world = World::new();
    let anna = world.node("anna", "{}").await;
    drain(world.store(), "anna").await.expect("it is asked");
    assert_eq!(commands(&world, anna).await[0].command, NodeCommand::Drain);
    let other = world.node("anna", "{}").await;
    let both = Refusal::SeveralNodes { name: "anna".to_owned(), nodes: vec![anna, other] };
    assert_eq!(drain(world.store(), "anna").await.map(|view| view.node), Err(both.into()));
    let view = drain(world.store(), &other.to_string()).await.expect("it is asked");
    assert_eq!((view.node, view.command), (other.to_string(), "drain"));
    let missing = drain(world.store(), "bert").await.map(|view| view.node);
    assert_eq!(missing, Err(Missing::Node("bert".to_owned()).into()));
}

#[tokio::test]
async fn a_pool_is_resized_on_every_node_that_has_settings_or_workers_for_it() {
    let world = World::new();
    let by_settings = world.node("a", r#"{"shell":{}}"#).await;
    let by_workers = world.node("b", "{}").await;
    world.workers(by_workers, "shell", &[WorkerState::Idle]).await;
    world.node("c", r#"{"mail":{}}"#).await;
    let request = ResizeRequest { pool: "shell".to_owned(), min: 2, max: 4 };
    let mut told: Vec<String> = resize(world.store(), &request)
        .await
        .expect("both are asked")
        .into_iter()
        .map(|view| view.node)
        .collect();
    told.sort();
    assert_eq!(told, [by_settings.to_string(), by_workers.to_string()]);
    let nowhere = ResizeRequest { pool: "films".to_owned(), ..request.clone() };
    assert_eq!(
        resize(world.store(), &nowhere).await.map(|told| told.len()),
        Err(Missing::Pool("films".to_owned()).into())
    );
    let wrong = ResizeRequest { min: 5, ..request };
    assert_eq!(wrong.check(), Err(Refusal::Size { min: 5, max: 4 }.into()));
}

/// Replies to the last command of a node, once it has come.
async fn reply(world: &World, node: SessionId, answer: NodeAnswer) {
    loop {
        if let Some(command) = commands(world, node).await.last() {
            let reply = Reply { number: command.number, answer };
            world.store.reply(node, reply).await.expect("it is recorded");
            return;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_reply_of_the_node_decides_what_became_of_a_worker() {
    let world = World::new();
    let node = world.node("anna", "{}").await;
    let workers = world.workers(node, "shell", &[WorkerState::Idle, WorkerState::Busy]).await;
    let ids: Vec<_> = workers.iter().map(|worker| worker.id).collect();
    let one = WorkersToRecycle::Worker(format!("w-{}", ids[0]));
    let gone = NodeAnswer::Recycle(RecycleAnswer { recycled: vec![ids[0]], busy: Vec::new() });
    let (done, ()) = tokio::join!(recycle(world.store(), &one), reply(&world, node, gone));
    assert_eq!(done.expect("it is replaced").recycled, [ids[0].to_string()]);

    let other = world.node("bert", "{}").await;
    let busy_worker = world.workers(other, "films", &[WorkerState::Busy]).await[0].id;
    let busy = NodeAnswer::Recycle(RecycleAnswer { recycled: Vec::new(), busy: vec![busy_worker] });
    let by_name = WorkersToRecycle::Worker("films-100".to_owned());
    let (refused, ()) = tokio::join!(recycle(world.store(), &by_name), reply(&world, other, busy));
    assert_eq!(refused.map(|view| view.busy), Err(Unsuccessful::WorkerBusy(busy_worker).into()));
}

#[tokio::test(start_paused = true)]
async fn the_reply_of_the_node_decides_what_became_of_its_drain() {
    for (answer, expected) in [
        (ResumeAnswer::Resumed, Some(NodeResumption::Resumed)),
        (ResumeAnswer::NotDraining, Some(NodeResumption::NotDraining)),
        (ResumeAnswer::Stopping, None),
    ] {
        let world = World::new();
        let node = world.node("anna", "{}").await;
        let answer = NodeAnswer::Resume(answer);
        let (resumed, ()) = tokio::join!(resume(world.store(), "anna"), reply(&world, node, answer));
        assert_eq!(commands(&world, node).await[0].command, NodeCommand::Resume);
        match expected {
            Some(result) => {
                assert_eq!(resumed.map(|view| (view.node, view.result)), Ok((node.to_string(), result)));
            }
            None => assert_eq!(resumed, Err(Unsuccessful::NodeStopping(node).into())),
        }
    }
    let world = World::new();
    assert_eq!(resume(world.store(), "bert").await, Err(Missing::Node("bert".to_owned()).into()));
    let node = world.node("anna", "{}").await;
    let silent = resume(world.store(), "anna").await;
    assert_eq!(silent, Err(Unsuccessful::NoReply { node, waited: MAX_REPLY }.into()));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_does_not_reply_is_waited_for_no_longer_than_the_bound() {
    let world = World::new();
    let node = world.node("anna", "{}").await;
    world.workers(node, "shell", &[WorkerState::Idle]).await;
    let began = Instant::now();
    let silent = recycle(world.store(), &WorkersToRecycle::Any("shell".to_owned())).await;
    assert_eq!(silent.map(|view| view.busy), Err(Unsuccessful::NoReply { node, waited: MAX_REPLY }.into()));
    assert!(began.elapsed() >= MAX_REPLY && began.elapsed() < 2 * MAX_REPLY);
}

#[tokio::test]
async fn an_unknown_worker_or_pool_and_a_pid_of_two_are_refused() {
    let world = World::new();
    let of = async |request| recycle(world.store(), &request).await.map(|view| view.recycled);
    let missing = |missing: Missing| -> Result<Vec<String>, OpsError> { Err(missing.into()) };
    assert_eq!(of(WorkersToRecycle::Worker("7".to_owned())).await, missing(Missing::Worker("7".to_owned())));
    assert_eq!(
        of(WorkersToRecycle::All("shell".to_owned())).await,
        missing(Missing::WorkersOf("shell".to_owned()))
    );
    let mut workers = Vec::new();
    for name in ["anna", "bert"] {
        let node = world.node(name, "{}").await;
        workers.push(world.workers(node, "shell", &[WorkerState::Idle]).await[0].id);
    }
    let several = of(WorkersToRecycle::Worker("100".to_owned())).await.expect_err("two have it");
    let OpsError::Refused(Refusal::SeveralWorkers { workers: named, .. }) = several else {
        panic!("{several:?}")
    };
    assert_eq!(named.len(), workers.len());
    assert!(workers.iter().all(|id| named.contains(id)));
}
