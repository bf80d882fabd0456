//! The child of a comparison in turns: runs one slice of one row for each line that it reads, and prints its tasks and its seconds.

use std::io::{BufRead as _, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ostler_sqlite::Durability;

use crate::ceiling::Rows;
use crate::load::{Keys, Shape, Tally};
use crate::ours::Ours;
use crate::{Bench, Error, Scale, postgres};

/// The word of the command line.
pub(crate) const WORD: &str = "slices";

/// Rows of a backlog, or of each sort in it.
const BACKLOG: usize = 100_000;
/// Tasks that run before the measurement: enough for several checkpoints of the log.
const WARM_UP: usize = 10_000;

/// How the tasks of a row are run.
enum Way {
    File(Shape, Keys),
    Shared(postgres::Way, usize),
}

impl Way {
    /// Reads the name of a row, such as "batch 128".
    fn named(row: &str) -> Option<Self> {
        let (what, size) = row.split_once(' ')?;
        let size = size.parse().ok()?;
        Some(match what {
            "batch" => Self::File(Shape::Batch(size), Keys::Without),
            "keys" => Self::File(Shape::Batch(size), Keys::Distinct),
            "callers" => Self::File(Shape::Callers(size), Keys::Without),
            "pipelined" => Self::File(Shape::Pipelined(size), Keys::Without),
            "drain" => Self::Shared(postgres::Way::Drain, size),
            "cycle" => Self::Shared(postgres::Way::Cycle, size),
            "calls" => Self::Shared(postgres::Way::Callers, size),
            _ => return None,
        })
    }
}

/// Serves slices. The arguments are a row, its backlog or schema, the file or URL of its store, and the length of a slice.
pub(crate) fn run(arguments: &[String]) -> Result<(), Error> {
    let [row, detail, store, millis] = arguments else {
        return Err("\"slices\" is for the benchmark itself".into());
    };
    let about = Duration::from_millis(millis.parse()?);
    let bench = Bench::new(Scale::QUICK, None)?;
    match Way::named(row).ok_or("there is no such row")? {
        Way::File(shape, keys) => {
            let ours = bench.runtime.block_on(open_file(Path::new(store), detail, keys))?;
            serve(|| bench.runtime.block_on(ours.run(shape, about)))
        }
        Way::Shared(way, batch) => {
            let ours = bench.runtime.block_on(postgres::open_warm(store, detail, WARM_UP))?;
            serve(|| bench.runtime.block_on(postgres::slice(&ours, way, batch, about)))
        }
    }
}

async fn open_file(path: &Path, backlog: &str, keys: Keys) -> Result<Arc<Ours>, Error> {
    let ours = Ours::open(path, Durability::Relaxed, Keys::Without).await?;
    match backlog {
        "none" => {}
        "rows" => {
            for rows in [Rows::Finished, Rows::Elsewhere, Rows::Behind] {
                ours.fill(rows, BACKLOG).await?;
            }
        }
        "waiting" => ours.fill(Rows::Waiting, BACKLOG).await?,
        "saturated" => ours.saturate(BACKLOG).await?,
        "limited" => ours.limit(BACKLOG).await?,
        _ => return Err("there is no such backlog".into()),
    }
    drop(ours);
    let ours = Ours::open(path, Durability::Full, keys).await?;
    ours.warm_up(WARM_UP).await?;
    Ok(ours)
}

fn serve(mut slice: impl FnMut() -> Result<Tally, Error>) -> Result<(), Error> {
    let mut out = std::io::stdout();
    writeln!(out, "ready")?;
    out.flush()?;
    for line in std::io::stdin().lock().lines() {
        line?;
        let Tally { done, took } = slice()?;
        writeln!(out, "{done} {}", took.as_secs_f64())?;
        out.flush()?;
    }
    Ok(())
}
