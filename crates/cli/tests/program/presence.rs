//! Presence in a real Redis with the default intervals: every ten seconds, for thirty. Failures of Redis are tested with shorter
//! intervals in the tests of the runtime.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use ostler_testkit::{Heard, MAX_WAIT, PrivateRedis, ProcessSignal, Proxy, Weather};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::ostler::{Place, Running, ran};
use crate::up::{appears, script, up};

/// A worker that obeys its payload.
const WORKER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../process/tests/process/worker.py");
const CHANNEL: &str = "ostler:events";
/// The polling interval.
const LOOK: Duration = Duration::from_millis(20);

/// A place whose nodes have a pool of commands, and presence in this Redis.
fn present(url: &str) -> Place {
    let place = Place::new();
    place.write(
        "ostler.toml",
        format!(
            "presence.redis = \"{url}\"\n[pool.shell]\nexecutor = \"command\"\n\
             command = [\"sh\", \"-c\", \"{{{{ payload }}}}\"]\nmax_workers = 2\ngrace = \"200ms\"\n"
        ),
    );
    place
}

fn until<T>(what: &str, mut so: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + MAX_WAIT;
    let (_never, nothing) = std::sync::mpsc::channel::<()>();
    loop {
        if let Some(found) = so() {
            return found;
        }
        assert!(Instant::now() < until, "not in time: {what}");
        let _ = nothing.recv_timeout(LOOK);
    }
}

fn next(heard: &Heard) -> Value {
    serde_json::from_str(&heard.next()).expect("an event is JSON")
}

/// The only running node.
fn node_of(place: &Place) -> String {
    place.json(["nodes"])[0]["id"].as_str().expect("an id").to_owned()
}

fn ttl_ms(redis: &PrivateRedis, key: &str) -> u64 {
    redis.ask(&["PTTL", key]).parse().expect("it is there, and expires")
}

/// A task is submitted, and completes at once.
fn works(place: &Place) {
    let done = place.run(["submit", "shell", "run", "--payload", &script("echo hi"), "--wait"]);
    assert_eq!((done.code, done.out.as_str()), (Some(0), "\"hi\"\n"), "{done:?}");
}

fn goes(node: Running) -> Vec<String> {
    node.signal(ProcessSignal::TERM);
    let (code, rest) = node.end();
    assert_eq!(code, Some(0));
    rest
}

fn network() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}

#[test]
fn who_watches_sees_a_node_come_beat_and_go() {
    let redis = PrivateRedis::start();
    let heard = redis.listen(CHANNEL);
    let place = present(&redis.url());
    let node = up(&place, &[]);
    let (id, key) = (node_of(&place), format!("ostler:node:{}", node_of(&place)));
    let online = next(&heard);
    assert_eq!((&online["type"], &online["node"]), (&"node_online".into(), &id.as_str().into()), "{online}");
    let began = place.folder().join("began");
    let text = format!("echo > {}; exec sleep 600", began.display());
    let task = place.done(["submit", "shell", "run", "--payload", &script(&text)]).trim().to_owned();
    appears(&began);
    let left = ttl_ms(&redis, &key);
    assert!(left > 0 && left <= 30_000, "{left}");
    let expires = || redis.ask(&["PEXPIRETIME", &key]).parse::<u64>().expect("it is there, and expires");
    let first = expires();
    let beat =
        until("a beat shows the work", || Some(next(&heard)).filter(|event| event["pools"][0]["busy"] == 1));
    assert!(expires() > first, "it was refreshed");
    let fields = |value: &Value| {
        let mut names: Vec<String> = value.as_object().expect("an object").keys().cloned().collect();
        names.sort_unstable();
        names
    };
    assert_eq!(beat["type"], "node_heartbeat", "{beat}");
    assert_eq!(fields(&beat), ["host", "name", "node", "pools", "timestamp", "type"]);
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    assert_eq!((&beat["host"], &beat["name"]), (&host.as_str().into(), &place.json(["nodes"])[0]["name"]));
    let pool = &beat["pools"][0];
    assert_eq!(fields(pool), ["busy", "idle", "name", "size", "workers"]);
    assert_eq!((&pool["name"], &pool["busy"]), (&"shell".into(), &1.into()), "{beat}");
    let workers = pool["workers"].as_array().expect("a list");
    assert_eq!(pool["size"], workers.len());
    let busy = workers.iter().find(|worker| worker["state"] == "busy").expect("one is busy");
    assert_eq!(
        fields(busy),
        ["done", "execution", "failed", "id", "memory_mb", "name", "pid", "state", "uptime_s"]
            .map(str::to_owned)
    );
    assert_eq!(fields(&busy["execution"]), ["elapsed_s", "started_at", "task"]);
    assert_eq!(busy["execution"]["task"], task.as_str());
    // The same as in `ostler workers`.
    let same = |listed: &Value| listed["id"] == busy["id"] && listed["task"] == busy["execution"]["task"];
    let listed = until("the same worker is listed", || {
        place.json(["workers"]).as_array().expect("a list").iter().find(|listed| same(listed)).cloned()
    });
    assert_eq!(listed["task_started_at"], busy["execution"]["started_at"]);
    let kept: Value = serde_json::from_str(&redis.ask(&["GET", &key])).expect("it is JSON");
    assert_eq!(
        (&kept["type"], &kept["node"], &kept["pools"][0]["busy"]),
        (&beat["type"], &beat["node"], &1.into())
    );
    place.done(["cancel", &task]);
    goes(node);
    let last =
        until("it says farewell", || Some(next(&heard)).filter(|event| event["type"] == "node_offline"));
    assert_eq!(last["node"], id.as_str());
    assert_eq!(redis.ask(&["EXISTS", &key]), "0");
}

#[test]
fn a_node_that_is_killed_leaves_a_key_that_expires() {
    let redis = PrivateRedis::start();
    let heard = redis.listen(CHANNEL);
    let place = present(&redis.url());
    let node = up(&place, &[]);
    let key = format!("ostler:node:{}", node_of(&place));
    assert_eq!(next(&heard)["type"], "node_online");
    node.signal(ProcessSignal::KILL);
    drop(node.end());
    let left = ttl_ms(&redis, &key);
    assert!(left > 0 && left <= 30_000, "{left}");
}

#[test]
fn the_memory_and_the_pids_of_workers_are_told() {
    let redis = PrivateRedis::start();
    let heard = redis.listen(CHANNEL);
    let place = Place::new();
    place.write(
        "ostler.toml",
        format!(
            "presence.redis = \"{}\"\n[pool.docs]\nexecutor = \"process\"\n\
             command = [\"python3\", \"{WORKER}\", \"well\"]\nmin_workers = 1\nmax_workers = 1\n",
            redis.url()
        ),
    );
    let node = up(&place, &[]);
    assert_eq!(next(&heard)["type"], "node_online");
    let how = json!({"do": "echo", "how": 1}).to_string();
    place.done(["submit", "docs", "k", "--payload", &how, "--wait"]);
    let worker = |event: &Value| event["pools"][0]["workers"][0].clone();
    let beat =
        until("a beat shows what was done", || Some(next(&heard)).filter(|event| worker(event)["done"] == 1));
    let worker = worker(&beat);
    assert_eq!(worker["state"], "idle", "{beat}");
    assert_eq!(worker["execution"], Value::Null);
    assert!(
        worker["pid"].is_u64() && worker["memory_mb"].as_u64().is_some_and(|memory| memory > 0),
        "{beat}"
    );
    goes(node);
}

#[test]
fn a_job_that_is_left_to_the_node_is_seen_among_its_pools_while_it_lasts() {
    let redis = PrivateRedis::start();
    let heard = redis.listen(CHANNEL);
    let place = Place::new();
    let presence =
        format!("presence = {{ redis = \"{}\", interval = \"100ms\", ttl = \"30s\" }}", redis.url());
    place.write("ostler.toml", format!("serve_jobs = true\n{presence}\n"));
    let node = Running::start(place.command(["up"]));
    assert!(node.line().contains("ready"));
    assert_eq!(next(&heard)["pools"], json!([]));
    let job = place.done(["map", "--detach", "while [ ! -e go ]; do sleep 0.05; done; echo {}", ":::", "a"]);
    let busy =
        until("the job has a pool", || Some(next(&heard)).filter(|event| event["pools"][0]["busy"] == 1));
    let name = busy["pools"][0]["name"].as_str().expect("a name");
    assert!(name.contains(job.trim()), "{busy}");
    place.write("go", "");
    until("the pool is gone", || Some(next(&heard)).filter(|event| event["pools"] == json!([])));
    goes(node);
}

#[test]
fn a_redis_that_comes_later_and_is_flushed_and_restarted_is_told_again() {
    let mut redis = PrivateRedis::start();
    redis.stop();
    let place = present(&redis.url());
    let node = up(&place, &[]);
    let away = node.says("no presence in redis://127.0.0.1:");
    assert!(away.contains("it cannot be reached") && away.contains("work goes on"), "{away}");
    works(&place);
    let key = format!("ostler:node:{}", node_of(&place));
    redis.start_again();
    let is_there = |redis: &PrivateRedis| (redis.ask(&["EXISTS", &key]) == "1").then_some(());
    until("it is announced", || is_there(&redis));
    node.says("is back, and has the node's presence again");
    let heard = redis.listen(CHANNEL);
    assert_eq!(redis.ask(&["FLUSHALL"]), "OK");
    let online =
        until("it is online again", || Some(next(&heard)).filter(|event| event["type"] == "node_online"));
    assert_eq!(format!("ostler:node:{}", online["node"].as_str().expect("an id")), key);
    assert_eq!(redis.ask(&["EXISTS", &key]), "1");
    redis.stop();
    redis.start_again();
    until("it is announced after a restart", || is_there(&redis));
    works(&place);
    goes(node);
    assert_eq!(redis.ask(&["EXISTS", &key]), "0");
}

#[test]
fn a_redis_that_takes_five_seconds_or_falls_silent_holds_up_neither_work_nor_the_end() {
    let redis = PrivateRedis::start();
    let network = network();
    let proxy = network.block_on(Proxy::before(&redis));
    proxy.set(Weather::Slow(Duration::from_secs(5)));
    let place = present(&format!("redis://127.0.0.1:{}", proxy.port()));
    let node = up(&place, &[]);
    works(&place);
    let away = node.says("no presence in redis://127.0.0.1:");
    assert!(away.contains("it did not answer within 2 s"), "{away}");
    works(&place);
    proxy.set(Weather::Cut);
    proxy.set(Weather::Fair);
    let back = node.says("redis://127.0.0.1:");
    assert!(
        back.contains("has the node's presence again"),
        "one message when it is away, and one when it is back: {back}"
    );
    proxy.set(Weather::Silent);
    works(&place);
    let began = Instant::now();
    goes(node);
    // A second for Redis, plus the time to stop a process on a busy machine.
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

#[test]
fn a_bad_url_is_refused_before_anything_is_made() {
    for (url, words) in [
        ("http://anna:hunter2@cache", "presence.redis is invalid: expected redis://host:port"),
        ("redis://anna:hunter2@cache/jobs", "presence.redis is invalid: write redis://user:password@host"),
        ("rediss://anna:hunter2@cache#insecure", "presence.redis is invalid: nothing may follow"),
    ] {
        let place = present("${REDIS}");
        for words_of in [&["up"][..], &["config", "--check"]] {
            let refused = ran(place.command(words_of).env("REDIS", url));
            refused.is_refused(2, words);
            assert!(!refused.err.contains("hunter2"), "{refused:?}");
        }
        assert!(!place.store().exists(), "no store is made");
    }
    present("${REDIS}").refused(["up"], 2, "presence.redis is \"${REDIS}\": the variable REDIS is not set");
}

/// The doctor's finding about presence.
fn doctor(place: &Place, url: &str) -> Value {
    let mut findings = Vec::new();
    for words in [&["doctor", "--json"][..], &["doctor"]] {
        let ran = ran(place.command(words).env("REDIS", url));
        assert_eq!(ran.code, Some(0), "presence is no error: {ran:?}");
        for said in [&ran.out, &ran.err] {
            assert!(!said.contains("hunter2"), "{said}");
        }
        findings.push(ran.out);
    }
    let all: Value = serde_json::from_str(&findings[0]).expect("it is JSON");
    let about = |finding: &&Value| finding["code"].as_str().is_some_and(|code| code.starts_with("presence"));
    let found: Vec<&Value> = all.as_array().expect("a list").iter().filter(about).collect();
    assert_eq!(found.len(), 1, "{all}");
    assert!(findings[1].contains(found[0]["sentence"].as_str().expect("a sentence")), "{findings:?}");
    found[0].clone()
}

#[test]
fn the_doctor_says_whether_redis_can_be_told_and_what_is_wrong() {
    let mut redis = PrivateRedis::guarded("hunter2");
    let place = present("${REDIS}");
    place.done(["db", "migrate"]);
    let url = redis.url();
    let well = doctor(&place, &url);
    assert_eq!((&well["code"], &well["severity"]), (&"presence".into(), &"info".into()), "{well}");
    let shown = format!("redis://:***@127.0.0.1:{}", redis.port());
    assert!(well["sentence"].as_str().is_some_and(|said| said.contains(&shown)), "{well}");
    let wrong = |url: &str, sentence: &str, advice: &str| {
        let found = doctor(&place, url);
        assert_eq!(
            (&found["code"], &found["severity"]),
            (&"presence-away".into(), &"warning".into()),
            "{found}"
        );
        assert!(found["sentence"].as_str().is_some_and(|said| said.contains(sentence)), "{found}");
        assert!(found["advice"].as_str().is_some_and(|said| said.contains(advice)), "{found}");
    };
    wrong(&url.replace(":hunter2@", ":hunter22@"), "refuses the login", "the user and the password");
    assert_eq!(redis.ask(&["CONFIG", "SET", "maxmemory", "1"]), "OK");
    wrong(&url, "out of memory", "maxmemory");
    assert_eq!(redis.ask(&["CONFIG", "SET", "maxmemory", "0"]), "OK");
    assert_eq!(redis.ask(&["ACL", "SETUSER", "clerk", "on", ">hunter2"]), "OK");
    let clerk = url.replace("redis://:", "redis://clerk:");
    wrong(&clerk, "does not allow this user", "ACL SETUSER name ~ostler:node:* &ostler:events +exists");
    let words = "ACL SETUSER clerk ~ostler:node:* &ostler:events +exists +set +del +publish";
    assert_eq!(redis.ask(&words.split(' ').collect::<Vec<_>>()), "OK");
    assert_eq!(doctor(&place, &clerk)["code"], "presence", "the advice helps");
    assert_eq!(redis.ask(&["DBSIZE"]), "0", "the doctor changes nothing");
    redis.stop();
    wrong(&url, "cannot be reached", "the host and port");
    // It accepts connections, and never answers.
    let deaf = TcpListener::bind("127.0.0.1:0").expect("a port");
    let deaf = deaf.local_addr().map(|at| at.port()).map(|port| (deaf, port)).expect("its number");
    wrong(&format!("redis://:hunter2@127.0.0.1:{}", deaf.1), "did not answer within 2 s", "firewall");
}

#[test]
fn a_redis_that_encrypts_is_told_if_it_can_prove_who_it_is() {
    let mut params = CertificateParams::new(Vec::new()).expect("a root needs no name");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let root = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("a root");
    let key = KeyPair::generate().expect("a key");
    let names = CertificateParams::new(["localhost".to_owned()]).expect("a name for the server");
    let certificate = names.signed_by(&key, &root).expect("a certificate");
    let (redis, port) = PrivateRedis::encrypting(&certificate.pem(), &key.serialize_pem());
    let place = present(&format!("rediss://localhost:{port}"));
    place.done(["db", "migrate"]);
    let trusted = place.write("root.pem", root.pem());
    let stranger =
        KeyPair::generate().and_then(|key| CertificateParams::default().self_signed(&key)).expect("another");
    let other = place.write("other.pem", stranger.pem());
    let refused = ran(place.command(["doctor"]).env("SSL_CERT_FILE", other));
    assert!(refused.out.contains("it cannot be reached: invalid peer certificate"), "{refused:?}");
    let well = ran(place.command(["doctor"]).env("SSL_CERT_FILE", &trusted));
    assert!(
        well.out.contains(&format!("Nodes can publish their presence in rediss://localhost:{port}")),
        "{well:?}"
    );
    let heard = redis.listen(CHANNEL);
    let mut command = place.command(["up"]);
    command.env("SSL_CERT_FILE", &trusted);
    let node = Running::start(command);
    assert!(node.line().contains("ready"));
    assert_eq!(next(&heard)["type"], "node_online");
    goes(node);
    until("it says farewell", || Some(next(&heard)).filter(|event| event["type"] == "node_offline"));
}

#[test]
fn a_password_is_shown_nowhere() {
    let mut redis = PrivateRedis::guarded("hunter2");
    let place = present("${REDIS}");
    let mut command = place.command(["up"]);
    command.env("REDIS", redis.url());
    let node = Running::start(command);
    assert!(node.line().contains("ready"));
    let key = format!("ostler:node:{}", node_of(&place));
    until("it is announced", || (redis.ask(&["EXISTS", &key]) == "1").then_some(()));
    assert!(!redis.ask(&["GET", &key]).contains("hunter2"));
    redis.stop();
    let away = node.says("no presence in");
    assert!(away.contains("redis://:***@127.0.0.1:") && !away.contains("hunter2"), "{away}");
    // What ps shows to every user.
    let pid = place.json(["nodes"])[0]["pid"].clone();
    let arguments = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).expect("the node is up");
    assert!(arguments.contains("up") && !arguments.contains("hunter2"), "{arguments:?}");
    let env = place.run(["submit", "shell", "run", "--payload", &script("env"), "--wait"]);
    assert!(!env.out.contains("hunter2"), "no child has it: {env:?}");
    for line in goes(node) {
        assert!(!line.contains("hunter2"), "{line}");
    }
}
