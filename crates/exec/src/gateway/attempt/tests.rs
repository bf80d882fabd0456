//! Tests of the gateway of an attempt.

use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use async_trait::async_trait;
use ostler_core::{Failure, Id, TaskId, WorkerId};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::super::MAX_STREAMS;
use super::*;
use crate::events::event_channel;

/// Answers with the number of queries that run at that moment.
#[derive(Debug, Default)]
struct Counting {
    open: AtomicUsize,
    most: AtomicUsize,
}

#[async_trait]
impl Gateway for Counting {
    fn name(&self) -> String {
        "counting".to_owned()
    }

    async fn create_session(&self, asked: NewSession<'_>) -> Result<String, QueryEnd> {
        Ok(format!("{}-{}", asked.user_id, asked.number))
    }

    async fn run_query(&self, asked: SessionQuery<'_>) -> Result<String, QueryEnd> {
        let open = self.open.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(open, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_secs(1)).await;
        self.open.fetch_sub(1, Ordering::SeqCst);
        Ok(format!("\"{}.{}\"", asked.number.0, asked.number.1))
    }
}

fn attempt() -> (AttemptGateway, Arc<Counting>) {
    let counting = Arc::<Counting>::default();
    let (gateway, _) = attempt_with(Arc::clone(&counting) as Arc<dyn Gateway>);
    (gateway, counting)
}

/// An attempt with this gateway, and its stop signal.
fn attempt_with(gateway: Arc<dyn Gateway>) -> (AttemptGateway, CancellationToken) {
    let (sender, receiver) = event_channel();
    tokio::spawn(async move {
        let mut batch = Vec::new();
        while receiver.recv_many(&mut batch, 100).await > 0 {
            batch.drain(..).for_each(|queued| queued.receipt.stored());
        }
    });
    let work = Work {
        task: TaskId(Id::from_bits(1)),
        token: 1,
        worker: WorkerId(Id::from_bits(2)),
        attempt: 1,
        queue: "runs".into(),
        kind: "run".into(),
        payload: "null".into(),
        timeout: Duration::from_secs(60),
        grace: Duration::from_secs(1),
        folder: None,
        traceparent: None,
    };
    let control = Control::new(sender);
    (AttemptGateway::new(gateway, &work, &control), control.cancel)
}

#[tokio::test(start_paused = true)]
async fn queries_of_an_attempt_are_bounded_and_those_of_a_session_come_one_by_one() {
    let (gateway, counting) = attempt();
    let mut sessions = Vec::new();
    for _ in 0..MAX_OPEN_QUERIES + 2 {
        sessions.push(Arc::new(gateway.create_session(SessionRequest::default()).await.expect("a session")));
    }
    let usual = format!("worker_{}-1", TaskId(Id::from_bits(1)));
    assert_eq!(sessions[0].id().await, usual, "the user, unless another is given");
    let ask = |session: &Arc<GatewaySession>| {
        let session = Arc::clone(session);
        tokio::spawn(async move { session.run_query("x").await.expect("an answer").text() })
    };
    let running: Vec<_> = sessions.iter().map(ask).collect();
    for (at, running) in running.into_iter().enumerate() {
        assert_eq!(running.await.expect("it ends"), format!("{}.1", at + 1));
    }
    assert_eq!(counting.most.swap(0, Ordering::SeqCst), MAX_OPEN_QUERIES);
    let (second, third) = (ask(&sessions[0]), ask(&sessions[0]));
    let both = [second.await.expect("it ends"), third.await.expect("it ends")];
    assert!(both.contains(&"1.2".to_owned()) && both.contains(&"1.3".to_owned()), "{both:?}");
    assert_eq!(counting.most.load(Ordering::SeqCst), 1);
}

/// A gateway that answers a number with one message for each number below it. It waits for a permit before each message, and a cancel ends it.
#[derive(Debug)]
struct Telling {
    /// What may be said.
    may: Semaphore,
    said: Arc<AtomicUsize>,
    /// What became of the queries.
    ends: mpsc::UnboundedSender<&'static str>,
}

/// Tells when it is dropped.
struct Ends(mpsc::UnboundedSender<&'static str>);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.send("gone");
    }
}

#[async_trait]
impl Gateway for Telling {
    fn name(&self) -> String {
        "telling".to_owned()
    }

    async fn create_session(&self, _: NewSession<'_>) -> Result<String, QueryEnd> {
        Ok("s".to_owned())
    }

    async fn run_query(&self, asked: SessionQuery<'_>) -> Result<String, QueryEnd> {
        let _ends = Ends(self.ends.clone());
        let most: usize = asked.query.input.parse().expect("a number");
        for number in 0..most {
            tokio::select! {
                biased;
                () = asked.control.cancel.cancelled() => {
                    // An agent may say something when it is asked to stop.
                    let _ = asked.control.events.send(text("stopped")).await;
                    let _ = self.ends.send("stopped");
                    return Err(QueryEnd::Cancelled);
                }
                may = self.may.acquire() => may.expect("it is never closed").forget(),
            }
            let _ = asked.control.events.send(text(&number.to_string())).await;
            self.said.fetch_add(1, Ordering::SeqCst);
        }
        match most {
            0 => Err(Failure::new(ErrorClass::RateLimited, "too many").into()),
            _ => Ok(format!("\"{most} were said\"")),
        }
    }
}

fn text(text: &str) -> EventBody {
    EventBody::Message { role: ostler_core::Role::Assistant, text: text.to_owned() }
}

/// A session of a gateway that says things, and what a test does with it.
struct Told {
    session: GatewaySession,
    telling: Arc<Telling>,
    cancel: CancellationToken,
    ended: mpsc::UnboundedReceiver<&'static str>,
}

impl Told {
    /// A gateway that may say so much.
    async fn new(may: usize) -> Self {
        let (ends, ended) = mpsc::unbounded_channel();
        let telling = Arc::new(Telling { may: Semaphore::new(may), said: Arc::default(), ends });
        let (gateway, cancel) = attempt_with(Arc::clone(&telling) as Arc<dyn Gateway>);
        let session = gateway.create_session(SessionRequest::default()).await.expect("a session");
        Self { session, telling, cancel, ended }
    }

    fn said(&self) -> usize {
        self.telling.said.load(Ordering::SeqCst)
    }
}

#[tokio::test(start_paused = true)]
async fn events_of_a_stream_come_before_the_answer_in_their_order_and_each_once() {
    let told = Told::new(0).await;
    let Told { session, telling, .. } = &told;
    let mut stream = session.stream("3").await.expect("it begins");
    for number in 0..3 {
        // The next one is not said before this one is read.
        telling.may.add_permits(1);
        assert_eq!(stream.next().await, Ok(Some(text(&number.to_string()))));
        assert_eq!(session.id().await, "s", "it can be asked meanwhile");
    }
    assert_eq!(stream.next().await, Ok(None));
    assert_eq!(stream.next().await, Ok(None));
    assert_eq!(stream.answer().await.expect("an answer").text(), "3 were said");
    telling.may.add_permits(2);
    let mut unread = session.stream("2").await.expect("it begins");
    assert_eq!(unread.answer().await.expect("an answer").text(), "2 were said");
    let mut failed = session.stream("0").await.expect("it begins");
    let error = failed.next().await.expect_err("it fails");
    assert_eq!(error.class(), ErrorClass::RateLimited);
    assert_eq!(failed.answer().await, Err(error));
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_not_read_holds_its_agent_back_and_loses_nothing() {
    const MANY: usize = 1_000;
    let told = Told::new(MANY).await;
    let mut stream = told.session.stream(MANY.to_string()).await.expect("it begins");
    // Time passes only when nothing else can go on.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let said = told.said();
    assert!((1..100).contains(&said), "{said} were said");
    for number in 0..MANY {
        assert_eq!(stream.next().await, Ok(Some(text(&number.to_string()))));
    }
    assert_eq!(stream.answer().await.expect("an answer").text(), format!("{MANY} were said"));
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_dropped_stops_its_query_before_the_next_one_and_the_end_of_a_handler_ends_it() {
    let Told { session, telling, mut ended, .. } = Told::new(1).await;
    let mut stream = session.stream("9").await.expect("it begins");
    assert_eq!(stream.next().await, Ok(Some(text("0"))));
    drop(stream);
    telling.may.add_permits(1);
    assert_eq!(session.run_query("1").await.expect("an answer").text(), "1 were said");
    assert_eq!([ended.recv().await, ended.recv().await], [Some("stopped"), Some("gone")]);
    assert_eq!(ended.recv().await, Some("gone"));
    let stream = session.stream("9").await.expect("it begins");
    tokio::time::sleep(Duration::from_secs(1)).await;
    drop(session);
    assert!(ended.try_recv().is_err(), "a stream goes on without its session");
    // All at once: nothing waits for the query to stop.
    drop(stream);
    assert_eq!(ended.recv().await, Some("gone"));
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_attempt_ends_a_stream_that_is_not_read() {
    let mut told = Told::new(100).await;
    let mut stream = told.session.stream("1000").await.expect("it begins");
    tokio::time::sleep(Duration::from_secs(1)).await;
    told.cancel.cancel();
    assert_eq!(told.ended.recv().await, Some("stopped"));
    assert!(told.said() < 100, "{} were said", told.said());
    assert_eq!(stream.answer().await.expect_err("it has no answer").message(), "the attempt is to stop");
}

#[tokio::test(start_paused = true)]
async fn streams_that_are_kept_are_bounded() {
    let Told { session, .. } = Told::new(MAX_STREAMS * 2).await;
    let mut kept = Vec::new();
    for _ in 0..MAX_STREAMS {
        kept.push(session.stream("1").await.expect("it begins"));
    }
    let error = session.stream("1").await.expect_err("there are too many");
    assert!(error.message().contains("at most 16 streams"), "{error:?}");
    kept.pop();
    assert_eq!(
        session.stream("1").await.expect("it begins").answer().await.expect("an answer").text(),
        "1 were said"
    );
}
