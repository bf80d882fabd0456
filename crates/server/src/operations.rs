//! The table of operations: everything that can be asked of a node over HTTP, and nothing else.
//!
//! A row makes a route, a part of the description, and a permission; and it names the command line that does the same. The functions in
//! the folder beside read the request, call a use case, and answer with its view.

mod accounts;
mod files;
mod jobs;
mod live;
mod queues;
mod schedules;
mod system;
mod tasks;
mod tasks_many;

use std::future::Future;
use std::pin::Pin;

use schemars::{JsonSchema, Schema, SchemaGenerator};

use crate::answer::{Answer, RequestError};
use crate::call::ApiCall;
use crate::tokens::Access;
pub(crate) use system::{close_session, open_session};

/// An operation under way.
pub(crate) type Running = Pin<Box<dyn Future<Output = Result<Answer, RequestError>> + Send>>;

/// The method of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationMethod {
    Get,
    Post,
    Put,
    Delete,
}

impl OperationMethod {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
        }
    }

    pub(crate) fn is(self, method: &hyper::Method) -> bool {
        method.as_str() == self.name()
    }
}

/// Whether an operation changes something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationEffect {
    Look,
    Change,
}

/// What can go wrong if it was not meant: whether a page asks first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Danger {
    None,
    /// Running work stops, or work starts that costs something.
    Disruptive,
    /// Something is removed for good.
    Destructive,
}

impl Danger {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Disruptive => "disruptive",
            Self::Destructive => "destructive",
        }
    }
}

/// Whether the caller must prove who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credentials {
    Needed,
    /// A token: a session of a browser is not enough.
    Token,
    /// As `Needed`, unless the config opens it to everyone.
    UnlessOpened,
    NotNeeded,
}

/// Whether the audit has a record of it.
#[derive(Clone, Copy)]
pub(crate) enum Audited {
    Yes,
    No,
    /// One for each action on many tasks, whose id this finds in the request. One without an id changes nothing.
    Action(ActionId),
}

/// Finds the id of an action on many tasks.
pub(crate) type ActionId = fn(&ApiCall) -> Result<Option<String>, RequestError>;

/// The schema of a query, a body or an answer.
pub type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

fn schema<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// What an operation answers when it succeeds.
#[derive(Clone, Copy)]
pub enum Answers {
    Json(SchemaOf),
    /// A stream of server-sent events, each with this JSON.
    Events(SchemaOf),
    /// A JSON object per line.
    Lines(SchemaOf),
    /// Bytes of a file.
    File,
    /// Metrics, in OpenMetrics text for readers that ask for it.
    OpenMetrics,
    Nothing,
    /// A page of the dashboard, in HTML. A changing one takes a form.
    Page,
    /// A file of the pages.
    PageFile,
}

impl Answers {
    /// Whether an answer may be cut after any line.
    pub(crate) const fn is_lines(&self) -> bool {
        match self {
            Self::Lines(_) => true,
            Self::Json(_)
            | Self::Events(_)
            | Self::File
            | Self::OpenMetrics
            | Self::Nothing
            | Self::Page
            | Self::PageFile => false,
        }
    }
}

/// A row of the table.
pub struct Operation {
    /// For programs; never changes.
    pub id: &'static str,
    pub method: OperationMethod,
    pub path: &'static str,
    pub summary: &'static str,
    pub effect: OperationEffect,
    pub danger: Danger,
    pub credentials: Credentials,
    /// What a credential must permit.
    pub access: Access,
    pub(crate) audited: Audited,
    pub query: Option<SchemaOf>,
    pub body: Option<SchemaOf>,
    /// The status of success.
    pub status: u16,
    pub answers: Answers,
    /// The command line that does the same; empty: there is none.
    pub command: &'static str,
    pub(crate) run: fn(ApiCall) -> Running,
}

impl Operation {
    const fn look(
        id: &'static str,
        path: &'static str,
        summary: &'static str,
        command: &'static str,
        answers: Answers,
        run: fn(ApiCall) -> Running,
    ) -> Self {
        Self {
            id,
            method: OperationMethod::Get,
            path,
            summary,
            effect: OperationEffect::Look,
            danger: Danger::None,
            credentials: Credentials::Needed,
            access: Access::Read,
            audited: Audited::No,
            query: None,
            body: None,
            status: 200,
            answers,
            command,
            run,
        }
    }

    const fn change(
        id: &'static str,
        path: &'static str,
        summary: &'static str,
        command: &'static str,
        answers: Answers,
        run: fn(ApiCall) -> Running,
    ) -> Self {
        Self {
            method: OperationMethod::Post,
            effect: OperationEffect::Change,
            access: Access::Full,
            audited: Audited::Yes,
            ..Self::look(id, path, summary, command, answers, run)
        }
    }

    /// A page of the dashboard.
    const fn page(
        id: &'static str,
        path: &'static str,
        summary: &'static str,
        run: fn(ApiCall) -> Running,
    ) -> Self {
        Self::look(id, path, summary, "", Answers::Page, run)
    }

    /// What a form of a page is sent to. The operation that it runs has the record in the audit.
    const fn form(
        id: &'static str,
        path: &'static str,
        summary: &'static str,
        run: fn(ApiCall) -> Running,
    ) -> Self {
        Self::change(id, path, summary, "", Answers::Page, run).status(303).unaudited()
    }

    /// Whether it belongs to the API, which has a description; pages do not.
    #[must_use]
    pub const fn is_described(&self) -> bool {
        !matches!(self.answers, Answers::Page | PageFile)
    }

    const fn query(self, query: SchemaOf) -> Self {
        Self { query: Some(query), ..self }
    }

    const fn body(self, body: SchemaOf) -> Self {
        Self { body: Some(body), ..self }
    }

    const fn by(self, method: OperationMethod) -> Self {
        Self { method, ..self }
    }

    const fn danger(self, danger: Danger) -> Self {
        Self { danger, ..self }
    }

    const fn unaudited(self) -> Self {
        Self { audited: Audited::No, ..self }
    }

    const fn audited_as(self, action: ActionId) -> Self {
        Self { audited: Audited::Action(action), ..self }
    }

    const fn for_anyone(self) -> Self {
        Self { credentials: Credentials::NotNeeded, ..self }
    }

    /// A change of nothing but the caller's own session.
    const fn for_readers(self) -> Self {
        Self { access: Access::Read, ..self }
    }

    const fn by_token(self) -> Self {
        Self { credentials: Credentials::Token, ..self }
    }

    const fn unless_opened(self) -> Self {
        Self { credentials: Credentials::UnlessOpened, ..self }
    }

    const fn status(self, status: u16) -> Self {
        Self { status, ..self }
    }
}

/// Makes a pointer to an async function.
macro_rules! run {
    ($function:path) => {
        |call| Box::pin($function(call))
    };
}

use Answers::{Events, File, Json, Lines, Nothing, OpenMetrics, PageFile};
use Danger::{Destructive, Disruptive};
use OperationMethod::{Delete, Put};
use ostler_wire as w;

use crate::page;

/// Every operation.
pub static OPERATIONS: &[Operation] = &[
    // ---- the node ----
    Operation::look("health", "/health", "Whether the process answers", "", Json(schema::<system::HealthAnswer>), run!(system::health)).for_anyone(),
    Operation::look("ready", "/ready", "Whether the node takes work and its store answers", "", Json(schema::<system::ReadyAnswer>), run!(system::ready)).for_anyone(),
    Operation::look("metrics", "/metrics", "What the node did and, from one node at a time, what the store holds. No token is needed if the config opens it", "", OpenMetrics, run!(system::metrics)).unless_opened(),
    Operation::change("login", "/login", "Opens a session with the text of a login link, once", "", Json(schema::<system::SessionAnswer>), run!(system::log_in)).body(schema::<system::LoginInput>).for_anyone(),
    Operation::change("logout", "/logout", "Ends the session of the cookie", "", Nothing, run!(system::log_out)).for_readers().status(204),
    Operation::change("login.link", "/api/v1/login-links", "Makes the text of a login link, valid once and for five minutes. Its session may do what the token may, or only look if the body asks for that", "ostler open", Json(schema::<system::LoginLink>), run!(system::login_link)).body(schema::<system::LinkInput>).by_token().for_readers(),
    Operation::look("openapi", "/api/v1/openapi.json", "This description", "", Json(schema::<serde_json::Value>), run!(system::openapi)),
    Operation::look("session", "/api/v1/session", "Who asks, and what it may do", "", Json(schema::<system::SessionAnswer>), run!(system::session)),
    Operation::look("audit", "/api/v1/audit", "Changes that were made by hand through this node, the newest first", "", Json(schema::<Vec<w::audit::AuditView>>), run!(system::audit)).query(schema::<system::LimitQuery>),
    // ---- tasks ----
    Operation::look("tasks.list", "/api/v1/tasks", "A page of tasks. An empty page with a cursor is not the end: go on with the cursor", "ostler ls", Json(schema::<tasks::TaskPage>), run!(tasks::list)).query(schema::<tasks::ListQuery>),
    Operation::change("tasks.submit", "/api/v1/tasks", "Submits one task, or {\"tasks\":[…]} in one transaction. With an Idempotency-Key, a repeated request makes nothing twice", "ostler submit QUEUE KIND", Json(schema::<tasks::SubmitAnswerView>), run!(tasks::submit)).body(schema::<tasks::SubmitBody>).status(201).unaudited(),
    Operation::look("tasks.show", "/api/v1/tasks/{id}", "One task, by id, by a part of it, or by key:K", "ostler show ID", Json(schema::<w::task::ShownTask>), run!(tasks::show)).query(schema::<tasks::KeyQuery>),
    Operation::look("tasks.result", "/api/v1/tasks/{id}/result", "State, output and error; waits for the end if asked to", "ostler submit --wait", Json(schema::<w::task::Waited>), run!(tasks::result)).query(schema::<tasks::ResultQuery>),
    Operation::change("tasks.cancel", "/api/v1/tasks/{id}/cancel", "Cancels a waiting task, and asks a running one to stop", "ostler cancel ID", Json(schema::<w::action::ActionView>), run!(tasks::cancel)).query(schema::<tasks::KeyQuery>).danger(Disruptive),
    Operation::change("tasks.retry", "/api/v1/tasks/{id}/retry", "Requeues a failed or cancelled task, makes a waiting one due, or enqueues a copy", "ostler retry ID", Json(schema::<w::action::ActionView>), run!(tasks::retry)).query(schema::<tasks::KeyQuery>).body(schema::<tasks::RetryInput>).danger(Disruptive),
    Operation::change("tasks.amend", "/api/v1/tasks/{id}/amend", "Changes retry and timeout settings of a task that has not finished", "ostler amend ID", Json(schema::<w::action::ActionView>), run!(tasks::amend)).query(schema::<tasks::KeyQuery>).body(schema::<w::input::AmendInput>),
    Operation::change("tasks.continue", "/api/v1/tasks/{id}/continue", "Goes on with the conversation of a finished task", "ostler continue ID --prompt TEXT", Json(schema::<w::task::Submitted>), run!(tasks::go_on)).query(schema::<tasks::KeyQuery>).body(schema::<tasks::ContinueInput>).status(201).danger(Disruptive),
    Operation::look("tasks.log", "/api/v1/tasks/{id}/log", "A page of events", "ostler logs ID", Json(schema::<tasks::EventPage>), run!(tasks::log)).query(schema::<tasks::LogQuery>),
    Operation::look("tasks.events", "/api/v1/tasks/{id}/events", "Events as they come; `id` is the number of the event, and `end` follows the last one of an ended task", "ostler logs -f ID", Events(schema::<w::event::EventView>), run!(live::task_events)).query(schema::<live::EventsQuery>),
    Operation::look("tasks.file", "/api/v1/tasks/{id}/files/{*path}", "A file that an attempt left in the folder of its task", "", File, run!(files::file)),
    Operation::look("tasks.actions", "/api/v1/tasks/actions", "Actions on many tasks that this node knows", "", Json(schema::<Vec<w::action::BulkProgress>>), run!(tasks_many::list)),
    Operation::change("tasks.act", "/api/v1/tasks/actions", "Acts on all tasks that match a filter: a preview first, then with its cut-off", "ostler cancel|retry|dead replay|dead drop --queue Q", Json(schema::<tasks_many::BulkAnswer>), run!(tasks_many::act)).body(schema::<tasks_many::BulkInput>).status(202).danger(Destructive).audited_as(tasks_many::action_id),
    Operation::look("tasks.action", "/api/v1/tasks/actions/{action}", "How far an action is", "", Json(schema::<w::action::BulkProgress>), run!(tasks_many::show)),
    Operation::change("tasks.action.stop", "/api/v1/tasks/actions/{action}/stop", "Stops an action between two batches", "", Json(schema::<w::action::BulkProgress>), run!(tasks_many::stop)),
    // ---- dead letters ----
    Operation::look("dead.list", "/api/v1/dead", "A page of dead letters", "ostler dead ls", Json(schema::<tasks::LetterPage>), run!(tasks::letters)).query(schema::<tasks::ListQuery>),
    Operation::look("dead.show", "/api/v1/dead/{id}", "One dead letter", "ostler dead show ID", Json(schema::<w::dead::LetterDetail>), run!(tasks::letter)).query(schema::<tasks::KeyQuery>),
    Operation::change("dead.replay", "/api/v1/dead/{id}/replay", "Runs a dead letter again", "ostler dead replay ID", Json(schema::<w::action::ActionView>), run!(tasks::replay)).query(schema::<tasks::KeyQuery>).body(schema::<tasks::RetryInput>).danger(Disruptive),
    Operation::change("dead.drop", "/api/v1/dead/{id}", "Removes a dead letter for good", "ostler dead drop ID", Json(schema::<w::action::ActionView>), run!(tasks::drop_letter)).query(schema::<tasks::KeyQuery>).by(Delete).danger(Destructive),
    // ---- jobs ----
    Operation::look("jobs.list", "/api/v1/jobs", "The newest jobs, or those before one", "ostler job ls", Json(schema::<Vec<w::job::JobView>>), run!(jobs::list)).query(schema::<jobs::JobsQuery>),
    Operation::change("jobs.create", "/api/v1/jobs", "Creates a job from items, for a pool of a running node", "ostler map --detach --pool POOL", Json(schema::<w::job::JobActionView>), run!(jobs::create)).body(schema::<w::input::JobInput>).status(201).danger(Disruptive),
    Operation::look("jobs.show", "/api/v1/jobs/{job}", "One job, by id or name", "ostler job show JOB", Json(schema::<w::job::JobView>), run!(jobs::show)),
    Operation::look("jobs.export", "/api/v1/jobs/{job}/results", "The results of all items in their order", "ostler job export JOB --jsonl", Lines(schema::<w::job::JobResultView>), run!(jobs::export)),
    Operation::change("jobs.approve", "/api/v1/jobs/{job}/approve", "Lets the items that wait for the pilot run", "ostler job approve JOB", Json(schema::<w::job::JobActionView>), run!(jobs::approve)).danger(Disruptive),
    Operation::change("jobs.reject", "/api/v1/jobs/{job}/reject", "Cancels the items that wait for the pilot", "ostler job reject JOB", Json(schema::<w::job::JobActionView>), run!(jobs::reject)).danger(Disruptive),
    Operation::change("jobs.pause", "/api/v1/jobs/{job}/pause", "Starts no item until the job is resumed", "ostler job pause JOB", Json(schema::<w::job::JobActionView>), run!(jobs::pause)),
    Operation::change("jobs.resume", "/api/v1/jobs/{job}/resume", "Lets the items of a job start again", "ostler job resume JOB", Json(schema::<w::job::JobActionView>), run!(jobs::resume)).body(schema::<jobs::ResumeInput>),
    Operation::change("jobs.cancel", "/api/v1/jobs/{job}/cancel", "Cancels the unfinished items", "ostler job cancel JOB", Json(schema::<w::job::JobActionView>), run!(jobs::cancel)).danger(Disruptive),
    Operation::change("jobs.retry_failed", "/api/v1/jobs/{job}/retry-failed", "Runs the failed items again", "ostler job retry-failed JOB", Json(schema::<w::job::JobActionView>), run!(jobs::retry_failed)).body(schema::<tasks::StepsInput>).danger(Disruptive),
    Operation::change("jobs.set", "/api/v1/jobs/{job}/concurrency", "How many items run at once, on each node that runs the job", "ostler job set JOB --concurrency N", Json(schema::<w::job::JobActionView>), run!(jobs::set)).body(schema::<jobs::ConcurrencyInput>),
    Operation::change("jobs.add", "/api/v1/jobs/{job}/items", "Adds items to a job over a pool", "ostler job add JOB", Json(schema::<w::job::JobActionView>), run!(jobs::add)).body(schema::<w::input::ItemsInput>),
    Operation::change("jobs.remove", "/api/v1/jobs/{job}", "Removes a job that no node is running, with its tasks", "ostler job rm JOB", Json(schema::<w::job::JobActionView>), run!(jobs::remove)).by(Delete).danger(Destructive),
    // ---- queues ----
    Operation::look("queues.list", "/api/v1/queues", "Queues, with what throttles them", "ostler queue ls", Json(schema::<Vec<w::limits::QueueView>>), run!(queues::list)).query(schema::<system::AllQuery>),
    Operation::look("queues.show", "/api/v1/queues/{queue}", "One queue", "ostler queue show QUEUE", Json(schema::<w::limits::QueueView>), run!(queues::show)),
    Operation::change("queues.set", "/api/v1/queues/{queue}", "Changes limits and budgets of a queue", "ostler queue set QUEUE", Json(schema::<w::limits::LimitsSet>), run!(queues::set)).body(schema::<w::input::QueueSetInput>).by(Put),
    Operation::change("queues.pause", "/api/v1/queues/{queue}/pause", "Starts nothing of a queue until it is resumed", "ostler pause QUEUE", Json(schema::<w::action::QueueActionView>), run!(queues::pause)).body(schema::<queues::ReasonInput>),
    Operation::change("queues.resume", "/api/v1/queues/{queue}/resume", "Resumes a queue", "ostler resume QUEUE", Json(schema::<w::action::QueueActionView>), run!(queues::resume)),
    Operation::change("queues.release", "/api/v1/queues/{queue}/release", "Ends a hold after \"too many requests\"", "ostler queue release QUEUE", Json(schema::<w::limits::QueueView>), run!(queues::release)).body(schema::<queues::KeyInput>),
    Operation::change("queues.unsubscribe", "/api/v1/queues/{queue}/subscribers/{subscriber}", "Removes a subscriber, with the outcomes that it has not handled", "ostler queue unsubscribe QUEUE NAME", Json(schema::<w::limits::QueueView>), run!(queues::unsubscribe)).by(Delete).danger(Destructive),
    Operation::look("breakers.list", "/api/v1/breakers", "Circuit breakers", "ostler breaker ls", Json(schema::<Vec<w::limits::BreakerView>>), run!(queues::breakers)),
    Operation::change("breakers.open", "/api/v1/queues/{queue}/breaker/open", "Opens a breaker by hand", "ostler breaker open QUEUE", Json(schema::<w::limits::BreakerView>), run!(queues::open_breaker)).body(schema::<queues::BreakerInput>).danger(Disruptive),
    Operation::change("breakers.reset", "/api/v1/queues/{queue}/breaker/reset", "Closes a breaker, and clears its counters", "ostler breaker reset QUEUE", Json(schema::<w::limits::BreakerView>), run!(queues::reset_breaker)).body(schema::<queues::KeyInput>),
    // ---- nodes and workers ----
    Operation::look("nodes.list", "/api/v1/nodes", "Running nodes with their pools", "ostler nodes", Json(schema::<Vec<w::system::NodeView>>), run!(system::nodes)),
    Operation::look("nodes.heartbeat", "/api/v1/nodes/{node}/heartbeat", "The processes of a node, in the shape of a worker_heartbeat", "", Json(schema::<w::pool_stats::NodeHeartbeat>), run!(system::heartbeat)),
    Operation::change("nodes.drain", "/api/v1/nodes/{node}/drain", "Asks a node to finish its tasks and exit", "ostler drain NODE", Json(schema::<w::action::NodeCommandView>), run!(system::drain)).danger(Disruptive),
    Operation::change("nodes.resume", "/api/v1/nodes/{node}/resume", "Takes a drain back", "ostler resume --node NODE", Json(schema::<w::action::ResumedNodeView>), run!(system::resume_node)),
    Operation::look("workers.list", "/api/v1/workers", "The workers of all nodes, or those that are gone", "ostler workers", Json(schema::<Vec<w::system::WorkerView>>), run!(system::workers)),
    Operation::look("workers.gone", "/api/v1/workers/gone", "The last records of workers that are gone", "ostler workers --gone", Json(schema::<Vec<w::system::GoneWorkerView>>), run!(system::gone_workers)),
    Operation::change("workers.recycle", "/api/v1/workers/{worker}/recycle", "Replaces an idle worker, by id, name or pid", "ostler recycle WORKER", Json(schema::<w::action::RecycledView>), run!(system::recycle)).danger(Disruptive),
    Operation::change("pools.recycle", "/api/v1/pools/{pool}/recycle", "Replaces one idle worker of a pool, or all", "ostler recycle --any POOL | --all POOL", Json(schema::<w::action::RecycledView>), run!(system::recycle_pool)).body(schema::<system::RecycleInput>).danger(Disruptive),
    Operation::change("pools.resize", "/api/v1/pools/{pool}/resize", "Changes the number of workers on all nodes, until they restart", "ostler resize POOL MIN MAX", Json(schema::<Vec<w::action::NodeCommandView>>), run!(system::resize)).body(schema::<system::ResizeInput>),
    Operation::look("pools.stats", "/api/v1/pools/{pool}/PoolStats", "Statistics in the shape of PoolStats", "", Json(schema::<w::pool_stats::PoolStats>), run!(system::pool_stats)),
    Operation::look("pools.get_pool_stats", "/api/v1/pools/{pool}/get_pool_stats", "Statistics in the shape of get_pool_stats", "", Json(schema::<w::pool_stats::WorkerPoolStats>), run!(system::worker_pool_stats)),
    // ---- the system ----
    Operation::look("stats", "/api/v1/stats", "Counts, totals and durations", "ostler stats", Json(schema::<w::system::StatsView>), run!(system::stats)).query(schema::<system::QueueQuery>),
    Operation::look("live", "/api/v1/live", "The overview as it changes: events stats, queues, nodes and workers with their newest value, changes when a task ended or an event was written, and reset", "ostler top", Events(schema::<serde_json::Value>), run!(live::overview)).query(schema::<live::LiveQuery>),
    Operation::look("cost", "/api/v1/cost", "What was spent on models", "ostler cost", Json(schema::<w::cost::CostReport>), run!(system::cost)).query(schema::<system::CostParams>),
    Operation::look("doctor", "/api/v1/doctor", "What is wrong, with advice", "ostler doctor", Json(schema::<Vec<w::system::FindingView>>), run!(system::doctor)),
    Operation::change("prune", "/api/v1/prune", "Removes finished tasks past their retention", "ostler db prune", Json(schema::<w::action::PrunedTasks>), run!(system::prune)).danger(Destructive),
    // ---- accounts ----
    Operation::look("accounts.list", "/api/v1/accounts", "Accounts, whose limits queues share", "ostler account ls", Json(schema::<Vec<w::account::AccountView>>), run!(accounts::list)),
    Operation::look("accounts.show", "/api/v1/accounts/{account}", "One account", "ostler account show NAME", Json(schema::<w::account::AccountView>), run!(accounts::show)),
    Operation::change("accounts.hold", "/api/v1/accounts/{account}/hold", "Starts nothing of an account, in any queue", "ostler account hold NAME", Json(schema::<w::account::AccountView>), run!(accounts::hold)).body(schema::<accounts::HoldInput>).danger(Disruptive),
    Operation::change("accounts.release", "/api/v1/accounts/{account}/release", "Ends the hold of an account", "ostler account release NAME", Json(schema::<w::account::AccountView>), run!(accounts::release)),
    Operation::change("accounts.cap", "/api/v1/accounts/{account}/cap", "How many tasks of an account may run at once", "ostler account cap NAME N", Json(schema::<w::account::AccountView>), run!(accounts::cap)).body(schema::<accounts::CapInput>),
    // ---- schedules ----
    Operation::look("schedules.list", "/api/v1/schedules", "Schedules, with their next and last runs", "ostler schedule ls", Json(schema::<Vec<w::schedule::ScheduleView>>), run!(schedules::list)),
    Operation::look("schedules.show", "/api/v1/schedules/{name}", "One schedule", "ostler schedule show NAME", Json(schema::<w::schedule::ScheduleDetail>), run!(schedules::show)),
    Operation::change("schedules.put", "/api/v1/schedules/{name}", "Adds a schedule, or replaces the one with this name", "ostler schedule add NAME QUEUE KIND", Json(schema::<w::schedule::ScheduleActionView>), run!(schedules::put)).body(schema::<w::input::ScheduleInput>).by(Put),
    Operation::change("schedules.remove", "/api/v1/schedules/{name}", "Removes a schedule; tasks that it has enqueued stay", "ostler schedule rm NAME", Json(schema::<w::schedule::ScheduleActionView>), run!(schedules::remove)).by(Delete).danger(Destructive),
    Operation::change("schedules.pause", "/api/v1/schedules/{name}/pause", "Enqueues nothing until it is resumed", "ostler schedule pause NAME", Json(schema::<w::schedule::ScheduleActionView>), run!(schedules::pause)),
    Operation::change("schedules.resume", "/api/v1/schedules/{name}/resume", "Resumes a schedule", "ostler schedule resume NAME", Json(schema::<w::schedule::ScheduleActionView>), run!(schedules::resume)),
    // ---- pages ----
    Operation::page("page.overview", "/", "What is wrong, and the queues", run!(page::overview::show)),
    Operation::page("page.tasks", "/tasks", "Tasks that match", run!(page::tasks::show)),
    Operation::page("page.task", "/tasks/{id}", "One task", run!(page::task::show)),
    Operation::page("page.transcript", "/tasks/{id}/transcript", "The events of a task", run!(page::transcript::show)),
    Operation::page("page.event", "/tasks/{id}/transcript/{number}", "One event as a whole", run!(page::transcript::event)),
    Operation::page("page.dead", "/dead", "Dead letters, by error", run!(page::dead::show)),
    Operation::page("page.jobs", "/jobs", "The newest jobs", run!(page::jobs::list)),
    Operation::page("page.job", "/jobs/{job}", "One job", run!(page::jobs::show)),
    Operation::page("page.nodes", "/nodes", "Nodes and workers", run!(page::nodes::show)),
    Operation::page("page.schedules", "/schedules", "Schedules", run!(page::schedules::show)),
    Operation::page("page.cost", "/cost", "What was spent", run!(page::cost::show)),
    Operation::page("page.login", "/login", "The login page", run!(page::login::show)).for_anyone(),
    Operation::form("page.log_in", "/login/form", "Logs in by a form", run!(page::login::by_form)).for_anyone(),
    Operation::form("page.log_out", "/logout/form", "Logs out by a form", run!(page::login::log_out)).for_readers(),
    Operation::form("page.act", "/do/{operation}", "Runs an operation of this table for a page", run!(page::actions::act)),
    Operation::look("page.file", "/assets/{name}", "A style sheet or a script", "", PageFile, run!(page::assets::asset)).for_anyone(),
];
