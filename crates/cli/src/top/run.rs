//! The loop of `top`: one closed set of events, one owner of the screen.

use std::sync::Arc;
use std::time::Duration;

use ostler_core::TaskId;
use ostler_ops::act::{Act, act_on};
use ostler_ops::queues;
use ostler_store::Store;
use ostler_wire::overview::OverviewView;
use ostler_wire::system::FindingView;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::Instant;

use super::feed::{SPACING, watch_health, watch_store, watch_task};
use super::model::{KeysAllowed, Model, StoreLink, TopKey, Wish};
use super::screen::Screen;
use crate::config::{Config, ConfigError, StoreUrl};
use crate::exit::Code;

/// Events that wait for the loop.
const MAX_EVENTS: usize = 16;
/// How long an action on the store may take.
const MAX_ACTION: Duration = Duration::from_secs(10);

/// Everything that can happen.
pub(crate) enum TopEvent {
    Key(TopKey),
    Resized,
    Read(Box<Result<OverviewView, String>>),
    Found(Vec<FindingView>),
    Lines(TaskId, Vec<String>),
    /// What became of a wish.
    Done(String),
}

pub(crate) struct TopPlan<C> {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) url: StoreUrl,
    /// The store, for people.
    pub(crate) name: String,
    /// Reads the config of this folder, for the doctor.
    pub(crate) config: C,
    pub(crate) keys: KeysAllowed,
}

/// Shows the system until a key or a signal ends it.
pub(crate) async fn run<C>(plan: TopPlan<C>) -> anyhow::Result<Code>
where
    C: Fn() -> Option<Result<Config, ConfigError>> + Send + 'static,
{
    let TopPlan { store, url, name, config, keys } = plan;
    // Before the screen is taken: a signal that comes in between ends the loop.
    let (mut terminated, mut hung_up) = (signal(SignalKind::terminate())?, signal(SignalKind::hangup())?);
    let (sender, mut events) = channel(MAX_EVENTS);
    let mut screen = Screen::open()?;
    read_keys(sender.clone())?;
    tokio::spawn(watch_store(Arc::clone(&store), sender.clone()));
    tokio::spawn(watch_health(url, config, sender.clone()));
    let mut view = TopLoop { model: Model::new(name, keys), store, sender, transcript: None };
    tokio::select! {
        ended = view.serve(&mut screen, &mut events) => ended.map(|()| Code::Done),
        _ = terminated.recv() => Ok(Code::Interrupted),
        _ = hung_up.recv() => Ok(Code::Interrupted),
    }
}

struct TopLoop {
    model: Model,
    store: Arc<dyn Store>,
    sender: Sender<TopEvent>,
    transcript: Option<tokio::task::JoinHandle<()>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    GoOn,
    Quit,
}

impl TopLoop {
    async fn serve(&mut self, screen: &mut Screen, events: &mut Receiver<TopEvent>) -> anyhow::Result<()> {
        screen.draw(&self.model)?;
        let mut drawn = Instant::now();
        // All that happens within one interval is one frame.
        while let Some(event) = events.recv().await {
            let is_key = matches!(event, TopEvent::Key(_) | TopEvent::Resized | TopEvent::Done(_));
            if self.take(event) == Next::Quit {
                return Ok(());
            }
            // A key is answered at once, unless many come.
            let pause = if is_key { Duration::ZERO } else { SPACING };
            let frame = (drawn + pause).max(Instant::now());
            loop {
                match tokio::time::timeout_at(frame, events.recv()).await {
                    Ok(Some(event)) => {
                        if self.take(event) == Next::Quit {
                            return Ok(());
                        }
                    }
                    Ok(None) => return Ok(()),
                    Err(_) => break,
                }
            }
            screen.draw(&self.model)?;
            drawn = Instant::now();
        }
        Ok(())
    }

    fn take(&mut self, event: TopEvent) -> Next {
        match event {
            TopEvent::Key(key) => match self.model.press(key) {
                Some(Wish::Quit) => return Next::Quit,
                Some(wish) => self.grant(wish),
                None => {}
            },
            TopEvent::Resized => {}
            TopEvent::Read(read) => match *read {
                Ok(seen) => (self.model.seen, self.model.link) = (Some(seen), StoreLink::Live),
                Err(why) => self.model.link = StoreLink::Lost(why),
            },
            TopEvent::Found(findings) => self.model.findings = findings,
            TopEvent::Lines(task, lines) => self.model.add_lines(task, lines),
            TopEvent::Done(notice) => self.model.notice = notice,
        }
        Next::GoOn
    }

    fn grant(&mut self, wish: Wish) {
        if let Some(open) = self.transcript.take() {
            open.abort();
        }
        let (store, sender) = (Arc::clone(&self.store), self.sender.clone());
        match wish {
            Wish::Open(task) => self.transcript = Some(tokio::spawn(watch_task(store, task, sender))),
            Wish::Close | Wish::Quit => {}
            Wish::Pause(_) | Wish::Resume(_) | Wish::Cancel(_) => {
                tokio::spawn(async move {
                    let done = tokio::time::timeout(MAX_ACTION, act(store.as_ref(), wish)).await;
                    let notice =
                        done.unwrap_or_else(|_| "the store does not answer; it may still be done".to_owned());
                    let _ = sender.send(TopEvent::Done(notice)).await;
                });
            }
        }
    }
}

/// Does what was wished. Returns a sentence.
async fn act(store: &dyn Store, wish: Wish) -> String {
    let done = match wish {
        Wish::Pause(queue) => {
            let paused = queues::pause(store, &queue, "paused by hand".to_owned()).await;
            paused.map(|_| format!("{queue} is paused"))
        }
        Wish::Resume(queue) => queues::resume(store, &queue).await.map(|_| format!("{queue} is resumed")),
        Wish::Cancel(task) => act_on(store, &[task], &Act::Cancel).await.map(|views| {
            let result = views.first().and_then(|view| serde_json::to_value(view.result).ok());
            let result = result.and_then(|result| result.as_str().map(str::to_owned)).unwrap_or_default();
            format!("cancel of {task}: {result}")
        }),
        Wish::Open(_) | Wish::Close | Wish::Quit => return String::new(),
    };
    done.unwrap_or_else(|error| error.to_string())
}

/// Reads keys on a thread of its own, which ends with the program: a read of a terminal cannot be cancelled.
fn read_keys(events: Sender<TopEvent>) -> std::io::Result<()> {
    let read = move || {
        while let Ok(read) = event::read() {
            let event = match read {
                Event::Key(pressed) => key(pressed).map(TopEvent::Key),
                Event::Resize(..) => Some(TopEvent::Resized),
                Event::FocusGained | Event::FocusLost | Event::Mouse(_) | Event::Paste(_) => None,
            };
            if event.is_some_and(|event| events.blocking_send(event).is_err()) {
                return;
            }
        }
    };
    std::thread::Builder::new().name("keys".to_owned()).spawn(read).map(drop)
}

#[allow(clippy::wildcard_enum_match_arm, reason = "a terminal has more keys than this program")]
fn key(pressed: KeyEvent) -> Option<TopKey> {
    if pressed.kind == KeyEventKind::Release {
        return None;
    }
    if pressed.modifiers.contains(KeyModifiers::CONTROL) {
        return (pressed.code == KeyCode::Char('c')).then_some(TopKey::Interrupt);
    }
    match pressed.code {
        KeyCode::Char(c) => Some(TopKey::Char(c)),
        KeyCode::Up => Some(TopKey::Up),
        KeyCode::Down => Some(TopKey::Down),
        KeyCode::PageUp => Some(TopKey::PageUp),
        KeyCode::PageDown => Some(TopKey::PageDown),
        KeyCode::Tab => Some(TopKey::Tab),
        KeyCode::Enter => Some(TopKey::Enter),
        KeyCode::Esc => Some(TopKey::Escape),
        _ => None,
    }
}
