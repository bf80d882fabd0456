//! Group commit: concurrent calls of one verb share a transaction and its commit. A hundred callers with one task each
//! cost little more than one caller with a hundred tasks. No call waits for others to arrive: one that finds a free turn
//! runs at once, and those that arrive in the meantime go together when the next turn is free.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use ostler_store::{Error, ErrorKind};
use tokio::runtime::{Handle, Id};
use tokio::sync::{Semaphore, oneshot};

/// Concurrent transactions of one verb: while one waits for the disk, the next one is assembled.
const TURNS: usize = 2;
/// Items of calls that share a transaction. A single call may have more.
const MAX_ITEMS: usize = 1_000;
/// Total bytes of calls that share a transaction. A single call may be larger.
const MAX_BYTES: usize = 8 << 20;
/// Runtimes that are tracked; above it, those without calls are dropped.
const MAX_RUNTIMES: usize = 16;

/// The result of a call: a reply for each item, or the items handed back.
pub(crate) type CallOutcome<I, A> = Result<Vec<A>, (Error, Vec<I>)>;

/// Executes calls: returns a reply for each item, in order.
pub(crate) type Carry<C, I, A> =
    fn(Arc<C>, Vec<I>) -> Pin<Box<dyn Future<Output = CallOutcome<I, A>> + Send>>;

/// The calls of one verb. Each runtime of the process has its own queue: blocked threads of one do not delay another.
pub(crate) struct GroupCommit<C, I, A> {
    with: Arc<C>,
    work: Carry<C, I, A>,
    bytes: fn(&I) -> usize,
    queues: Mutex<HashMap<Id, Arc<RuntimeQueue<I, A>>>>,
}

/// The calls of one runtime. Each queued call belongs to a caller that waits for a turn or for its reply.
struct RuntimeQueue<I, A> {
    turns: Arc<Semaphore>,
    waiting: Mutex<VecDeque<Call<I, A>>>,
}

struct Call<I, A> {
    items: Vec<I>,
    answer: oneshot::Sender<CallOutcome<I, A>>,
}

impl<C, I, A> GroupCommit<C, I, A>
where
    C: Send + Sync + 'static,
    I: Send + 'static,
    A: Send + 'static,
{
    /// Creates an empty group. `bytes` returns the size of an item.
    pub(crate) fn new(with: &Arc<C>, bytes: fn(&I) -> usize, work: Carry<C, I, A>) -> Self {
        Self { with: Arc::clone(with), work, bytes, queues: Mutex::default() }
    }

    /// Executes a call, with others if there are any. A call whose caller is dropped before its turn is not executed.
    pub(crate) async fn call(&self, items: Vec<I>) -> CallOutcome<I, A> {
        let queue = self.here();
        if let Ok(_turn) = queue.turns.try_acquire() {
            return (self.work)(Arc::clone(&self.with), items).await;
        }
        let (answer, mut answered) = oneshot::channel();
        queue.lock().push_back(Call { items, answer });
        let turn = tokio::select! {
            biased;
            answer = &mut answered => return given(answer),
            turn = Arc::clone(&queue.turns).acquire_owned() => turn,
        };
        let calls = queue.next(self.bytes);
        if !calls.is_empty() {
            let (with, work) = (Arc::clone(&self.with), self.work);
            // Spawned, so that the other calls do not depend on this caller's future.
            tokio::spawn(async move {
                let _turn = turn;
                together(calls, |items| work(Arc::clone(&with), items)).await;
            });
        }
        given(answered.await)
    }

    fn here(&self) -> Arc<RuntimeQueue<I, A>> {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let runtime = Handle::current().id();
        if !queues.contains_key(&runtime) && queues.len() >= MAX_RUNTIMES {
            queues.retain(|_, queue| Arc::strong_count(queue) > 1);
        }
        Arc::clone(queues.entry(runtime).or_insert_with(|| {
            Arc::new(RuntimeQueue { turns: Arc::new(Semaphore::new(TURNS)), waiting: Mutex::default() })
        }))
    }
}

impl<I, A> RuntimeQueue<I, A> {
    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<Call<I, A>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the first queued calls, as many as may share a transaction.
    fn next(&self, bytes: fn(&I) -> usize) -> Vec<Call<I, A>> {
        let mut waiting = self.lock();
        let (mut calls, mut items, mut size) = (Vec::new(), 0, 0);
        while let Some(call) = waiting.front() {
            let more: usize = call.items.iter().map(bytes).sum();
            if !calls.is_empty() && (items + call.items.len() > MAX_ITEMS || size + more > MAX_BYTES) {
                break;
            }
            (items, size) = (items + call.items.len(), size + more);
            // Skip calls whose caller is gone.
            calls.extend(waiting.pop_front().filter(|call| !call.answer.is_closed()));
        }
        calls
    }
}

/// Executes calls as one, and gives each its own reply. If that fails for a reason that may lie in one of them, each is
/// executed by itself.
async fn together<I, A, F>(calls: Vec<Call<I, A>>, work: impl Fn(Vec<I>) -> F)
where
    F: Future<Output = CallOutcome<I, A>>,
{
    let (mut items, mut callers) = (Vec::new(), Vec::with_capacity(calls.len()));
    for call in calls {
        callers.push((call.items.len(), call.answer));
        items.extend(call.items);
    }
    let many = callers.len() > 1;
    // A failed send means that the caller is gone.
    match work(items).await {
        Ok(answers) => {
            let mut answers = answers.into_iter();
            for (count, caller) in callers {
                let _ = caller.send(Ok(answers.by_ref().take(count).collect()));
            }
        }
        Err((error, items)) => {
            let mut items = items.into_iter();
            for (count, caller) in callers {
                let own: Vec<I> = items.by_ref().take(count).collect();
                let alone = many && error.kind() != ErrorKind::Unavailable;
                let _ = caller.send(if alone { work(own).await } else { Err((error.clone(), own)) });
            }
        }
    }
}

/// Unwraps the reply. It is missing only if the executing task has panicked.
fn given<T>(answer: Result<T, oneshot::error::RecvError>) -> T {
    answer.expect("a call that is carried out with others is answered")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use tokio::sync::Notify;
    use tokio::task::JoinHandle;

    use super::*;

    /// Work that waits until it may continue, and records its input. An item of 0 is refused, and for one of 1 the store
    /// is unavailable.
    #[derive(Default)]
    struct DelayedWork {
        batches: Mutex<Vec<Vec<u32>>>,
        waits: Notify,
        begun: AtomicUsize,
    }

    type Numbers = GroupCommit<DelayedWork, u32, u32>;

    async fn carry_out(work: Arc<DelayedWork>, items: Vec<u32>) -> CallOutcome<u32, u32> {
        work.begun.fetch_add(1, Ordering::SeqCst);
        work.waits.notified().await;
        work.batches.lock().unwrap().push(items.clone());
        match items.iter().copied().min() {
            Some(0) => Err((Error::invalid("a zero"), items)),
            Some(1) => Err((Error::new(ErrorKind::Unavailable, "away"), items)),
            Some(_) | None => Ok(items.iter().map(|item| item * 10).collect()),
        }
    }

    fn call(group_commit: &Arc<Numbers>, items: &[u32]) -> JoinHandle<CallOutcome<u32, u32>> {
        let (group_commit, items) = (Arc::clone(group_commit), items.to_vec());
        tokio::spawn(async move { group_commit.call(items).await })
    }

    /// A group commit whose turns are all taken, and the calls that have them.
    async fn busy() -> (Arc<Numbers>, Arc<DelayedWork>, Vec<JoinHandle<CallOutcome<u32, u32>>>) {
        let work = Arc::new(DelayedWork::default());
        let group_commit =
            Arc::new(GroupCommit::new(&work, |_| 1, |work, items| Box::pin(carry_out(work, items))));
        let first = (0..TURNS).map(|_| call(&group_commit, &[5])).collect();
        begun(&work, TURNS).await;
        (group_commit, work, first)
    }

    async fn begun(work: &DelayedWork, count: usize) {
        while work.begun.load(Ordering::SeqCst) < count {
            tokio::task::yield_now().await;
        }
    }

    async fn waiting(group_commit: &Numbers, count: usize) {
        while group_commit.here().lock().len() < count {
            tokio::task::yield_now().await;
        }
    }

    async fn answer(call: JoinHandle<CallOutcome<u32, u32>>) -> CallOutcome<u32, u32> {
        tokio::time::timeout(Duration::from_secs(60), call).await.unwrap().unwrap()
    }

    #[tokio::test]
    async fn calls_that_come_meanwhile_go_together_and_each_gets_its_own_answers() {
        let (group_commit, work, first) = busy().await;
        let mut others = Vec::new();
        for (at, items) in [&[6, 7][..], &[8][..], &[9][..]].into_iter().enumerate() {
            others.push(call(&group_commit, items));
            waiting(&group_commit, at + 1).await;
        }
        work.waits.notify_one();
        begun(&work, TURNS + 1).await;
        (0..TURNS).for_each(|_| work.waits.notify_one());
        for call in first {
            assert_eq!(answer(call).await, Ok(vec![50]));
        }
        let mut answers = Vec::new();
        for call in others {
            work.waits.notify_one();
            answers.push(answer(call).await.unwrap());
        }
        assert_eq!(answers, [vec![60, 70], vec![80], vec![90]]);
        assert!(work.batches.lock().unwrap().contains(&vec![6, 7, 8, 9]));
    }

    #[tokio::test]
    async fn a_call_that_is_refused_does_not_take_others_with_it_and_a_store_that_is_away_is_asked_once() {
        for (bad, good, batches) in [(0, Ok(vec![60]), 3), (1, Err(ErrorKind::Unavailable), 1)] {
            let (group_commit, work, first) = busy().await;
            let refused = call(&group_commit, &[bad]);
            waiting(&group_commit, 1).await;
            let other = call(&group_commit, &[6]);
            waiting(&group_commit, 2).await;
            let wakes = tokio::spawn({
                let work = Arc::clone(&work);
                async move {
                    loop {
                        work.waits.notify_one();
                        tokio::task::yield_now().await;
                    }
                }
            });
            for call in first {
                assert_eq!(answer(call).await, Ok(vec![50]));
            }
            let (_, given_back) = answer(refused).await.unwrap_err();
            assert_eq!(given_back, [bad]);
            assert_eq!(answer(other).await.map_err(|(error, _)| error.kind()), good);
            assert_eq!(work.batches.lock().unwrap().len(), TURNS + batches);
            wakes.abort();
        }
    }

    #[tokio::test]
    async fn a_cancelled_caller_takes_only_its_own_call_along() {
        let (group_commit, work, mut first) = busy().await;
        let gone = call(&group_commit, &[6]);
        waiting(&group_commit, 1).await;
        let led = call(&group_commit, &[7]);
        waiting(&group_commit, 2).await;
        let other = call(&group_commit, &[8]);
        waiting(&group_commit, 3).await;
        gone.abort();
        assert!(gone.await.unwrap_err().is_cancelled());
        // The next turn belongs to the second caller, which is dropped in the middle of it.
        work.waits.notify_one();
        begun(&work, TURNS + 1).await;
        led.abort();
        assert!(led.await.unwrap_err().is_cancelled());
        (0..TURNS).for_each(|_| work.waits.notify_one());
        while !other.is_finished() {
            work.waits.notify_one();
            tokio::task::yield_now().await;
        }
        assert_eq!(answer(other).await, Ok(vec![80]));
        assert!(work.batches.lock().unwrap().contains(&vec![7, 8]));
        for call in first.drain(..) {
            assert_eq!(answer(call).await, Ok(vec![50]));
        }
    }

    #[test]
    fn no_more_go_together_than_may() {
        let queue = RuntimeQueue { turns: Arc::new(Semaphore::new(TURNS)), waiting: Mutex::default() };
        let mut callers = Vec::new();
        let mut add = |count: usize| {
            let (answer, answered) = oneshot::channel::<CallOutcome<usize, ()>>();
            callers.push(answered);
            queue.lock().push_back(Call { items: vec![MAX_BYTES / 4; count], answer });
        };
        [2, 2, 1, 9, 1].into_iter().for_each(&mut add);
        let mut sizes = Vec::new();
        while !queue.lock().is_empty() {
            sizes.push(queue.next(|bytes| *bytes).iter().map(|call| call.items.len()).sum::<usize>());
        }
        assert_eq!(sizes, [4, 1, 9, 1]);
        [MAX_ITEMS, 1].into_iter().for_each(&mut add);
        assert_eq!(queue.next(|_| 0).len(), 1);
    }
}
