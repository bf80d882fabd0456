//! The client of the HTTP API in Rust, `ostler::connect`, against the real program: `sdk/scenario.json` on both stores.

use std::time::Duration;

use ostler::view::input::{FilterInput, JobInput, TaskInput};
use ostler::{
    ApiMethod, ApiRequest, BulkAction, Overrides, Priority, RemoteClient, RemoteError, Replay, StepsOnReplay,
    Submission,
};
use serde_json::{Map, Value, json};

use crate::ostler::{Place, Running};

const WRONG_TOKEN: &str = "a-token-that-no-node-has";

/// A node of the scenario, and what its clients need.
struct Served {
    _running: Running,
    place: Place,
    url: String,
    tokens: String,
}

impl Served {
    fn up(place: Place, scenario: &Value) -> Self {
        let lines: Vec<&str> =
            scenario["config"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        place.write("ostler.toml", lines.join("\n"));
        let mut command = place.command(["up", "--listen", "127.0.0.1:0"]);
        command.env("XDG_STATE_HOME", place.folder());
        let running = Running::start(command);
        let ready: Value = serde_json::from_str(&running.line()).expect("a line of JSON");
        let url = format!("http://{}", ready["listen"].as_str().expect("an address"));
        let tokens = token_file(&place);
        Self { _running: running, place, url, tokens }
    }

    fn token(&self, name: &str) -> String {
        let text = std::fs::read_to_string(&self.tokens).expect("there is a token file");
        let line = text.lines().find(|line| line.starts_with(&format!("{name} "))).expect("a line");
        line.split_whitespace().nth(2).expect("a token").to_owned()
    }

    fn client(&self, name: &str) -> RemoteClient {
        let here = ostler::connect(&self.url).expect("an address");
        match name {
            "owner" => here.with_token_file(&self.tokens).expect("a token"),
            "viewer" => here.with_token(&self.token("viewer")).expect("a token"),
            "wrong" => here.with_token(WRONG_TOKEN).expect("a token"),
            "anonymous" => here,
            "unreachable" => {
                let nowhere = format!("unix:{}", self.place.folder().join("nothing.sock").display());
                ostler::connect(&nowhere).expect("an address")
            }
            other => panic!("the scenario has a client that this test does not know: {other}"),
        }
    }
}

/// The token file: beside the store, or in the state folder if the store is on a server.
fn token_file(place: &Place) -> String {
    let mut folders = vec![place.folder().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
            if entry.path().is_dir() {
                folders.push(entry.path());
            } else if entry.file_name().to_string_lossy().ends_with("token") {
                return entry.path().to_string_lossy().into_owned();
            }
        }
    }
    panic!("the node has written no token file")
}

/// The value with what was saved in place of its references.
fn resolved(value: &Value, saved: &Map<String, Value>) -> Value {
    match value {
        Value::String(text)
            if text.starts_with('$') && text[1..].starts_with(|c: char| c.is_alphabetic()) =>
        {
            let mut names = text[1..].split('.');
            let mut found = &saved[names.next().unwrap_or_default()];
            for name in names {
                found = name.parse::<usize>().map_or_else(|_| &found[name], |place| &found[place]);
            }
            found.clone()
        }
        Value::Array(all) => all.iter().map(|one| resolved(one, saved)).collect(),
        Value::Object(fields) => {
            Value::Object(fields.iter().map(|(name, one)| (name.clone(), resolved(one, saved))).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

/// Where and why a value does not match.
fn mismatch(pattern: &Value, value: &Value, at: &str) -> Option<String> {
    let wrong = || Some(format!("{at} is {value}, expected {pattern}"));
    let verdict = |fits: bool| if fits { None } else { wrong() };
    let list = value.as_array().map(Vec::as_slice).unwrap_or_default();
    if let Some((name, wanted)) =
        pattern.as_object().filter(|all| all.len() == 1).and_then(|all| all.iter().next())
    {
        match name.as_str() {
            "$any" => return verdict(!value.is_null()),
            "$length" => {
                return verdict(value.is_array() && list.len() as u64 == wanted.as_u64().unwrap_or(u64::MAX));
            }
            "$contains" => return verdict(list.iter().any(|one| mismatch(wanted, one, at).is_none())),
            "$first" => return verdict(list.first().is_some_and(|one| mismatch(wanted, one, at).is_none())),
            "$text" => {
                return verdict(value.as_str().unwrap_or_default().contains(wanted.as_str().unwrap_or("?")));
            }
            "$one_of" => return verdict(wanted.as_array().is_some_and(|all| all.contains(value))),
            _ => {}
        }
    }
    match (pattern, value) {
        (Value::Object(fields), Value::Object(_)) => {
            fields.iter().find_map(|(name, one)| mismatch(one, &value[name], &format!("{at}.{name}")))
        }
        (Value::Array(all), Value::Array(found)) if all.len() == found.len() => all
            .iter()
            .zip(found)
            .enumerate()
            .find_map(|(place, (one, it))| mismatch(one, it, &format!("{at}[{place}]"))),
        // A number may be written as 5 or 5.0.
        (Value::Number(one), Value::Number(it)) => verdict(one.as_f64() == it.as_f64()),
        _ => verdict(pattern == value),
    }
}

/// What was returned, or raised, as the scenario describes it.
type Outcome = Result<Value, RemoteError>;

fn shown<T: serde::Serialize>(value: &T) -> Outcome {
    Ok(serde_json::to_value(value).expect("a view is JSON"))
}

/// The options of a submission.
fn submission(client: &RemoteClient, options: &Value) -> Submission {
    let text = |name: &str| options[name].as_str();
    let span = |name: &str| text(name).map(|text| ostler_wire::value::duration(text).expect(text));
    let on_conflict = |word| ostler_wire::value::on_conflict(word).expect(word);
    Submission {
        key: text("key").map(str::to_owned),
        on_conflict: text("if_taken").map(on_conflict).unwrap_or_default(),
        priority: options["priority"].as_i64().and_then(Priority::new).unwrap_or_default(),
        run_at: span("in").map(|delay| client.now().after(delay)),
        overrides: Overrides {
            attempts: options["attempts"].as_u64().and_then(|attempts| u32::try_from(attempts).ok()),
            timeout: span("timeout"),
            ..Overrides::NONE
        },
        ..Submission::default()
    }
}

fn seconds(value: &Value) -> Duration {
    Duration::from_secs_f64(value.as_f64().expect("a number of seconds"))
}

fn replay(options: &Value) -> Replay {
    let payload = options.get("payload").map(Value::to_string);
    Replay { steps: StepsOnReplay::Keep, payload }
}

fn bulk(word: &Value) -> Option<BulkAction> {
    match word.as_str() {
        Some("cancel") => Some(BulkAction::Cancel),
        Some("retry") => Some(BulkAction::Retry),
        Some("replay") => Some(BulkAction::Replay),
        Some("drop") => Some(BulkAction::Drop),
        _ => None,
    }
}

/// All pages of a list.
async fn pages(client: &RemoteClient, list: &str, member: &str, options: &Value) -> Outcome {
    let (mut all, mut cursor) = (Vec::new(), Value::Null);
    loop {
        let page = page(client, list, options, &cursor).await?;
        all.extend(page[member].as_array().expect("a list").clone());
        cursor = page["cursor"].clone();
        if cursor.is_null() {
            return Ok(Value::Array(all));
        }
    }
}

/// A page by the names of the API: the scenario has values that no filter of the library can have.
async fn page(client: &RemoteClient, list: &str, options: &Value, cursor: &Value) -> Outcome {
    let mut request = ApiRequest::new(ApiMethod::Get, &[list]).query("cursor", cursor.as_str());
    for (name, value) in options.as_object().into_iter().flatten() {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        request = request.query(name, Some(text));
    }
    client.request(request).await
}

/// Does one call of the scenario.
async fn call(client: &RemoteClient, name: &str, args: &[Value], options: &Value) -> Outcome {
    let arg = |place: usize| args.get(place).unwrap_or(&Value::Null);
    let text = |place: usize| arg(place).as_str().unwrap_or_default();
    let timeout = |place: usize| {
        args.get(place).or_else(|| options.get("timeout")).or_else(|| options.get("wait")).map(seconds)
    };
    let here = client.on(options["queue"].as_str().unwrap_or("default"));
    let job = client.job(text(0));
    match name {
        "submit" => {
            let key = options["idempotency_key"]
                .as_str()
                .map_or_else(|| client.new_id().to_string(), str::to_owned);
            let about = submission(client, options);
            shown(&client.on(text(0)).submit_once(&key, text(1), arg(2), about).await?)
        }
        "run" => {
            let mut run = client.on(options["pool"].as_str().unwrap_or_default()).run(text(0));
            if let Some(id) = options["id"].as_str() {
                run = run.id(id);
            }
            if let Some(model) = options["model"].as_str() {
                run = run.model(model);
            }
            Ok(json!({ "id": run.await?.to_string() }))
        }
        "submit_many" => {
            let tasks: Vec<TaskInput> = args[0]
                .as_array()
                .into_iter()
                .flatten()
                .map(|task| serde_json::from_str(&task.to_string()).expect("a task"))
                .collect();
            shown(&client.submit_inputs(&tasks, None).await?)
        }
        "wait" => shown(&here.wait_within(text(0), timeout(1).expect("a timeout")).await?),
        "result" => match timeout(1) {
            Some(timeout) => {
                here.wait_within(text(0), timeout).await?;
                here.wait_as(text(0)).await
            }
            None => here.result(text(0)).await,
        },
        "wait_many" | "as_completed" => {
            let mut all = Vec::new();
            for task in args[0].as_array().into_iter().flatten() {
                all.push(shown(
                    &client
                        .wait_within(task.as_str().unwrap_or_default(), timeout(1).expect("a timeout"))
                        .await?,
                )?);
            }
            Ok(Value::Array(all))
        }
        "task" => shown(&here.show(text(0)).await?),
        "tasks" => pages(client, "tasks", "tasks", options).await,
        "task_page" => page(client, "tasks", options, &Value::Null).await,
        "dead" => pages(client, "dead", "letters", options).await,
        "dead_letter" => shown(&client.dead_letter(text(0)).await?),
        "replay" => shown(&client.replay_dead_letter(text(0), replay(options)).await?),
        "retry" if options["again"] == true => shown(&client.copy(text(0), None).await?),
        "retry" => shown(&client.replay(text(0), replay(options)).await?),
        "cancel" => shown(&client.cancel(text(0)).await?),
        "follow" => {
            let mut events = client.follow(text(0), options["after"].as_u64().unwrap_or(0));
            let mut all = Vec::new();
            while let Some(event) = events.next().await? {
                all.push(shown(&event)?);
            }
            Ok(Value::Array(all))
        }
        "task_events" => {
            let page = client.events(text(0), 0).await?;
            Ok(json!({ "events": shown(&page.events)?, "after": page.after }))
        }
        "act" => act(client, args, options).await,
        "actions" => shown(&client.actions().await?),
        "wait_action" => shown(&client.wait_action(text(0)).await?),
        "stop_action" => shown(&client.stop_action(text(0)).await?),
        "pause" => shown(&client.on(text(0)).pause(options["reason"].as_str().unwrap_or_default()).await?),
        "resume" => shown(&client.on(text(0)).resume().await?),
        "queues" => shown(&client.queues().await?),
        "stats" if options["queue"].is_string() => shown(&here.stats().await?),
        "stats" => shown(&client.all_stats().await?),
        "nodes" => shown(&client.nodes().await?),
        "workers" => shown(&client.workers().await?),
        "doctor" => shown(&client.doctor().await?),
        "request" => {
            let method = match text(0) {
                "GET" => ApiMethod::Get,
                "PUT" => ApiMethod::Put,
                other => panic!("the scenario has a method that this test does not know: {other}"),
            };
            let request = ApiRequest::at(method, text(1));
            client
                .request(if options["body"].is_null() { request } else { request.body(&options["body"]) })
                .await
        }
        "jobs.create" => {
            let mut job = options.as_object().cloned().unwrap_or_default();
            job.extend([("pool".to_owned(), arg(0).clone()), ("items".to_owned(), arg(1).clone())]);
            let job: JobInput = serde_json::from_value(Value::Object(job)).expect("a job");
            shown(&client.create_job(&job).await?.1)
        }
        "jobs.list" => match options["before"].as_str() {
            Some(before) => shown(&client.jobs_before(before, 100).await?),
            None => shown(&client.jobs(100).await?),
        },
        "jobs.show" => shown(&job.show().await?),
        "jobs.wait" => shown(&job.wait_within(seconds(arg(1))).await?),
        "jobs.wait_pilot" => shown(&job.wait_for_pilot().await?),
        "jobs.results" => shown(&job.results().await?),
        "jobs.approve" => shown(&job.approve().await?),
        "jobs.reject" => shown(&job.reject().await?),
        "jobs.pause" => shown(&job.pause().await?),
        "jobs.resume" => shown(&job.resume(None).await?),
        "jobs.cancel" => shown(&job.cancel().await?),
        "jobs.retry_failed" => shown(&job.retry_failed().await?),
        "jobs.remove" => shown(&job.remove().await?),
        other => panic!("the scenario has a call that this test does not know: {other}"),
    }
}

/// Actions on many: what the types of the library refuse is sent as it is.
async fn act(client: &RemoteClient, args: &[Value], options: &Value) -> Outcome {
    let filter: FilterInput = serde_json::from_value(args[1].clone()).expect("a filter");
    match (bulk(&args[0]), options["cutoff"].as_str(), options["preview"] == true) {
        (Some(action), _, true) => shown(&client.preview(action, &filter).await?),
        (Some(action), Some(cutoff), false) => {
            shown(&client.act(action, &filter, cutoff, StepsOnReplay::Keep).await?)
        }
        (_, _, preview) => {
            let body = json!({ "action": args[0], "filter": args[1], "preview": preview });
            client.request(ApiRequest::new(ApiMethod::Post, &["tasks", "actions"]).body(&body)).await
        }
    }
}

/// What is wrong with the outcome of a step.
fn check(step: &Value, saved: &Map<String, Value>, outcome: &Outcome) -> Option<String> {
    match (step.get("raises"), outcome) {
        (None, Err(error)) => Some(format!("it returned the error {}: {error}", error.kind.name())),
        (None, Ok(value)) => {
            step.get("expect").and_then(|expected| mismatch(&resolved(expected, saved), value, "it"))
        }
        (Some(_), Ok(value)) => Some(format!("it returned {value}, not an error")),
        (Some(raises), Err(error)) => {
            let task = error.task.as_ref().map_or(Value::Null, |task| json!(task));
            // A job that has not ended has its state in the details.
            let task = if task.is_null() { error.details.clone() } else { task };
            let found = json!({
                "error": error.kind.name(), "code": error.code, "status": error.status, "message": error.message,
                "details": error.details, "task": task, "task_class": task["error"]["class"],
            });
            mismatch(&resolved(raises, saved), &found, "the error")
        }
    }
}

fn walk(place: Place) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../sdk/scenario.json");
    let scenario: Value =
        serde_json::from_str(&std::fs::read_to_string(path).expect("the scenario")).expect("JSON");
    let node = Served::up(place, &scenario);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut saved = Map::new();
    for (number, step) in (1..).zip(scenario["steps"].as_array().expect("steps")) {
        let client = node.client(step["client"].as_str().unwrap_or("owner"));
        let args = resolved(&step["args"], &saved).as_array().cloned().unwrap_or_default();
        let options = resolved(&step["options"], &saved);
        let name = step["call"].as_str().expect("a call");
        let outcome = runtime.block_on(call(&client, name, &args, &options));
        let wrong = check(step, &saved, &outcome);
        assert_eq!(wrong, None, "step {number}, {}: {name}", step["about"]);
        if let (Some(name), Ok(value)) = (step["save"].as_str(), outcome) {
            saved.insert(name.to_owned(), value);
        }
    }
}

#[test]
fn the_client_in_rust_does_the_scenario() {
    walk(Place::new());
}

#[test]
fn the_client_in_rust_does_the_scenario_on_a_server() {
    walk(Place::on_server());
}
