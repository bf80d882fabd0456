//! `ostler recycle`.

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false, id = "whom")]
pub(crate) struct Recycle {
    /// The worker, by name, by pid, by id, or by the first or last 4 or more characters of the id; or a pool: all its idle workers
    #[arg(group = "whom", value_name = "WORKER|PID|POOL")]
    pub(crate) worker: Option<String>,
    /// Any one idle worker of this pool
    #[arg(long, group = "whom", value_name = "POOL")]
    pub(crate) any: Option<String>,
    /// All idle workers of this pool
    #[arg(long, group = "whom", value_name = "POOL")]
    pub(crate) all: Option<String>,
}
