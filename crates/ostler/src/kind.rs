//! Kinds: a payload type with the name of its kind, its output, and its retries and timeout.

use ostler_core::{Overrides, TaskId};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::client::Client;
use crate::error::ResultError;
use crate::submit::{Submission, Submit};

/// A payload type that is one kind of task. The name of the kind stands in one place, and a payload cannot be submitted to the
/// handler of another kind.
///
/// ```no_run
/// use std::time::Duration;
/// use ostler::{Kind, Overrides};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)]
/// struct Resize { url: String, width: u32 }
///
/// impl Kind for Resize {
///     const NAME: &'static str = "resize";
///     type Output = u32;
///
///     fn overrides() -> Overrides {
///         Overrides { attempts: Some(5), timeout: Some(Duration::from_secs(30)), ..Overrides::NONE }
///     }
/// }
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = ostler::open("jobs.db")?
///     .handle_kind(|task: Resize, _ctx| async move { Ok(task.width * 2) })
///     .start()
///     .await?;
/// let id = pool.submit_kind(&Resize { url: "a.png".into(), width: 21 }).await?;
/// assert_eq!(pool.wait_kind::<Resize>(id).await?, 42);
/// # Ok(()) }
/// ```
pub trait Kind: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// The name of the kind.
    const NAME: &'static str;

    /// What its handler returns.
    type Output: Serialize + DeserializeOwned + Send;

    /// Attempts, backoff and timeout of its tasks; what is not set comes from the queue. Default: all of it.
    #[must_use]
    fn overrides() -> Overrides {
        Overrides::NONE
    }
}

impl Client {
    /// Submits a task of a [`Kind`]. Once this returns, the task is on disk. [`Submit::within`] bounds it in time.
    ///
    /// # Errors
    /// As for [`submit`](Self::submit).
    pub fn submit_kind<K: Kind>(&self, task: &K) -> Submit {
        self.submit_kind_with(task, Submission::default())
    }

    /// Submits a task of a [`Kind`] with options. What they set comes before [`Kind::overrides`].
    ///
    /// # Errors
    /// As for [`submit_with`](Self::submit_with).
    pub fn submit_kind_with<K: Kind>(&self, task: &K, about: Submission) -> Submit {
        let overrides = about.overrides.or(&K::overrides());
        self.submit_with(K::NAME, task, Submission { overrides, ..about })
    }

    /// Waits until a task of a [`Kind`] has completed, and returns its output.
    ///
    /// # Errors
    /// As for [`wait_as`](Self::wait_as).
    pub async fn wait_kind<K: Kind>(&self, id: TaskId) -> Result<K::Output, ResultError> {
        self.wait_as(id).await
    }
}
