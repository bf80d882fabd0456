//! What commands that remove tasks remove besides: conversations and worktrees of those tasks on this machine.

use ostler_store::Store;

use super::config;
use crate::exit::say;
use crate::leftovers::Leftovers;
use crate::store_location::StoreLocation;
use crate::up::leftovers::counted;

/// Removes what was kept for tasks that are gone, by the pools of the config in this folder, if it can be read, and in the state folder.
pub(super) async fn sweep(store: &dyn Store, place: &StoreLocation) -> anyhow::Result<()> {
    let config = config::here().and_then(|file| config::of_store(&file).ok());
    let pools = config.map(|config| config.pools).unwrap_or_default();
    match Leftovers::new(&pools, place.url()).sweep(store).await? {
        0 => {}
        removed => say(&format!("removed {}", counted(removed))),
    }
    Ok(())
}
