//! `ostler map`: runs a command over many items.

use std::io::{self, Write as _};
use std::path::Path;

use ostler_ops::jobs::plan::JobPlan;
use ostler_ops::jobs::quoted_if_needed;

use super::Console;
use crate::args::Map;
use crate::exit::{Code, say};
use crate::map::plan::{make, pasted_items};
use crate::map::results::Target;
use crate::map::run::Mapping;
use crate::print::{Format, Looks, visible, visible_lines};

pub(super) fn run(console: &Console, map: &Map) -> anyhow::Result<Code> {
    let Some(plan) = make(map)? else {
        return nothing(console, map);
    };
    if let Some(pasted) = pasted_items(&plan).filter(|_| !map.quiet) {
        say(&format!(
            "warning: \"{}\" is program text for {}, and items are inserted into it unquoted: {}. Or write the whole command \
             as one string, which quotes them. Example: ostler map sh -c 'wc -l \"$1\"' sh {{}}",
            visible(&pasted.argument),
            pasted.program,
            pasted.remedy
        ));
    }
    if map.dry_run {
        return dry_run(&plan, console.out.looks());
    }
    let mapping = Mapping { map, plan, place: console.place()?, out: console.out };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let done = runtime.block_on(mapping.run());
    // Calls that still wait for an unresponsive store are abandoned.
    runtime.shutdown_background();
    done
}

/// No items, as on a day on which `find` finds nothing: this is not an error, and creates no store. Empty results are written, so
/// that those of an earlier run are not mistaken for them.
fn nothing(console: &Console, map: &Map) -> anyhow::Result<Code> {
    let target = map.results.as_deref().map(Target::of).transpose()?;
    if !map.quiet {
        let from = map.csv.as_deref().or(map.jsonl.as_deref()).filter(|file| *file != Path::new("-"));
        match from {
            Some(file) => say(&format!("no items in {}: nothing to do", file.display())),
            None => say("no items on standard input: nothing to do"),
        }
    }
    if map.dry_run {
        return Ok(Code::Done);
    }
    if let Some(target) = target {
        target.write_nothing()?;
    }
    if console.out.format() == Format::Json {
        console.out.json(&serde_json::Value::Null)?;
    }
    Ok(Code::Done)
}

/// Prints each command as a line that a shell accepts.
fn dry_run(plan: &JobPlan, looks: Looks) -> anyhow::Result<Code> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    for (item, number) in plan.items().iter().zip(1..) {
        let words: Vec<Vec<u8>> = plan.argv(number, item).iter().map(|word| quoted_if_needed(word)).collect();
        let line = words.join(&b' ');
        match looks {
            Looks::Plain => out.write_all(&line)?,
            Looks::Terminal | Looks::Colour => {
                out.write_all(visible_lines(&String::from_utf8_lossy(&line)).as_bytes())?;
            }
        }
        out.write_all(b"\n")?;
    }
    out.flush()?;
    Ok(Code::Done)
}
