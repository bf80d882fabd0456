//! What `top` shows, and what a key means. No terminal, no store, no clock: keys and readings go in, a wish may come out.

use std::collections::VecDeque;

use ostler_core::TaskId;
use ostler_wire::overview::OverviewView;
use ostler_wire::system::FindingView;

/// Lines of a transcript that are kept.
pub(crate) const MAX_LINES: usize = 2_000;

/// A table of the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    Queues,
    Tasks,
    Workers,
    Accounts,
    Problems,
}

impl Section {
    pub(crate) const ALL: [Self; 5] =
        [Self::Queues, Self::Tasks, Self::Workers, Self::Accounts, Self::Problems];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Queues => "queues",
            Self::Tasks => "running",
            Self::Workers => "workers",
            Self::Accounts => "accounts",
            Self::Problems => "problems",
        }
    }

    const fn place(self) -> usize {
        match self {
            Self::Queues => 0,
            Self::Tasks => 1,
            Self::Workers => 2,
            Self::Accounts => 3,
            Self::Problems => 4,
        }
    }
}

/// Whether keys may change something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeysAllowed {
    All,
    Looking,
}

/// A key, as far as `top` knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TopKey {
    Char(char),
    Up,
    Down,
    PageUp,
    PageDown,
    Tab,
    Enter,
    Escape,
    /// Ctrl-C.
    Interrupt,
}

/// What the loop is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    Quit,
    Pause(String),
    Resume(String),
    Cancel(TaskId),
    /// Read the events of a task, until [`Wish::Close`].
    Open(TaskId),
    Close,
}

/// A question that a capital asks first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyQuestion {
    pub(crate) sentence: String,
    wish: Wish,
}

/// The events of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Transcript {
    pub(crate) task: TaskId,
    pub(crate) lines: VecDeque<String>,
    /// Lines between the end and the last one that is shown.
    pub(crate) back: usize,
}

/// Whether the store answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StoreLink {
    Live,
    /// Since the last reading it does not, for this reason.
    Lost(String),
}

/// Everything that a frame is drawn from.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) store: String,
    pub(crate) keys: KeysAllowed,
    /// The newest reading.
    pub(crate) seen: Option<OverviewView>,
    pub(crate) findings: Vec<FindingView>,
    pub(crate) section: Section,
    /// The selected thing of each section, by name, so that it stays selected when rows come and go.
    selected: [Option<String>; 5],
    pub(crate) question: Option<KeyQuestion>,
    pub(crate) transcript: Option<Transcript>,
    /// What became of the last wish.
    pub(crate) notice: String,
    pub(crate) link: StoreLink,
}

impl Model {
    pub(crate) fn new(store: String, keys: KeysAllowed) -> Self {
        Self {
            store,
            keys,
            seen: None,
            findings: Vec::new(),
            section: Section::Queues,
            selected: Default::default(),
            question: None,
            transcript: None,
            notice: String::new(),
            link: StoreLink::Live,
        }
    }

    /// The names of the rows of the section.
    fn names(&self) -> Vec<&str> {
        let Some(seen) = &self.seen else { return Vec::new() };
        match self.section {
            Section::Queues => seen.queues.iter().map(|queue| queue.queue.as_str()).collect(),
            Section::Tasks => seen.running.iter().map(|task| task.id.as_str()).collect(),
            Section::Workers => seen.workers.iter().map(|worker| worker.id.as_str()).collect(),
            Section::Accounts => seen.accounts.iter().map(|account| account.account.as_str()).collect(),
            Section::Problems => Vec::new(),
        }
    }

    /// The place of the selected row.
    pub(crate) fn selected(&self) -> usize {
        let wanted = self.selected[self.section.place()].as_deref();
        self.names().iter().position(|name| Some(*name) == wanted).unwrap_or(0)
    }

    fn selected_name(&self) -> Option<String> {
        self.names().get(self.selected()).map(|name| (*name).to_owned())
    }

    fn step(&mut self, by: isize) {
        if let Some(transcript) = &mut self.transcript {
            let last = transcript.lines.len().saturating_sub(1);
            transcript.back = transcript.back.saturating_add_signed(-by).min(last);
            return;
        }
        let names = self.names();
        let place = self.selected().saturating_add_signed(by).min(names.len().saturating_sub(1));
        let name = names.get(place).map(|name| (*name).to_owned());
        self.selected[self.section.place()] = name;
    }

    /// The task that the selected row is about.
    fn task(&self) -> Option<TaskId> {
        if let Some(transcript) = &self.transcript {
            return Some(transcript.task);
        }
        let id = match self.section {
            Section::Tasks => self.selected_name(),
            Section::Workers => {
                let seen = self.seen.as_ref()?;
                seen.workers.get(self.selected())?.task.clone()
            }
            Section::Queues | Section::Accounts | Section::Problems => None,
        };
        id?.parse().ok()
    }

    fn queue(&self) -> Option<String> {
        match (self.section, &self.transcript) {
            (Section::Queues, None) => self.selected_name(),
            (Section::Tasks | Section::Workers | Section::Accounts | Section::Problems, _) | (_, Some(_)) => {
                None
            }
        }
    }

    /// What a key means now.
    pub(crate) fn press(&mut self, key: TopKey) -> Option<Wish> {
        if key == TopKey::Interrupt {
            return Some(Wish::Quit);
        }
        if let Some(question) = self.question.take() {
            // Everything but yes is no.
            if matches!(key, TopKey::Char('y' | 'Y')) {
                return Some(question.wish);
            }
            "nothing was done".clone_into(&mut self.notice);
            return None;
        }
        self.notice.clear();
        match key {
            TopKey::Char('q') | TopKey::Escape if self.transcript.is_some() => {
                self.transcript = None;
                Some(Wish::Close)
            }
            TopKey::Char('q') => Some(Wish::Quit),
            TopKey::Up | TopKey::Char('k') => self.moved(-1),
            TopKey::Down | TopKey::Char('j') => self.moved(1),
            TopKey::PageUp => self.moved(-10),
            TopKey::PageDown => self.moved(10),
            TopKey::Tab => self.turned((self.section.place() + 1) % Section::ALL.len()),
            TopKey::Char(digit @ '1'..='5') => self.turned(digit as usize - '1' as usize),
            TopKey::Enter => {
                let task = self.task().filter(|_| self.transcript.is_none())?;
                self.transcript = Some(Transcript { task, lines: VecDeque::new(), back: 0 });
                Some(Wish::Open(task))
            }
            TopKey::Char('p' | 'r' | 'C') => self.changed(key),
            TopKey::Char(_) | TopKey::Escape | TopKey::Interrupt => None,
        }
    }

    fn moved(&mut self, by: isize) -> Option<Wish> {
        self.step(by);
        None
    }

    fn turned(&mut self, place: usize) -> Option<Wish> {
        if self.transcript.is_none() {
            self.section = Section::ALL[place];
        }
        None
    }

    /// A key that changes something.
    fn changed(&mut self, key: TopKey) -> Option<Wish> {
        match self.keys {
            KeysAllowed::Looking => return None,
            KeysAllowed::All => {}
        }
        if key == TopKey::Char('p') {
            return self.queue().map(Wish::Pause);
        }
        if key == TopKey::Char('r') {
            return self.queue().map(Wish::Resume);
        }
        // A capital is dangerous, and asks.
        let task = self.task()?;
        let sentence = format!("cancel task {task}? y/n");
        self.question = Some(KeyQuestion { sentence, wish: Wish::Cancel(task) });
        None
    }

    /// The keys that do something now, for the last line.
    pub(crate) fn keys(&self) -> String {
        let changing = |text: &'static str| match self.keys {
            KeysAllowed::All => text,
            KeysAllowed::Looking => "",
        };
        if self.transcript.is_some() {
            return format!("j/k scroll  {}q back", changing("C cancel  "));
        }
        let own = match self.section {
            Section::Queues => changing("p pause  r resume  ").to_owned(),
            Section::Tasks | Section::Workers => format!("enter transcript  {}", changing("C cancel  ")),
            Section::Accounts | Section::Problems => String::new(),
        };
        format!("1-5 tables  j/k select  {own}q quit")
    }

    /// More lines of the open transcript.
    pub(crate) fn add_lines(&mut self, task: TaskId, lines: Vec<String>) {
        let Some(transcript) = self.transcript.as_mut().filter(|open| open.task == task) else { return };
        // What is read stays in its place.
        if transcript.back > 0 {
            transcript.back += lines.len();
        }
        transcript.lines.extend(lines);
        while transcript.lines.len() > MAX_LINES {
            transcript.lines.pop_front();
        }
        transcript.back = transcript.back.min(transcript.lines.len().saturating_sub(1));
    }
}
