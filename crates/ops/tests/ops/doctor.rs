//! The doctor: what it reads from a store, and findings about facts that a caller brings. The rules about real stores and machines
//! are tested with the program.

use ostler_ops::doctor::facts::{
    ConfigFacts, ContainedBy, DoctorFacts, PresenceFacts, PresenceFault, StoreFacts, StoreLook,
};
use ostler_ops::doctor::findings;
use ostler_store::Clock as _;
use ostler_wire::system::{FindingView, Severity};

use crate::world::World;

fn facts(world: &World, look: StoreLook) -> DoctorFacts {
    let now = world.clock.now();
    DoctorFacts {
        now,
        site: None,
        look,
        config: None,
        containment: None,
        presence: None,
        threads: None,
        leftovers: Vec::new(),
    }
}

fn codes(found: &[FindingView]) -> Vec<&'static str> {
    found.iter().map(|finding| finding.code).collect()
}

#[tokio::test]
async fn facts_are_read_from_any_store_and_the_worst_finding_comes_first() {
    let world = World::new();
    world.enqueue(1).await;
    world.fail(1).await;
    world.enqueue(2).await;
    let seen = StoreFacts::read(world.store()).await.expect("it is read");
    assert_eq!((seen.failed.tasks.len(), seen.waiting.len()), (1, 1));
    let found = findings(&facts(&world, StoreLook::Seen(Box::new(seen))));
    assert_eq!(codes(&found), ["no-node", "dead-letters"]);
    assert_eq!(found[0].severity, Severity::Error);
    assert_eq!(serde_json::to_value(&found[0]).expect("JSON")["severity"], "error");
}

#[test]
fn what_the_caller_found_on_the_machine_is_judged() {
    let world = World::new();
    let door = FindingView::warning("sandbox-chmod", "a door is open", "close it");
    let config = ConfigFacts::Good {
        queues: Vec::new(),
        missing_programs: vec![("shell".to_owned(), "no-such-program".to_owned())],
        pools: vec![door.clone()],
    };
    let fault = PresenceFault { sentence: "it does not answer".to_owned(), advice: "Start it." };
    let presence = PresenceFacts { address: "redis://a".to_owned(), fault: Some(fault) };
    let all = DoctorFacts {
        config: Some(config),
        containment: Some(Ok(ContainedBy::Group)),
        presence: Some(presence),
        ..facts(&world, StoreLook::Unnamed)
    };
    let found = findings(&all);
    assert_eq!(codes(&found), ["program-missing", "presence-away", "sandbox-chmod", "containment"]);
    assert_eq!(found[2], door);
    assert_eq!(found[1].advice, "Start it. Work goes on, and nodes keep retrying");
}
