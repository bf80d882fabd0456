//! `ostler top` on a real pseudo-terminal: keys, what is sent, and the terminal after it.

use std::io::{Read as _, Write as _};
use std::process::{Child, Command};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

use ostler_core::Outcome;
use ostler_testkit::{MAX_WAIT, ProcessSignal};
use rustix::process::{Pid, kill_process};
use rustix::termios::{LocalModes, Termios};

use crate::hands::Hands;
use crate::ostler::{Place, Running, Terminal};

const ROWS: usize = 24;
const COLUMNS: usize = 80;
/// The beginning and the end of a frame in synchronised output.
const FRAME: &str = "\u{1b}[?2026h";
const FRAME_END: &str = "\u{1b}[?2026l";
const CLEAR: &str = "\u{1b}[2J";
const HOSTILE: &str = "\u{1b}[2J\u{1b}]52;c;aGk=\u{7}\u{9b}2J\u{202e}\u{2066}";

/// What a terminal of 80 columns and 24 rows shows after this was written. Unknown sequences fail.
fn screen(written: &str) -> Vec<String> {
    let mut cells = vec![vec![' '; COLUMNS]; ROWS];
    let (mut row, mut column) = (0, 0);
    let mut chars = written.chars();
    while let Some(c) = chars.next() {
        match c {
            '\r' => column = 0,
            '\n' => row += 1,
            '\u{1b}' => {
                assert_eq!(chars.next(), Some('['), "only sequences of this sort are sent");
                let mut numbers = String::new();
                let end = loop {
                    match chars.next() {
                        Some(digit @ ('0'..='9' | ';' | '?')) => numbers.push(digit),
                        Some(end) => break end,
                        // It was read in the middle of a sequence.
                        None => return lines(&cells),
                    }
                };
                match end {
                    'H' => {
                        let (y, x) = numbers.split_once(';').unwrap_or(("1", "1"));
                        (row, column) =
                            (y.parse::<usize>().unwrap_or(1) - 1, x.parse::<usize>().unwrap_or(1) - 1);
                    }
                    'J' => cells = vec![vec![' '; COLUMNS]; ROWS],
                    'm' | 'h' | 'l' => {}
                    other => panic!("the sequence {numbers}{other} is not known here"),
                }
            }
            c => {
                assert!(!c.is_control(), "{c:?} was sent");
                if row < ROWS && column < COLUMNS {
                    cells[row][column] = c;
                }
                column += 1;
            }
        }
    }
    lines(&cells)
}

fn lines(cells: &[Vec<char>]) -> Vec<String> {
    cells.iter().map(|row| row.iter().collect::<String>().trim_end().to_owned()).collect()
}

/// What the terminal has received, and whether its end is closed.
type Received = Arc<(Mutex<(Vec<u8>, bool)>, Condvar)>;

/// `ostler top` on a terminal of its own.
struct Top {
    child: Child,
    terminal: Terminal,
    received: Received,
    before: Termios,
}

impl Top {
    fn start(place: &Place, options: &[&str]) -> Self {
        let terminal = Terminal::open();
        terminal.columns(80);
        let before = terminal.modes();
        let told = place.command(["top"].iter().chain(options));
        // The terminal is the one of its session, as in a shell.
        let mut command = Command::new("setsid");
        command.arg("--ctty").arg(told.get_program()).args(told.get_args()).env_clear();
        command.envs(told.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.env("TERM", "xterm-256color").current_dir(place.folder());
        command.stdin(terminal.end()).stdout(terminal.end()).stderr(terminal.end());
        let child = command.spawn().expect("it starts");
        let received = Received::default();
        let (mut hand, shared) = (terminal.hand(), Arc::clone(&received));
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(count @ 1..) = hand.read(&mut piece) {
                shared.0.lock().expect("no panic").0.extend_from_slice(&piece[..count]);
                shared.1.notify_all();
            }
            shared.0.lock().expect("no panic").1 = true;
            shared.1.notify_all();
        });
        Self { child, terminal, received, before }
    }

    fn written(&self) -> String {
        String::from_utf8_lossy(&self.received.0.lock().expect("no panic").0).into_owned()
    }

    /// Waits until the screen has these words.
    fn shows(&self, words: &str) -> Vec<String> {
        self.until(words, |rows| rows.iter().any(|row| row.contains(words)))
    }

    fn until(&self, what: &str, is_so: impl Fn(&[String]) -> bool) -> Vec<String> {
        let until = Instant::now() + MAX_WAIT;
        let mut received = self.received.0.lock().expect("no panic");
        loop {
            let rows = screen(&String::from_utf8_lossy(&received.0));
            if is_so(&rows) {
                return rows;
            }
            let left = until.saturating_duration_since(Instant::now());
            assert!(!left.is_zero() && !received.1, "{what} is not shown: {rows:#?}");
            received = self.received.1.wait_timeout(received, left).expect("no panic").0;
        }
    }

    fn press(&mut self, keys: &str) {
        self.terminal.hand().write_all(keys.as_bytes()).expect("the terminal takes it");
    }

    /// Waits for its end. Returns the exit code, and everything that was written, with the terminal as it was before.
    fn end(mut self) -> (Option<i32>, String) {
        let code = self.child.wait().expect("it ends").code();
        let after = self.terminal.modes();
        assert_eq!(after.local_modes, self.before.local_modes);
        assert_eq!(after.input_modes, self.before.input_modes);
        assert_eq!(after.output_modes, self.before.output_modes);
        assert!(after.local_modes.contains(LocalModes::ECHO | LocalModes::ICANON));
        let received = Arc::clone(&self.received);
        drop(self.terminal);
        let until = Instant::now() + MAX_WAIT;
        let mut held = received.0.lock().expect("no panic");
        while !held.1 {
            assert!(Instant::now() < until, "the terminal is not closed");
            held = received.1.wait_timeout(held, MAX_WAIT).expect("no panic").0;
        }
        let written = String::from_utf8_lossy(&held.0).into_owned();
        assert!(written.contains("\u{1b}[?1049h"), "the screen is taken: {written:?}");
        let back = written.rfind("\u{1b}[?1049l").expect("the screen is given back");
        assert!(written[back..].contains("\u{1b}[?25h"), "the cursor is shown again: {written:?}");
        assert!(written.rfind(FRAME_END) > written.rfind(FRAME), "no frame is left open");
        (code, written)
    }
}

#[test]
fn keys_pause_a_queue_open_a_transcript_and_cancel_after_a_question() {
    let place = Place::new();
    let hands = Hands::join(&place);
    hands.enqueue("mail", "send", "{}");
    hands.enqueue("work", "dig", "{}");
    let task = hands.begin("work");
    let id = task.lease.task().to_string();
    hands.log(task.lease.as_ref(), "info the first spadeful");
    let mut top = Top::start(&place, &[]);
    let rows = top.shows("mail");
    assert!(rows[0].contains("as of ") && rows[1].contains("running 1"), "{rows:#?}");
    top.press("p");
    top.shows("mail is paused");
    assert_eq!(place.json(["queue", "show", "mail"])["paused"], "paused by hand");
    top.press("r");
    top.shows("mail is resumed");
    assert!(place.json(["queue", "show", "mail"])["paused"].is_null());
    top.press("2");
    top.shows(&id);
    top.press("C");
    top.shows(&format!("cancel task {id}? y/n"));
    top.press("n");
    top.shows("nothing was done");
    assert!(place.json(["show", &id])["cancel_requested_at"].is_null());
    top.press("\r");
    top.shows("the first spadeful");
    hands.log(task.lease.as_ref(), "info the second one");
    top.shows("the second one");
    top.press("C");
    top.shows("? y/n");
    top.press("y");
    top.shows("requested");
    assert!(place.json(["show", &id])["cancel_requested_at"].is_string());
    top.press("q");
    top.shows("1-5 tables");
    top.press("q");
    let (code, written) = top.end();
    assert_eq!(code, Some(0));
    // One clear at the start and none after, and every frame in synchronised output.
    assert_eq!(written.matches(CLEAR).count(), 1, "{written:?}");
    assert_eq!(written.matches(FRAME).count() + 1, written.matches(FRAME_END).count(), "{written:?}");
    hands.end(task, Outcome::Success, None);
}

#[test]
fn a_read_only_view_changes_nothing() {
    let place = Place::new();
    let hands = Hands::join(&place);
    hands.enqueue("mail", "send", "{}");
    hands.enqueue("work", "dig", "{}");
    let task = hands.begin("work");
    let mut top = Top::start(&place, &["--readonly"]);
    let rows = top.shows("mail");
    assert_eq!(rows[23], "1-5 tables  j/k select  q quit");
    top.press("pr2");
    let rows = top.shows("enter transcript");
    assert!(!rows[23].contains("cancel"), "{rows:#?}");
    top.press("Cy1");
    top.until("the queues", |rows| rows[23] == "1-5 tables  j/k select  q quit");
    top.press("q");
    assert_eq!(top.end().0, Some(0));
    assert!(place.json(["queue", "show", "mail"])["paused"].is_null());
    assert!(place.json(["show", &task.lease.task().to_string()])["cancel_requested_at"].is_null());
}

#[test]
fn a_signal_gives_the_terminal_back() {
    let place = Place::on_server();
    place.done(["submit", "mail", "send"]);
    for signal in [ProcessSignal::TERM, ProcessSignal::HUP] {
        let top = Top::start(&place, &[]);
        top.shows("mail");
        kill_process(Pid::from_child(&top.child), signal).expect("it is there");
        top.end();
    }
    let mut top = Top::start(&place, &[]);
    top.shows("mail");
    // Ctrl-C is a key here.
    top.press("\u{3}");
    assert_eq!(top.end().0, Some(0));
}

#[test]
fn the_kill_of_the_node_ends_neither_top_nor_its_terminal() {
    for place in [Place::new(), Place::on_server()] {
        place.write("ostler.toml", "[pool.mail]\nexecutor = \"command\"\ncommand = [\"true\"]\n");
        let mut up = place.command(["up", "--listen", "none"]);
        up.env("XDG_STATE_HOME", place.folder());
        let node = Running::start(up);
        node.line();
        let mut top = Top::start(&place, &[]);
        top.until("the node", |rows| rows[1].ends_with("nodes 1"));
        node.signal(ProcessSignal::KILL);
        node.end();
        // It reads the store, not the node: what comes later is shown, and keys do their work.
        place.done(["submit", "later", "send"]);
        top.shows("later");
        top.press("p");
        top.shows("is paused");
        top.press("q");
        let (code, written) = top.end();
        assert_eq!((code, written.matches(CLEAR).count()), (Some(0), 1), "{written:?}");
    }
}

#[test]
fn busy_queues_cost_few_bytes_a_frame() {
    let place = Place::new();
    let hands = Hands::join(&place);
    let queues: Vec<String> = (0..10).map(|number| format!("queue-{number}")).collect();
    for queue in &queues {
        hands.enqueue_many(40, queue, "dig", "{}");
    }
    let mut top = Top::start(&place, &[]);
    top.shows("queue-9");
    let first = top.written().len();
    let mut frames = top.written().matches(FRAME).count();
    // Each round changes the numbers of all queues, and is seen before the next one.
    for round in 1..=10 {
        for queue in &queues {
            hands.complete(queue, "1");
        }
        let done = round.to_string();
        top.until("the round", |rows| rows[13].split_whitespace().nth(3) == Some(done.as_str()));
    }
    top.press("q");
    let (code, written) = top.end();
    assert_eq!(code, Some(0));
    frames = written.matches(FRAME).count() - frames;
    let bytes = written.len() - first;
    // At most four frames a second are drawn: 4 KB a second at most.
    assert!(frames >= 10 && bytes <= frames * 1_024, "{bytes} bytes in {frames} frames");
    assert_eq!(written.matches(CLEAR).count(), 1);
    println!("{} bytes a frame, of {first} for the first", bytes / frames);
}

#[test]
fn hostile_texts_are_shown_and_not_sent() {
    let place = Place::new();
    let hands = Hands::join(&place);
    let name = "m\u{202e}\u{2066}";
    hands.enqueue(name, name, "{}");
    let task = hands.begin(name);
    hands.log(task.lease.as_ref(), &format!("info {HOSTILE}"));
    place.done(["pause", name, "--reason", HOSTILE]);
    let mut top = Top::start(&place, &[]);
    // `screen` fails on every sequence that is not one of a frame.
    top.shows("paused: \\u{1b}[2J");
    top.press("2");
    top.shows("m\\u{202e}");
    top.press("\r");
    top.shows("\\u{1b}[2J\\u{1b}]52;c;aGk=\\u{7}");
    top.press("qq");
    let (_, written) = top.end();
    assert_eq!(written.matches(CLEAR).count(), 1);
    assert!(!written.contains(['\u{202e}', '\u{2066}', '\u{9b}', '\u{7}']), "{written:?}");
}

#[test]
fn once_prints_a_screen_or_json_and_exits() {
    for place in [Place::new(), Place::on_server()] {
        place.done(["submit", "mail", "send"]);
        let text = place.done(["top", "--once"]);
        assert!(text.starts_with("ostler top  ") && text.contains("as of "), "{text}");
        assert!(text.contains("queued 1  running 0") && text.contains("\nmail "), "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
        let json = place.json(["top", "--once"]);
        assert_eq!(
            (&json["stats"]["tasks"]["queued"], &json["queues"][0]["queue"]),
            (&1.into(), &"mail".into())
        );
        for list in ["nodes", "workers", "running", "accounts", "findings"] {
            assert!(json[list].is_array(), "{list}: {json}");
        }
        place.refused(["top"], 2, "--once");
        place.refused(["top", "--json"], 2, "--once");
    }
    Place::new().refused(["top", "--once"], 3, "there is no store");
}
