//! Orders to a node: told with every renewal, for as long as its session lives.

use ostler_core::{Id, SessionId, WorkerId};

use super::super::scene::{Scene, TICK, TTL, invalid};
use super::runner::cases;
use crate::bounds::{MAX_NAME_BYTES, MAX_ORDERS, MAX_WORKERS};
use crate::calls::{Fenced, Renewed};
use crate::orders::{Answer, NumberedOrder, Order, Ordered, Who};

cases![
    an_order_comes_with_every_renewal,
    orders_keep_their_order_and_their_numbers_rise,
    an_order_is_for_one_node_only,
    an_order_through_another_connection_is_heard,
    over_the_bound_the_oldest_order_goes,
    an_order_to_nobody_is_not_given,
    an_order_to_a_node_that_is_late_is_given,
    a_new_session_has_no_orders,
    an_order_changes_nothing_else,
    an_order_that_no_node_can_follow_is_refused,
    an_answer_stands_with_the_node_as_long_as_its_order,
    an_answer_is_for_the_session_that_was_asked,
];

fn resize(pool: &str, min: u32, max: u32) -> Order {
    Order::Resize { pool: pool.to_owned(), min, max }
}

fn recycle(pool: &str, who: Who) -> Order {
    Order::Recycle { pool: pool.to_owned(), who }
}

async fn order(s: &Scene, session: SessionId, order: Order) -> Ordered {
    s.store.order(session, order).await.expect("order answers")
}

/// What a renewal tells the node to do.
async fn heard(s: &Scene, session: SessionId) -> Vec<(u64, Order)> {
    match s.store.renew(session, &[]).await.expect("renew answers") {
        Renewed::Held { orders, .. } => {
            orders.into_iter().map(|NumberedOrder { number, order }| (number, order)).collect()
        }
        Renewed::Ended => panic!("{session} is over, and should not be"),
    }
}

async fn an_order_comes_with_every_renewal(s: &Scene) {
    let node = s.join().await;
    assert_eq!(heard(s, node).await, []);
    assert_eq!(order(s, node, Order::Drain).await, Ordered::Given { number: 1 });
    for _ in 0..3 {
        assert_eq!(heard(s, node).await, [(1, Order::Drain)], "also to a node whose last answer was lost");
        s.pass(TTL);
    }
}

async fn orders_keep_their_order_and_their_numbers_rise(s: &Scene) {
    let node = s.join().await;
    let orders = [resize("letters", 0, 3), Order::Drain, resize("letters", 2, 2), Order::Drain];
    for said in orders.clone() {
        order(s, node, said).await;
        s.pass(TICK);
    }
    let heard = heard(s, node).await;
    assert_eq!(heard, (1..).zip(orders).collect::<Vec<_>>(), "each one, also if it was given before");
}

async fn an_order_is_for_one_node_only(s: &Scene) {
    let [one, other] = [s.join().await, s.join().await];
    order(s, one, Order::Drain).await;
    assert_eq!(heard(s, other).await, []);
    order(s, other, resize("letters", 1, 1)).await;
    assert_eq!(heard(s, one).await, [(1, Order::Drain)]);
    assert_eq!(heard(s, other).await, [(1, resize("letters", 1, 1))], "each session counts for itself");
}

async fn an_order_through_another_connection_is_heard(s: &Scene) {
    let node = s.join().await;
    let second = s.fixture.second().await;
    assert_eq!(second.order(node, Order::Drain).await, Ok(Ordered::Given { number: 1 }));
    assert_eq!(heard(s, node).await, [(1, Order::Drain)]);
}

async fn over_the_bound_the_oldest_order_goes(s: &Scene) {
    let node = s.join().await;
    let most = u32::try_from(MAX_ORDERS).expect("a small number");
    let all: Vec<(u64, Order)> = (1..=most + 2).map(|at| (u64::from(at), resize("letters", 0, at))).collect();
    for (number, said) in &all {
        assert_eq!(order(s, node, said.clone()).await, Ordered::Given { number: *number });
    }
    assert_eq!(heard(s, node).await, all[2..], "the numbers go on");
}

async fn an_order_to_nobody_is_not_given(s: &Scene) {
    let [gone, dead] = [s.join().await, s.join().await];
    order(s, dead, Order::Drain).await;
    assert_eq!(s.store.leave(gone).await, Ok(Fenced::Recorded));
    s.pass(TTL + TICK);
    s.store.expire(10).await.expect("expire answers");
    for nobody in [gone, dead, s.session_id()] {
        assert_eq!(order(s, nobody, Order::Drain).await, Ordered::NoSuchNode);
        assert_eq!(s.store.renew(nobody, &[]).await, Ok(Renewed::Ended));
    }
}

async fn an_order_to_a_node_that_is_late_is_given(s: &Scene) {
    let node = s.join().await;
    s.pass(TTL + TICK);
    assert_eq!(order(s, node, Order::Drain).await, Ordered::Given { number: 1 }, "nobody has ended it yet");
    assert_eq!(s.store.renew(node, &[]).await, Ok(Renewed::Ended), "and it does not come back for it");
}

async fn a_new_session_has_no_orders(s: &Scene) {
    let node = s.join().await;
    order(s, node, Order::Drain).await;
    s.store.leave(node).await.expect("leave answers");
    let next = s.join().await;
    assert_eq!(heard(s, next).await, []);
}

async fn an_order_changes_nothing_else(s: &Scene) {
    let node = s.join().await;
    s.running(node).await;
    let before = s.picture().await;
    order(s, node, Order::Drain).await;
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
        invalid(&format!("{wrong:?}"), s.store.order(node, wrong).await);
    }
    assert_eq!(heard(s, node).await, []);
    let just_fits = order(s, node, resize(&long[1..], most, most)).await;
    assert_eq!(just_fits, Ordered::Given { number: 1 });
    invalid("a pool without a name", s.store.order(node, recycle("", Who::Any)).await);
}

/// What a node is shown to have answered.
async fn answers(s: &Scene, session: SessionId) -> Vec<Answer> {
    let nodes = s.store.survey().await.expect("survey answers").nodes;
    nodes.into_iter().find(|node| node.session == session).map(|node| node.answers).unwrap_or_default()
}

async fn an_answer_stands_with_the_node_as_long_as_its_order(s: &Scene) {
    let node = s.join().await;
    let worker = |bits| WorkerId(Id::from_bits(bits));
    for (number, who) in [(1, Who::One(worker(7))), (2, Who::Any), (3, Who::All)] {
        assert_eq!(order(s, node, recycle("letters", who)).await, Ordered::Given { number });
    }
    let heard: Vec<Order> = heard(s, node).await.into_iter().map(|(_, order)| order).collect();
    assert_eq!(heard, [Who::One(worker(7)), Who::Any, Who::All].map(|who| recycle("letters", who)));
    assert_eq!(answers(s, node).await, []);
    let third = Answer { number: 3, recycled: vec![worker(8), worker(9)], busy: vec![worker(7)] };
    let first = Answer { number: 1, recycled: Vec::new(), busy: vec![worker(7)] };
    for answer in [&third, &first, &third] {
        assert_eq!(s.store.answer(node, answer.clone()).await, Ok(Fenced::Recorded));
    }
    assert_eq!(answers(s, node).await, [first, third.clone()]);
    let unasked = Answer { number: 9, ..third.clone() };
    assert_eq!(s.store.answer(node, unasked).await, Ok(Fenced::Recorded));
    assert_eq!(answers(s, node).await.len(), 2, "nobody has asked for that one");
    for _ in 0..MAX_ORDERS - 2 {
        order(s, node, Order::Drain).await;
    }
    let left = answers(s, node).await;
    assert_eq!(left, std::slice::from_ref(&third), "the oldest order is gone, and its answer with it");
    let many = vec![worker(1); MAX_WORKERS + 1];
    invalid("more workers than there are", s.store.answer(node, Answer { recycled: many, ..third }).await);
}

async fn an_answer_is_for_the_session_that_was_asked(s: &Scene) {
    let [one, other] = [s.join().await, s.join().await];
    order(s, one, recycle("letters", Who::Any)).await;
    let answer = Answer { number: 1, recycled: Vec::new(), busy: Vec::new() };
    assert_eq!(s.store.answer(other, answer.clone()).await, Ok(Fenced::Recorded));
    assert_eq!((answers(s, one).await, answers(s, other).await), (Vec::new(), Vec::new()));
    assert_eq!(s.store.leave(one).await, Ok(Fenced::Recorded));
    assert_eq!(s.store.answer(one, answer.clone()).await, Ok(Fenced::Lost), "its session is over");
    assert_eq!(s.store.answer(s.session_id(), answer).await, Ok(Fenced::Lost));
}
