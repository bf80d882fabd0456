//! `ostler recycle`.

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false, id = "whom")]
pub(crate) struct Recycle {
    /// The worker, by id or pid
    #[arg(group = "whom", value_name = "WORKER|PID")]
    pub(crate) worker: Option<String>,
    /// Any one idle worker of this pool
    #[arg(long, group = "whom", value_name = "POOL")]
    pub(crate) any: Option<String>,
    /// All idle workers of this pool
    #[arg(long, group = "whom", value_name = "POOL")]
    pub(crate) all: Option<String>,
}
