//! A pool kind that this program does not know, added in one file and one line: it is read, checked, run and examined like the others.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ostler_config::{
    BuildContext, BuildError, FindingLevel, PoolCommon, PoolDefaults, PoolFinding, PoolKind, PoolSpec,
    Resources, Section, TaskBudgets,
};
use ostler_core::{Cost, Overrides, StateName};
use ostler_exec::{AttemptResult, Control, Executor, Served, Work};
use ostler_process::{CommandKind, ProcessKind};
use ostler_runtime::NodeConfig;
use ostler_store::views::TaskRef;
use ostler_store::{Bounds, Store, SystemClock};
use ostler_testkit::{Ids, MAX_WAIT, TempStore};
use ostler_wire::system::Severity;

use super::node::NodeService;
use super::pools;
use super::service::Services;
use crate::config::{self, Config};
use crate::doctor::{Subject, examine};

/// The list of kinds, with one more line.
const KINDS: config::Kinds<'_> = &[&CommandKind, &ProcessKind, &GreeterKind];

/// `executor = "greeter"`: answers each task with a greeting.
struct GreeterKind;

#[derive(Clone, Debug, PartialEq)]
struct Greeter {
    greeting: String,
    /// Whether there is a price for these words.
    priced: bool,
    max_cost: Option<Cost>,
}

/// What the program provides for it.
struct Mark(&'static str);

struct GreeterExecutor(String);

impl PoolKind for GreeterKind {
    fn name(&self) -> &'static str {
        "greeter"
    }

    fn task_budgets(&self) -> TaskBudgets {
        TaskBudgets::Enforced
    }

    fn read(&self, pool: &PoolCommon<'_>, section: &mut Section<'_>) -> Option<Box<dyn PoolSpec>> {
        let greeting = section.required("greeting", "the words, such as \"hello\"")?.text()?;
        let priced = pool.prices.of(&greeting).is_some();
        Some(Box::new(Greeter { greeting, priced, max_cost: pool.max_task_cost }))
    }

    fn reference(&self) -> &'static str {
        "# A pool that greets.\n#[pool.guests]\n#executor = \"greeter\"\n# The words. Required.\n#greeting = \"hello\"\n"
    }
}

#[async_trait]
impl PoolSpec for Greeter {
    fn defaults(&self) -> PoolDefaults {
        let overrides = Overrides { timeout: Some(Duration::from_secs(7)), ..Overrides::NONE };
        PoolDefaults { min_workers: 0, max_workers: 3, overrides }
    }

    fn programs(&self) -> Vec<String> {
        vec!["no-such-bell".to_owned()]
    }

    fn unpriced(&self, _model: Option<&str>) -> Option<String> {
        (!self.priced).then(|| format!("the price of the model \"{}\" is not known", self.greeting))
    }

    fn findings(&self, pool: &str) -> Vec<PoolFinding> {
        let sentence = format!("pool.{pool}.greeting: it is loud");
        let level = FindingLevel::Warning;
        let loud = PoolFinding { code: "greeting-loud", level, sentence, advice: "Greet quietly" };
        Some(loud).filter(|_| self.greeting.ends_with('!')).into_iter().collect()
    }

    async fn examine(&self, pool: &str) -> Vec<PoolFinding> {
        let sentence = format!("The bell of \"{pool}\" is broken");
        vec![PoolFinding { code: "bell-broken", level: FindingLevel::Error, sentence, advice: "" }]
    }

    fn build(&self, context: BuildContext<'_>) -> Result<Arc<dyn Executor>, BuildError> {
        let mark = context.need::<Mark>("a mark")?;
        Ok(Arc::new(GreeterExecutor(format!("{}{}", self.greeting, mark.0))))
    }
}

#[async_trait]
impl Executor for GreeterExecutor {
    fn served(&self) -> Served {
        Served::Any
    }

    async fn run(&self, work: Work, _control: Control) -> AttemptResult {
        AttemptResult::success(Some(format!("\"{}, {}\"", self.0, work.kind)))
    }
}

fn read(lines: &str) -> Result<Config, config::ConfigErrors> {
    let text = format!("[pool.guests]\nexecutor = \"greeter\"\n{lines}\n");
    config::parse(&text, "ostler.toml", &|_| None, KINDS, ostler_core::price::PriceTable::built_in())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kind_that_was_added_runs_tasks_with_its_defaults() {
    let config = read("greeting = \"hello\"").expect("it is valid");
    let pool = &config.pools[0];
    assert_eq!((pool.scale.min, pool.scale.max), (0, 3));
    assert_eq!(pool.overrides.timeout, Some(Duration::from_secs(7)));
    let here = TempStore::real();
    let store: Arc<dyn Store> = here.store();
    let resources = Resources::default().with(Mark("!"));
    let mut built = pools::build(&config.pools, &resources).expect("it is built");
    let bounds = Bounds::default();
    pools::complete(&mut built, &config.pools, &store, bounds, &resources).await.expect("it is complete");
    let plain = NodeConfig::new("here", Vec::new());
    let node = NodeService::start(&config, built, Arc::clone(&store), &resources, plain).await;
    let mut services = Services::default();
    services.started(node.expect("the node starts"));
    let task = Ids::new(3).new_task("guests", "anna");
    let id = task.id;
    store.enqueue(vec![task]).await.expect("it is enqueued");
    let looking = async {
        loop {
            let found = store.show(TaskRef::Id(id)).await.expect("the store answers").expect("it is there");
            if found.task.state.name() == StateName::Completed {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let found = tokio::time::timeout(MAX_WAIT, looking).await.expect("it completes");
    assert_eq!(found.task.output.as_deref(), Some("\"hello!, anna\""));
    services.stop(MAX_WAIT).await;
}

#[test]
fn its_faults_are_told_with_their_lines_and_its_unknown_keys_with_a_guess() {
    for (lines, told) in [
        ("", "ostler.toml:1: pool.guests.greeting is missing: the words, such as \"hello\""),
        ("greeting = 5", "ostler.toml:3: pool.guests.greeting is 5, but must be a string in quotes"),
        (
            "greeting = \"hello\"\ngreting = 1",
            "ostler.toml:4: pool.guests.greting: unknown key; did you mean greeting?",
        ),
        ("greeting = \"hello\"\nstdin = \"payload\"", "ostler.toml:4: pool.guests.stdin: unknown key"),
    ] {
        let errors = read(lines).expect_err("it is refused").to_string();
        assert!(errors.starts_with(told) && errors.lines().count() == 1, "{errors}");
    }
    let text = "[pool.guests]\nexecutor = \"greter\"";
    let errors =
        config::parse(text, "ostler.toml", &|_| None, KINDS, ostler_core::price::PriceTable::built_in())
            .expect_err("it is refused")
            .to_string();
    assert!(errors.contains("did you mean \"greeter\"?"), "{errors}");
}

#[test]
fn a_budget_needs_a_price_and_a_kind_may_have_one_for_each_task() {
    let budget = "greeting = \"hello\"\nbudget = { total = 5, per_task = \"$0.50\" }";
    let error = read(budget).expect_err("it is refused").to_string();
    let reason = "pool.guests.budget cannot be kept: the price of the model \"hello\" is not known";
    assert!(error.starts_with("ostler.toml:4: ") && error.contains(reason), "{error}");
    let config = read(&format!("{budget}\n[prices.hello]\ninput = 1\noutput = 2")).expect("it is good");
    let greeter = config.pools[0].executor.as_any().downcast_ref::<Greeter>().expect("a greeter");
    assert_eq!(greeter.max_cost, Cost::from_usd(0.5));
    assert_eq!(config.pools[0].limits.budget.and_then(|budget| budget.total), Cost::from_usd(5.0));
    assert!(read("greeting = \"hello\"\nbudget = { per_task = 1 }").is_err(), "it would limit nothing");
}

#[test]
fn what_it_cannot_be_built_without_is_named() {
    let config = read("greeting = \"hello\"").expect("it is valid");
    let error = pools::build(&config.pools, &Resources::default()).err().expect("there is no mark");
    assert_eq!(error.to_string(), "pool.guests: it needs a mark, which is not there");
}

#[tokio::test]
async fn its_findings_and_missing_programs_are_the_doctors_too() {
    let config = read("greeting = \"hello!\"").expect("it is valid");
    assert_eq!(config.pools[0].findings().len(), 1, "a check of the file examines no machine");
    let subject = Subject {
        store: None,
        config: Some(Ok(config)),
        containment: None,
        threads: None,
        clock: Arc::new(SystemClock),
    };
    let found = examine(subject).await;
    let told: Vec<(&str, Severity)> = found.iter().map(|finding| (finding.code, finding.severity)).collect();
    let [error, warning] = [Severity::Error, Severity::Warning];
    let expected = [("bell-broken", error), ("program-missing", error), ("greeting-loud", warning)];
    assert_eq!(told, expected, "{found:?}");
    assert!(found[1].sentence.contains("no-such-bell"), "{found:?}");
}

#[test]
fn its_keys_stand_in_the_reference_and_the_list_of_executors() {
    let text = config::reference(KINDS);
    assert!(text.contains("#greeting = \"hello\"\n") && text.contains("#ready_timeout"), "{text}");
    let errors = config::parse(
        "[pool.x]",
        "ostler.toml",
        &|_| None,
        KINDS,
        ostler_core::price::PriceTable::built_in(),
    )
    .expect_err("it is refused");
    assert!(errors.to_string().contains("this version has command, process, greeter"), "{errors}");
}
