//! Submissions: payloads byte by byte, idempotency keys, batches, and the audit of changes.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::world::{FULL, QUEUE, READ, World, on_each_store};

on_each_store!(
    a_payload_comes_back_as_it_was_sent_also_after_a_replay,
    one_key_makes_one_task_from_many_connections_at_two_servers_and_after_a_restart,
    two_bodies_under_one_key_at_two_nodes_are_not_both_taken,
    a_client_that_makes_a_key_for_each_repeat_is_noticed,
    a_batch_is_one_transaction_and_its_key_covers_all_of_it,
    a_trace_is_taken_from_the_body_or_the_header_and_a_wrong_one_is_none,
);

const EXACT: &str = r#"{"n":9007199254740993,"x":1.10,"u":"\u0000","big":123456789012345678901234567890}"#;

async fn a_payload_comes_back_as_it_was_sent_also_after_a_replay(world: World) {
    let body = format!(r#"{{"queue":"{QUEUE}","kind":"send","payload":{EXACT}}}"#);
    let id =
        world.post("/api/v1/tasks", &body).await.is(201).json()["id"].as_str().expect("an id").to_owned();
    let shown = world.get(&format!("/api/v1/tasks/{id}")).await;
    assert!(shown.is(200).body.contains(&format!("\"payload\":{EXACT}")), "{}", shown.body);
    world.fail(1).await;
    let other = EXACT.replace("1.10", "2.20");
    let log = format!("/api/v1/tasks/{id}/log");
    assert!(!world.get(&log).await.is(200).body.contains("former_payload"));
    let replayed =
        world.post(&format!("/api/v1/dead/{id}/replay"), &format!("{{\"payload\":{other}}}")).await;
    assert_eq!(replayed.is(200).json()["result"], "requeued");
    assert!(world.get(&format!("/api/v1/tasks/{id}")).await.body.contains(&format!("\"payload\":{other}")));
    // The former one stays on record, byte by byte.
    let log = world.get(&log).await.is(200).json();
    let events = log["events"].as_array().expect("a list").iter();
    let former: Vec<&Value> = events.filter(|event| event["kind"] == "former_payload").collect();
    assert_eq!((former.len(), &former[0]["data"]), (1, &json!(EXACT)), "{log}");
    let broken = world.post("/api/v1/tasks", r#"{"queue":"q","kind":"k","payload":{"a":}}"#).await;
    broken.is(400);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_in_a_task_is_said_with_the_field_and_nothing_is_enqueued() {
    let world = World::new().await;
    for (body, field) in [
        (r#"{"kind":"k"}"#, "queue"),
        (r#"{"queue":"q","kind":"k","priority":101}"#, "priority"),
        (r#"{"queue":"q","kind":"k","priority":"high"}"#, "priority"),
        (r#"{"queue":"q","kind":"k","in":"soon"}"#, "in"),
        (r#"{"queue":"q","kind":"k","attempts":0}"#, "attempts"),
        (r#"{"queue":"q","kind":"k","folder":"here"}"#, "folder"),
        (r#"{"queue":"q","kind":"k","traceparent":"00-x"}"#, "traceparent"),
        (r#"{"tasks":[{"queue":"q","kind":"k"},{"queue":"q","kind":"k","cost":0}]}"#, "tasks[1].cost"),
        (r#"{"tasks":[]}"#, "tasks"),
    ] {
        let reply = world.post("/api/v1/tasks", body).await;
        assert_eq!(reply.is(400).json()["error"]["details"]["field"], field, "{body}: {}", reply.body);
    }
    let typo = world.post("/api/v1/tasks", r#"{"queue":"q","kind":"k","payload":{"a":1},"prio":1}"#).await;
    assert_ne!(typo.is(400).json()["error"]["details"]["field"], "payload", "{}", typo.body);
    assert!(typo.body.contains("unknown field `prio`"), "{}", typo.body);
    for body in [
        r#"{"queue":"q","kind":"k","prio":1}"#,
        "[1]",
        // A list in place of an object, with the fields in their order.
        r#"["q","k"]"#,
        r#"{"tasks":[["q","k"]]}"#,
        "{",
        "",
    ] {
        let reply = world.post("/api/v1/tasks", body).await;
        assert_eq!(
            (reply.is(400).code().as_str(), reply.json()["error"]["message"].is_string()),
            ("invalid", true)
        );
    }
    let form = world
        .client()
        .await
        .ask(
            "POST",
            "/api/v1/tasks",
            &[("authorization", &format!("Bearer {FULL}")), ("content-type", "text/plain")],
            "{}",
        )
        .await;
    form.is(415);
    assert_eq!(world.get("/api/v1/stats").await.json()["submitted"], 0);
}

async fn one_key_makes_one_task_from_many_connections_at_two_servers_and_after_a_restart(world: World) {
    let one = Arc::new(world);
    let two = Arc::new(one.beside().await);
    let body = format!(r#"{{"queue":"{QUEUE}","kind":"send","payload":{{"a":1}}}}"#);
    let mut asking = Vec::new();
    for number in 0..20 {
        let (world, body) = (Arc::clone(if number % 2 == 0 { &one } else { &two }), body.clone());
        asking.push(tokio::spawn(async move {
            let bearer = format!("Bearer {FULL}");
            let headers = [("authorization", bearer.as_str()), ("idempotency-key", "order-17")];
            let mut answers = BTreeSet::new();
            for turn in 0..5 {
                let mut client = world.client().await;
                if number == 3 && turn == 0 {
                    // The answer is lost: the connection is closed when the request is sent.
                    let host = world.address.clone();
                    let mut all = vec![("host", host.as_str())];
                    all.extend(headers);
                    client.raw("POST", "/api/v1/tasks", &all, &body).await;
                    continue;
                }
                let reply = client.ask("POST", "/api/v1/tasks", &headers, &body).await;
                answers.insert((reply.status, reply.body));
            }
            answers
        }));
    }
    let mut answers = BTreeSet::new();
    for task in asking {
        answers.extend(task.await.expect("it asks"));
    }
    assert!(made_once(&answers, &one.get("/api/v1/stats").await.json()), "{answers:?}");
    // A new server on the same store knows the key, and other bodies under it are refused.
    let later = one.beside().await;
    let bearer = format!("Bearer {FULL}");
    let headers = [("authorization", bearer.as_str()), ("idempotency-key", "order-17")];
    let again = later.client().await.ask("POST", "/api/v1/tasks", &headers, &body).await;
    assert_eq!(Some(&(again.status, again.body)), answers.first());
    for other in [
        body.replace("\"a\":1", "\"a\":2"),
        body.replace("send", "sent"),
        body.replace("}}", "},\"priority\":5}"),
        format!(r#"{{"tasks":[{body},{body}]}}"#),
    ] {
        let reply = later.client().await.ask("POST", "/api/v1/tasks", &headers, &other).await;
        assert_eq!((reply.status, reply.code().as_str()), (409, "idempotency_key_reused"), "{other}");
    }
    assert_eq!(one.get("/api/v1/stats").await.json()["submitted"], 1);
}

async fn two_bodies_under_one_key_at_two_nodes_are_not_both_taken(one: World) {
    const KEYS: usize = 40;
    let two = Arc::new(one.beside().await);
    let one = Arc::new(one);
    let barrier = Arc::new(tokio::sync::Barrier::new(2));
    let mut nodes = Vec::new();
    for (node, priority) in [(&one, 1), (&two, 2)] {
        let (node, barrier) = (Arc::clone(node), Arc::clone(&barrier));
        nodes.push(tokio::spawn(async move {
            // They differ in what a store does not compare itself.
            let body = format!(r#"{{"queue":"{QUEUE}","kind":"send","payload":1,"priority":{priority}}}"#);
            let (bearer, mut client) = (format!("Bearer {FULL}"), node.client().await);
            let mut answers = Vec::new();
            for number in 0..KEYS {
                let key = format!("order-{number}");
                let headers = [("authorization", bearer.as_str()), ("idempotency-key", &key)];
                barrier.wait().await;
                answers.push(client.ask("POST", "/api/v1/tasks", &headers, &body).await.status);
            }
            answers
        }));
    }
    let (ones, twos) = (nodes.remove(0).await.expect("it asks"), nodes.remove(0).await.expect("it asks"));
    for pair in ones.iter().zip(&twos) {
        assert!([(201, 409), (409, 201)].contains(&(*pair.0, *pair.1)), "{pair:?}");
    }
    assert_eq!(one.get("/api/v1/stats").await.json()["submitted"], KEYS);
}

async fn a_trace_is_taken_from_the_body_or_the_header_and_a_wrong_one_is_none(world: World) {
    const IN_BODY: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    const IN_HEADER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
    let bearer = format!("Bearer {FULL}");
    for (body, header, expected) in [
        ("", None, Value::Null),
        (IN_BODY, None, IN_BODY.into()),
        ("", Some(IN_HEADER), IN_HEADER.into()),
        (IN_BODY, Some(IN_HEADER), IN_BODY.into()),
        ("", Some("nonsense"), Value::Null),
    ] {
        let given = if body.is_empty() { String::new() } else { format!(r#","traceparent":"{body}""#) };
        let body = format!(r#"{{"tasks":[{{"queue":"{QUEUE}","kind":"send"{given}}}]}}"#);
        let mut headers = vec![("authorization", bearer.as_str())];
        headers.extend(header.map(|header| ("traceparent", header)));
        let reply = world.client().await.ask("POST", "/api/v1/tasks", &headers, &body).await;
        let id = reply.is(201).json()["tasks"][0]["id"].as_str().expect("an id").to_owned();
        let shown = world.get(&format!("/api/v1/tasks/{id}")).await.is(200).json();
        assert_eq!(shown["traceparent"], expected, "{body} with {header:?}");
    }
    let session = world.node().await;
    let claimed = world.claim(session, 10).await;
    let traces = claimed.iter().filter_map(|claimed| claimed.traceparent.as_ref());
    assert_eq!(traces.filter(|trace| [IN_BODY, IN_HEADER].contains(&trace.as_str())).count(), 3);
}

/// Whether all requests had one answer, and made one task.
fn made_once(answers: &BTreeSet<(u16, String)>, stats: &Value) -> bool {
    answers.len() == 1 && stats["submitted"] == 1
}

async fn a_client_that_makes_a_key_for_each_repeat_is_noticed(world: World) {
    let body = format!(r#"{{"queue":"{QUEUE}","kind":"send","payload":{{"a":1}}}}"#);
    let (bearer, mut answers) = (format!("Bearer {FULL}"), BTreeSet::new());
    for turn in 0..5 {
        let key = format!("order-17-{turn}");
        let headers = [("authorization", bearer.as_str()), ("idempotency-key", key.as_str())];
        let reply = world.client().await.ask("POST", "/api/v1/tasks", &headers, &body).await;
        answers.insert((reply.is(201).status, reply.body));
    }
    assert!(!made_once(&answers, &world.get("/api/v1/stats").await.json()), "{answers:?}");
}

async fn a_batch_is_one_transaction_and_its_key_covers_all_of_it(world: World) {
    let task = |number: u32| format!(r#"{{"queue":"{QUEUE}","kind":"send","payload":{number}}}"#);
    let batch = |numbers: &[u32]| {
        let tasks: Vec<String> = numbers.iter().map(|number| task(*number)).collect();
        format!(r#"{{"tasks":[{}]}}"#, tasks.join(","))
    };
    let bearer = format!("Bearer {FULL}");
    let headers = [("authorization", bearer.as_str()), ("idempotency-key", "batch-1")];
    let first = world.client().await.ask("POST", "/api/v1/tasks", &headers, &batch(&[1, 2, 3])).await;
    assert_eq!(first.is(201).json()["tasks"].as_array().map(Vec::len), Some(3));
    let again = world.client().await.ask("POST", "/api/v1/tasks", &headers, &batch(&[1, 2, 3])).await;
    assert_eq!(again.body, first.body);
    for other in [batch(&[1, 2]), batch(&[1, 2, 4]), batch(&[1, 2, 3, 4]), batch(&[2, 1, 3])] {
        let reply = world.client().await.ask("POST", "/api/v1/tasks", &headers, &other).await;
        assert_eq!(reply.status, 409, "{other}");
    }
    assert_eq!(world.get("/api/v1/stats").await.json()["submitted"], 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_is_recorded_with_who_and_from_where_and_a_reader_changes_nothing() {
    let world = World::new().await;
    let bearer = format!("Bearer {FULL}");
    let headers = [("authorization", bearer.as_str()), ("x-forwarded-for", "192.0.2.7")];
    world
        .client()
        .await
        .ask("POST", "/api/v1/queues/mail/pause", &headers, r#"{"reason":"maintenance"}"#)
        .await
        .is(200);
    let reader = format!("Bearer {READ}");
    let refused = world
        .client()
        .await
        .ask("POST", "/api/v1/queues/mail/resume", &[("authorization", &reader)], "")
        .await;
    assert_eq!((refused.status, refused.code().as_str()), (403, "read_only"));
    assert_eq!(world.get("/api/v1/queues/mail").await.is(200).json()["paused"], "maintenance");
    let audit = world.get("/api/v1/audit").await.is(200).json();
    let records = audit.as_array().expect("a list");
    assert_eq!(records.len(), 1, "what was refused is no change: {audit}");
    let record = &records[0];
    assert_eq!(
        (&record["who"], &record["from"], &record["operation"], &record["result"]["status"]),
        (&json!("owner"), &json!("192.0.2.7"), &json!("queues.pause"), &json!(200))
    );
    assert!(!audit.to_string().contains(FULL));
    assert_eq!(record["target"], Value::from("POST /api/v1/queues/mail/pause"));
}
