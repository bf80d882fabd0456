//! Runs each race many times, with one side slightly earlier or later each time.

use std::sync::Arc;

use ostler_core::Seed;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::super::fixture::{BoxFuture, Constructor};
use super::super::scene::Scene;
use super::rounds::RACES;
use ostler_store::Checks;
use ostler_store::Store;

/// Races that run concurrently, so that a store that waits for a server or a disk does not slow down the suite.
const AT_ONCE: usize = 4;
/// The longest delay of one side in an ordinary round, in iterations of an empty loop.
const MOST_TURNS: u64 = 4_000;
/// Extra rounds for a side that has not won yet: its rival's delay doubles each time.
const EXTRA_ROUNDS: u32 = 24;

/// The winner of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Left,
    Right,
}

/// The delay of each side after both are released.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stagger {
    left: u64,
    right: u64,
}

/// One store with two connections.
pub(super) struct Stage {
    pub(super) scene: Arc<Scene>,
    pub(super) second: Arc<dyn Store>,
}

/// A name and one round: it sets up a task, releases both sides, and checks the record.
pub(super) type Race = (&'static str, for<'a> fn(&'a Stage, Stagger) -> BoxFuture<'a, Side>);

/// Runs every race this many times, prints how often each side won, and returns the number of rounds. Needs a
/// multi-threaded runtime.
///
/// # Panics
/// When a round has no winner or two, or when one side of a race never wins.
pub async fn run(make: &Constructor, rounds: usize) -> usize {
    let mut count = 0;
    let numbered: Vec<(u64, &'static Race)> = (0..).zip(RACES).collect();
    for some in numbered.chunks(AT_ONCE) {
        // Dropped at the first failure, which aborts the others.
        let mut running = JoinSet::new();
        for (seed, race) in some {
            running.spawn(run_one(make.clone(), race, Seed::new(*seed), rounds));
        }
        for ran in running.join_all().await {
            count += ran;
        }
    }
    count
}

async fn run_one(make: Constructor, race: &'static Race, mut chance: Seed, rounds: usize) -> usize {
    let (name, round) = race;
    let scene = Arc::new(Scene::new(make(Checks::default()).await));
    let second = scene.fixture.second().await;
    let stage = Stage { scene, second };
    let mut wins = [0usize; 2];
    for _ in 0..rounds {
        let stagger = Stagger { left: chance.below(MOST_TURNS), right: chance.below(MOST_TURNS) };
        wins[round(&stage, stagger).await as usize] += 1;
    }
    for extra in 0..EXTRA_ROUNDS {
        let turns = MOST_TURNS << extra.min(12);
        let stagger = match wins {
            [0, _] => Stagger { left: 0, right: turns },
            [_, 0] => Stagger { left: turns, right: 0 },
            _ => break,
        };
        wins[round(&stage, stagger).await as usize] += 1;
    }
    let [left, right] = wins;
    assert!(left > 0 && right > 0, "{name}: {left} to {right}: one side never wins, so nothing is tested");
    println!("{name}: {left} to {right}");
    left + right
}

/// Releases both sides at once.
pub(super) async fn both<L, R>(
    stagger: Stagger,
    left: impl Future<Output = L> + Send + 'static,
    right: impl Future<Output = R> + Send + 'static,
) -> (L, R)
where
    L: Send + 'static,
    R: Send + 'static,
{
    let gate = Arc::new(Barrier::new(2));
    let left = tokio::spawn(after(Arc::clone(&gate), stagger.left, left));
    let right = tokio::spawn(after(gate, stagger.right, right));
    (left.await.expect("the left side answers"), right.await.expect("the right side answers"))
}

async fn after<T>(gate: Arc<Barrier>, turns: u64, side: impl Future<Output = T>) -> T {
    gate.wait().await;
    for _ in 0..turns {
        std::hint::spin_loop();
    }
    if turns % 2 == 1 {
        tokio::task::yield_now().await;
    }
    side.await
}
