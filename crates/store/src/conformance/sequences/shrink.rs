//! Makes a sequence that shows a difference as short as it can.

use super::super::fixture::Constructor;
use super::super::topics::words;
use super::op::{Names, Step};
use super::pair::compare;

/// A shorter sequence is a comfort; nobody waits for it for ever.
const MOST_TRIES: usize = 400;

/// Runs a sequence; a panic of a store is a difference too. `Err` has what was said up to the difference.
pub(super) async fn try_out(
    make: &Constructor,
    reference: &Constructor,
    names: Names,
    steps: Vec<Step>,
) -> Result<(), (Vec<Step>, String)> {
    let (make, reference, tried) = (make.clone(), reference.clone(), steps.clone());
    let run = tokio::spawn(async move { compare(&make, &reference, names, &tried).await });
    match run.await {
        Ok(Ok(())) => Ok(()),
        Ok(Err((at, why))) => Err((steps[..=at].to_vec(), why)),
        Err(error) => Err((steps, words(error))),
    }
}

/// Takes operations out of a sequence that shows a difference, while it still shows one.
pub(super) async fn shrink(
    make: &Constructor,
    reference: &Constructor,
    names: Names,
    steps: Vec<Step>,
    why: String,
) -> (Vec<Step>, String) {
    let (mut best, mut reason) = (steps, why);
    let mut tries = 0;
    let mut batch = best.len().div_ceil(2).max(1);
    loop {
        let mut at = 0;
        let mut shorter = false;
        while at < best.len() && tries < MOST_TRIES {
            tries += 1;
            let mut fewer = best.clone();
            fewer.drain(at..(at + batch).min(best.len()));
            match try_out(make, reference, names, fewer).await {
                Err((steps, why)) => {
                    (best, reason) = (steps, why);
                    shorter = true;
                }
                Ok(()) => at += batch,
            }
        }
        if tries >= MOST_TRIES || (batch == 1 && !shorter) {
            return (best, reason);
        }
        batch = (batch / 2).max(1);
    }
}
