//! What the library has for the tests of its users: a store that is gone with the program, and handlers called directly.

use ostler::testing::TestAttempt;
use ostler::{Context, ErrorClass, EventBody, Role, StateName, TaskError};
use ostler_testkit::MAX_WAIT;

async fn publish(title: String, ctx: Context) -> Result<String, TaskError> {
    if ctx.is_cancelled() {
        return Err(TaskError::transient("told to stop"));
    }
    ctx.message(Role::User, format!("print {title}")).await;
    ctx.session("s-1").await?;
    let pages = ctx.step("printed", || async { Ok(title.len()) }).await?;
    ctx.log(format!("{pages} pages, attempt {}", ctx.attempt()));
    Ok(format!("{}/{title}", ctx.shared::<String>()?))
}

#[tokio::test]
async fn a_handler_is_called_directly_with_a_context_of_the_tests_own() {
    let attempt = TestAttempt::new().attempt(2).share("shelf".to_owned());
    let run = attempt.call(publish, "a book".to_owned()).await;
    assert_eq!(run.result.as_deref(), Ok("shelf/a book"));
    assert_eq!(run.logs(), ["6 pages, attempt 2"]);
    assert_eq!(run.steps.get("printed").map(String::as_str), Some("6"));
    let said = EventBody::Message { role: Role::User, text: "print a book".to_owned() };
    assert_eq!(run.events[..2], [said, EventBody::Session { id: "s-1".to_owned() }]);
}

#[tokio::test]
async fn a_saved_step_is_not_repeated_and_a_stop_is_seen() {
    let attempt = TestAttempt::new().saved("printed", &99).share(String::new());
    let run = attempt.call(publish, "a book".to_owned()).await;
    assert_eq!(run.logs(), ["99 pages, attempt 1"]);
    let run = TestAttempt::new().cancelled().call(publish, "a book".to_owned()).await;
    assert_eq!(run.result.unwrap_err().into_failure().class, ErrorClass::Transient);
    let run = TestAttempt::new().call(publish, "a book".to_owned()).await;
    assert!(run.result.unwrap_err().message().contains("String"), "nothing is shared");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_in_memory_is_a_store_of_its_own() {
    let start = || async {
        let handler = |name: String, _: Context| async move { Ok(format!("hello, {name}")) };
        ostler::open_memory().unwrap().handle("greet", handler).start().await.unwrap()
    };
    let (one, other) = (start().await, start().await);
    let id = one.submit("greet", &"Ada").await.unwrap();
    assert_eq!(one.wait_as::<String>(id).await.unwrap(), "hello, Ada");
    assert_eq!(one.get(id).await.unwrap().state.name(), StateName::Completed);
    assert!(other.get(id).await.is_err(), "another store");
    one.drain(MAX_WAIT).await;
    other.drain(MAX_WAIT).await;
}
