//! Disk probe: how many syncs per second the disk makes right now. Durable throughput means little without it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::Error;

/// The size of one page in SQLite's log.
const PAGE: [u8; 4096] = [7; 4096];
/// The file is overwritten in a loop, as a log is, so that only the first syncs have to grow it.
const PAGES: u64 = 16;

/// Syncs per second of a small file in this folder, measured for about this long.
pub(crate) fn probe(dir: &Path, about: Duration) -> Result<f64, Error> {
    let path = dir.join("probe");
    let file = File::create(&path)?;
    for page in 0..PAGES {
        file.write_all_at(&PAGE, page * PAGE.len() as u64)?;
    }
    file.sync_all()?;
    let begun = Instant::now();
    let mut syncs = 0u64;
    while syncs == 0 || begun.elapsed() < about {
        file.write_all_at(&PAGE, syncs % PAGES * PAGE.len() as u64)?;
        rustix::fs::fdatasync(&file)?;
        syncs += 1;
    }
    let took = begun.elapsed();
    std::fs::remove_file(path)?;
    Ok(syncs as f64 / took.as_secs_f64())
}

/// Flushes earlier writes, so that they do not disturb the next measurement.
pub(crate) fn settle() {
    rustix::fs::sync();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        assert!(probe(dir.path(), Duration::from_millis(1)).unwrap() > 0.0);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
