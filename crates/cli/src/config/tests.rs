//! The config as a whole: what is accepted, what is refused, and that the reference is right.

mod agents;
mod functions;
mod gateway;
mod llm;
mod process;
mod sandbox;
mod schedules;
mod secrets;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ostler_core::price::PriceTable;
use ostler_core::{Backoff, Jitter, KeyHold, Missed, Overlap, Policy, PriorityOrder};
use ostler_process::{CommandPolicy, Input};
use ostler_testkit::scratch;

use super::*;
use crate::pool_kinds::POOL_KINDS;

fn env(name: &str) -> Option<String> {
    match name {
        "DATA" => Some("/srv/data".to_owned()),
        "PASSWORD" => Some("hunter2".to_owned()),
        "BAD_URL" => Some("redis://anna:hunter2@db/x".to_owned()),
        _ => None,
    }
}

pub(super) fn good(text: &str) -> Config {
    parse(text, "ostler.toml", &env, POOL_KINDS, PriceTable::built_in())
        .unwrap_or_else(|errors| panic!("{errors}"))
}

/// The lines of the error message.
fn told(text: &str) -> Vec<String> {
    let errors = parse(text, "ostler.toml", &env, POOL_KINDS, PriceTable::built_in())
        .expect_err("it should be refused");
    errors.to_string().lines().map(ToOwned::to_owned).collect()
}

/// The only fault of a text.
pub(super) fn fault(text: &str) -> String {
    let lines = told(text);
    assert_eq!(lines.len(), 1, "{lines:#?}");
    lines.into_iter().next().unwrap_or_default()
}

/// The settings that the kind of a pool has read.
fn policy<T: 'static>(pool: &PoolSettings) -> &T {
    pool.executor.as_any().downcast_ref().unwrap_or_else(|| panic!("{pool:?}"))
}

/// A valid pool, with these lines.
pub(super) fn pool(lines: &str) -> String {
    format!("[pool.shell]\nexecutor = \"command\"\ncommand = [\"true\"]\n{lines}\n")
}

#[test]
fn an_empty_file_is_all_defaults() {
    assert_eq!(good(""), Config::default());
}

#[test]
fn a_whole_file_is_read() {
    let config = good(
        r#"
        store = "sqlite:${DATA}/ostler.db"
        name = "anna"
        shutdown_timeout = "1m"
        lease = { ttl = "30s", heartbeat = "10s", poll = "250ms", failover = "strict" }
        keep = { completed = "1d", failed = "2d", most = 1_000 }
        payload_limit = "64KiB"
        presence = { redis = "rediss://anna:${PASSWORD}@cache/2", interval = "2s", ttl = "5s" }

        [pool.documents]
        executor = "command"
        command = ["python3", "work.py", "{{ payload.path }}"]
        stdin = "payload"
        keep_env = ["PATH"]
        env = { TOKEN = "${PASSWORD}", PRICE = "$5 $${x}" }
        exit_codes = { permanent = [2, 65], queue_stop = [77] }
        max_output = "1MiB"
        max_log = "10kB"
        min_workers = 2
        max_workers = 0x10
        scale_up_at = 3
        idle_timeout = "1h30m"
        timeout = "10m"
        grace = "2s"
        retry = { attempts = 1, backoff = "linear", base = "2s", max = "1m", jitter = false, max_crashes = 1 }
        unclassed = "permanent"
        queue_limit = 100
        priority = "strict"
        key_until = "end"
        stuck_after = "90s"
        concurrency.limit = 2

        [pool.documents.kind.scan]
        timeout = "1h"
        retry.attempts = 9

        [pool."old mail"]
        executor = "command"
        command = ["true"]
        "#,
    );
    assert_eq!(config.store, Some(StoreUrl::Sqlite(PathBuf::from("/srv/data/ostler.db"))));
    assert_eq!(config.name.as_deref(), Some("anna"));
    assert_eq!(config.shutdown_timeout, Duration::from_secs(60));
    assert_eq!(config.lease.poll, Duration::from_millis(250));
    assert_eq!(config.failover, Failover::Strict);
    assert_eq!((config.keep.completed, config.keep.most), (Duration::from_secs(86_400), 1_000));
    assert_eq!(config.payload_limit, 65_536);
    let presence = config.presence.as_ref().expect("it is set");
    assert_eq!(presence.redis.to_string(), "rediss://anna:***@cache:6379/2");
    let seconds = Duration::from_secs;
    assert_eq!(presence.times, PresenceTimes { interval: seconds(2), ttl: seconds(5) });
    let [documents, mail] = config.pools.as_slice() else { panic!("{:?}", config.pools) };
    let command: &CommandPolicy = policy(documents);
    assert_eq!(command.argv, ["python3", "work.py", "{{ payload.path }}"]);
    assert_eq!(command.input, Input::Payload);
    assert_eq!(command.environment.keep, ["PATH"]);
    let set: Vec<(&str, &str)> =
        command.environment.set.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(set, [("PRICE", "$5 ${x}"), ("TOKEN", "hunter2")]);
    assert_eq!(
        (command.codes.permanent.as_slice(), command.codes.queue_stop.as_slice()),
        (&[2, 65][..], &[77][..])
    );
    assert_eq!((command.max_output_bytes, command.max_log_bytes), (1 << 20, 10_000));
    let scale = documents.scale;
    assert_eq!((scale.min, scale.max, scale.scale_up_at), (2, 16, 3));
    assert_eq!(scale.idle_timeout, Duration::from_secs(5_400));
    assert_eq!(documents.grace, Duration::from_secs(2));
    let said = documents.overrides;
    assert_eq!(
        (said.attempts, said.backoff, said.jitter),
        (Some(1), Some(Backoff::Linear), Some(Jitter::Off))
    );
    assert_eq!((said.timeout, said.max_crashes), (Some(Duration::from_secs(600)), Some(1)));
    assert_eq!(said.max_node_deaths, None);
    assert_eq!((documents.limits.queue_limit, documents.limits.key_concurrency), (Some(100), Some(2)));
    let (limits, plain) = (&documents.limits, &mail.limits);
    assert_eq!((limits.priority, limits.key_hold), (PriorityOrder::Strict, KeyHold::End));
    assert_eq!((plain.priority, plain.key_hold), (PriorityOrder::Aging, KeyHold::Removed));
    assert_eq!(command.stuck_after, Some(Duration::from_secs(90)));
    assert_eq!((documents.unclassed, mail.unclassed), (Unclassed::Permanent, Unclassed::Transient));
    let scan = documents.kinds["scan"];
    assert_eq!((scan.attempts, scan.timeout, scan.base), (Some(9), Some(Duration::from_secs(3_600)), None));
    assert_eq!(mail.name, "old mail");
    assert!(mail.overrides.is_none());
}

// ---- the reference -------------------------------------------------------------------------------------

/// The reference with every key in force: a "#" before a key or a table is removed.
fn in_force() -> String {
    let key =
        |line: &&str| line.strip_prefix('#').is_some_and(|rest| !rest.is_empty() && !rest.starts_with(' '));
    reference(POOL_KINDS)
        .lines()
        .map(|line| if key(&line) { &line[1..] } else { line })
        .collect::<Vec<_>>()
        .join("\n")
}

/// The pool of a text, with the prices that the reference has as an example.
fn with_prices(text: &str) -> PoolSettings {
    let prices = "[prices.my-model]\ninput = \"$3\"\noutput = \"$15\"\ncache_read = \"$0.30\"\ncache_write = \"$3.75\"\n\
        cache_write_1h = \"$6\"";
    good(&format!("{text}\n{prices}")).pools.into_iter().next().expect("there is a pool")
}

#[test]
fn the_reference_as_it_stands_changes_nothing() {
    let text = reference(POOL_KINDS);
    assert!(!text.contains("#@"), "every part is there");
    assert_eq!(good(&text), Config::default());
}

#[test]
fn the_values_in_the_reference_are_the_defaults() {
    let mut config = good(&in_force());
    let named = |name: &str| config.pools.iter().find(|pool| pool.name == name).expect(name);
    let [commands, workers, functions, labels, agents, queries, shown] =
        ["commands", "documents", "functions", "labels", "reviews", "runs", "shell"].map(named);
    assert_eq!(*commands, with_prices("[pool.commands]\nexecutor = \"adhoc\""));
    assert_eq!(*workers, plain_workers(), "and what has no default has an example");
    assert_eq!(*functions, functions::plain());
    assert_eq!(*labels, llm::plain());
    assert_eq!(*agents, agents::plain());
    assert_eq!(*queries, gateway::plain());
    let mut plain = with_prices(
        "[pool.shell]\nexecutor = \"command\"\ncommand = [\"sh\", \"-c\", \"{{ payload.script }}\"]",
    );
    assert_eq!(shown.overrides.resolve(&Overrides::NONE), Policy::default());
    assert!([10, plain.scale.max].contains(&shown.scale.max), "{}", shown.scale.max);
    // Those without a default have an example.
    assert_eq!((shown.limits.queue_limit, shown.limits.key_concurrency), (Some(10_000), Some(2)));
    plain.limits = shown.limits.clone();
    assert_eq!(shown.account.as_deref(), Some("claude"));
    plain.account.clone_from(&shown.account);
    assert_eq!(shown.hooks.len(), 9, "one of each sort, for each outcome");
    let usual = good(&pool("on_failed.webhook = \"http://a/\""));
    for hook in &shown.hooks {
        let [usual] = usual.pools[0].hooks.as_slice() else { panic!("one hook") };
        assert_eq!((hook.timeout, hook.attempts), (usual.timeout, usual.attempts));
    }
    plain.hooks.clone_from(&shown.hooks);
    plain.executor = sandbox::with_examples(&plain, shown);
    (plain.overrides, plain.scale.max) = (shown.overrides, shown.scale.max);
    assert_eq!(shown.kinds["report"].resolve(&Overrides::NONE), Policy::default());
    plain.kinds = shown.kinds.clone();
    assert_eq!(*shown, plain);
    for plan in &config.schedules {
        assert_eq!((plan.overlap, plan.missed), (Overlap::default(), Missed::default()), "{}", plan.name);
        assert_eq!(plan.task.overrides.resolve(&Overrides::NONE), Policy::default());
    }
    assert_eq!(config.accounts.len(), 1);
    config.accounts.clear();
    (config.store, config.name, config.pools, config.schedules) = (None, None, Vec::new(), Vec::new());
    assert!(config.prices.of("my-model").is_some(), "it has an example");
    config.prices = Arc::new(PriceTable::built_in());
    let presence = config.presence.take().expect("it is shown");
    assert_eq!(presence.redis.to_string(), "redis://127.0.0.1:6379");
    assert_eq!(presence.times, PresenceTimes::default());
    assert_eq!(config.api.listen, Listen::parse("127.0.0.1:7700").expect("the usual address"));
    assert_eq!(config.api.public_url.take().as_deref(), Some("https://ostler.example.org"));
    config.api.listen = Listen::Usual;
    assert_eq!(config, Config::default());
}

/// A pool of workers with only the required keys, and the reference's examples for keys that have no default.
fn plain_workers() -> PoolSettings {
    let text = "[pool.documents]\nexecutor = \"process\"\ncommand = [\"python3\", \"worker.py\"]
        recycle = { after_tasks = 1000, above_memory = \"512MiB\" }\ngateway = \"http://127.0.0.1:8900\"";
    with_prices(text)
}

#[test]
fn every_key_there_is_stands_in_the_reference() {
    let text = in_force();
    let reading = ConfigReader::new(&text, &env);
    document(&reading, &text, POOL_KINDS, PriceTable::built_in());
    let asked = reading.asked();
    assert!(asked.iter().any(|(key, _)| key == "pool.shell.retry.max_node_deaths"), "{asked:?}");
    // There are three schedules, for the three kinds of recurrence, and a pool of each kind: each key is in one of them.
    let sort = |key: &str| match key.splitn(3, '.').collect::<Vec<_>>().as_slice() {
        [table @ ("schedule" | "pool"), _, rest] => format!("{table}.*.{rest}"),
        _ => key.to_owned(),
    };
    let there: BTreeSet<String> =
        asked.iter().filter(|(_, there)| *there).map(|(key, _)| sort(key)).collect();
    let missing: Vec<&str> =
        asked.iter().map(|(key, _)| key.as_str()).filter(|key| !there.contains(&sort(key))).collect();
    assert_eq!(missing, Vec::<&str>::new(), "these keys are not in default.toml");
    assert_eq!(asked.iter().map(|(key, _)| key).collect::<BTreeSet<_>>().len(), asked.len(), "asked twice");
}

// ---- what is refused ----------------------------------------------------------------------------------

#[test]
fn an_unknown_key_is_refused_with_its_line_and_the_nearest_known_one() {
    assert_eq!(
        fault(&pool("max_worker = 3")),
        "ostler.toml:4: pool.shell.max_worker: unknown key; did you mean max_workers?"
    );
    assert_eq!(
        fault(&pool("workers = 3")),
        "ostler.toml:4: pool.shell.workers: unknown key; did you mean min_workers or max_workers?"
    );
    assert_eq!(fault("stroe = \"x\""), "ostler.toml:1: stroe: unknown key; did you mean store?");
    assert_eq!(
        fault("[lease]\nfoo = 1"),
        "ostler.toml:2: lease.foo: unknown key; the keys here are ttl, heartbeat, poll, failover"
    );
    let long = "x".repeat(10_000);
    let line = fault(&format!("{long} = 1"));
    assert!(line.len() < 300 && line.contains("unknown key"), "{line}");
}

#[test]
fn where_the_api_listens_and_how_it_is_called_is_checked() {
    assert!(fault("listen = \"here\"").contains("listen is invalid: \"here\" is no address"));
    assert!(fault("api.base_path = \"ostler/\"").contains("must begin with a slash"));
    assert!(fault("api.trusted_proxies = [\"proxy\"]").contains("IP addresses or networks"));
    assert!(fault("api.metrics = \"all\"").contains("must be \"token\" or \"open\""));
    assert!(fault("api.public_url = \"ostler.example.org\"").contains("https://ostler.example.org"));
}

#[test]
fn an_executor_that_cannot_be_used_is_told_with_those_that_can() {
    let with =
        |executor: &str| fault(&format!("[pool.reviews]\nexecutor = \"{executor}\"\nagent = \"claude\""));
    assert!(with("docker").ends_with("available: command, process, agent, llm, http, isolate, adhoc"));
    assert!(with("inline").contains("runs Rust functions, and is only for programs that use the library"));
    assert!(with("thread").contains("runs Rust functions, and is only for programs that use the library"));
    assert!(with("comand").contains("did you mean \"command\"?"));
    assert!(
        fault("[pool.x]\ntimeout = \"1s\"")
            .contains(":1: pool.x.executor is missing; this version has command")
    );
    assert!(fault("[pool.x]\nexecutor = 5").contains("pool.x.executor is 5, but must be a string in quotes"));
}

#[test]
fn a_duration_without_a_unit_is_refused_by_name() {
    for text in ["shutdown_timeout = 5", "shutdown_timeout = \"5\""] {
        assert_eq!(fault(text), "ostler.toml:1: shutdown_timeout is 5: missing unit; write 5s, for example");
    }
}

#[test]
fn one_value_that_cannot_work_is_one_sentence() {
    for (text, sentence) in [
        ("shutdown_timeout = \"0s\"", ":1: shutdown_timeout is 0s, but must be longer than zero"),
        ("shutdown_timeout = -5", "shutdown_timeout is -5: a duration cannot be negative"),
        ("shutdown_timeout = \"-5s\"", "shutdown_timeout is -5s: a duration cannot be negative"),
        ("shutdown_timeout = \"99999999999d\"", "is 99999999999d: the longest duration is 36500d"),
        ("shutdown_timeout = 99999999999999999999999", "shutdown_timeout is 99999"),
        ("shutdown_timeout = true", "shutdown_timeout is true, but must be a string in quotes"),
        ("lease.poll = \"0ms\"", "lease.poll is 0ms, but must be longer than zero"),
        ("lease = 5", "lease is 5, but must be a table"),
        ("lease.failover = \"fast\"", "lease.failover is \"fast\", but must be \"known\" or \"strict\""),
        ("payload_limit = 1048576", "payload_limit is 1048576: missing unit"),
        ("payload_limit = \"0B\"", "payload_limit is 0B, but must be from 1B to 256MiB"),
        ("payload_limit = \"1GiB\"", "payload_limit is 1GiB, but must be from 1B to 256MiB"),
        ("keep.most = 0", "keep.most is 0, but must be a whole number from 1 to 1000000000"),
        ("keep.most = -1", "keep.most is -1, but must be a whole number"),
        ("keep.most = 1.5", "keep.most is 1.5, but must be a whole number"),
        ("name = \"\"", "name must not be empty"),
        ("name = \"a\\nb\"", "name: a name has no control characters"),
        ("name = \"a\\u0000b\"", "name contains a NUL character"),
        (
            "store = \"postgres://anna@db/x?colour=red\"",
            "store is invalid: the URL of the store cannot be read",
        ),
        ("store = \"mysql://x\"", "store is invalid: unknown store \"mysql:\""),
        ("store = \"${NOT_THERE}/x\"", "store is \"${NOT_THERE}/x\": the variable NOT_THERE is not set"),
        ("presence = true", "presence is true, but must be a table"),
        ("presence.redis = \"cache:6379\"", "presence.redis is invalid: expected redis://host:port"),
        (
            "presence.redis = \"redis://cache/jobs\"",
            "presence.redis is invalid: write redis://user:password@host",
        ),
        ("presence.redis = 6379", "presence.redis is 6379, but must be a string in quotes"),
        ("presence.every = \"5s\"", "presence.every: unknown key"),
        (
            "presence = { interval = \"15s\", ttl = \"29s\" }",
            "presence.ttl is 29s, but must be at least two intervals of 15s",
        ),
        ("presence.ttl = \"19s\"", "presence.ttl is 19s, but must be at least two intervals of 10s"),
        (
            "presence.redis = \"${NOT_THERE}\"",
            "presence.redis is \"${NOT_THERE}\": the variable NOT_THERE is not set",
        ),
        ("pool = 5", "pool is 5, but must be a table"),
        ("pool.x = 5", "pool.x is 5, but must be a table"),
        ("[pool.\"\"]\nexecutor = \"command\"\ncommand = [\"true\"]", "pool.\"\" must not be empty"),
    ] {
        let line = fault(text);
        assert!(line.contains(sentence), "{text}: {line}");
    }
}

#[test]
fn one_value_of_a_pool_that_cannot_work_is_one_sentence() {
    for (text, sentence) in [
        ("max_workers = 0", ":4: pool.shell.max_workers is 0, but must be a whole number from 1 to 1000"),
        ("max_workers = 1001", "pool.shell.max_workers is 1001, but must be a whole number from 1 to 1000"),
        ("min_workers = 5\nmax_workers = 2", "min_workers (5) must not exceed max_workers (2)"),
        ("scale_up_at = 0", "pool.shell.scale_up_at is 0"),
        ("retry.attempts = 0", "pool.shell.retry.attempts is 0, but must be a whole number from 1"),
        ("retry.attempts = \"4\"", "pool.shell.retry.attempts is \"4\", but must be a whole number"),
        ("retry.backoff = \"slow\"", "is \"slow\", but must be \"fixed\" or \"linear\" or \"exponential\""),
        ("retry.jitter = 1", "pool.shell.retry.jitter is 1, but must be true or false"),
        ("retry = { base = \"2m\", max = \"1m\" }", "pool.shell.retry.base must not be longer than max"),
        ("retry.attempt = 1", "pool.shell.retry.attempt: unknown key; did you mean attempts?"),
        ("queue_limit = 0", "pool.shell.queue_limit is 0"),
        ("kind.scan.retry.attempts = 0", "pool.shell.kind.scan.retry.attempts is 0"),
        ("kind.scan.grace = \"1s\"", "pool.shell.kind.scan.grace: unknown key"),
        ("kind.scan = 1", "pool.shell.kind.scan is 1, but must be a table"),
        ("concurrency.limit = 0", "pool.shell.concurrency.limit is 0"),
        ("account = \"\"", "pool.shell.account must not be empty"),
        ("[account.claude]\nconcurrency = 0", "account.claude.concurrency is 0"),
        ("[account.claude]\ncap = 1", "account.claude.cap: unknown key"),
        ("unclassed = \"fatal\"", "unclassed is \"fatal\", but must be \"transient\" or \"permanent\""),
        ("stdin = \"file\"", "pool.shell.stdin is \"file\", but must be \"nothing\" or \"payload\""),
        ("keep_env = \"PATH\"", "pool.shell.keep_env is \"PATH\", but must be a list of strings"),
        ("keep_env = [\"A=B\"]", "pool.shell.keep_env contains \"A=B\"; the name of a variable"),
        ("env.\"A=B\" = \"x\"", "pool.shell.env.\"A=B\" cannot be set; the name of a variable"),
        ("env.A = 5", "pool.shell.env.A is 5, but must be a string in quotes"),
        (
            "exit_codes.permanent = [0]",
            "exit_codes.permanent contains 0, but must be a list of whole numbers",
        ),
        ("exit_codes = { permanent = [7], transient = [7] }", "exit_codes has 7 twice"),
        ("max_output = \"17MiB\"", "pool.shell.max_output is 17MiB, but must be from 1B to 16MiB"),
    ] {
        let line = fault(&pool(text));
        assert!(line.contains(sentence), "{text}: {line}");
    }
}

#[test]
fn hooks_are_one_table_or_a_list_of_them() {
    let count = |lines: &str| good(&pool(lines)).pools[0].hooks.len();
    assert_eq!(count(""), 0);
    assert_eq!(count("on_failed = { command = [\"true\"], task = { queue = \"a\", kind = \"b\" } }"), 2);
    let two = "[[pool.shell.on_failed]]\nwebhook = \"http://a/${PASSWORD}\"\n[[pool.shell.on_failed]]\nwebhook = \"http://b/\"";
    assert_eq!(count(two), 2);
    assert_eq!(count("on_completed.command = [\"true\"]\non_retry.webhook = \"http://a/\""), 2);
    for (text, sentence) in [
        ("on_failed = 5", "pool.shell.on_failed is 5, but must be a table"),
        ("on_completed = {}", "pool.shell.on_completed.command is missing, and so are webhook and task"),
        ("on_retry.attempts = 3", "pool.shell.on_retry.command is missing, and so are webhook and task"),
        ("on_failed = {}", "pool.shell.on_failed.command is missing, and so are webhook and task"),
        (
            "on_failed = [{ comand = [\"true\"], webhook = \"http://a/\" }]",
            "on_failed[1].comand: unknown key; did you mean command?",
        ),
        ("on_failed.command = []", "pool.shell.on_failed.command is invalid: the command has no program"),
        (
            "on_failed.command = [\"echo\", \"{{ paylod }}\"]",
            "on_failed.command is invalid: there is no field \"paylod\"",
        ),
        ("on_failed.webhook = \"127.0.0.1/x\"", "pool.shell.on_failed.webhook cannot be read"),
        ("on_failed.webhook = \"ftp://${PASSWORD}/x\"", "pool.shell.on_failed.webhook begins with \"ftp:\""),
        ("on_failed.task = { queue = \"alerts\" }", "pool.shell.on_failed.task.kind is missing"),
        (
            "on_failed.task = { queue = \"\", kind = \"b\" }",
            "pool.shell.on_failed.task.queue must not be empty",
        ),
        ("on_failed = { webhook = \"http://a/\", timeout = \"6m\" }", "on_failed.timeout must be at most 5m"),
        ("on_failed = { webhook = \"http://a/\", attempts = 11 }", "on_failed.attempts is 11"),
    ] {
        let line = fault(&pool(text));
        assert!(line.contains(sentence) && !line.contains("hunter2"), "{text}: {line}");
    }
}

#[test]
fn outcomes_that_would_be_told_of_in_a_circle_are_refused() {
    let on = |what: &str, pool: &str, queue: &str| {
        format!(
            "[pool.{pool}]\nexecutor = \"command\"\ncommand = [\"true\"]\n{what}.task = {{ queue = \"{queue}\", kind = \"dead\" }}\n"
        )
    };
    let to = |pool: &str, queue: &str| on("on_failed", pool, queue);
    assert!(fault(&to("a", "a")).contains("hooks of \"a\" enqueue tasks in the same pool"));
    assert!(fault(&on("on_completed", "a", "a")).contains("cycle"));
    assert!(fault(&format!("{}{}", to("a", "b"), to("b", "a"))).contains("cycle"));
    good(&format!("{}{}", to("a", "b"), to("b", "c")));
}

#[test]
fn hooks_are_looked_at_for_injection_too() {
    let findings = |lines: &str| good(&pool(lines)).pools[0].findings();
    let found = findings(r#"on_failed = { command = ["sh", "-c", "logger {{ payload.error.message }}"] }"#);
    let [one] = found.as_slice() else { panic!("{found:?}") };
    assert!(one.sentence.starts_with("pool.shell.on_failed.command: "), "{one:?}");
    assert_eq!(findings(r#"on_failed = { command = ["logger", "{{ payload.error.message }}"] }"#), []);
}

#[test]
fn a_command_that_cannot_be_run_is_refused() {
    for (command, sentence) in [
        ("", "pool.x.command is missing: the program and its arguments"),
        ("command = []", "pool.x.command cannot be run: the command has no program"),
        ("command = [\"\"]", "pool.x.command cannot be run: the command has no program"),
        (
            "command = \"date\"",
            "is \"date\", but must be a list of strings, such as [\"sh\", \"-c\", \"date\"]",
        ),
        ("command = [\"sleep\", 5]", "pool.x.command contains 5, but must be a list of strings"),
        ("command = [\"echo\", \"{{ paylod }}\"]", "cannot be run: there is no field \"paylod\""),
        ("command = [\"sh\", \"-c\", \"echo ${x:-y}\"]", "for a literal ${ write $${"),
    ] {
        let line = fault(&format!("[pool.x]\nexecutor = \"command\"\n{command}"));
        assert!(line.contains(sentence), "{command}: {line}");
    }
}

#[test]
fn a_lease_shorter_than_two_heartbeats_is_refused() {
    assert_eq!(
        fault("[lease]\nheartbeat = \"10s\"\nttl = \"15s\""),
        "ostler.toml:3: lease.ttl is 15s, but must be at least two heartbeats of 10s"
    );
    // This holds if the other value is the default, too.
    assert!(
        fault("lease.heartbeat = \"1m\"").contains("lease.ttl is 1m, but must be at least two heartbeats")
    );
    assert_eq!(good("lease = { ttl = \"2s\", heartbeat = \"1s\" }").lease.ttl, Duration::from_secs(2));
}

#[test]
fn a_minimum_above_the_machines_cores_is_no_mistake() {
    let config = good(&pool("min_workers = 900"));
    assert_eq!((config.pools[0].scale.min, config.pools[0].scale.max), (900, 900));
}

#[test]
fn all_pools_together_are_bounded() {
    let many: String = (0..11)
        .map(|at| format!("[pool.p{at}]\nexecutor = \"command\"\ncommand = [\"true\"]\nmax_workers = 1000\n"))
        .collect();
    assert!(fault(&many).contains("pool has 11000 workers in total; the maximum for a node is 10000"));
}

#[test]
fn everything_that_is_wrong_is_told_at_once_in_the_order_of_the_file() {
    let lines = told(concat!(
        "shutdown_timeout = 5\n",
        "lease = { ttl = \"1s\", heartbeat = \"1s\" }\n",
        "keep = { completd = \"1d\" }\n",
        "[pool.a]\nexecutor = \"docker\"\nmax_workers = 0\n",
        "[pool.b]\nexecutor = \"command\"\ncommand = []\ntimeout = 0\nretry = { attempts = 0, base = 1 }\n",
    ));
    let numbers: Vec<&str> = lines.iter().filter_map(|line| line.split(':').nth(1)).collect();
    assert_eq!(numbers, ["1", "2", "3", "5", "6", "9", "10", "11", "11"], "{lines:#?}");
}

#[test]
fn a_file_full_of_mistakes_is_told_in_part_with_the_number_of_the_rest() {
    let text: String = (0..150).map(|at| format!("unknown_{at} = 1\n")).collect();
    let lines = told(&text);
    assert_eq!((lines.len(), lines[100].as_str()), (101, "ostler.toml: and 50 more"));
}

#[test]
fn what_is_not_toml_is_told_with_its_line() {
    assert!(fault("name = \"a\"\nname = \"b\"").starts_with("ostler.toml:2: duplicate key"));
    let twice = told(&(pool("") + &pool("")));
    assert!(twice[0].starts_with("ostler.toml:5: "), "{twice:?}");
    assert!(told("name = anna")[0].starts_with("ostler.toml:1: "), "{:?}", told("name = anna"));
    let deep = format!("name = {}", "[".repeat(100_000));
    assert!(!told(&deep).is_empty());
}

#[test]
fn what_came_from_the_environment_is_not_repeated() {
    for text in [
        "store = \"${BAD_URL}\"",
        "presence.redis = \"${BAD_URL}\"",
        "presence.redis = \"${PASSWORD}\"",
        "shutdown_timeout = \"${PASSWORD}\"",
        &pool("stdin = \"${PASSWORD}\""),
    ] {
        let line = fault(text);
        assert!(!line.contains("hunter2"), "{line}");
    }
}

// ---- files --------------------------------------------------------------------------------------------

#[test]
fn a_file_is_read_and_its_paths_begin_beside_it() {
    let folder = scratch();
    let path = folder.path().join("ostler.toml");
    std::fs::write(&path, "store = \"data/ostler.db\"").expect("it can be written");
    let config = read(&path, &env, POOL_KINDS, SecretValues::Read).expect("it is a config");
    assert_eq!(config.store, Some(StoreUrl::Sqlite(folder.path().join("data/ostler.db"))));
}

#[test]
fn a_file_that_cannot_be_a_config_is_refused_in_a_sentence() {
    let folder = scratch();
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).expect("it can be written");
        path
    };
    for (path, sentence) in [
        (folder.path().join("missing.toml"), "missing.toml: no such file"),
        (folder.path().to_owned(), ": this is a folder; expected a file"),
        (write("latin.toml", b"# fine\nname = \"\xe4\""), "latin.toml: not UTF-8 text, at line 2"),
        (write("large.toml", &vec![b'#'; (1 << 20) + 1]), "large.toml: larger than 1MiB"),
        (write("wrong.toml", b"\nnmae = \"a\""), "wrong.toml:2: nmae: unknown key"),
    ] {
        let error = read(Path::new(&path), &env, POOL_KINDS, SecretValues::Read)
            .expect_err("it should be refused")
            .to_string();
        assert!(error.contains(sentence), "{error}");
    }
    assert!(read(&write("full.toml", &vec![b'#'; 1 << 20]), &env, POOL_KINDS, SecretValues::Read).is_ok());
}
