//! Frames of models on a terminal in memory, and what keys mean.

use std::time::Duration;

use ostler_core::TaskId;
use ostler_ops::overview::whole;
use ostler_store::calls::{NewTask, QueueChange};
use ostler_store::{Clock as _, Store as _};
use ostler_testkit::{Ids, TempStore};
use ostler_wire::system::FindingView;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::draw::draw;
use super::model::{KeysAllowed, MAX_LINES, Model, StoreLink, TopKey, Transcript, Wish};
use super::rows::clock;

const HOSTILE: &str = "\u{1b}[2J\u{1b}]52;c;aGk=\u{7}\u{9b}2J\u{202e}\u{2066}";

/// A model of a store with these queues.
async fn model(keys: KeysAllowed, queues: &[&str]) -> Model {
    let (made, _clock) = TempStore::manual();
    let (store, ids) = (made.store(), Ids::new(1));
    for queue in queues {
        store.enqueue(vec![NewTask::new(ids.task(), *queue, "send", "{}")]).await.expect("it is enqueued");
    }
    let mut model = Model::new("/var/lib/ostler/ostler.db".to_owned(), keys);
    model.seen = Some(whole(store.as_ref(), Vec::new()).await.expect("it is read"));
    model
}

/// The rows of a frame.
fn frame(model: &Model) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).expect("a terminal in memory");
    terminal.draw(|frame| draw(model, frame)).expect("it is drawn");
    let cells = terminal.backend().buffer();
    let row = |y| (0..80).map(|x| cells[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..24).map(row).collect()
}

fn press(model: &mut Model, keys: &str) -> Option<Wish> {
    keys.chars().map(|key| model.press(TopKey::Char(key))).last().flatten()
}

fn task() -> TaskId {
    Ids::new(9).task()
}

#[tokio::test]
async fn a_frame_has_the_counts_the_tables_and_the_keys() {
    let mut model = model(KeysAllowed::All, &["mail", "reports"]).await;
    model.findings =
        vec![FindingView::warning("x", "The disk is nearly full".to_owned(), "Remove something")];
    let rows = frame(&model);
    let as_of = clock(model.seen.as_ref().expect("it was read").as_of.timestamp());
    assert_eq!(rows[0], format!("ostler top  as of {as_of}  /var/lib/ostler/ostler.db"));
    assert_eq!(rows[1], "queued 2  running 0  failed 0  workers 0/0 busy  nodes 0");
    assert_eq!(rows[2], " 1 queues  2 running  3 workers  4 accounts  5 problems (1)");
    assert!(rows[3].starts_with("QUEUE    QUEUED  RUNNING"), "{rows:?}");
    assert!(rows[4].starts_with("mail     1") && rows[5].starts_with("reports  1"), "{rows:?}");
    assert_eq!(rows[23], "1-5 tables  j/k select  p pause  r resume  q quit");
    press(&mut model, "5");
    let rows = frame(&model);
    assert!(rows[4].contains("warning") && rows[4].contains("The disk is nearly full"), "{rows:?}");
    assert!(rows[5].contains("Remove something"), "{rows:?}");
    model.link = StoreLink::Lost("the server is away".to_owned());
    assert!(frame(&model)[0].contains(&format!("NOT CONNECTED since {as_of}")));
}

#[tokio::test]
async fn a_queue_that_is_held_says_why_and_for_how_long() {
    let (made, clock) = TempStore::manual();
    let (store, ids) = (made.store(), Ids::new(1));
    for queue in ["brief", "open"] {
        store.enqueue(vec![NewTask::new(ids.task(), queue, "send", "{}")]).await.expect("it is enqueued");
    }
    let soon = clock.now().after(Duration::from_secs(90));
    for (queue, until) in [("brief", Some(soon)), ("open", None)] {
        store.configure(queue, vec![QueueChange::OpenBreaker(until)]).await.expect("it is opened");
    }
    let mut model = Model::new("store".to_owned(), KeysAllowed::All);
    model.seen = Some(whole(store.as_ref(), Vec::new()).await.expect("it is read"));
    let rows = frame(&model);
    assert!(rows[4].ends_with("held: breaker open, 1m30s left"), "{rows:?}");
    assert!(rows[5].ends_with("held: breaker open"), "{rows:?}");
}

#[tokio::test]
async fn what_is_dangerous_is_a_capital_and_a_question() {
    let mut model = model(KeysAllowed::All, &["mail", "reports"]).await;
    assert_eq!(press(&mut model, "jp"), Some(Wish::Pause("reports".to_owned())));
    assert_eq!(press(&mut model, "r"), Some(Wish::Resume("reports".to_owned())));
    let id = task();
    model.transcript = Some(Transcript { task: id, lines: Default::default(), back: 0 });
    assert_eq!(press(&mut model, "c"), None);
    for no in ['n', 'q', 'C', ' '] {
        assert_eq!(press(&mut model, "C"), None);
        assert!(frame(&model)[23].starts_with(&format!("cancel task {id}? y/n")));
        assert_eq!(press(&mut model, &no.to_string()), None);
        assert!(model.question.is_none() && frame(&model)[23] == "nothing was done");
    }
    assert_eq!(press(&mut model, "Cy"), Some(Wish::Cancel(id)));
    assert_eq!(press(&mut model, "q"), Some(Wish::Close));
    assert_eq!(press(&mut model, "q"), Some(Wish::Quit));
}

#[tokio::test]
async fn without_changing_keys_no_key_changes_anything() {
    let mut model = model(KeysAllowed::Looking, &["mail"]).await;
    for open in [false, true] {
        model.transcript = open.then(|| Transcript { task: task(), lines: Default::default(), back: 0 });
        for key in (' '..='~').filter(|key| *key != 'q') {
            assert_eq!(press(&mut model, &key.to_string()), None, "{key}");
            assert_eq!(press(&mut model, "y"), None, "{key}");
        }
        let keys = frame(&model)[23].clone();
        assert!(!["pause", "resume", "cancel"].iter().any(|word| keys.contains(word)), "{keys}");
    }
}

#[tokio::test]
async fn the_selected_row_stays_selected_when_rows_come_and_go() {
    let mut first = model(KeysAllowed::All, &["b", "c"]).await;
    press(&mut first, "j");
    let later = model(KeysAllowed::All, &["a", "b", "c"]).await;
    first.seen = later.seen;
    assert_eq!(press(&mut first, "p"), Some(Wish::Pause("c".to_owned())));
}

#[tokio::test]
async fn nothing_in_a_frame_acts_on_a_terminal() {
    let mut model = model(KeysAllowed::All, &["mail"]).await;
    let seen = model.seen.as_mut().expect("it was read");
    seen.queues[0].queue = HOSTILE.to_owned();
    seen.queues[0].paused = Some(HOSTILE.to_owned());
    model.store = HOSTILE.to_owned();
    model.notice = HOSTILE.to_owned();
    model.findings = vec![FindingView::error("x", HOSTILE.to_owned(), HOSTILE)];
    for section in "12345".chars() {
        press(&mut model, &section.to_string());
        model.notice = HOSTILE.to_owned();
        let acts = |c: char| c.is_control() || "\u{202e}\u{2066}".contains(c);
        assert!(!frame(&model).iter().any(|row| row.contains(acts)), "{section}: {:?}", frame(&model));
    }
    assert!(frame(&model)[0].contains("\\u{1b}[2J"), "it is shown");
}

#[tokio::test]
async fn a_transcript_is_bounded_and_what_is_read_stays() {
    let mut model = model(KeysAllowed::All, &[]).await;
    let id = task();
    model.transcript = Some(Transcript { task: id, lines: Default::default(), back: 0 });
    model.add_lines(id, (0..3 * MAX_LINES).map(|line| format!("line {line}")).collect());
    model.add_lines(Ids::new(8).task(), vec!["of another task".to_owned()]);
    assert!(frame(&model)[22].starts_with(&format!("line {}", 3 * MAX_LINES - 1)));
    press(&mut model, "k");
    let before = frame(&model)[22].clone();
    model.add_lines(id, vec!["more".to_owned()]);
    assert_eq!(frame(&model)[22], before);
    assert_eq!(model.transcript.as_ref().map(|open| open.lines.len()), Some(MAX_LINES));
}
