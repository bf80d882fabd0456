//! Rules about threads: what the environment (`WORKER_POOL_SIZE`, `MAX_QUEUED_WORKERS`) asks for.

use super::Finding;
use crate::doctor::facts::ThreadFacts;

pub(super) fn finding(threads: &Result<ThreadFacts, String>) -> Finding {
    match threads {
        Ok(ThreadFacts { threads, threads_from, most, most_from }) => {
            let noun = if *threads == 1 { "thread" } else { "threads" };
            let sentence = format!(
                "Work on threads has {threads} {noun} ({}), and at most {most} running and queued ({})",
                threads_from.unwrap_or("one for each core"),
                most_from.unwrap_or("10 for each thread"),
            );
            Finding::info("threads", sentence, "")
        }
        Err(sentence) => Finding::warning(
            "threads-refused",
            sentence.clone(),
            "Programs with work on threads do not start, unless they set their threads themselves. Correct the variable or unset it",
        ),
    }
}
