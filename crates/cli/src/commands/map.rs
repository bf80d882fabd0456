//! `ostler map`: a command over many items.

use std::io::{self, Write as _};

use super::Console;
use crate::args::Map;
use crate::exit::Code;
use crate::map::plan::Plan;
use crate::map::run::Mapping;
use crate::map::template::quoted_if_needed;

pub(super) fn run(console: &Console, map: &Map) -> anyhow::Result<Code> {
    let plan = Plan::make(map)?;
    if map.dry_run {
        return dry_run(&plan);
    }
    let mapping = Mapping { map, plan, place: console.place()?, out: console.out };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let done = runtime.block_on(mapping.run());
    // Whoever still waits for a store that does not answer is not waited for.
    runtime.shutdown_background();
    done
}

/// Prints each command as a line that a shell would understand.
fn dry_run(plan: &Plan) -> anyhow::Result<Code> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    for (item, number) in plan.items.iter().zip(1..) {
        let words: Vec<Vec<u8>> = plan.argv(number, item).iter().map(|word| quoted_if_needed(word)).collect();
        out.write_all(&words.join(&b' '))?;
        out.write_all(b"\n")?;
    }
    out.flush()?;
    Ok(Code::Done)
}
