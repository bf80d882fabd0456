//! Shrinks a sequence that shows a difference.

use super::super::fixture::Constructor;
use super::super::topics::words;
use super::op::{Names, Step};
use super::pair::compare;

/// A limit on attempts to shrink: a shorter sequence is only a convenience.
const MOST_TRIES: usize = 400;

/// Runs a sequence; a panic counts as a difference. `Err` has the steps up to the difference.
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

/// Removes operations from a sequence for as long as it still shows a difference.
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
