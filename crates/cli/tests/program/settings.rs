//! Which store, which config, and the doctor.

use serde_json::Value;

use crate::hands::Hands;
use crate::ostler::{Place, ran};

const POOL: &str = "[pool.shell]\nexecutor = \"command\"\ncommand = [\"true\"]\n";

#[test]
fn the_store_of_the_config_is_meant_and_what_is_said_wins() {
    let place = Place::new();
    place.write("ostler.toml", "store = \"sqlite:from-config.db\"\n");
    let submit = |command: &mut std::process::Command| {
        let ran = ran(command.args(["submit", "mail", "send"]));
        assert_eq!(ran.code, Some(0), "{ran:?}");
    };
    let there = |name: &str| place.folder().join(name).exists();
    submit(&mut place.bare());
    assert!(there("from-config.db"));
    submit(place.bare().env("OSTLER_STORE", "sqlite:from-variable.db"));
    assert!(there("from-variable.db"));
    submit(place.bare().env("OSTLER_STORE", "sqlite:from-variable.db").args(["--store", "from-flag.db"]));
    assert!(there("from-flag.db"));
    assert_eq!(ran(place.bare().args(["stats", "--json"])).json()["submitted"], 1);
}

#[test]
fn a_user_who_names_no_store_has_one_of_their_own() {
    let place = Place::new();
    let home = place.folder().join("home");
    let state = place.folder().join("state");
    let by_home = ran(place.bare().env("HOME", &home).args(["submit", "mail", "send"]));
    assert_eq!(by_home.code, Some(0), "{by_home:?}");
    assert!(home.join(".local/state/ostler/ostler.db").exists());
    let by_state =
        ran(place.bare().env("HOME", &home).env("XDG_STATE_HOME", &state).args(["submit", "mail", "send"]));
    assert_eq!(by_state.code, Some(0), "{by_state:?}");
    assert!(state.join("ostler/ostler.db").exists());
}

#[test]
fn a_broken_config_is_told_and_another_store_can_still_be_named() {
    let place = Place::new();
    place.write("ostler.toml", "stor = \"sqlite:x.db\"\n");
    ran(place.bare().arg("ls")).is_refused(2, "ostler.toml:1:");
    place.done(["submit", "mail", "send"]);
    place.refused(["config", "--check"], 2, "ostler.toml:1:");
    place.write("good.toml", POOL);
    assert!(place.done(["config", "--check", "good.toml"]).contains("pools: shell"));
    place.refused(["config", "--check", "missing.toml"], 2, "no such file");
}

#[test]
fn the_default_config_is_right_as_it_stands() {
    let place = Place::new();
    let text = place.done(["config", "--default"]);
    place.write("ostler.toml", text);
    place.done(["config", "--check"]);
}

#[test]
fn the_payload_limit_of_the_config_holds() {
    let place = Place::new();
    place.write("ostler.toml", "store = \"sqlite:o.db\"\npayload_limit = \"8B\"\n");
    ran(place.bare().args(["submit", "mail", "send", "--payload", "\"1234567\""]))
        .is_refused(2, "limit of 8 bytes");
    assert_eq!(ran(place.bare().args(["submit", "mail", "send", "--payload", "\"123456\""])).code, Some(0));
}

#[test]
fn the_doctor_says_what_is_wrong_and_what_helps() {
    let place = Place::new();
    let hands = Hands::join(&place);
    hands.enqueue("mail", "send", "1");
    hands.fail("mail", "no");
    let findings = place.json(["doctor"]);
    let found = findings.as_array().expect("a list").iter().find(|finding| finding["code"] == "dead-letters");
    let found = found.unwrap_or_else(|| panic!("{findings}"));
    assert_eq!(found.as_object().map(serde_json::Map::len), Some(4));
    assert!(place.done(["doctor"]).contains("dead ls"));
    // An unreadable config is a finding, and an error.
    place.write("ostler.toml", "nonsense = 1\n");
    let ran = place.run(["doctor"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.out.contains("nonsense"), "{ran:?}");
}

#[test]
fn the_doctor_shows_the_threads_that_the_environment_asks_for() {
    let place = Place::new();
    let doctor = |set: &[(&str, &str)]| {
        let findings = ran(place.command(["doctor", "--json"]).envs(set.iter().copied())).json();
        let about = |found: &&Value| found["code"].as_str().is_some_and(|code| code.starts_with("threads"));
        findings.as_array().expect("a list").iter().find(about).cloned()
    };
    assert_eq!(doctor(&[]), None, "nothing is set, and there is no node here");
    let found = doctor(&[("WORKER_POOL_SIZE", "3"), ("MAX_QUEUED_WORKERS", "5")]).expect("both are set");
    assert_eq!((&found["code"], &found["severity"]), (&"threads".into(), &"info".into()));
    let sentence = "Work on threads has 3 threads (WORKER_POOL_SIZE), and at most 5 running and queued (MAX_QUEUED_WORKERS)";
    assert_eq!(found["sentence"], sentence);
    let found = doctor(&[("WORKER_POOL_SIZE", "3"), ("MAX_QUEUED_WORKERS", "2")]).expect("it is refused");
    assert_eq!((&found["code"], &found["severity"]), (&"threads-refused".into(), &"warning".into()));
    place.write("ostler.toml", "[pool.shell]\nexecutor = \"command\"\ncommand = [\"true\"]\n");
    let found = doctor(&[]).expect("a node could be here");
    assert!(found["sentence"].as_str().is_some_and(|text| text.contains("one for each core")), "{found}");
}

#[test]
fn a_broken_config_keeps_the_doctor_out_of_other_stores() {
    let place = Place::new();
    let home = place.folder().join("home");
    let bare = || {
        let mut command = place.bare();
        command.env("HOME", &home);
        command
    };
    assert_eq!(ran(bare().args(["submit", "mail", "send"])).code, Some(0));
    let whole = ran(bare().args(["doctor", "--json"])).json();
    assert_eq!(whole[0]["code"], "no-node", "the store in HOME has something to tell: {whole}");
    place.write("broken.toml", "stor = \"sqlite:x.db\"\n");
    let ran_broken = ran(bare().args(["doctor", "--json", "--config", "broken.toml"]));
    assert_eq!(ran_broken.code, Some(1), "{ran_broken:?}");
    let findings = ran_broken.json();
    let codes: Vec<&str> =
        findings.as_array().expect("a list").iter().filter_map(|finding| finding["code"].as_str()).collect();
    assert_eq!(codes, ["config-broken"], "{findings}");
    assert!(findings[0]["advice"].as_str().is_some_and(|advice| advice.contains("--store")), "{findings}");
    // A store that is named explicitly is examined.
    let named = home.join(".local/state/ostler/ostler.db");
    let ran_named =
        ran(bare().args(["doctor", "--json", "--config", "broken.toml", "--store"]).arg(&named)).json();
    assert!(ran_named.as_array().is_some_and(|all| all.len() == 2), "{ran_named}");
}

#[test]
fn a_payload_that_is_pasted_into_a_script_is_warned_of() {
    let place = Place::new();
    let config = |command: &str| format!("[pool.shell]\nexecutor = \"command\"\ncommand = {command}\n");
    place.write("ostler.toml", config(r#"["sh", "-c", "echo hello {{ payload.name }}"]"#));
    let checked = place.run(["config", "--check"]);
    assert_eq!(checked.code, Some(0), "it is a warning: {checked:?}");
    assert!(checked.err.contains("ostler: warning: ostler.toml: pool.shell.command: "), "{checked:?}");
    assert!(checked.err.contains("\"$1\""), "it names what is safe: {checked:?}");
    assert_eq!(place.json(["config", "--check"])["warnings"].as_array().map(Vec::len), Some(1));
    let findings = place.json(["doctor"]);
    let found = findings.as_array().expect("a list").iter().find(|found| found["code"] == "script-injection");
    assert_eq!(found.map(|found| &found["severity"]), Some(&"warning".into()), "{findings}");
    for safe in [
        r#"["sh", "-c", "echo hello \"$1\"", "sh", "{{ payload.name }}"]"#,
        r#"["sh", "-c", "{{ payload.script }}"]"#,
        r#"["echo", "hello {{ payload.name }}"]"#,
    ] {
        place.write("ostler.toml", config(safe));
        let checked = place.run(["config", "--check"]);
        assert_eq!((checked.code, checked.err.as_str()), (Some(0), ""), "{safe}");
    }
}
