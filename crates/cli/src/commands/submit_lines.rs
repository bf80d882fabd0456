//! `ostler submit --jsonl`: enqueues many tasks, in batches.
//!
//! A batch is one call on the store: all its tasks are on disk, or none. A line that is wrong refuses its batch before anything of it
//! is stored. A run that was interrupted is repeated: lines with an id or a key of their own make no second task.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ostler::RemoteClient;
use ostler_core::{Readiness, TaskId};
use ostler_ops::OpsError;
use ostler_ops::input::submit_request;
use ostler_ops::obstacle::{Candidate, CandidateRecord};
use ostler_ops::submit::{BatchError, SubmitAnswer, SubmitRequest, line_view, submit_batch};
use ostler_runtime::Ids;
use ostler_store::{Bounds, Clock as _, MAX_AFTER_IN_CALL, MAX_BATCH, Store, SystemClock};
use ostler_wire::task::{SubmitResult, SubmittedLine};

use super::obstacles::tell_at_once;
use super::remote::submit as remote;
use super::{Console, payload, submit, task_name};
use crate::args::task_line;
use crate::exit::{Code, code_of, refused, say, sentence};
use crate::print::Format;
use crate::store_location::{IfMissing, StoreLocation};

/// Bytes of the lines of one batch, unless a single line has more.
const MAX_BATCH_BYTES: usize = 16 << 20;
/// Bytes of a line beside its payload.
const MAX_REST_BYTES: usize = 1 << 20;
/// Refused lines that are reported one by one.
const MAX_REPORTED: usize = 20;

pub(super) async fn run(
    console: &Console,
    file: PathBuf,
    queue: Option<String>,
    kind: Option<String>,
) -> anyhow::Result<Code> {
    let place = console.place()?;
    run_on(console, Target::Place(place), file, queue, kind).await
}

/// Where the tasks go.
pub(super) enum Target {
    Place(StoreLocation),
    Store(Arc<dyn Store>),
    Node(RemoteClient),
}

pub(super) async fn run_on(
    console: &Console,
    mut target: Target,
    file: PathBuf,
    queue: Option<String>,
    kind: Option<String>,
) -> anyhow::Result<Code> {
    let bounds = match &target {
        Target::Place(place) => place.bounds(),
        Target::Store(_) | Target::Node(_) => Bounds::default(),
    };
    let ids = submit::ids()?;
    let input = open(&file)?;
    let mut reader = LineReader { input, file, number: 0, ahead: None, queue, kind, ids, bounds };
    let mut total = Total::default();
    loop {
        // Standard input may be a terminal, and the user may interrupt.
        let (back, batch) = tokio::task::spawn_blocking(move || {
            let batch = reader.batch();
            (reader, batch)
        })
        .await?;
        reader = back;
        let batch = batch.map_err(|error| total.before(&error))?;
        if batch.is_empty() {
            break;
        }
        // Opened when there is something to store: a file that is wrong from the start creates no store.
        if let Target::Place(place) = &target {
            target = Target::Store(place.open(IfMissing::Make).await?);
        }
        if enqueue(console, &target, batch, &mut total).await? == Next::Stop {
            break;
        }
    }
    total.tell_obstacles(&target).await;
    total.end(console)
}

fn open(file: &Path) -> anyhow::Result<Box<dyn BufRead + Send>> {
    if file == Path::new("-") {
        return Ok(Box::new(BufReader::new(io::stdin())));
    }
    match std::fs::File::open(file) {
        Ok(opened) => Ok(Box::new(BufReader::new(opened))),
        Err(error) => Err(refused(Code::BadInput, format!("cannot read {}: {error}", file.display()))),
    }
}

fn shown(file: &Path) -> std::borrow::Cow<'_, str> {
    if file == Path::new("-") { "standard input".into() } else { file.to_string_lossy() }
}

/// The task of a line.
struct NumberedRequest {
    line: u64,
    request: SubmitRequest,
}

/// Reads tasks from lines.
struct LineReader {
    input: Box<dyn BufRead + Send>,
    file: PathBuf,
    /// The lines read so far.
    number: u64,
    /// A line that did not fit into the last batch.
    ahead: Option<(usize, NumberedRequest)>,
    queue: Option<String>,
    kind: Option<String>,
    ids: Ids,
    bounds: Bounds,
}

impl LineReader {
    /// The next tasks; none at the end of the input.
    fn batch(&mut self) -> anyhow::Result<Vec<NumberedRequest>> {
        let mut batch: Vec<NumberedRequest> = Vec::new();
        let (mut bytes, mut after) = (0, 0);
        while batch.len() < MAX_BATCH {
            let next = match self.ahead.take() {
                Some(next) => Some(next),
                None => self.next()?,
            };
            let Some((size, next)) = next else { break };
            bytes += size;
            after += next.request.after.len();
            if !batch.is_empty() && (bytes > MAX_BATCH_BYTES || after > MAX_AFTER_IN_CALL) {
                self.ahead = Some((size, next));
                break;
            }
            batch.push(next);
        }
        Ok(batch)
    }

    /// The task of the next line that is not empty, and the length of the line.
    fn next(&mut self) -> anyhow::Result<Option<(usize, NumberedRequest)>> {
        let most = self.bounds.payload_bytes + MAX_REST_BYTES;
        loop {
            let mut bytes = Vec::new();
            self.number += 1;
            let read = self.input.by_ref().take(most as u64 + 1).read_until(b'\n', &mut bytes);
            read.map_err(|error| self.wrong(&error.to_string()))?;
            if bytes.is_empty() {
                return Ok(None);
            }
            if bytes.len() > most {
                return Err(self.wrong(&format!("longer than {most} bytes, the maximum")));
            }
            let text = std::str::from_utf8(&bytes).map_err(|_| self.wrong("must be UTF-8 text"))?.trim();
            if !text.is_empty() {
                let request = self.request(text).map_err(|error| self.wrong(&sentence(&error)))?;
                return Ok(Some((bytes.len(), NumberedRequest { line: self.number, request })));
            }
        }
    }

    fn request(&self, text: &str) -> anyhow::Result<SubmitRequest> {
        let bad = |sentence: String| refused(Code::BadInput, sentence);
        let mut line = task_line::parse(text, self.queue.as_deref(), self.kind.as_deref()).map_err(bad)?;
        if let Some(payload) = &line.payload {
            payload::check(payload.get().as_bytes().to_vec(), self.bounds)?;
        }
        line.folder = line.folder.as_deref().map(|given| submit::folder(Path::new(given))).transpose()?;
        let request =
            submit_request(line, || TaskId((self.ids)())).map_err(|error| bad(error.to_string()))?;
        request.check(self.bounds, SystemClock.now())?;
        Ok(request)
    }

    fn wrong(&self, sentence: &str) -> anyhow::Error {
        refused(Code::BadInput, format!("{}, line {}: {sentence}", shown(&self.file), self.number))
    }
}

/// Whether to go on with the next batch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Continue,
    Stop,
}

/// Stores a batch, and prints what became of its lines.
async fn enqueue(
    console: &Console,
    target: &Target,
    batch: Vec<NumberedRequest>,
    total: &mut Total,
) -> anyhow::Result<Next> {
    let (lines, requests): (Vec<u64>, Vec<SubmitRequest>) =
        batch.into_iter().map(|NumberedRequest { line, request }| (line, request)).unzip();
    let lane = |request: &SubmitRequest| (request.task.queue.clone(), request.task.kind.clone());
    let lanes: Vec<(String, String)> = requests.iter().map(lane).collect();
    let answers = match target {
        Target::Store(store) => stored(store.as_ref(), &lines, requests, total).await?,
        Target::Node(node) => {
            remote::batch(node, &lines, &requests).await.map_err(|error| total.before(&error))?
        }
        Target::Place(_) => unreachable!("it is opened before the first batch"),
    };
    let mut next = Next::Continue;
    for ((view, refused), lane) in answers.into_iter().zip(lanes) {
        if matches!(view.result, SubmitResult::Created | SubmitResult::Replaced) {
            total.lanes.insert(lane);
        }
        if view.result == SubmitResult::QueueFull {
            // The next lines would find it full, too.
            next = Next::Stop;
        }
        match (console.out.format(), &view.id) {
            (Format::Json, _) => console.out.json(&view)?,
            (Format::People, Some(id)) if refused.is_none() => console.out.line(id)?,
            (Format::People, _) => {}
        }
        match refused {
            None => *total.stored.entry(view.result).or_default() += 1,
            Some(error) => total.refuse(view.line, &error),
        }
    }
    Ok(next)
}

/// Stores a batch, and returns what became of each line, with why nothing was enqueued.
async fn stored(
    store: &dyn Store,
    lines: &[u64],
    mut requests: Vec<SubmitRequest>,
    total: &Total,
) -> anyhow::Result<Vec<(SubmittedLine, Option<anyhow::Error>)>> {
    for (line, request) in lines.iter().zip(&mut requests) {
        let after = task_name::all_whole(store, std::mem::take(&mut request.after)).await;
        request.after = after.map_err(|error| total.before(&at_line(*line, &error)))?;
    }
    let answers = submit_batch(store, &requests).await.map_err(|error| match error {
        BatchError::Request(place, error) => total.before(&at_line(lines[place], &error.into())),
        BatchError::Store(error) => total.before(&error.into()),
        BatchError::Comparison(error) => {
            let error = error.into();
            refused(code_of(&error), format!("{}; this batch was stored", sentence(&error)))
        }
    })?;
    let told = lines.iter().zip(answers).map(|(line, answer)| {
        let view = line_view(*line, &answer);
        let refused = match answer {
            Ok(SubmitAnswer::Rejected(holder)) => Some(submit::rejected(holder)),
            Ok(
                SubmitAnswer::Created(_)
                | SubmitAnswer::SameId(_)
                | SubmitAnswer::SameKey(_)
                | SubmitAnswer::Replaced(_),
            ) => None,
            Err(why) => Some(OpsError::from(why).into()),
        };
        (view, refused)
    });
    Ok(told.collect())
}

fn at_line(line: u64, error: &anyhow::Error) -> anyhow::Error {
    refused(code_of(error), format!("line {line}: {}", sentence(error)))
}

/// What became of the lines so far.
#[derive(Default)]
struct Total {
    /// Lines whose task is stored, by result.
    stored: BTreeMap<SubmitResult, u64>,
    refused: usize,
    /// Why the first line was refused.
    code: Option<Code>,
    /// Queues and kinds of the tasks that were enqueued.
    lanes: BTreeSet<(String, String)>,
}

impl Total {
    fn refuse(&mut self, line: u64, error: &anyhow::Error) {
        self.refused += 1;
        self.code.get_or_insert(code_of(error));
        if self.refused <= MAX_REPORTED {
            say(&format!("line {line}: {}", sentence(error)));
        }
    }

    /// An error that ends the command, with what was done before.
    fn before(&self, error: &anyhow::Error) -> anyhow::Error {
        let why = sentence(error);
        let all = format!("{why}; nothing of this batch was stored; before it: {}", self.sentence());
        refused(code_of(error), all)
    }

    /// Looks once at the queues, and says why nothing of them will start.
    async fn tell_obstacles(&self, target: &Target) {
        let Target::Store(store) = target else { return };
        let record = CandidateRecord::New(Readiness::Ready);
        let lanes = self.lanes.iter().take(MAX_REPORTED);
        let tasks: Vec<Candidate<'_>> =
            lanes.map(|(queue, kind)| Candidate { queue, kind, limit_key: None, record }).collect();
        if !tasks.is_empty() {
            tell_at_once(store.as_ref(), &tasks).await;
        }
    }

    fn sentence(&self) -> String {
        let part = |(result, count): (&SubmitResult, &u64)| format!("{count} {}", result.name());
        let parts: Vec<String> = self.stored.iter().map(part).collect();
        if parts.is_empty() { "no tasks".to_owned() } else { parts.join(", ") }
    }

    fn end(&self, console: &Console) -> anyhow::Result<Code> {
        if let Some(code) = self.code {
            let sentence = format!("{} lines were refused; the others: {}", self.refused, self.sentence());
            return Err(refused(code, sentence));
        }
        if console.out.format() == Format::People {
            say(&self.sentence());
        }
        Ok(Code::Done)
    }
}
