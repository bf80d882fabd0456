//! Logging in: a link works once, sessions end with their token, and wrong tokens are slowed and counted.

use std::time::{Duration, Instant};

use ostler_testkit::MAX_WAIT;
use serde_json::json;

use crate::world::{FULL, READ, Reply, World, on_each_store};

on_each_store!(
    a_link_opens_one_session_which_ends_with_its_token,
    a_link_of_another_site_leads_a_session_to_its_task_and_a_frame_of_it_to_nothing,
    nodes_of_one_machine_keep_their_sessions_apart,
    a_visitor_with_a_read_token_logs_in_looks_and_logs_out,
);

async fn log_in(world: &World, text: &str) -> Reply {
    let body = json!({ "token": text }).to_string();
    world.client().await.ask("POST", "/login", &[("sec-fetch-site", "same-origin")], &body).await
}

async fn a_link_opens_one_session_which_ends_with_its_token(world: World) {
    let made = world.post("/api/v1/login-links", "").await.is(200).json();
    let text = made["token"].as_str().expect("a text");
    assert!(made["path"].as_str().is_some_and(|path| path.starts_with("/ostler/login#")), "{made}");
    let first = log_in(&world, text).await;
    let cookie = first.is(200).header("set-cookie").expect("a cookie").to_owned();
    let port = world.address.rsplit(':').next().expect("a port");
    assert!(cookie.starts_with(&format!("ostler-{port}=")), "{cookie}");
    for part in ["HttpOnly", "SameSite=Lax", "Path=/ostler", "Secure"] {
        assert!(cookie.contains(part), "{part}: {cookie}");
    }
    log_in(&world, text).await.is(401);
    log_in(&world, "guessed").await.is(401);
    let pair = cookie.split(';').next().expect("a pair");
    let mut client = world.client().await;
    client.ask("GET", "/api/v1/session", &[("cookie", pair)], "").await.is(200);
    // A cookie alone changes nothing without the word of the browser that the page is ours.
    let blind = client.ask("POST", "/api/v1/queues/q/pause", &[("cookie", pair)], "{}").await;
    assert_eq!(blind.status, 403);
    let ours = [("cookie", pair), ("sec-fetch-site", "same-origin")];
    client.ask("POST", "/api/v1/queues/q/pause", &ours, "{}").await.is(200);
    let unused = world.server().login_text().expect("a link");
    // The token is replaced in its file: the session ends soon, and links that it made open nothing.
    let file = world.place.folder().join("tokens");
    std::fs::write(&file, format!("owner full another-token-of-tests\nviewer read {READ}\n"))
        .expect("it is written");
    let began = Instant::now();
    while client.ask("GET", "/api/v1/session", &[("cookie", pair)], "").await.status == 200 {
        assert!(began.elapsed() < MAX_WAIT, "it ends");
        tokio::task::yield_now().await;
    }
    let old = client.ask("GET", "/api/v1/session", &[("authorization", &format!("Bearer {FULL}"))], "").await;
    assert_eq!(old.status, 401);
    log_in(&world, &unused).await.is(401);
}

async fn a_link_of_another_site_leads_a_session_to_its_task_and_a_frame_of_it_to_nothing(world: World) {
    let id = world.enqueue(1).await[0];
    let link = world.server().login_text().expect("a link");
    let logged_in = log_in(&world, &link).await;
    let cookie = logged_in.is(200).header("set-cookie").expect("a cookie").to_owned();
    let pair = cookie.split(';').next().expect("a pair");
    // What a browser sends after a click in a chat or a mail; for a cookie that is Strict it would send none.
    let path = format!("/tasks/{id}");
    let ways = [
        ("cross-site", "navigate", "document", 200),
        ("same-site", "navigate", "document", 200),
        ("none", "navigate", "document", 200),
        ("cross-site", "navigate", "iframe", 403),
        ("cross-site", "no-cors", "image", 403),
        ("cross-site", "no-cors", "script", 403),
        ("same-site", "cors", "empty", 403),
    ];
    for (site, mode, dest, status) in ways {
        let headers = [
            ("cookie", pair),
            ("sec-fetch-site", site),
            ("sec-fetch-mode", mode),
            ("sec-fetch-dest", dest),
            ("accept", "text/html"),
        ];
        let reply = world.client().await.ask("GET", &path, &headers, "").await;
        assert_eq!(reply.status, status, "{site} {mode} {dest}");
        assert_eq!(reply.body.contains(&id.to_string()), status == 200, "{site} {mode} {dest}");
    }
}

async fn nodes_of_one_machine_keep_their_sessions_apart(one: World) {
    let other = one.beside().await;
    let mut jar = Vec::new();
    for world in [&one, &other] {
        let link = world.server().login_text().expect("a link");
        let logged_in = log_in(world, &link).await;
        let cookie = logged_in.is(200).header("set-cookie").expect("a cookie").to_owned();
        jar.push(cookie.split(';').next().expect("a pair").to_owned());
    }
    // A browser sends the cookies of all ports.
    let both = jar.join("; ");
    for world in [&one, &other] {
        world.client().await.ask("GET", "/api/v1/session", &[("cookie", &both)], "").await.is(200);
    }
    // Under the name of the other node it is worth nothing.
    let (name, value) =
        (jar[1].split('=').next().expect("a name"), jar[0].split('=').nth(1).expect("a value"));
    let swapped = format!("{name}={value}");
    other.client().await.ask("GET", "/api/v1/session", &[("cookie", &swapped)], "").await.is(401);
}

/// The cookie that an answer sets.
fn cookie_of(reply: &Reply) -> String {
    let cookie = reply.header("set-cookie").expect("a cookie");
    cookie.split(';').next().expect("a pair").to_owned()
}

async fn a_visitor_with_a_read_token_logs_in_looks_and_logs_out(world: World) {
    let id = world.enqueue(1).await.remove(0).to_string();
    let links = async |token: &str, body: &str| {
        let token = format!("Bearer {token}");
        let headers = [("authorization", token.as_str())];
        let made = world.client().await.ask("POST", "/api/v1/login-links", &headers, body).await;
        made.is(200).json()["token"].as_str().expect("a text").to_owned()
    };
    let form = [("content-type", "application/x-www-form-urlencoded"), ("sec-fetch-site", "same-origin")];
    let by_form = async |text: &str| {
        world.client().await.ask("POST", "/login/form", &form, &format!("token={text}&to=tasks")).await
    };
    // By a link of a read token, by a link for readers that a full token has made, and by the token itself.
    let by_link = log_in(&world, &links(READ, "").await).await;
    assert_eq!(by_link.is(200).json(), json!({ "name": "viewer", "access": "read" }));
    let given = log_in(&world, &links(FULL, r#"{"access":"read"}"#).await).await;
    assert_eq!(given.is(200).json(), json!({ "name": "owner", "access": "read" }));
    let by_token = by_form(READ).await;
    assert_eq!(by_token.is(303).header("location"), Some("../tasks"));
    assert!(
        by_form("no-token-of-this-node").await.is(401).body.contains("the token is not one of this node")
    );
    for logged_in in [by_link, given, by_token] {
        let cookie = cookie_of(&logged_in);
        let ours = [("cookie", cookie.as_str()), ("sec-fetch-site", "same-origin"), ("accept", "text/html")];
        let mut client = world.client().await;
        for path in ["/", "/tasks", &format!("/tasks/{id}"), "/dead", "/jobs", "/nodes", "/schedules"] {
            let page = client.ask("GET", path, &ours, "").await;
            assert!(page.is(200).body.contains("may only look"), "{path}");
            assert!(!page.body.contains("/do/") && !page.body.contains("\"do/"), "{path} has a button");
        }
        let pressed = [ours[0], ours[1], form[0]];
        let body = format!("p%3Aid={id}&confirmed=yes");
        let reply = client.ask("POST", "/do/tasks.cancel", &pressed, &body).await;
        assert_eq!((reply.status, reply.code().as_str()), (403, "read_only"));
        let path = format!("/api/v1/tasks/{id}/cancel");
        assert_eq!(client.ask("POST", &path, &ours, "").await.status, 403);
        // A session makes no link, so it does not prolong itself.
        assert_eq!(client.ask("POST", "/api/v1/login-links", &ours, "").await.status, 401);
        let out = client.ask("POST", "/logout/form", &pressed, "").await;
        assert_eq!(out.is(303).header("location"), Some("../login"));
        assert_eq!(client.ask("GET", "/api/v1/session", &ours, "").await.status, 401);
    }
    assert_eq!(world.get(&format!("/api/v1/tasks/{id}")).await.json()["state"], "queued");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_another_start_asks_for_its_session_without_being_slowed() {
    let world = World::new().await;
    let link = world.server().login_text().expect("a link");
    let logged_in = log_in(&world, &link).await;
    let cookie = logged_in.is(200).header("set-cookie").expect("a cookie").to_owned();
    let value = cookie.split(';').next().and_then(|pair| pair.split('=').nth(1)).expect("a value");
    // The start after it has other sessions, here at another port.
    let next = world.beside().await;
    let port = next.address.rsplit(':').next().expect("a port");
    let old = format!("ostler-{port}={value}");
    let mut client = next.client().await;
    let began = Instant::now();
    for _ in 0..20 {
        client.ask("GET", "/api/v1/session", &[("cookie", &old)], "").await.is(401);
    }
    // Twenty wrong tokens would take half a minute.
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    let link = next.server().login_text().expect("a link");
    let again = log_in(&next, &link).await;
    let cookie =
        again.is(200).header("set-cookie").expect("a cookie").split(';').next().expect("a pair").to_owned();
    client.ask("GET", "/api/v1/session", &[("cookie", &cookie)], "").await.is(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_tokens_are_slowed_and_a_file_that_others_read_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let world = World::new().await;
    let mut client = world.client().await;
    let began = Instant::now();
    for _ in 0..3 {
        let reply =
            client.ask("GET", "/api/v1/stats", &[("authorization", "Bearer not-the-right-token")], "").await;
        assert_eq!((reply.status, reply.code().as_str()), (401, "unauthorized"));
    }
    assert!(began.elapsed() >= Duration::from_millis(100 + 200 + 400), "{:?}", began.elapsed());
    // Texts of login links are guesses too, and are counted with the tokens.
    let began = Instant::now();
    log_in(&world, "guessed").await.is(401);
    let form = [
        ("origin", "https://ostler.example.org"),
        ("sec-fetch-site", "same-origin"),
        ("content-type", "application/x-www-form-urlencoded"),
    ];
    client.ask("POST", "/login/form", &form, "token=guessed").await.is(401);
    assert!(began.elapsed() >= Duration::from_millis(800 + 1_600), "{:?}", began.elapsed());
    let path = world.place.folder().join("open-tokens");
    let tokens = ostler_server::Tokens::file(&path);
    tokens.expect("they are created");
    let mode = std::fs::metadata(&path).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).expect("it is changed");
    assert!(ostler_server::Tokens::file(&path).is_err_and(|error| error.to_string().contains("chmod 600")));
}
