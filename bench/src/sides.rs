//! The two sides of a comparison, the store and the ceiling, open at once and alternating.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ostler_sqlite::Durability;

use crate::ceiling::{Bare, Synchronous};
use crate::load::{Keys, Shape, Tally};
use crate::ours::Ours;
use crate::{Bench, Error};

/// The contents of a fresh store.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Start {
    Empty,
    /// One task of a key that may run one at once: it is running, with none behind it.
    HeldKey,
    /// One task of each of a thousand keys that are rate limited until tomorrow, with none behind them.
    LimitedKeys,
}

/// The store and the ceiling, each with its work so far.
pub(crate) struct Sides {
    ours: Arc<Ours>,
    ceiling: Bare,
    ours_did: Tally,
    ceiling_did: Tally,
    /// Removed at the end.
    folder: Option<PathBuf>,
}

/// The two files in a folder.
pub(crate) fn files(folder: &Path) -> (PathBuf, PathBuf) {
    (folder.join("ours.db"), folder.join("ceiling.db"))
}

impl Sides {
    /// New files in a new folder, with hardly anything in them but the warm-up.
    pub(crate) fn fresh(bench: &Bench, folder: &Path, keys: Keys, start: Start) -> Result<Self, Error> {
        std::fs::create_dir(folder)?;
        let sides = Self::open(bench, folder, keys, start)?;
        Ok(Self { folder: Some(folder.to_owned()), ..sides })
    }

    /// The files in this folder, created if missing, and warmed up.
    pub(crate) fn open(bench: &Bench, folder: &Path, keys: Keys, start: Start) -> Result<Self, Error> {
        let (ours, ceiling) = files(folder);
        let ours = bench.runtime.block_on(async {
            let ours = Ours::open(&ours, Durability::Full, keys).await?;
            match start {
                Start::Empty => {}
                Start::HeldKey => ours.saturate(0).await?,
                Start::LimitedKeys => ours.limit(0).await?,
            }
            ours.warm_up(bench.scale.warm_up).await?;
            Ok::<_, Error>(ours)
        })?;
        let mut ceiling = Bare::open(&ceiling, Synchronous::Full)?;
        ceiling.warm_up(bench.scale.warm_up)?;
        Ok(Self { ours, ceiling, ours_did: Tally::default(), ceiling_did: Tally::default(), folder: None })
    }

    /// One turn of each side.
    pub(crate) fn slice(&mut self, bench: &Bench, shape: Shape) -> Result<(), Error> {
        self.ours_did.add(bench.runtime.block_on(self.ours.run(shape, bench.scale.slice))?);
        self.ceiling_did.add(self.ceiling.run(shape, bench.scale.slice)?);
        Ok(())
    }

    /// The work of each side since the last call.
    pub(crate) fn take(&mut self) -> (Tally, Tally) {
        (std::mem::take(&mut self.ours_did), std::mem::take(&mut self.ceiling_did))
    }

    /// The work of each side. Removes fresh files.
    pub(crate) fn end(mut self) -> Result<(Tally, Tally), Error> {
        let did = self.take();
        let folder = self.folder.take();
        drop(self);
        if let Some(folder) = folder {
            std::fs::remove_dir_all(folder)?;
        }
        Ok(did)
    }
}
