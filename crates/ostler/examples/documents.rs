//! A hundred documents, passed to handlers in two ways: by id and as a whole. Stop it with Ctrl-C halfway and run it again:
//! it continues where it was.

use std::path::Path;
use std::time::Duration;

use ostler::{Context, Counts, Submission, TaskError};
use serde::{Deserialize, Serialize};

/// Background work that looks up its document by id.
#[derive(Serialize, Deserialize)]
struct ById {
    document: u32,
}

/// A user's command that carries everything it needs.
#[derive(Serialize, Deserialize)]
struct Command {
    text: String,
    command: String,
    guidance: Option<String>,
}

async fn index(task: ById, ctx: Context) -> Result<usize, TaskError> {
    ctx.log(format!("indexing document {}", task.document));
    tokio::time::sleep(Duration::from_millis(20)).await;
    Ok(task.document as usize * 7 % 100)
}

async fn obey(task: Command, ctx: Context) -> Result<String, TaskError> {
    ctx.progress(0, Some(1));
    match task.command.as_str() {
        "shout" => Ok(task.text.to_uppercase()),
        other => Err(TaskError::permanent(format!("no such command: {other}")).hint("try: shout")),
    }
}

/// Processes all documents. Returns the output of the command and the task counts.
pub(crate) async fn run(store: &Path) -> Result<(String, Counts), Box<dyn std::error::Error>> {
    let pool = ostler::open(store)?.handle("index", index).handle("command", obey).workers(4).start().await?;
    for document in 0..100 {
        // The key makes a second run of this program find the task of the first.
        let about = Submission { key: Some(format!("index-{document}")), ..Submission::default() };
        pool.submit_with("index", &ById { document }, about).await?;
    }
    let text = "a document".to_owned();
    let shout = pool.submit("command", &Command { text, command: "shout".into(), guidance: None }).await?;
    let answer = pool.wait(shout).await?.output.unwrap_or_default();
    pool.wait_idle().await?;
    let tasks = pool.stats().await?.tasks;
    pool.drain(Duration::from_secs(30)).await;
    Ok((answer, tasks))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "documents.db".to_owned());
    let (answer, tasks) = run(Path::new(&path)).await?;
    println!("{answer}");
    println!("{tasks:?}");
    Ok(())
}
