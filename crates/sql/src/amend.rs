//! Amend: changes the policy of a task that has not ended, under the lock of its row.

use ostler_core::{Overrides, TaskId};
use ostler_store::calls::Amended;

use crate::codec::Extras;
use crate::params;
use crate::tx::Tx;

pub async fn run<T: Tx>(tx: &T, id: TaskId, overrides: &Overrides) -> Result<Amended, T::Error> {
    let Some(slot) = tx.lock(&[id]).await?.remove(&id) else { return Ok(Amended::NotFound) };
    let Some(found) = tx.read(slot).await? else { return Ok(Amended::NotFound) };
    let task = &found.task;
    let state = task.state.name();
    if state.is_terminal() {
        return Ok(Amended::Ended(state));
    }
    let extras = Extras { overrides: overrides.or(&task.overrides), ..Extras::of(&found) }.text();
    tx.exec("UPDATE ostler.task SET extras = $2 WHERE id = $1", params![found.slot, extras]).await?;
    Ok(Amended::Done)
}
