//! Queues of agents, with a stand-in for claude: their defaults, their account, and jobs over them.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ostler::agent::{AgentPolicy, Dialect, SchemaSource};
use ostler::{AttemptEnded, Budget, Builder, Client, Cost, OpenError, Overrides, Pool, StateName};
use ostler_ops::jobs::results::JobResults;
use ostler_sqlite::{Options, Sqlite};
use ostler_store::views::QueueSettings;
use ostler_store::{Store as _, SystemClock};
use ostler_testkit::{MAX_WAIT, scratch};
use serde_json::{Value, json};

use crate::children::supervisor;

const STAND_IN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../agent/tests/tools/stand_in_claude.py");
/// The key that the account is named after.
const KEY: &str = "sk-of-this-test";

/// Agents of a queue, with the stand-in as their program.
fn agents(queue: &str, folder: &Path) -> AgentPolicy {
    let mut policy = AgentPolicy {
        command: vec!["python3".to_owned(), STAND_IN.to_owned()],
        config_folders: Some(folder.join("conversations")),
        stagger: Duration::from_millis(1),
        ..AgentPolicy::new(queue, Dialect::Claude)
    };
    let log = folder.join("log").display().to_string();
    policy
        .environment
        .set
        .extend([("STAND_IN_LOG".to_owned(), log), ("ANTHROPIC_API_KEY".to_owned(), KEY.to_owned())]);
    policy
}

fn store(folder: &Path) -> Sqlite {
    Sqlite::open(folder.join("jobs.db"), Arc::new(SystemClock), Options::default()).expect("it opens")
}

async fn settings(folder: &Path, queue: &str) -> QueueSettings {
    store(folder).queue_settings(queue).await.expect("it is read")
}

/// The lines of the stand-in's log.
fn log(folder: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(folder.join("log")).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_have_four_workers_ten_minutes_slow_retries_and_an_account_unless_the_builder_sets_them() {
    let folder = scratch();
    let pool = ostler::open(folder.path().join("jobs.db"))
        .unwrap()
        .queue("plain")
        .executor(agents("plain", folder.path()))
        .and_queue("own")
        .executor(agents("own", folder.path()))
        .account("team")
        .defaults(Overrides { attempts: Some(2), timeout: Some(Duration::from_secs(60)), ..Overrides::NONE })
        .supervisor(supervisor())
        .start()
        .await
        .unwrap();
    let plain = settings(folder.path(), "plain").await;
    let (timeout, base) = (Some(Duration::from_secs(600)), Some(Duration::from_secs(30)));
    assert_eq!((plain.overrides.timeout, plain.overrides.base), (timeout, base));
    assert!(plain.account.as_deref().is_some_and(|name| name.starts_with("claude-")), "{plain:?}");
    let own = settings(folder.path(), "own").await;
    assert_eq!((own.overrides.attempts, own.account.as_deref()), (Some(2), Some("team")));
    assert_eq!((own.overrides.timeout, own.overrides.base), (Some(Duration::from_secs(60)), base));
    // All four are taken, and not a fifth one.
    let mut taken = Vec::new();
    while let Some(id) = pool.submit_if_free("ask", &"[[stop]]").await.unwrap() {
        taken.push(id);
    }
    assert_eq!(taken.len(), 4);
    for id in taken {
        pool.cancel(id).await.unwrap();
        assert_eq!(ended(&pool, id).await, StateName::Cancelled);
    }
    pool.drain(MAX_WAIT).await;
}

async fn ended(client: &Client, id: ostler::TaskId) -> StateName {
    let task = tokio::time::timeout(MAX_WAIT, client.wait(id)).await.expect("in time").expect("it is there");
    task.state.name()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_usage_limit_holds_all_queues_and_jobs_of_the_login() {
    let folder = scratch();
    let pool = ostler::open(folder.path().join("jobs.db"))
        .unwrap()
        .queue("first")
        .executor(agents("first", folder.path()))
        .and_queue("second")
        .executor(agents("second", folder.path()))
        .supervisor(supervisor())
        .start()
        .await
        .unwrap();
    let resets = pool.now().millis() / 1_000 + 3_600;
    let refused = pool.submit("ask", &format!("[[limit {resets}]]")).await.unwrap();
    let held = async {
        loop {
            let account =
                pool.accounts().await.unwrap().into_iter().find(|found| found.account.hold.is_some());
            if let Some(found) = account {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let account = tokio::time::timeout(MAX_WAIT, held).await.expect("the account is held");
    assert!(account.name.starts_with("claude-") && !account.name.contains(KEY), "{account:?}");
    // The hold is in the store: what is submitted now does not start, in either queue and in a job.
    let other = pool.on("second").submit("ask", &"[[text]]").await.unwrap();
    let job = pool.job("held").items("ask", &["[[text]]"]).start().await.unwrap();
    let name = settings(folder.path(), job.tasks().queue()).await.account;
    assert_eq!(name.as_ref(), Some(&account.name));
    // It would ask again, and be refused again.
    assert_eq!(pool.get(refused).await.unwrap().failures, 0, "a limit is no failure");
    assert_eq!(pool.cancel(refused).await.unwrap(), StateName::Queued);
    pool.change_account(&account.name, ostler::AccountChange::Release).await.unwrap();
    assert_eq!(ended(&pool, other).await, StateName::Completed);
    let totals = tokio::time::timeout(MAX_WAIT, job.wait()).await.expect("in time").unwrap();
    assert_eq!(totals.counts.completed, 1);
    pool.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_of_agents_has_output_cost_duration_session_prompt_and_files_of_each_item() {
    let folder = scratch();
    let mut policy = agents("units", folder.path());
    policy.prompt = Some("{{ item }}".to_owned());
    policy.folders.each = Some(folder.path().join("work"));
    policy.files = vec!["*.md".to_owned()];
    let pool: Pool = ostler::open(folder.path().join("jobs.db"))
        .unwrap()
        .queue("units")
        .executor(policy)
        .defaults(Overrides { attempts: Some(1), ..Overrides::NONE })
        .supervisor(supervisor())
        .start()
        .await
        .unwrap();
    let items: Arc<Mutex<Vec<AttemptEnded>>> = Arc::default();
    let told = Arc::clone(&items);
    let job = pool
        .job("reports")
        .items("report", &[json!({ "item": "[[file a.md]]" }), json!({ "item": "[[nothing]]" })])
        .on_item(move |ended| {
            told.lock().unwrap().push(ended);
            async {}
        })
        .start()
        .await
        .unwrap();
    let record = tokio::time::timeout(MAX_WAIT, job.wait()).await.expect("in time").unwrap();
    assert_eq!((record.counts.completed, record.counts.failed), (1, 1));
    let both = async {
        while items.lock().unwrap().len() < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(MAX_WAIT, both).await.expect("each item has its callback");
    let items = std::mem::take(&mut *items.lock().unwrap());
    let good = items.iter().find(|item| item.failure.is_none()).expect("one completes");
    let attempt = good.record.as_ref().expect("it ran");
    let talk = &attempt.conversation;
    assert_eq!(good.task.output.as_deref(), Some("\"It wrote a file.\""));
    assert_eq!(talk.prompt.as_ref().expect("it was asked").text, "[[file a.md]]");
    assert_eq!(talk.session.as_deref().map(str::len), Some(36));
    assert!(talk.cost() > Some(Cost::default()) && attempt.took().is_some(), "{attempt:?}");
    let files: Vec<&str> = good.files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(files, ["a.md"]);
    let bad = items.iter().find(|item| item.failure.is_some()).expect("the other fails");
    assert!(bad.record.as_ref().is_some_and(|attempt| attempt.conversation.session.is_some()), "{bad:?}");
    let totals = job.totals().await.unwrap();
    assert_eq!(totals.cost, talk.cost());
    // `ostler job export` has the same, in the order of the items.
    let store = store(folder.path());
    let mut rows = JobResults::of(&store, job.id()).await.unwrap();
    let first = rows.next(&store).await.unwrap().expect("an item").view();
    assert_eq!((first.number, first.item.as_str()), (1, "{\"item\":\"[[file a.md]]\"}"));
    assert_eq!((first.output.as_deref(), first.files), (Some("It wrote a file."), vec!["a.md".to_owned()]));
    assert_eq!((first.session_id.as_ref(), first.cost_usd), (talk.session.as_ref(), Some(0.01)));
    assert!(first.duration_ms.is_some());
    let second = rows.next(&store).await.unwrap().expect("an item").view();
    assert_eq!((second.number, second.state), (2, "failed"));
    // What the items spent is charged to the queue of the agents, too.
    assert_eq!(settings(folder.path(), job.tasks().queue()).await.pool.as_deref(), Some("units"));
    assert_eq!(log(folder.path()).iter().filter(|line| line.get("prompt").is_some()).count(), 2);
    pool.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_that_cannot_work_are_refused_at_the_start_with_a_sentence() {
    let folder = scratch();
    let cases = [
        (AgentPolicy::new("a", Dialect::Command), "command"),
        (AgentPolicy { prompt: Some("{{ x".to_owned()), ..agents("a", folder.path()) }, "prompt"),
        (AgentPolicy { files: vec!["a[".to_owned()], ..agents("a", folder.path()) }, "files"),
        (
            AgentPolicy {
                schema: Some(SchemaSource::Inline(json!({ "type": "nonsense" }))),
                ..agents("a", folder.path())
            },
            "schema",
        ),
    ];
    let path = folder.path().join("jobs.db");
    for (policy, word) in cases {
        let builder = ostler::open(&path).unwrap().executor(policy);
        refused(builder, word).await;
    }
    let budget = Budget { total: Cost::from_usd(1.0), ..Budget::default() };
    let unpriced = ostler::open(&path).unwrap().executor(unpriced(folder.path()));
    refused(unpriced.budget(budget), "\"m-9\" is not known").await;
}

/// Agents that do not say what they cost, with a model whose price is not known.
fn unpriced(folder: &Path) -> AgentPolicy {
    AgentPolicy { dialect: Dialect::Codex, model: Some("m-9".to_owned()), ..agents("a", folder) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_with_a_budget_needs_a_price_and_stores_nothing_without_one() {
    let folder = scratch();
    let pool = ostler::open(folder.path().join("jobs.db")).unwrap().executor(unpriced(folder.path()));
    let pool = pool.supervisor(supervisor()).start().await.unwrap();
    let limit = Cost::from_usd(1.0).expect("an amount");
    let error = pool.job("reviews").items("review", &["a"]).max_cost(limit).start().await.err();
    let error = error.expect("its cost is not known").to_string();
    assert!(
        error.contains("a budget cannot be kept: the price of the model \"m-9\" is not known"),
        "{error}"
    );
    assert_eq!((pool.jobs(9).await.unwrap().len(), log(folder.path())), (0, Vec::new()));
    pool.drain(Duration::ZERO).await;
}

async fn refused(builder: Builder, word: &str) {
    let refused = builder.supervisor(supervisor()).start().await.err().expect(word);
    assert!(matches!(&refused, OpenError::Executor { reason, .. } if reason.contains(word)), "{refused}");
}
