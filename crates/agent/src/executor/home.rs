//! The home of a conversation: the config folder of an agent, in which it also keeps the conversation, and what is known of it here.
//!
//! Each task has a home of its own, and each session of a gateway: `POOL/TASK` or `POOL/SESSION` in the folder of the pool's conversations, with mode 0700. So no two agents share a
//! config folder, the next attempt of a task finds its conversation on the same machine, and a conversation outlives the process, the
//! worker and the node. An attempt holds a lock on it: agents let two processes write to one conversation.
//!
//! Beside the config folder there is a small record: how the conversation stands, and which tasks used it. It is written before what it
//! says can be asked for. A home goes with its last task: `keeper.rs`.

use std::fs::{DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ostler_config::StoreMark;
use ostler_core::{Cost, Usage, add_usage};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::launch::{LaunchPlan, is_session_id};
use crate::reason::FollowUp;
use crate::settings::SessionStart;

/// How long a home is kept after its last attempt if it is not known which store its tasks are in: as long as failed tasks are, which can be
/// replayed.
const KEPT: Duration = Duration::from_secs(30 * 24 * 3_600);
/// Homes that are looked at in one sweep.
const MAX_SWEPT: usize = 100_000;
/// How often usage is written down, at most.
pub(crate) const COUNT_INTERVAL: Duration = Duration::from_secs(1);
/// How often the time of an attempt is written down while its agent is silent.
const ELAPSED_INTERVAL: Duration = Duration::from_secs(5);
const CONFIG: &str = "config";
const RECORD: &str = "conversation.json";
const LOCK: &str = "lock";
/// Links from the id of a conversation to its home.
const SESSIONS: &str = "sessions";

/// The homes of one pool.
#[derive(Clone, Debug)]
pub(super) struct Homes(PathBuf);

/// The home of one conversation, locked.
#[derive(Debug)]
pub(super) struct Home {
    folder: PathBuf,
    sessions: PathBuf,
    record: Record,
    /// When counts were written down, in the time of the attempt.
    counted: Option<Duration>,
    /// Whether counts wait for the next tick.
    is_unsaved: bool,
    _lock: File,
}

/// How a conversation stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Record {
    /// The dialect of the agent that keeps it.
    dialect: String,
    session: Option<String>,
    /// The task, or the query, whose prompt the agent has begun to work on.
    begun: Option<String>,
    /// Model requests so far.
    turns: u32,
    /// How long the attempt has run that did not come to an end.
    elapsed_ms: u64,
    /// Whether the next attempt begins a new conversation.
    starts_new: bool,
    /// Usage that was seen and not reported yet.
    seen: Vec<SeenUsage>,
    /// What was spent in the conversation and reported, by all its tasks: the totals of an agent go on from there.
    spent: Vec<SeenUsage>,
    /// A digest of the prompt that the agent got: another one is sent whole.
    prompt: Option<String>,
    /// The tasks that used it.
    tasks: Vec<HomeTask>,
}

/// A task that used a home.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HomeTask {
    pub(super) id: String,
    /// The mark of the store that it is in.
    pub(super) store: Option<String>,
}

/// Usage in a record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SeenUsage {
    model: Option<String>,
    input: u64,
    output: u64,
    cache_read: u64,
    cache_write: u64,
    reasoning: u64,
    cost_nanos: Option<u64>,
}

impl From<&Usage> for SeenUsage {
    fn from(usage: &Usage) -> Self {
        Self {
            model: usage.model.clone(),
            input: usage.input_tokens,
            output: usage.output_tokens,
            cache_read: usage.cache_read_tokens,
            cache_write: usage.cache_write_tokens,
            reasoning: usage.reasoning_tokens,
            cost_nanos: usage.cost.map(Cost::nanos),
        }
    }
}

impl From<SeenUsage> for Usage {
    fn from(seen: SeenUsage) -> Self {
        Self {
            model: seen.model,
            input_tokens: seen.input,
            output_tokens: seen.output,
            cache_read_tokens: seen.cache_read,
            cache_write_tokens: seen.cache_write,
            reasoning_tokens: seen.reasoning,
            cost: seen.cost_nanos.map(Cost::from_nanos),
            ..Self::default()
        }
    }
}

/// Why there is no home.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoHome {
    #[error("the conversation {0} is not on this machine")]
    NotHere(String),
    #[error("the conversation is in use by another process")]
    InUse,
    #[error("there is no folder for the conversation in {0:?}: {1}")]
    System(PathBuf, io::Error),
}

/// How a run begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Beginning {
    pub(super) session: SessionStart,
    pub(super) prompt: FirstPrompt,
    /// Why an earlier conversation is not continued.
    pub(super) note: Option<String>,
}

/// The first prompt of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FirstPrompt {
    Whole,
    /// The prompt is in the history already.
    GoOn,
}

/// What an attempt knows of its conversation before it begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    pub(super) task: &'a str,
    /// The name of its home, unless the payload names another conversation.
    pub(super) home: &'a str,
    /// What is asked: the task, or the number of a query. The prompt of another is sent whole, even if it is the same.
    pub(super) query: &'a str,
    pub(super) dialect: &'a str,
    /// The conversation of the last attempt.
    pub(super) previous: Option<&'a str>,
    /// The conversation that the payload names.
    pub(super) given: Option<&'a str>,
    /// The prompt of the task.
    pub(super) prompt: &'a str,
    /// The store that the task is in.
    pub(super) mark: Option<&'a StoreMark>,
}

impl Homes {
    pub(super) const fn new(folder: PathBuf) -> Self {
        Self(folder)
    }

    /// Opens the home of a task, or of the conversation that it is to go on with.
    pub(super) fn open(&self, asked: &Asked<'_>) -> Result<Home, NoHome> {
        let refused = |error| NoHome::System(self.0.clone(), error);
        let sessions = self.0.join(SESSIONS);
        private_folder(&sessions).map_err(refused)?;
        let folder = match asked.given {
            None => self.0.join(asked.home),
            Some(id) => {
                let home = std::fs::canonicalize(sessions.join(id));
                home.map_err(|_| NoHome::NotHere(id.to_owned()))?
            }
        };
        private_folder(&folder.join(CONFIG)).map_err(refused)?;
        let lock =
            File::options().create(true).truncate(false).write(true).mode(0o600).open(folder.join(LOCK));
        let lock = lock.map_err(refused)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(NoHome::InUse),
            Err(TryLockError::Error(error)) => return Err(refused(error)),
        }
        // A record that cannot be read is none: the conversation begins anew.
        let record = std::fs::read(folder.join(RECORD)).ok();
        let found = record.and_then(|json| serde_json::from_slice::<Record>(&json).ok());
        let mut record = found.clone().unwrap_or_default();
        if found.is_some_and(|found| found.tasks.is_empty()) {
            // An earlier version wrote no tasks. Its own task has used it, in whichever store.
            let own = folder.file_name().map(|name| name.to_string_lossy().into_owned());
            record.tasks.extend(own.map(|id| HomeTask { id, store: None }));
        }
        Ok(Home { folder, sessions, record, counted: None, is_unsaved: false, _lock: lock })
    }

    /// Removes homes that were not used for long, unless they go with tasks.
    pub(super) fn sweep(&self) {
        let Ok(entries) = std::fs::read_dir(&self.0) else { return };
        for folder in entries.filter_map(Result::ok).map(|entry| entry.path()).take(MAX_SWEPT) {
            let is_old = |path: &Path| {
                let changed = path.metadata().and_then(|found| found.modified()).ok();
                changed.and_then(|at| at.elapsed().ok()).is_some_and(|age| age > KEPT)
            };
            let is_free = || File::open(folder.join(LOCK)).is_ok_and(|lock| lock.try_lock().is_ok());
            let goes_with_tasks = || {
                let users = users_of(&folder);
                !users.is_empty() && users.iter().all(|user| user.store.is_some())
            };
            if is_old(&folder.join(RECORD)) && !goes_with_tasks() && is_free() {
                // What is left of it is removed next time.
                let _ = std::fs::remove_dir_all(&folder);
            }
        }
        forget_sessions(&self.0);
    }
}

impl Home {
    /// The agent's config folder.
    pub(super) fn config(&self) -> PathBuf {
        self.folder.join(CONFIG)
    }

    /// The conversation that it has.
    pub(super) fn session(&self) -> Option<String> {
        self.record.session.clone()
    }

    /// Model requests of the task so far.
    pub(super) const fn turns(&self) -> u32 {
        self.record.turns
    }

    /// How long the attempt before this one ran, if it did not come to an end. It counts once: an attempt without time left is
    /// followed by one that has all of it.
    pub(super) fn take_elapsed(&mut self) -> io::Result<Duration> {
        let elapsed = Duration::from_millis(std::mem::take(&mut self.record.elapsed_ms));
        if !elapsed.is_zero() {
            self.save()?;
        }
        Ok(elapsed)
    }

    /// Decides how the first run of an attempt begins; `fresh` is the id of a new conversation.
    pub(super) fn begin(&mut self, asked: &Asked<'_>, fresh: String) -> io::Result<Beginning> {
        let prompt = Some(digest(asked.prompt));
        if self.record.prompt.is_some() && self.record.prompt != prompt {
            // The payload was replaced: what the agent has begun is another prompt.
            self.record.begun = None;
        }
        let beginning = self.record.beginning(asked, fresh);
        if asked.previous.is_none() {
            // A first attempt, or one from scratch.
            let Record { session, seen, tasks, mut spent, .. } = std::mem::take(&mut self.record);
            if matches!(beginning.session, SessionStart::New { .. }) {
                spent.clear();
            }
            self.record = Record { session, seen, tasks, spent, ..Record::default() };
        }
        self.record.prompt = prompt;
        self.record.dialect = asked.dialect.to_owned();
        let user = HomeTask { id: asked.task.to_owned(), store: asked.mark.map(|mark| mark.0.clone()) };
        self.record.tasks.retain(|task| task.id != user.id);
        self.record.tasks.push(user);
        self.save()?;
        Ok(beginning)
    }

    /// Writes the files of a plan, and links the user's credentials: a login that is renewed is renewed for all.
    pub(super) fn furnish(&self, plan: &LaunchPlan, login: Option<&Path>) -> io::Result<()> {
        let config = self.config();
        for file in &plan.files {
            let path = config.join(file.path);
            path.parent().map_or(Ok(()), private_folder)?;
            write_private(&path, file.text.as_bytes())?;
        }
        let Some(login) = login else { return Ok(()) };
        for name in plan.credentials {
            let (from, to) = (login.join(name), config.join(name));
            if from.exists() && to.symlink_metadata().is_err() {
                to.parent().map_or(Ok(()), private_folder)?;
                symlink(from, to)?;
            }
        }
        Ok(())
    }

    /// The conversation has this id.
    pub(super) fn has_session(&mut self, id: &str) -> io::Result<()> {
        if self.record.session.as_deref() != Some(id) {
            self.record.session = Some(id.to_owned());
            self.record.begun = None;
            self.record.spent.clear();
        }
        self.record.starts_new = false;
        self.save()?;
        let link = self.sessions.join(id);
        // The agent chose it: a path in it must not lead out of the folder.
        if is_session_id(id) && link.symlink_metadata().is_err() {
            symlink(&self.folder, link)?;
        }
        Ok(())
    }

    /// The agent works on the prompt of this task or query.
    pub(super) fn has_begun(&mut self, query: &str) -> io::Result<()> {
        self.record.begun = Some(query.to_owned());
        self.save()
    }

    /// Model requests of the task. Each is written down at once: it was paid for.
    pub(super) fn has_turned(&mut self, turns: u32, elapsed: Duration) -> io::Result<()> {
        self.record.turns = turns;
        self.save_counts(elapsed)
    }

    /// Usage that was seen and is not reported yet: if the node dies, the next attempt counts it.
    pub(super) fn has_seen(&mut self, usage: &[Usage], elapsed: Duration) -> io::Result<()> {
        let seen: Vec<SeenUsage> = usage.iter().map(SeenUsage::from).collect();
        if seen == self.record.seen {
            return Ok(());
        }
        self.record.seen = seen;
        self.count(elapsed)
    }

    /// What was spent in the conversation and reported.
    pub(super) fn spent(&self) -> Vec<Usage> {
        self.record.spent.iter().cloned().map(Usage::from).collect()
    }

    /// This usage is reported, and with it all that was seen.
    pub(super) fn has_reported(&mut self, usage: &Usage) -> io::Result<()> {
        let mut spent = self.spent();
        add_usage(&mut spent, usage);
        self.record.spent = spent.iter().map(SeenUsage::from).collect();
        self.record.seen.clear();
        self.save()
    }

    /// Usage that an attempt had seen when its node died.
    pub(super) fn take_seen(&mut self) -> io::Result<Vec<Usage>> {
        let seen = std::mem::take(&mut self.record.seen);
        if !seen.is_empty() {
            self.save()?;
        }
        Ok(seen.into_iter().map(Usage::from).collect())
    }

    /// Time passes: writes down the counts that wait, and from time to time how long the attempt has run. A tool may be silent until the
    /// node dies.
    pub(super) fn tick(&mut self, elapsed: Duration) -> io::Result<()> {
        let is_due = self.counted.is_none_or(|at| elapsed >= at + ELAPSED_INTERVAL);
        if self.is_unsaved || is_due { self.save_counts(elapsed) } else { Ok(()) }
    }

    fn count(&mut self, elapsed: Duration) -> io::Result<()> {
        if self.counted.is_some_and(|at| elapsed < at + COUNT_INTERVAL) {
            self.is_unsaved = true;
            return Ok(());
        }
        self.save_counts(elapsed)
    }

    fn save_counts(&mut self, elapsed: Duration) -> io::Result<()> {
        self.record.elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        self.counted = Some(elapsed);
        self.save()
    }

    /// The attempt came to an end: the next one has its whole time.
    pub(super) fn has_ended(&mut self, next: FollowUp) -> io::Result<()> {
        self.record.elapsed_ms = 0;
        self.record.seen.clear();
        self.record.starts_new = next == FollowUp::StartNew;
        self.save()
    }

    fn save(&mut self) -> io::Result<()> {
        self.is_unsaved = false;
        let json = serde_json::to_vec(&self.record)?;
        replace(&self.folder.join(RECORD), &json)
    }
}

impl Record {
    fn beginning(&self, asked: &Asked<'_>, fresh: String) -> Beginning {
        let new =
            |note| Beginning { session: SessionStart::New { id: fresh }, prompt: FirstPrompt::Whole, note };
        let Some(id) = asked.previous.or(asked.given) else { return new(None) };
        let not_here = || Some(format!("the conversation {id} is not on this machine: a new one begins"));
        if self.session.as_deref() != Some(id) || self.dialect != asked.dialect {
            return new(not_here());
        }
        if asked.previous.is_some() && self.starts_new {
            return new(Some(format!("the conversation {id} cannot be continued: a new one begins")));
        }
        let is_begun = asked.previous.is_some() && self.begun.as_deref() == Some(asked.query);
        let prompt = if is_begun { FirstPrompt::GoOn } else { FirstPrompt::Whole };
        Beginning { session: SessionStart::Resume { id: id.to_owned() }, prompt, note: None }
    }
}

/// The tasks that used a home; none if its record cannot be read.
pub(super) fn users_of(folder: &Path) -> Vec<HomeTask> {
    let json = std::fs::read(folder.join(RECORD)).ok();
    let record = json.and_then(|json| serde_json::from_slice::<Record>(&json).ok());
    record.map(|record| record.tasks).unwrap_or_default()
}

/// The lock of a home; `None` if an attempt holds it.
pub(super) fn lock_of(folder: &Path) -> io::Result<Option<File>> {
    let lock = File::open(folder.join(LOCK))?;
    match lock.try_lock() {
        Ok(()) => Ok(Some(lock)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Removes the links to homes that are gone, in the folder of a pool.
pub(super) fn forget_sessions(pool: &Path) {
    let links = std::fs::read_dir(pool.join(SESSIONS)).into_iter().flatten().filter_map(Result::ok);
    for link in links.map(|entry| entry.path()).take(MAX_SWEPT) {
        if !link.exists() {
            let _ = std::fs::remove_file(&link);
        }
    }
}

fn digest(prompt: &str) -> String {
    Sha256::digest(prompt).iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn private_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Replaces a file, which others see as it was or as it is.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let next = path.with_extension("next");
    write_private(&next, bytes)?;
    std::fs::rename(next, path)
}

fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    use std::io::Write as _;
    File::options().create(true).truncate(true).write(true).mode(0o600).open(path)?.write_all(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKED: Asked<'_> = Asked {
        task: "T",
        home: "T",
        query: "T",
        dialect: "claude",
        previous: None,
        given: None,
        prompt: "Do it.",
        mark: None,
    };

    fn homes() -> (tempfile::TempDir, Homes) {
        let folder = tempfile::tempdir().expect("a folder");
        let homes = Homes::new(folder.path().join("reviews"));
        (folder, homes)
    }

    fn beginning(homes: &Homes, asked: &Asked<'_>) -> Beginning {
        homes.open(asked).expect("a home").begin(asked, "new".into()).expect("it is written")
    }

    fn resumed(id: &str, prompt: FirstPrompt) -> Beginning {
        Beginning { session: SessionStart::Resume { id: id.into() }, prompt, note: None }
    }

    #[test]
    fn an_id_that_is_a_path_leaves_no_link_outside() {
        let (folder, homes) = homes();
        homes.open(&ASKED).expect("a home").has_session("../../out").expect("it is written");
        assert!(folder.path().join("out").symlink_metadata().is_err());
    }

    #[test]
    fn a_conversation_is_resumed_where_it_is_and_goes_on_once_its_prompt_was_begun() {
        let (_folder, homes) = homes();
        let again = Asked { previous: Some("s-1"), ..ASKED };
        assert_eq!(beginning(&homes, &ASKED).session, SessionStart::New { id: "new".into() });
        homes.open(&ASKED).expect("a home").has_session("s-1").expect("it is written");
        assert_eq!(beginning(&homes, &again), resumed("s-1", FirstPrompt::Whole));
        let mut home = homes.open(&ASKED).expect("a home");
        home.has_begun("T").and_then(|()| home.has_turned(3, Duration::from_secs(5))).expect("it is written");
        drop(home);
        assert_eq!(beginning(&homes, &again), resumed("s-1", FirstPrompt::GoOn));
        let mut home = homes.open(&again).expect("a home");
        assert_eq!(home.turns(), 3, "limits go on");
        let mut elapsed = || home.take_elapsed().expect("it is written");
        assert_eq!((elapsed(), elapsed()), (Duration::from_secs(5), Duration::ZERO));
    }

    #[test]
    fn counts_that_came_too_soon_and_the_time_are_written_down_at_the_next_tick() {
        let (_folder, homes) = homes();
        let mut home = homes.open(&ASKED).expect("a home");
        let written = |home: &Home| -> Record {
            let json = std::fs::read(home.folder.join(RECORD)).expect("it is there");
            serde_json::from_slice(&json).expect("JSON")
        };
        let at = Duration::from_millis;
        let usage = |tokens| [Usage { input_tokens: tokens, ..Usage::default() }];
        home.has_seen(&usage(1), at(100))
            .and_then(|()| home.has_seen(&usage(2), at(200)))
            .expect("it is written");
        assert_eq!(written(&home).seen[0].input, 1);
        home.tick(at(900)).expect("it is written");
        assert_eq!((written(&home).seen[0].input, written(&home).elapsed_ms), (2, 900));
        home.tick(at(5_800)).and_then(|()| home.tick(at(5_900))).expect("it is written");
        assert_eq!(written(&home).elapsed_ms, 5_900, "every five seconds");
    }

    #[test]
    fn a_conversation_of_another_machine_or_without_hope_begins_anew_and_says_so() {
        let (_folder, homes) = homes();
        let again = Asked { previous: Some("s-1"), ..ASKED };
        let elsewhere = beginning(&homes, &again);
        assert_eq!(elsewhere.session, SessionStart::New { id: "new".into() });
        assert!(elsewhere.note.is_some_and(|note| note.contains("s-1 is not on this machine")));
        let mut home = homes.open(&ASKED).expect("a home");
        home.has_session("s-1").and_then(|()| home.has_ended(FollowUp::StartNew)).expect("it is written");
        drop(home);
        assert!(beginning(&homes, &again).note.is_some_and(|note| note.contains("cannot be continued")));
    }

    #[test]
    fn what_a_conversation_has_spent_goes_on_with_the_task_that_continues_it_and_ends_with_it() {
        let (_folder, homes) = homes();
        let usage = Usage { input_tokens: 5, reasoning_tokens: 2, ..Usage::default() };
        let mut home = homes.open(&ASKED).expect("a home");
        home.begin(&ASKED, "s-1".into()).and_then(|_| home.has_session("s-1")).expect("it is written");
        home.has_reported(&usage).and_then(|()| home.has_reported(&usage)).expect("it is written");
        drop(home);
        let spent = |asked: &Asked<'_>| {
            let mut home = homes.open(asked).expect("a home");
            home.begin(asked, "s-2".into()).expect("it is written");
            home.spent().iter().map(|one| (one.input_tokens, one.reasoning_tokens)).collect::<Vec<_>>()
        };
        let other = Asked { task: "U", given: Some("s-1"), ..ASKED };
        assert_eq!(spent(&other), [(10, 4)], "a first attempt of the task that continues it");
        assert_eq!(spent(&Asked { previous: Some("s-1"), ..other }), [(10, 4)], "and the next one");
        assert_eq!(spent(&ASKED), [], "from scratch");
    }

    #[test]
    fn a_given_conversation_is_found_by_its_id_and_gets_the_whole_prompt() {
        let (_folder, homes) = homes();
        homes.open(&ASKED).expect("a home").begin(&ASKED, "s-1".into()).expect("it is written");
        homes.open(&ASKED).expect("a home").has_session("s-1").expect("it is written");
        let other = Asked { task: "U", given: Some("s-1"), ..ASKED };
        assert_eq!(beginning(&homes, &other), resumed("s-1", FirstPrompt::Whole));
        let missing = Asked { given: Some("s-2"), ..other };
        assert!(matches!(homes.open(&missing), Err(NoHome::NotHere(_))));
    }

    #[test]
    fn a_home_is_private_and_has_one_user_at_a_time() {
        use std::os::unix::fs::PermissionsExt as _;
        let (_folder, homes) = homes();
        let home = homes.open(&ASKED).expect("a home");
        assert!(matches!(homes.open(&ASKED), Err(NoHome::InUse)));
        let mode = home.config().metadata().expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }
}
