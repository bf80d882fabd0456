//! End reasons: why an attempt is ended, and the effect on its result.

use ostler_core::{ErrorClass, Failure, MAX_NESTING};
use ostler_exec::{AttemptResult, ClassSource};

/// Why a worker, or its attempt, is being ended.
#[derive(Clone, Debug)]
pub(super) enum EndReason {
    Deadline,
    Cancel,
    /// Fails with this, whatever the worker sends.
    Failed(Failure),
}

/// The result that a worker sent: its output, or its failure.
pub(super) type WorkerAnswer = Result<Option<String>, (Failure, ClassSource)>;

/// The result of an attempt, from the worker's own and the end reason, if any.
pub(super) fn conclude(result: WorkerAnswer, reason: Option<EndReason>) -> AttemptResult {
    match (result, reason) {
        (_, Some(EndReason::Failed(failure))) => AttemptResult::failed(failure),
        // A worker that was asked to stop may finish its work within the grace period.
        (Ok(output), None | Some(EndReason::Cancel | EndReason::Deadline)) => AttemptResult::success(output),
        (Err((failure, classing)), None | Some(EndReason::Deadline)) => {
            AttemptResult { classing, ..AttemptResult::failed(failure) }
        }
        (Err(_), Some(EndReason::Cancel)) => AttemptResult::cancelled(),
    }
}

pub(super) fn too_large(most: usize) -> Failure {
    Failure::new(ErrorClass::Permanent, format!("its output is too large: more than {most} bytes"))
}

pub(super) fn too_deep() -> Failure {
    let message =
        format!("its output is nested more than {MAX_NESTING} levels deep, which many programs cannot read");
    Failure::new(ErrorClass::Permanent, message)
}

/// The error message about a frame of an attempt that the worker does not run.
pub(super) fn strange(id: &str, token: u64, runs: &[(&str, u64)]) -> String {
    let runs = match runs {
        [] => "nothing".to_owned(),
        [(id, token)] => format!("{id} with token {token}"),
        [_, _, ..] => format!("{} others", runs.len()),
    };
    let id: String = id.chars().take(40).flat_map(char::escape_debug).collect();
    format!("spoke for the task {id} with token {token}, but runs {runs}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_told_to_stop_has_succeeded_if_it_says_so_and_is_cancelled_else() {
        let failed = || Failure::new(ErrorClass::Permanent, "no");
        assert_eq!(conclude(Ok(None), Some(EndReason::Cancel)), AttemptResult::success(None));
        assert_eq!(
            conclude(Err((failed(), ClassSource::Given)), Some(EndReason::Cancel)),
            AttemptResult::cancelled()
        );
        assert_eq!(conclude(Err((failed(), ClassSource::Given)), None), AttemptResult::failed(failed()));
        assert_eq!(
            conclude(Err((failed(), ClassSource::Assumed)), None),
            AttemptResult::failed(failed()).unclassed()
        );
        let refused = Failure::new(ErrorClass::Permanent, "a step was done twice");
        assert_eq!(
            conclude(Ok(None), Some(EndReason::Failed(refused.clone()))),
            AttemptResult::failed(refused)
        );
    }

    #[test]
    fn what_a_stranger_calls_itself_is_shown_within_bounds() {
        let message = strange(&"\n".repeat(1_000), 7, &[("T", 3)]);
        assert!(
            message.len() < 200 && message.contains("\\n") && message.contains("T with token 3"),
            "{message}"
        );
        assert!(strange("x", 7, &[]).contains("nothing"));
    }
}
