//! Idempotency keys: a request that is repeated under its key makes nothing twice, after a restart and at another node too.
//!
//! Nothing is stored besides the tasks. The id of the first task of a request is derived from the key alone, and those of the others from
//! the key and the whole body. So the store itself finds the repetition, in the transaction that would enqueue it; and another body
//! under the same key is found by what is there. A key is remembered as long as its first task is kept.

use ostler_core::{Id, JobId, Task, TaskId};
use ostler_store::Store;
use ostler_store::views::TaskRef;
use sha2::{Digest as _, Sha256};

use crate::error::OpsError;
use crate::submit::{BatchError, NotEnqueued, SubmitAnswer, SubmitRequest, submit_batch};

/// Bytes of a key.
const MAX_KEY_BYTES: usize = 255;
/// The bits of an id that hold its time, from which bits it is taken: earlier than any real id, so that searches for the newest ids do
/// not meet derived ones first.
const TIME_BITS: u32 = 40;

/// A key that a caller has chosen for one request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct IdempotencyKey(String);

impl IdempotencyKey {
    /// # Errors
    /// A sentence, when it is empty, too long, or not visible ASCII.
    pub fn parse(text: &str) -> Result<Self, String> {
        let visible = text.bytes().all(|byte| byte.is_ascii_graphic());
        if text.is_empty() || text.len() > MAX_KEY_BYTES || !visible {
            return Err(format!("an idempotency key has 1 to {MAX_KEY_BYTES} visible ASCII characters"));
        }
        Ok(Self(text.to_owned()))
    }

    /// The id of the first task of a request.
    #[must_use]
    pub fn task(&self) -> TaskId {
        TaskId(id(self.digest()))
    }

    /// The ids of the tasks of a request, by their places. Its body, which may be large, is read once.
    pub fn tasks(&self, body: &[u8]) -> impl Fn(usize) -> TaskId {
        let first = self.digest();
        let all = first.clone().chain_update(b"\0").chain_update(Sha256::digest(body));
        move |place| {
            TaskId(id(match place {
                0 => first.clone(),
                _ => all.clone().chain_update((place as u64).to_be_bytes()),
            }))
        }
    }

    fn digest(&self) -> Sha256 {
        Sha256::new().chain_update(b"task\0").chain_update(&self.0)
    }

    /// The id of the job that a request creates.
    #[must_use]
    pub fn job(&self) -> JobId {
        JobId(id(Sha256::new().chain_update(b"job\0").chain_update(&self.0)))
    }
}

fn id(digest: Sha256) -> Id {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest.finalize()[..16]);
    let bits = u128::from_be_bytes(bytes);
    let time = bits >> (128 - TIME_BITS);
    Id::from_bits(time << 80 | bits & ((1 << 80) - 1))
}

/// The answers to a request, or why there are none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Once {
    Answers(Vec<Result<SubmitAnswer, NotEnqueued>>),
    /// The key was used for another body.
    OtherBody,
}

/// Enqueues the tasks of a request, whose ids were made from its key; or answers as the first time.
///
/// # Errors
/// As for [`submit_batch`].
pub async fn submit_once(store: &dyn Store, requests: &[SubmitRequest]) -> Result<Once, BatchError> {
    let ids: Vec<TaskId> = requests.iter().map(|request| request.task.id).collect();
    let there = store.existing(ids.clone()).await.map_err(|error| BatchError::Store(error.into()))?;
    let Some(first) = requests.first() else { return Ok(Once::Answers(Vec::new())) };
    if there.contains(&first.task.id) && !is_same(store, first).await.map_err(BatchError::Store)? {
        return Ok(Once::OtherBody);
    }
    // The ids of the others have the body in them: one of them is missing, so the body was another one.
    if there.contains(&first.task.id) && there.len() < ids.len() {
        return Ok(Once::OtherBody);
    }
    let answers = submit_batch(store, requests).await?;
    let taken =
        |answer: &Result<SubmitAnswer, NotEnqueued>| matches!(answer, Err(NotEnqueued::IdTaken { .. }));
    if answers.iter().any(taken) {
        return Ok(Once::OtherBody);
    }
    // It was not there before, and now it is: another node took a request under the key in between.
    let came_between =
        matches!(answers.first(), Some(Ok(SubmitAnswer::SameId(_)))) && !there.contains(&first.task.id);
    if came_between && !is_same(store, first).await.map_err(BatchError::Store)? {
        return Ok(Once::OtherBody);
    }
    // An id made from the key was created under that key, by this request or by an earlier one with the same answer.
    let as_first = |answer| match answer {
        Ok(SubmitAnswer::SameId(id)) => Ok(SubmitAnswer::Created(id)),
        other => other,
    };
    Ok(Once::Answers(answers.into_iter().map(as_first).collect()))
}

async fn is_same(store: &dyn Store, request: &SubmitRequest) -> Result<bool, OpsError> {
    let found = store.show(TaskRef::Id(request.task.id)).await?;
    Ok(found.is_none_or(|found| is_repeated(request, &found.task)))
}

/// Whether a stored task was made by this request, as far as its record tells. Times that are relative to now are not compared.
fn is_repeated(request: &SubmitRequest, task: &Task) -> bool {
    let asked = &request.task;
    let key = asked.unique.as_ref().map(|unique| &unique.key);
    let given = |asked: &Option<String>, is: &Option<String>| asked.is_none() || asked == is;
    asked.is_repeated_by(task)
        && asked.priority == task.priority
        && asked.overrides == task.overrides
        && asked.folder == task.folder
        && asked.not_after == task.not_after
        && (key.is_none() || key == task.unique_key.as_ref())
        && given(&asked.limit_key, &task.limit_key)
        && asked.cost.is_none_or(|cost| cost == task.cost)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_gives_the_same_ids_and_other_keys_others() {
        let key = |text: &str| IdempotencyKey::parse(text).expect("a key");
        let task = |text: &str, place: usize, body: &[u8]| key(text).tasks(body)(place);
        assert_eq!(task("a", 0, b"x"), task("a", 0, b"y"), "the first id finds the key again");
        assert_eq!(task("a", 0, b"x"), key("a").task());
        assert_eq!(task("a", 1, b"x"), task("a", 1, b"x"));
        assert_ne!(task("a", 1, b"x"), task("a", 1, b"y"));
        assert_ne!(task("a", 1, b"x"), task("a", 2, b"x"));
        assert_ne!(task("a", 0, b"x"), task("b", 0, b"x"));
        assert_ne!(key("a").task().0, key("a").job().0);
        assert!(key("a").task().0.bits() >> 120 == 0, "it sorts before ids of this century");
    }

    #[test]
    fn what_is_no_key_is_refused() {
        for text in ["", " ", "a b", "ä", &"k".repeat(256)] {
            assert!(IdempotencyKey::parse(text).is_err(), "{text}");
        }
    }
}
