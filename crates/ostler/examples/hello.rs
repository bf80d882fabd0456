//! A durable worker pool in twenty lines.

use std::time::Duration;

use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Greet {
    name: String,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "hello.db".to_owned());
    let pool = ostler::open(path)?
        .handle("greet", |task: Greet, ctx| async move {
            ctx.log("on my way");
            Ok(format!("hello, {}", task.name))
        })
        .workers(4)
        .start()
        .await?;
    // Once this returns, the task is on disk and will run even if this process is killed now.
    let id = pool.submit("greet", &Greet { name: "Ada".into() }).await?;
    println!("{:?}", pool.wait(id).await?.output);
    println!("{:?}", pool.stats().await?.tasks);
    pool.drain(Duration::from_secs(30)).await;
    Ok(())
}
