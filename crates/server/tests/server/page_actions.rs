//! Buttons of pages: forms run operations of the table, ask before what is dangerous, and are refused like the operations.

use ostler_store::views::TaskRef;
use ostler_testkit::form_body;

use crate::forms::{FORM, notice, post_form};
use crate::world::{FULL, READ, World, on_each_store};

on_each_store!(
    a_dangerous_button_asks_and_then_runs_its_operation,
    readers_foreign_pages_and_other_bodies_are_refused,
    a_dead_letter_is_mended_and_replayed_to_the_digit,
    the_commands_that_a_page_shows_are_those_of_its_buttons,
    a_selection_and_all_that_match_are_acted_on,
    a_pause_and_a_resize_are_asked_first,
    settings_of_a_task_a_queue_and_a_schedule_are_changed_by_forms,
);

const BIG: &str = r#"{"n":9007199254740993,"x":1.10,"u":"\u0000"}"#;

async fn a_dangerous_button_asks_and_then_runs_its_operation(world: World) {
    let id = world.enqueue(1).await.remove(0);
    let text = id.to_string();
    let pairs = [("p:id", text.as_str()), ("back", "tasks?state=queued")];
    let question = post_form(&world, "tasks.cancel", &pairs).await;
    assert!(question.is(200).body.contains("asks a running one to stop."), "{question:?}");
    assert!(
        question.body.contains(&format!("ostler cancel {id}"))
            && question.body.contains("name=\"confirmed\"")
    );
    assert!(question.body.contains("href=\"../tasks?state=queued\""));
    let state =
        |found: Option<ostler_store::views::TaskDetail>| found.expect("it is there").task.state.name().name();
    assert_eq!(
        state(world.store.show(TaskRef::Id(id)).await.expect("it is read")),
        "queued",
        "nothing is done yet"
    );
    let done = post_form(&world, "tasks.cancel", &[pairs[0], pairs[1], ("confirmed", "yes")]).await;
    assert!(notice(&world, &done).await.contains("Cancelled"), "{done:?}");
    assert_eq!(state(world.store.show(TaskRef::Id(id)).await.expect("it is read")), "cancelled");
    // The audit has the operation, not the page.
    let audit = world.get("/api/v1/audit").await.json();
    assert_eq!(
        (&audit[0]["operation"], &audit[0]["who"]),
        (&"tasks.cancel".into(), &"owner".into()),
        "{audit}"
    );
    assert_eq!(audit[0]["target"], format!("POST /api/v1/tasks/{id}/cancel"));
    assert_eq!(audit.as_array().map(Vec::len), Some(1), "a question is no change: {audit}");
}

async fn readers_foreign_pages_and_other_bodies_are_refused(world: World) {
    let id = world.enqueue(1).await.remove(0).to_string();
    let body = form_body(&[("p:id", &id), ("confirmed", "yes")]);
    let (read, full) = (format!("Bearer {READ}"), format!("Bearer {FULL}"));
    let ask = async |headers: &[(&str, &str)], body: &str| {
        world.client().await.ask("POST", "/do/tasks.cancel", headers, body).await.status
    };
    assert_eq!(ask(&[("authorization", &read), ("content-type", FORM)], &body).await, 403, "a reader");
    assert_eq!(ask(&[("content-type", FORM)], &body).await, 401, "no one");
    assert_eq!(ask(&[("authorization", &full), ("content-type", "application/json")], "{}").await, 415);
    assert_eq!(
        ask(&[("authorization", &full), ("content-type", FORM), ("origin", "http://evil.test")], &body).await,
        403
    );
    let link = world.server().login_text().expect("a link");
    let logged_in = world.post("/login", &format!("{{\"token\":\"{link}\"}}")).await;
    let cookie =
        logged_in.header("set-cookie").expect("a cookie").split(';').next().expect("a pair").to_owned();
    for (site, status) in [("cross-site", 403), ("same-site", 403), ("none", 403), ("same-origin", 303)] {
        let headers = [("cookie", cookie.as_str()), ("content-type", FORM), ("sec-fetch-site", site)];
        assert_eq!(ask(&headers, &body).await, status, "{site}");
    }
    // Only a page takes a form, and only what a session may do is an action.
    let api = [("authorization", full.as_str()), ("content-type", FORM)];
    let reply = world.client().await.ask("POST", "/api/v1/queues/mail/pause", &api, "reason=x").await;
    assert_eq!(reply.status, 415);
    for absent in ["login.link", "tasks.list", "page.act", "logout", "nothing"] {
        post_form(&world, absent, &[("confirmed", "yes")]).await.is(404);
    }
}

async fn a_dead_letter_is_mended_and_replayed_to_the_digit(world: World) {
    let mut task = world.ids.new_tasks(1, crate::world::QUEUE, "send").remove(0);
    task.payload = BIG.to_owned();
    let id = task.id;
    world.store.enqueue(vec![task]).await.expect("it is accepted");
    world.fail(1).await;
    let text = id.to_string();
    let page = world.get(&format!("/tasks/{id}")).await.body;
    let shown = page.split("name=\"j:payload\"").nth(1).and_then(|rest| rest.split("</textarea>").next());
    let shown = shown.and_then(|rest| rest.split_once(">\n")).expect("a field").1.replace("&quot;", "\"");
    assert_eq!(shown, BIG);
    let broken = post_form(&world, "dead.replay", &[("p:id", &text), ("j:payload", "{\"n\":")]).await;
    assert!(
        broken.is(400).body.contains("this is not JSON") && broken.body.contains("{&quot;n&quot;:"),
        "{broken:?}"
    );
    let changed = BIG.replace("1.10", "1.20").replace(',', ",\r\n ");
    let fields =
        [("p:id", text.as_str()), ("j:payload", changed.as_str()), ("confirmed", "yes"), ("back", "dead")];
    let done = post_form(&world, "dead.replay", &fields).await;
    assert!(notice(&world, &done).await.contains("Requeued"));
    let stored =
        world.store.show(TaskRef::Id(id)).await.expect("it is read").expect("it is there").task.payload;
    assert_eq!(stored, changed.replace("\r\n", "\n"));
}

async fn the_commands_that_a_page_shows_are_those_of_its_buttons(world: World) {
    let id = world.enqueue(1).await.remove(0).to_string();
    world.post(&format!("/api/v1/tasks/{id}/cancel"), "").await.is(200);
    let page = world.get(&format!("/tasks/{id}")).await.body;
    assert!(page.contains(&format!("ostler retry {id} --payload -")) && !page.contains("ostler dead replay"));
    world.enqueue(1).await;
    world.fail(1).await;
    let page = world.get("/tasks?state=failed&ended_until=2999-01-01T00:00:00Z").await.body;
    assert!(page.contains("ostler ls --state failed --ended-until 2999-01-01T00:00:00Z"), "{page}");
    let page = world.get("/dead?state=failed&ended_until=2999-01-01T00:00:00Z").await.body;
    assert!(page.contains("ostler dead ls --ended-until 2999-01-01T00:00:00Z"), "{page}");
    let all = [("s:action", "replay"), ("f:state", "failed"), ("f:ended_until", "2999-01-01T00:00:00Z")];
    let question = post_form(&world, "tasks.act", &all).await;
    let line = "ostler dead replay --ended-until 2999-01-01T00:00:00Z";
    assert!(question.is(200).body.contains(line), "{question:?}");
}

async fn a_selection_and_all_that_match_are_acted_on(world: World) {
    let ids: Vec<String> = world.enqueue(5).await.iter().map(ToString::to_string).collect();
    let picked = [("p:id", ids[0].as_str()), ("p:id", ids[1].as_str()), ("back", "tasks")];
    let question = post_form(&world, "tasks.cancel", &picked).await;
    assert!(question.is(200).body.contains("2 tasks are selected"), "{question:?}");
    let done =
        post_form(&world, "tasks.cancel", &[picked[0], picked[1], picked[2], ("confirmed", "yes")]).await;
    assert!(notice(&world, &done).await.contains("Done for 2 tasks"));
    let none = post_form(&world, "tasks.cancel", &[("back", "tasks")]).await;
    assert!(notice(&world, &none).await.contains("No task is selected"));
    world.fail(3).await;
    let all = [("s:action", "replay"), ("f:queue", "mail"), ("back", "dead")];
    let question = post_form(&world, "tasks.act", &all).await;
    assert!(question.is(200).body.contains("3 tasks match"), "{question:?}");
    let cutoff =
        question.body.split("name=\"s:cutoff\" value=\"").nth(1).and_then(|rest| rest.split('"').next());
    let cutoff = cutoff.expect("a cut-off");
    let done =
        post_form(&world, "tasks.act", &[all[0], all[1], all[2], ("s:cutoff", cutoff), ("confirmed", "yes")])
            .await;
    assert!(notice(&world, &done).await.contains("has begun"));
    let replayed = async {
        while world.get("/api/v1/stats").await.json()["tasks"]["failed"] != 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(ostler_testkit::MAX_WAIT, replayed).await.expect("all are replayed");
}

async fn a_pause_and_a_resize_are_asked_first(world: World) {
    let paused = async || world.get("/api/v1/queues/mail").await.json()["paused"].clone();
    world.enqueue(1).await;
    let pause = [("p:queue", "mail"), ("back", "nodes")];
    let question = post_form(&world, "queues.pause", &pause).await;
    assert!(question.is(200).body.contains("ostler pause mail"), "{question:?}");
    assert_eq!(paused().await, serde_json::Value::Null, "nothing is done yet");
    let done = post_form(&world, "queues.pause", &[pause[0], pause[1], ("confirmed", "yes")]).await;
    assert!(notice(&world, &done).await.contains("The queue mail is paused."));
    assert_eq!(paused().await, "paused by hand");
    // To resume takes nothing away.
    let done = post_form(&world, "queues.resume", &pause).await;
    assert!(notice(&world, &done).await.contains("The queue mail is resumed."));
    let resize = [("p:pool", "mail"), ("n:min", "2"), ("n:max", "4"), ("back", "nodes")];
    let question = post_form(&world, "pools.resize", &resize).await;
    assert!(question.is(200).body.contains("ostler resize mail 2 4"), "{question:?}");
    // On the page, the button tells the script to ask; for programs the operation is as harmless as it was.
    let page = world.get("/").await.body;
    let button =
        page.split("do/queues.pause\"").nth(1).and_then(|rest| rest.split('>').next()).expect("a button");
    assert!(button.contains("data-danger=\"disruptive\""), "{button}");
}

async fn settings_of_a_task_a_queue_and_a_schedule_are_changed_by_forms(world: World) {
    let id = world.enqueue(1).await.remove(0).to_string();
    let page = world.get(&format!("/tasks/{id}")).await.body;
    assert!(page.contains("do/tasks.amend") && page.contains("name=\"n:attempts\""), "{page}");
    let amend = [("p:id", id.as_str()), ("n:attempts", "7"), ("s:timeout", ""), ("back", "tasks")];
    post_form(&world, "tasks.amend", &amend).await.is(303);
    let rules = world.get(&format!("/api/v1/tasks/{id}")).await.json()["rules"].clone();
    assert_eq!((&rules["attempts"], &rules["timeout_ms"]), (&7.into(), &serde_json::Value::Null));
    let page = world.get("/").await.body;
    assert!(page.contains("do/queues.set") && page.contains("name=\"s:budget\""));
    post_form(&world, "queues.set", &[("p:queue", "mail"), ("n:concurrency", "3"), ("s:budget", "$5")])
        .await
        .is(303);
    let queue = world.get("/api/v1/queues/mail").await.json();
    assert_eq!((&queue["concurrency"], &queue["budget"]["total_usd"]), (&3.into(), &5.0.into()));
    let wrong =
        post_form(&world, "queues.set", &[("p:queue", "mail"), ("s:budget", "much"), ("back", "")]).await;
    let refused = notice(&world, &wrong).await;
    assert!(refused.contains("Budget: "), "{refused}");
    let page = world.get("/schedules").await.body;
    assert!(page.contains("do/schedules.put") && page.contains("name=\"s:cron\""));
    let nightly = [
        ("p:name", "nightly"),
        ("s:queue", "reports"),
        ("s:kind", "report"),
        ("s:cron", "0 3 * * *"),
        ("s:every", ""),
        ("j:payload", BIG),
    ];
    post_form(&world, "schedules.put", &nightly).await.is(303);
    let schedule = world.get("/api/v1/schedules/nightly").await.body;
    assert!(schedule.contains("0 3 * * *") && schedule.contains(BIG), "{schedule}");
}
