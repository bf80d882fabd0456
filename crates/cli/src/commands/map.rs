//! `ostler map`: runs a command, a pool or an agent over many items.

use std::io::{self, Write as _};
use std::sync::Arc;

use ostler_core::price::PriceTable;
use ostler_ops::jobs::plan::JobPlan;
use ostler_ops::jobs::shell_line;
use ostler_store::Bounds;
use serde_json::{Map as JsonMap, Value};

use super::{Console, config};
use crate::args::Map;
use crate::config::{Config, PoolSettings};
use crate::exit::{Code, refused, say};
use crate::map::item_folders;
use crate::map::plan::{STDIN, make, origin, pasted_items};
use crate::map::pool;
use crate::map::results::Target;
use crate::map::run::{MapPool, Mapping};
use crate::map::words::MapWords;
use crate::print::{Format, Looks, visible, visible_lines};
use crate::store_location::{CONFIG_FILE, StoreLocation};
use crate::up::sandbox;

pub(super) fn run(console: &Console, map: &Map) -> anyhow::Result<Code> {
    let place = console.place();
    // An invalid config is reported after what is wrong with the command itself.
    let payload_bytes = place.as_ref().map_or(Bounds::default(), StoreLocation::bounds).payload_bytes;
    let Some(plan) = make(map, payload_bytes)? else {
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
    if let Some(option) = MapWords::parse(&map.words)?.option_among_items().filter(|_| !map.quiet) {
        let option = visible(&option.to_string_lossy());
        say(&format!(
            "warning: \"{option}\" is an item, since it stands after \":::\"; options stand before the command"
        ));
    }
    if map.dry_run {
        return dry_run(&plan, console.out.looks());
    }
    if let Some(folders) = plan.item_folders() {
        item_folders::check(folders)?;
    }
    let place = place?;
    let Served { pool, question } = served(map, &plan, &place)?;
    let plan = plan.asking(question);
    let mapping = Mapping { map, plan: Arc::new(plan), pool, place, out: console.out };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let done = runtime.block_on(mapping.run());
    // Calls that still wait for an unresponsive store are abandoned.
    runtime.shutdown_background();
    done
}

/// How the items of a job are served.
#[derive(Default)]
struct Served {
    /// The pool that runs them in this process. A node has its own settings for a pool of the config.
    pool: Option<MapPool>,
    /// What the pool asks of a model besides what is in the payloads.
    question: Option<JsonMap<String, Value>>,
}

fn served(map: &Map, plan: &JobPlan, place: &StoreLocation) -> anyhow::Result<Served> {
    let Some(asked) = plan.pool() else { return Ok(Served::default()) };
    let question_of = |pool: &PoolSettings| pool.executor.question();
    if map.detach {
        let question = if asked.section.is_some() {
            question_of(&pool::settings(asked, &[], &PriceTable::built_in(), place.url())?)
        } else {
            // The config may be elsewhere, beside the node.
            let config = config::here().map(|file| config::required(&file)).transpose()?;
            let pools = config.map(|config| config.pools).unwrap_or_default();
            pools.iter().find(|pool| pool.name == asked.name).and_then(question_of)
        };
        return Ok(Served { pool: None, question });
    }
    let config = match config::here() {
        Some(file) => sandbox::hide(config::required(&file)?, place.url())?,
        None if asked.section.is_none() => {
            let sentence = format!("no {CONFIG_FILE} here, which would have the pool \"{}\"", asked.name);
            return Err(refused(Code::BadInput, sentence));
        }
        None => Config::default(),
    };
    let settings = pool::settings(asked, &config.pools, &config.prices, place.url())?;
    let question = question_of(&settings);
    Ok(Served { pool: Some(MapPool { settings, containment: config.containment }), question })
}

/// No items, as on a day on which `find` finds nothing: this is not an error, and creates no store. Empty results are written, so
/// that those of an earlier run are not mistaken for them.
pub(super) fn nothing(console: &Console, map: &Map) -> anyhow::Result<Code> {
    let target = map.results.as_deref().map(Target::of).transpose()?;
    if !map.quiet {
        let origin = origin(map);
        let on = if origin == STDIN { "on" } else { "in" };
        say(&format!("no items {on} {origin}: nothing to do"));
    }
    if map.dry_run {
        return Ok(Code::Done);
    }
    if let Some(target) = target {
        target.write_nothing()?;
    }
    if console.out.format() == Format::Json {
        console.out.json(&Value::Null)?;
    }
    Ok(Code::Done)
}

/// Prints each command as a line that a shell accepts, each prompt as it would be sent, or each payload.
fn dry_run(plan: &JobPlan, looks: Looks) -> anyhow::Result<Code> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    for (item, number) in plan.items().iter().zip(1..) {
        let line = match (plan.argv(number, item), plan.prompt(number, item)?) {
            (Some(argv), _) => shell_line(argv.iter().map(Vec::as_slice)),
            (None, Some(prompt)) => prompt.into_bytes(),
            (None, None) => plan.payload(number, item)?.into_bytes(),
        };
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
