//! Node commands: delivered with every renewal, for as long as the session lives.

use ostler_core::{Id, SessionId, WorkerId};

use super::super::scene::{Scene, TICK, TTL, invalid};
use super::runner::cases;
use ostler_store::calls::{Fenced, Renewed};
use ostler_store::node_commands::{
    CommandAnswer, NodeAnswer, NodeCommand, NumberedCommand, RecycleAnswer, Reply, ResumeAnswer, WorkerChoice,
};
use ostler_store::{MAX_NAME_BYTES, MAX_NODE_COMMANDS, MAX_WORKERS};

cases![
    an_order_comes_with_every_renewal,
    orders_keep_their_order_and_their_numbers_rise,
    a_drain_that_is_taken_back_is_two_orders_and_the_node_answers_the_second,
    an_order_is_for_one_node_only,
    an_order_through_another_connection_is_heard,
    over_the_bound_the_oldest_order_goes,
    a_command_to_an_absent_node_is_not_given,
    an_order_to_a_node_that_is_late_is_given,
    a_new_session_has_no_orders,
    an_order_changes_nothing_else,
    an_order_that_no_node_can_follow_is_refused,
    an_answer_stands_with_the_node_as_long_as_its_order,
    an_answer_is_for_the_session_that_was_asked,
];

fn resize(pool: &str, min: u32, max: u32) -> NodeCommand {
    NodeCommand::Resize { pool: pool.to_owned(), min, max }
}

fn recycle(pool: &str, who: WorkerChoice) -> NodeCommand {
    NodeCommand::Recycle { pool: pool.to_owned(), who }
}

fn recycled(number: u64, recycled: Vec<WorkerId>, busy: Vec<WorkerId>) -> Reply {
    Reply { number, answer: NodeAnswer::Recycle(RecycleAnswer { recycled, busy }) }
}

async fn order(s: &Scene, session: SessionId, order: NodeCommand) -> CommandAnswer {
    s.store.command(session, order).await.expect("order answers")
}

/// The node commands that a renewal delivers.
async fn heard(s: &Scene, session: SessionId) -> Vec<(u64, NodeCommand)> {
    match s.store.renew(session, &[]).await.expect("renew answers") {
        Renewed::Held { commands: orders, .. } => {
            orders.into_iter().map(|NumberedCommand { number, command: order }| (number, order)).collect()
        }
        Renewed::Ended => panic!("{session} is over, and should not be"),
    }
}

async fn an_order_comes_with_every_renewal(s: &Scene) {
    let node = s.join().await;
    assert_eq!(heard(s, node).await, []);
    assert_eq!(order(s, node, NodeCommand::Drain).await, CommandAnswer::Given { number: 1 });
    for _ in 0..3 {
        assert_eq!(
            heard(s, node).await,
            [(1, NodeCommand::Drain)],
            "also to a node whose last answer was lost"
        );
        s.pass(TTL);
    }
}

async fn orders_keep_their_order_and_their_numbers_rise(s: &Scene) {
    let node = s.join().await;
    let orders = [resize("letters", 0, 3), NodeCommand::Drain, resize("letters", 2, 2), NodeCommand::Drain];
    for said in orders.clone() {
        order(s, node, said).await;
        s.pass(TICK);
    }
    let heard = heard(s, node).await;
    assert_eq!(heard, (1..).zip(orders).collect::<Vec<_>>(), "each one, also if it was given before");
}

async fn a_drain_that_is_taken_back_is_two_orders_and_the_node_answers_the_second(s: &Scene) {
    let node = s.join().await;
    let orders = [NodeCommand::Drain, NodeCommand::Resume, NodeCommand::Drain, NodeCommand::Resume];
    for said in orders.clone() {
        order(s, node, said).await;
    }
    assert_eq!(
        heard(s, node).await,
        (1..).zip(orders).collect::<Vec<_>>(),
        "which one counts is up to the node"
    );
    let all = [ResumeAnswer::Resumed, ResumeAnswer::NotDraining, ResumeAnswer::Stopping];
    for answer in all {
        let reply = Reply { number: 2, answer: NodeAnswer::Resume(answer) };
        assert_eq!(s.store.reply(node, reply.clone()).await, Ok(Fenced::Recorded));
        assert_eq!(answers(s, node).await, [reply]);
    }
}

async fn an_order_is_for_one_node_only(s: &Scene) {
    let [one, other] = [s.join().await, s.join().await];
    order(s, one, NodeCommand::Drain).await;
    assert_eq!(heard(s, other).await, []);
    order(s, other, resize("letters", 1, 1)).await;
    assert_eq!(heard(s, one).await, [(1, NodeCommand::Drain)]);
    assert_eq!(heard(s, other).await, [(1, resize("letters", 1, 1))], "each session counts for itself");
}

async fn an_order_through_another_connection_is_heard(s: &Scene) {
    let node = s.join().await;
    let second = s.fixture.second().await;
    assert_eq!(second.command(node, NodeCommand::Drain).await, Ok(CommandAnswer::Given { number: 1 }));
    assert_eq!(heard(s, node).await, [(1, NodeCommand::Drain)]);
}

async fn over_the_bound_the_oldest_order_goes(s: &Scene) {
    let node = s.join().await;
    let most = u32::try_from(MAX_NODE_COMMANDS).expect("a small number");
    let all: Vec<(u64, NodeCommand)> =
        (1..=most + 2).map(|at| (u64::from(at), resize("letters", 0, at))).collect();
    for (number, said) in &all {
        assert_eq!(order(s, node, said.clone()).await, CommandAnswer::Given { number: *number });
    }
    assert_eq!(heard(s, node).await, all[2..], "the numbers go on");
}

async fn a_command_to_an_absent_node_is_not_given(s: &Scene) {
    let [gone, dead] = [s.join().await, s.join().await];
    order(s, dead, NodeCommand::Drain).await;
    assert_eq!(s.store.leave(gone).await, Ok(Fenced::Recorded));
    s.pass(TTL + TICK);
    s.store.expire(10).await.expect("expire answers");
    for absent in [gone, dead, s.session_id()] {
        assert_eq!(order(s, absent, NodeCommand::Drain).await, CommandAnswer::NoSuchNode);
        assert_eq!(s.store.renew(absent, &[]).await, Ok(Renewed::Ended));
    }
}

async fn an_order_to_a_node_that_is_late_is_given(s: &Scene) {
    let node = s.join().await;
    s.pass(TTL + TICK);
    assert_eq!(
        order(s, node, NodeCommand::Drain).await,
        CommandAnswer::Given { number: 1 },
        "it has not been ended yet"
    );
    assert_eq!(s.store.renew(node, &[]).await, Ok(Renewed::Ended), "and it does not come back for it");
}

async fn a_new_session_has_no_orders(s: &Scene) {
    let node = s.join().await;
    order(s, node, NodeCommand::Drain).await;
    s.store.leave(node).await.expect("leave answers");
    let next = s.join().await;
    assert_eq!(heard(s, next).await, []);
}

async fn an_order_changes_nothing_else(s: &Scene) {
    let node = s.join().await;
    s.running(node).await;
    let before = s.picture().await;
    order(s, node, NodeCommand::Drain).await;
    assert_eq!(s.picture().await, before, "following it is up to the node");
}

async fn an_order_that_no_node_can_follow_is_refused(s: &Scene) {
    let node = s.join().await;
    let most = u32::try_from(MAX_WORKERS).expect("a small number");
    let long = "x".repeat(MAX_NAME_BYTES + 1);
    for wrong in [
        resize("", 0, 1),
        resize("a\nb", 0, 1),
        resize(&long, 0, 1),
        resize("letters", 0, 0),
        resize("letters", 3, 2),
        resize("letters", 0, most + 1),
    ] {
        invalid(&format!("{wrong:?}"), s.store.command(node, wrong).await);
    }
    assert_eq!(heard(s, node).await, []);
    let just_fits = order(s, node, resize(&long[1..], most, most)).await;
    assert_eq!(just_fits, CommandAnswer::Given { number: 1 });
    invalid("a pool without a name", s.store.command(node, recycle("", WorkerChoice::Any)).await);
}

/// The replies that the survey shows for a node.
async fn answers(s: &Scene, session: SessionId) -> Vec<Reply> {
    let nodes = s.store.survey().await.expect("survey answers").nodes;
    nodes.into_iter().find(|node| node.session == session).map(|node| node.replies).unwrap_or_default()
}

async fn an_answer_stands_with_the_node_as_long_as_its_order(s: &Scene) {
    let node = s.join().await;
    let worker = |bits| WorkerId(Id::from_bits(bits));
    for (number, who) in [(1, WorkerChoice::One(worker(7))), (2, WorkerChoice::Any), (3, WorkerChoice::All)] {
        assert_eq!(order(s, node, recycle("letters", who)).await, CommandAnswer::Given { number });
    }
    let heard: Vec<NodeCommand> = heard(s, node).await.into_iter().map(|(_, order)| order).collect();
    assert_eq!(
        heard,
        [WorkerChoice::One(worker(7)), WorkerChoice::Any, WorkerChoice::All]
            .map(|who| recycle("letters", who))
    );
    assert_eq!(answers(s, node).await, []);
    let third = recycled(3, vec![worker(8), worker(9)], vec![worker(7)]);
    let first = recycled(1, Vec::new(), vec![worker(7)]);
    for answer in [&third, &first, &third] {
        assert_eq!(s.store.reply(node, answer.clone()).await, Ok(Fenced::Recorded));
    }
    assert_eq!(answers(s, node).await, [first, third.clone()]);
    let unasked = Reply { number: 9, ..third.clone() };
    assert_eq!(s.store.reply(node, unasked).await, Ok(Fenced::Recorded));
    assert_eq!(answers(s, node).await.len(), 2, "no caller has asked for that one");
    for _ in 0..MAX_NODE_COMMANDS - 2 {
        order(s, node, NodeCommand::Drain).await;
    }
    let left = answers(s, node).await;
    assert_eq!(left, std::slice::from_ref(&third), "the oldest order is gone, and its answer with it");
    let many = vec![worker(1); MAX_WORKERS + 1];
    invalid("more workers than there are", s.store.reply(node, recycled(3, many, Vec::new())).await);
}

async fn an_answer_is_for_the_session_that_was_asked(s: &Scene) {
    let [one, other] = [s.join().await, s.join().await];
    order(s, one, recycle("letters", WorkerChoice::Any)).await;
    let answer = recycled(1, Vec::new(), Vec::new());
    assert_eq!(s.store.reply(other, answer.clone()).await, Ok(Fenced::Recorded));
    assert_eq!((answers(s, one).await, answers(s, other).await), (Vec::new(), Vec::new()));
    assert_eq!(s.store.leave(one).await, Ok(Fenced::Recorded));
    assert_eq!(s.store.reply(one, answer.clone()).await, Ok(Fenced::Lost), "its session is over");
    assert_eq!(s.store.reply(s.session_id(), answer).await, Ok(Fenced::Lost));
}
