//! A task of five durable steps. The result of each step is stored before the next begins: kill the program at any point,
//! run it again, and it continues where it was. The last two steps are optional: if they fail, the task completes with a
//! warning.
//!
//! Set `DIE_AT=move:done` to abort when the document has been moved but the step is not stored yet, or `DIE_AT=move:kept`
//! to abort right after it is stored.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ostler::{Context, Submission, TaskError};
use serde::{Deserialize, Serialize};

/// The names of the steps.
pub(crate) const STEPS: [&str; 5] = ["update", "search_terms", "move", "markers", "comment"];

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Document {
    title: String,
    /// The file that records the effects, one line each.
    effects: PathBuf,
}

impl Document {
    /// The external side effect of a step.
    fn effect(&self, step: &str) -> Result<(), TaskError> {
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(&self.effects)?;
        writeln!(file, "{step} {}", self.title)?;
        file.sync_data()?;
        die_at(step, "done");
        Ok(())
    }
}

fn die_at(step: &str, when: &str) {
    if std::env::var("DIE_AT").is_ok_and(|at| at == format!("{step}:{when}")) {
        std::process::abort();
    }
}

async fn process(document: Document, ctx: Context) -> Result<usize, TaskError> {
    let [update, terms, moved, markers, comment] = STEPS;
    let words = ctx
        .step(update, || async {
            document.effect(update)?;
            Ok(document.title.split_whitespace().count())
        })
        .await?;
    die_at(update, "kept");
    ctx.step(terms, || async {
        document
            .effect(terms)
            .map_err(|error| error.hint("the text is updated; only the search terms are missing"))
    })
    .await?;
    die_at(terms, "kept");
    ctx.step(moved, || async { document.effect(moved) }).await?;
    die_at(moved, "kept");
    for step in [markers, comment] {
        ctx.step_or_warn(step, || async { document.effect(step) }).await?;
        die_at(step, "kept");
    }
    Ok(words)
}

/// Processes one document and describes the result.
pub(crate) async fn run(folder: &Path) -> Result<String, Box<dyn std::error::Error>> {
    let pool = ostler::open(folder.join("steps.db"))?.handle("document", process).start().await?;
    let document = Document { title: "a short document".into(), effects: folder.join("effects") };
    // The key makes a second run of this program find the task of the first.
    let about = Submission { key: Some(document.title.clone()), ..Submission::default() };
    let id = pool.submit_with("document", &document, about).await?;
    let done = pool.wait(id).await?;
    pool.drain(Duration::from_secs(30)).await;
    Ok(format!("{} with {:?} words", done.state.name().name(), done.output))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    std::fs::create_dir_all(&folder)?;
    println!("{}", run(&folder).await?);
    Ok(())
}
