//! `ostler ls` and `ostler stats`.

use serde_json::Value;

use crate::hands::Hands;
use crate::ostler::Place;

fn ids(list: &Value) -> Vec<String> {
    let tasks = list.as_array().expect("a list");
    tasks.iter().map(|task| task["id"].as_str().expect("an id").to_owned()).collect()
}

/// Two queues, two kinds, and one task of each state that needs no time.
fn scene(place: &Place) -> [String; 4] {
    let hands = Hands::join(place);
    let first = hands.enqueue("mail", "send", r#"{"tenant":"acme","size":3}"#);
    hands.complete("mail", "1");
    let second = hands.enqueue("mail", "send", r#"{"tenant":"acme","size":4}"#);
    hands.fail("mail", "Connection REFUSED by peer");
    let third = hands.enqueue("mail", "sort", r#"{"tenant":"umbrella","size":3}"#);
    let fourth = hands.enqueue("docs", "scan", r#""a plain text""#);
    [first, second, third, fourth].map(|id| id.to_string())
}

#[test]
fn every_filter_keeps_what_it_says() {
    let place = Place::new();
    let made = scene(&place);
    let all = [3, 2, 1, 0];
    for (words, wanted) in [
        (&[][..], &all[..]),
        (&["--state", "queued"], &[3, 2]),
        (&["--state", "completed"], &[0]),
        (&["--state", "failed"], &[1]),
        (&["--state", "running"], &[]),
        (&["--queue", "docs"], &[3]),
        (&["--kind", "send"], &[1, 0]),
        (&["--text", "connection refused"], &[1]),
        (&["--text", "plain"], &[3]),
        (&["--where", "payload.tenant=acme"], &[1, 0]),
        (&["--where", "payload.size=3"], &[2, 0]),
        (&["--where", "payload.size=3", "--state", "queued"], &[2]),
        (&["--class", "permanent"], &[1]),
        (&["--class", "timeout"], &[]),
        (&["--failed-since", "2020-01-01T00:00:00Z"], &[1]),
        (&["--failed-until", "2020-01-01T00:00:00Z"], &[]),
        (&["--stale"], &[]),
    ] {
        let list = place.json(["ls"].iter().chain(words));
        let wanted: Vec<String> = wanted.iter().map(|at: &usize| made[*at].clone()).collect();
        assert_eq!(ids(&list), wanted, "{words:?}");
    }
}

#[test]
fn a_task_of_a_dead_node_is_stale() {
    let place = Place::new();
    let hands = Hands::join(&place);
    let id = hands.enqueue("mail", "send", "1");
    let held = hands.begin("mail");
    assert_eq!(ids(&place.json(["ls", "--stale"])), Vec::<String>::new());
    drop((held, hands));
    assert_eq!(ids(&place.json(["ls", "--stale"])), [id.to_string()]);
    assert_eq!(place.json(["nodes"])[0]["state"], "overdue");
}

#[test]
fn pages_follow_each_other_without_gaps() {
    let place = Place::new();
    let hands = Hands::join(&place);
    let mut made: Vec<String> =
        (0..7).map(|at| hands.enqueue("mail", "send", &at.to_string()).to_string()).collect();
    made.reverse();
    let mut seen = Vec::new();
    let mut more: Option<String> = None;
    for _ in 0..made.len() {
        let cursor: Vec<&str> = more.iter().flat_map(|cursor| ["--cursor", cursor]).collect();
        let ran = place.run(["ls", "--json", "--limit", "3"].into_iter().chain(cursor));
        seen.extend(ids(&ran.json()));
        more = ran.err.strip_prefix("more: --cursor ").map(|cursor| cursor.trim().to_owned());
        if more.is_none() {
            assert_eq!(ran.err, "");
            break;
        }
    }
    assert_eq!(seen, made);
}

#[test]
fn a_list_for_people_has_columns_without_tabs_or_colours() {
    let place = Place::new();
    let made = scene(&place);
    let text = place.done(["ls"]);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("ID ") && lines[0].ends_with("ERROR"), "{text}");
    assert!(lines[1].starts_with(&made[3]) && lines[1].contains("queued (new)"), "{text}");
    assert!(
        lines[3].contains("failed (permanent)") && lines[3].ends_with("Connection REFUSED by peer"),
        "{text}"
    );
    assert!(!text.contains('\t') && !text.contains('\x1b'), "{text}");
    assert_eq!(lines[0].find("STATE"), lines[1].find("queued"), "{text}");
}

#[test]
fn what_others_wrote_cannot_move_the_cursor() {
    let place = Place::new();
    place.done(["submit", "mail", "send", "--key", "a\x1b[2Jb\nc"]);
    let text = place.done(["ls"]);
    assert_eq!(text.lines().count(), 2, "{text}");
    assert!(text.contains("a\\u{1b}[2Jb\\nc"), "{text}");
}

#[test]
fn figures_are_of_all_or_of_one_queue() {
    let place = Place::new();
    scene(&place);
    let all = place.json(["stats"]);
    assert_eq!(
        (&all["submitted"], &all["tasks"]["queued"], &all["tasks"]["failed"]),
        (&4.into(), &2.into(), &1.into())
    );
    assert_eq!(all["kinds"]["send"]["count"], 2);
    assert_eq!((&all["all_kinds"]["count"], &all["queue_high_water"]), (&2.into(), &1.into()));
    let docs = place.json(["stats", "--queue", "docs"]);
    assert_eq!(
        (&docs["submitted"], docs["kinds"].as_object().map(serde_json::Map::len)),
        (&1.into(), Some(1))
    );
    assert!(
        place.done(["stats"]).contains("2 queued, 0 claimed, 0 running, 1 completed, 1 failed, 0 cancelled")
    );
}

#[test]
fn totals_only_rise_and_the_high_water_is_of_the_queue() {
    let place = Place::new();
    let hands = Hands::join(&place);
    for number in 0..3 {
        hands.enqueue("mail", "send", &number.to_string());
        hands.enqueue("mail", "sort", &number.to_string());
    }
    assert_eq!(place.json(["stats"])["queue_high_water"], 6, "of both kinds together");
    let id = hands.fail("mail", "no such address").to_string();
    let figures = |of: &str| {
        let stats = place.json(["stats"]);
        (stats["tasks"]["failed"].clone(), stats["totals"][of].clone())
    };
    assert_eq!(figures("failed"), (1.into(), 1.into()));
    place.done(["dead", "replay", &id]);
    assert_eq!(figures("failed"), (0.into(), 1.into()), "the state is left, and the total stays");
    assert_eq!(figures("replayed").1, 1);
    for _ in 0..6 {
        hands.fail("mail", "no such address");
    }
    assert_eq!(figures("failed"), (6.into(), 7.into()));
    place.done(["dead", "drop", "--all", "--yes"]);
    assert_eq!(figures("failed"), (6.into(), 7.into()), "what was dropped stays counted");
    assert_eq!((figures("submitted").1, figures("attempts").1), (6.into(), 7.into()));
    let said = place.done(["stats"]);
    assert!(
        said.contains("6 submitted, 0 completed, 7 failed, 0 cancelled; 7 attempts, 0 retried, 1 replayed")
    );
    assert!(said.contains("most ever in one queue: 6") && said.contains("(all)"), "{said}");
}
