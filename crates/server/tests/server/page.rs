//! The pages by plain requests: every view answers from the page alone, hostile strings stay text, and readers see no button.

use ostler_core::{EventBody, Outcome, Role, ToolStatus};
use ostler_store::calls::{NewTask, QueueChange};
use ostler_store::views::TaskRef;

use crate::world::{FULL, READ, Reply, World, on_each_store};

on_each_store!(
    what_is_injected_into_a_page_is_noticed,
    every_view_answers_and_readers_see_no_button,
    a_view_answers_its_question_from_the_page_alone,
    a_paused_queue_is_why_a_task_waits_and_the_button_frees_it,
    a_page_without_a_login_is_the_login_page,
    a_long_transcript_is_short_to_read,
);

/// Strings that would be markup, script, a direction mark or a control character, if a page let them.
const HOSTILE: [&str; 6] = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>",
    "'; alert(1); //",
    "</textarea></template><b>",
    "a\u{202e}b\u{1b}[31m",
    "javascript:alert(1)",
];

async fn get(world: &World, path: &str, token: &str) -> Reply {
    let token = format!("Bearer {token}");
    let headers = [("authorization", token.as_str()), ("accept", "text/html")];
    world.client().await.ask("GET", path, &headers, "").await
}

/// A world with a task in every state, and hostile strings in what users write.
async fn filled(world: &World) -> Vec<String> {
    let node = world.node().await;
    world.enqueue(3).await;
    let claimed = world.claim(node, 3).await;
    let mut ids: Vec<String> = claimed.iter().map(|one| one.lease.task().to_string()).collect();
    let lease = claimed[0].lease.as_ref();
    let said = vec![
        EventBody::Message { role: Role::Assistant, text: HOSTILE[0].to_owned() },
        EventBody::ToolCall {
            call: "c1".to_owned(),
            tool: HOSTILE[1].to_owned(),
            input: "{\"a\":1}".to_owned(),
        },
        EventBody::ToolResult {
            call: "c1".to_owned(),
            tool: None,
            status: ToolStatus::Ok,
            output: HOSTILE.join("\n"),
        },
    ];
    world.store.append(lease, said).await.expect("they are written");
    let mut claimed = claimed.into_iter();
    world.finish(claimed.by_ref().take(1).collect(), &Outcome::Success).await;
    let failure = ostler_core::Failure::new(ostler_core::ErrorClass::Permanent, HOSTILE[1]);
    world.finish(claimed.by_ref().take(1).collect(), &Outcome::Failed(failure)).await;
    std::mem::forget(claimed);
    let mut odd: NewTask = world.ids.new_tasks(1, "a/b.c?d", HOSTILE[0]).remove(0);
    odd.payload = serde_json::json!({ "text": HOSTILE, "n": 1 }).to_string();
    odd.limit_key = Some(HOSTILE[3].to_owned());
    ids.push(odd.id.to_string());
    world.store.enqueue(vec![odd]).await.expect("it is accepted");
    world
        .store
        .configure("paused", vec![QueueChange::Pause(HOSTILE[0].to_owned())])
        .await
        .expect("it is set");
    ids
}

const VIEWS: [&str; 8] =
    ["/", "/tasks", "/tasks?state=failed", "/dead", "/jobs", "/nodes", "/schedules", "/cost?by=model"];

fn assert_is_safe(reply: &Reply, place: &str) {
    let body = &reply.body;
    assert_eq!(reply.header("content-type"), Some("text/html; charset=utf-8"), "{place}");
    // A script is a file, and has nothing between its tags.
    for script in body.split("<script").skip(1).filter_map(|rest| rest.split_once('>')) {
        assert!(script.1.starts_with("</script>"), "{place} has a script inside");
    }
    for wrong in ["<script>", "<img", "<b>", "href=\"javascript", "\u{1b}", "\u{202e}"] {
        assert!(!body.contains(wrong), "{place} has {wrong}");
    }
    // No tag has a handler or a style: outside of quotes nothing begins like one.
    for tag in body.split('<').skip(1).filter_map(|rest| rest.split('>').next()) {
        let bare: String = tag.split('"').step_by(2).collect();
        assert!(!bare.contains(" on") && !bare.contains(" style="), "{place}: {tag}");
    }
    assert!(body.len() < 150 * 1024, "{place} has {} bytes", body.len());
    // Every link is relative.
    for attribute in ["href=\"", "src=\"", "action=\"", "formaction=\""] {
        for link in body.split(attribute).skip(1).filter_map(|rest| rest.split('"').next()) {
            assert!(!link.starts_with('/') && !link.contains("://"), "{place}: {link}");
        }
    }
}

async fn what_is_injected_into_a_page_is_noticed(world: World) {
    filled(&world).await;
    let page = get(&world, "/tasks", FULL).await;
    assert_is_safe(&page, "as it is");
    for injected in [
        "<script>alert(1)</script>",
        "<script type=\"module\">alert(1)</script>",
        "<p style=\"color: red\">",
        "<button onclick=\"alert(1)\">",
        "<a href=\"javascript:alert(1)\">",
        "<a href=\"https://evil.test/\">",
    ] {
        let body = page.body.replacen("</main>", &format!("{injected}</main>"), 1);
        assert_ne!(body, page.body, "it is in the page");
        let wrong = Reply { status: 200, headers: page.headers.clone(), body };
        let noticed = std::panic::catch_unwind(|| assert_is_safe(&wrong, "injected"));
        assert!(noticed.is_err(), "{injected}");
    }
}

async fn every_view_answers_and_readers_see_no_button(world: World) {
    let ids = filled(&world).await;
    let tasks = ids.iter().flat_map(|id| [format!("/tasks/{id}"), format!("/tasks/{id}/transcript")]);
    for path in VIEWS.iter().map(|path| (*path).to_owned()).chain(tasks) {
        let full = get(&world, &path, FULL).await;
        assert_is_safe(full.is(200), &path);
        assert!(full.body.contains("As of ") && full.body.contains("id=\"live\""), "{path}");
        let read = get(&world, &path, READ).await;
        assert_is_safe(read.is(200), &path);
        assert!(
            !read.body.contains("/do/") && !read.body.contains("\"do/"),
            "{path} has a button for readers"
        );
        assert!(read.body.contains("may only look"), "{path}");
    }
    // The page works under the path of a proxy.
    get(&world, "/ostler/tasks", FULL).await.is(200);
    assert_eq!(get(&world, "/ostler", FULL).await.header("location"), Some("/ostler/"));
}

async fn a_view_answers_its_question_from_the_page_alone(world: World) {
    let ids = filled(&world).await;
    let overview = get(&world, "/", FULL).await.body;
    for part in [
        "a sentence",
        "advice",
        "ostler resume reports",
        "Resume it",
        "mail",
        "a/b.c?d",
        "paused",
        "ostler resume paused",
        "ostler pause mail",
    ] {
        assert!(overview.contains(part), "the overview has no {part}");
    }
    let list = get(&world, "/tasks?text=img+src", FULL).await.body;
    assert!(list.contains(&ids[1]) && !list.contains(&ids[0]), "only the one that failed mentions it");
    for (query, finds) in [
        ("where=payload.n%3D1", Some(3)),
        ("where=payload.n%3D2", None),
        ("class=permanent", Some(1)),
        ("class=timeout", None),
        ("failed_since=2020-01-01T00:00:00Z", Some(1)),
        ("failed_until=2020-01-01T00:00:00Z", None),
        ("ended_since=2020-01-01T00:00:00Z&state=completed", Some(0)),
    ] {
        let list = get(&world, &format!("/tasks?{query}"), FULL).await.body;
        let rows: Vec<usize> =
            (0..ids.len()).filter(|at| list.contains(&format!("data-key=\"{}\"", ids[*at]))).collect();
        assert_eq!(rows, Vec::from_iter(finds), "{query}");
    }
    let wrong = get(&world, "/tasks?where=nothing", FULL).await;
    assert!(wrong.is(400).body.contains("payload.tenant=acme"));
    let failed = get(&world, &format!("/tasks/{}", ids[1]), FULL).await.body;
    for part in
        ["It failed for good", "permanent", "Edit and replay", &format!("ostler dead replay {}", ids[1])]
    {
        assert!(failed.contains(part), "the failed task has no {part}");
    }
    let running = get(&world, &format!("/tasks/{}", ids[2]), FULL).await.body;
    assert!(running.contains("Lease") && running.contains(&format!("ostler cancel {}", ids[2])));
    let waiting = get(&world, &format!("/tasks/{}", ids[3]), FULL).await.body;
    assert!(waiting.contains("No running node serves the queue") && waiting.contains("ostler up"));
    let events = get(&world, &format!("/tasks/{}/transcript", ids[0]), FULL).await.body;
    assert!(events.contains("id=\"e2\"") && events.contains("<details"), "tool calls are folded");
    let dead = get(&world, "/dead", FULL).await.body;
    assert!(
        dead.contains("1 task has failed for good, by 1 cause.")
            && dead.contains("ostler dead replay --queue mail"),
        "{dead}"
    );
    get(&world, "/tasks/01JC8Z0Q4M9T7N3V5X1B2D6F8H", FULL).await.is(404);
}

async fn a_paused_queue_is_why_a_task_waits_and_the_button_frees_it(world: World) {
    let id = world.enqueue(1).await.remove(0);
    world.post("/api/v1/queues/mail/pause", r#"{"reason":"the provider is down"}"#).await.is(200);
    let page = get(&world, &format!("/tasks/{id}"), FULL).await.body;
    assert!(page.contains("is paused (the provider is down)"), "{page}");
    assert!(page.contains("action=\"../do/queues.resume\"") && page.contains("ostler resume mail"));
    let form = [
        ("authorization", &*format!("Bearer {FULL}")),
        ("content-type", "application/x-www-form-urlencoded"),
    ];
    let body = format!("p%3Aqueue=mail&back=tasks%2F{id}");
    let done = world.client().await.ask("POST", "/do/queues.resume", &form, &body).await;
    let to = done.is(303).header("location").expect("a way back").to_owned();
    assert!(to.starts_with(&format!("../tasks/{id}?notice=")), "{to}");
    let page = get(&world, to.trim_start_matches(".."), FULL).await.body;
    assert!(page.contains("The queue mail is resumed.") && !page.contains("is paused"), "{page}");
}

async fn a_page_without_a_login_is_the_login_page(world: World) {
    let browser = [
        ("accept", "text/html"),
        ("sec-fetch-mode", "navigate"),
        ("sec-fetch-dest", "document"),
        ("sec-fetch-site", "cross-site"),
    ];
    let reply = world.client().await.ask("GET", "/tasks/01JC8Z0Q4M9T7N3V5X1B2D6F8H?a=b", &browser, "").await;
    assert!(reply.is(401).body.contains("value=\"tasks/01JC8Z0Q4M9T7N3V5X1B2D6F8H?a=b\""), "{reply:?}");
    assert!(reply.body.contains("ostler open") && reply.body.contains("../login/form"));
    let link = world.server().login_text().expect("a link");
    let form = [("content-type", "application/x-www-form-urlencoded"), ("sec-fetch-site", "same-origin")];
    let body = format!("token=http%3A%2F%2Fx%2Flogin%23{link}&to=tasks");
    let reply = world.client().await.ask("POST", "/login/form", &form, &body).await;
    assert_eq!(reply.is(303).header("location"), Some("../tasks"));
    let cookie = reply.header("set-cookie").expect("a cookie").split(';').next().expect("a pair").to_owned();
    let headers = [("cookie", cookie.as_str()), ("accept", "text/html")];
    world.client().await.ask("GET", "/tasks", &headers, "").await.is(200);
    let again = world.client().await.ask("POST", "/login/form", &form, &body).await;
    assert!(again.is(401).body.contains("was used"));
    // Assets may be kept; their names change with their content.
    let page = world.client().await.ask("GET", "/login", &[("accept", "text/html")], "").await;
    let name = page.body.split("./assets/").nth(1).and_then(|rest| rest.split('"').next()).expect("a name");
    let style = world.client().await.ask("GET", &format!("/assets/{name}"), &[], "").await;
    assert!(style.is(200).header("cache-control").is_some_and(|value| value.contains("immutable")));
}

async fn a_long_transcript_is_short_to_read(world: World) {
    let node = world.node().await;
    world.enqueue(1).await;
    let claimed = world.claim(node, 1).await;
    let id = claimed[0].lease.task();
    for part in 0..10 {
        let said =
            (0..1_000).map(|at| crate::world::line(format!("line {}", part * 1_000 + at + 1))).collect();
        world.store.append(claimed[0].lease.as_ref(), said).await.expect("they are written");
    }
    let last = world.store.show(TaskRef::Id(id)).await.expect("it is read").expect("it is there");
    assert_eq!(last.task.id, id);
    let page = get(&world, &format!("/tasks/{id}"), FULL).await;
    assert!(page.body.contains("line 10000<") && !page.body.contains("line 9000<"), "the newest are shown");
    assert!(page.body.len() < 150 * 1024 && page.body.matches("<li id=\"e").count() <= 100);
    let middle = get(&world, &format!("/tasks/{id}/transcript?after=8122"), FULL).await;
    assert!(middle.body.contains("id=\"e8123\""));
    // A message that came in two parts reads as one.
    let role = Role::Assistant;
    let parts = vec![
        EventBody::Message { role, text: "The first".to_owned() },
        EventBody::Continued { role: Some(role), text: " and the rest".to_owned() },
    ];
    world.store.append(claimed[0].lease.as_ref(), parts).await.expect("they are written");
    let end = get(&world, &format!("/tasks/{id}"), FULL).await;
    assert!(end.body.contains("<li id=\"e10002\" class=\"event assistant more\">"), "{}", end.body);
    std::mem::forget(claimed);
}
