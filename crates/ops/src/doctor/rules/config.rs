//! Rules about the config.

use ostler_core::visible;

use super::{Finding, queues, seen, word};
use crate::doctor::facts::{ConfigFacts, ContainedBy, DoctorFacts};

pub(super) fn findings(facts: &DoctorFacts) -> Vec<Finding> {
    let mut found = of_the_file(facts);
    found.extend(facts.containment.as_ref().map(containment));
    found
}

fn containment(contained: &Result<ContainedBy, String>) -> Finding {
    match contained {
        Ok(ContainedBy::Cgroup) => Finding::info(
            "containment",
            "Children are contained by control groups: none can outlive its node",
            "",
        ),
        Ok(ContainedBy::Group) => Finding::info(
            "containment",
            "Children are contained by process groups, and a search for children that left them",
            "Control groups are more reliable: run the node with permission to create them",
        ),
        Err(why) => Finding::error(
            "containment-missing",
            format!("Children cannot be contained as configured: {why}"),
            "Run the node with permission to create control groups, or set containment = \"auto\"",
        ),
    }
}

fn of_the_file(facts: &DoctorFacts) -> Vec<Finding> {
    match &facts.config {
        None => Vec::new(),
        Some(ConfigFacts::Broken(why)) => {
            let mut advice =
                "Fix the file and check it: ostler config --check FILE. To see every key: ostler config --default".to_owned();
            if facts.site.is_none() {
                advice.push_str(
                    ". The config names the store, so no store was examined; to examine one: --store URL",
                );
            }
            vec![Finding::error("config-broken", format!("The config is invalid: {why}"), advice)]
        }
        Some(ConfigFacts::Good { queues, missing_programs, pools }) => {
            let mut found: Vec<Finding> = missing_programs.iter().map(missing).collect();
            found.extend(pools.iter().cloned());
            found.extend(not_up(facts, queues));
            found
        }
    }
}

fn missing((pool, program): &(String, String)) -> Finding {
    Finding::error(
        "program-missing",
        format!("Pool \"{pool}\" runs \"{}\", which was not found", visible(program)),
        format!("Install it, or use its full path: command -v {}", word(program)),
    )
}

/// Pools of the config that no running node has: the config was changed after the nodes started.
fn not_up<'f>(facts: &'f DoctorFacts, queues: &'f [String]) -> impl Iterator<Item = Finding> + 'f {
    let served = seen(facts).and_then(|seen| queues::served(seen, facts.now));
    let lacks = move |queue: &&String| served.as_ref().is_some_and(|served| !served.contains(*queue));
    queues.iter().filter(lacks).map(|queue| {
        Finding::warning(
            "pool-not-up",
            format!("No running node has the pool \"{queue}\" of the config"),
            "Was the config changed? Restart the node: ostler drain NODE, then ostler up",
        )
    })
}
