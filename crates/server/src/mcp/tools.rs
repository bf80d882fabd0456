//! The tools: about ten, each made of rows of the table of operations. Names and one sentence are written here; arguments, permissions and
//! annotations come from the rows.

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::operations::{Danger, OPERATIONS, Operation, OperationEffect};
use crate::tokens::Access;

/// The argument that chooses between operations.
pub(super) const ACTION: &str = "action";
/// The argument that is a header over HTTP.
pub(super) const IDEMPOTENCY_KEY: &str = "idempotency_key";
/// Operations that take an idempotency key.
const KEYED: [&str; 2] = ["tasks.submit", "jobs.create"];

/// Which operation a call means.
#[derive(Clone, Copy, Debug)]
pub(super) enum ToolChoice {
    Only(&'static str),
    /// One thing if it is named, else all of them.
    Named {
        argument: &'static str,
        one: &'static str,
        all: &'static str,
    },
    /// By the argument `action`: its values, with their operations.
    Action(&'static [(&'static str, &'static str)]),
}

/// A tool.
#[derive(Clone, Copy, Debug)]
pub struct ToolSpec {
    pub name: &'static str,
    pub title: &'static str,
    /// When to use it.
    about: &'static str,
    pub(super) choice: ToolChoice,
}

use ToolChoice::{Action, Named, Only};

/// Every tool.
pub static TOOLS: &[ToolSpec] = &[
    ToolSpec {
        name: "stats",
        title: "Counts of tasks and workers",
        about: "A good first look.",
        choice: Only("stats"),
    },
    ToolSpec {
        name: "doctor",
        title: "What is wrong",
        about: "Ask this when something does not run.",
        choice: Only("doctor"),
    },
    ToolSpec {
        name: "nodes",
        title: "Running nodes",
        about: "Where jobs and tasks can run.",
        choice: Only("nodes.list"),
    },
    ToolSpec {
        name: "queues",
        title: "Queues and what throttles them",
        about: "Pauses with their reasons, limits, holds, breakers and budgets.",
        choice: Named { argument: "queue", one: "queues.show", all: "queues.list" },
    },
    ToolSpec {
        name: "tasks",
        title: "List tasks",
        about: "Filters by state, queue, kind, text, error class and time; failed tasks are the dead letters.",
        choice: Only("tasks.list"),
    },
    ToolSpec {
        name: "task",
        title: "Show a task, and why it waits",
        about: "State, waits_for (why it has not started), held (what throttles it) and run_at, payload, attempts with their errors, steps, output.",
        choice: Only("tasks.show"),
    },
    ToolSpec {
        name: "task_log",
        title: "Read the log of a task",
        about: "A page of events: log lines, messages of agents, tool calls, files. Go on with `after`.",
        choice: Only("tasks.log"),
    },
    ToolSpec {
        name: "task_result",
        title: "Wait for a task and read its result",
        about: "With `wait` such as 30s (at most 60s) it returns when the task ends, or with its state by then: ask again.",
        choice: Only("tasks.result"),
    },
    ToolSpec {
        name: "jobs",
        title: "Jobs and how far they are",
        about: "With `job` one of them, with its counts, cost and whether it waits for approval; else the newest.",
        choice: Named { argument: "job", one: "jobs.show", all: "jobs.list" },
    },
    ToolSpec {
        name: "job_results",
        title: "Read the results of a job",
        about: "One JSON object per item, in their order.",
        choice: Only("jobs.export"),
    },
    ToolSpec {
        name: "submit_task",
        title: "Submit a task",
        about: "It is durable when this returns, and runs when a node serves its queue and kind.",
        choice: Only("tasks.submit"),
    },
    ToolSpec {
        name: "create_job",
        title: "Create and start a job",
        about: "Runs a pool over many items. With `pilot` the first ones run, and the rest waits for approval.",
        choice: Only("jobs.create"),
    },
    ToolSpec {
        name: "steer_job",
        title: "Approve, stop or go on with a job",
        about: "Changes a job.",
        choice: Action(&[
            ("approve", "jobs.approve"),
            ("reject", "jobs.reject"),
            ("pause", "jobs.pause"),
            ("resume", "jobs.resume"),
            ("cancel", "jobs.cancel"),
            ("retry_failed", "jobs.retry_failed"),
        ]),
    },
    ToolSpec {
        name: "steer_task",
        title: "Cancel or retry a task",
        about: "Changes a task.",
        choice: Action(&[("cancel", "tasks.cancel"), ("retry", "tasks.retry")]),
    },
    ToolSpec {
        name: "steer_queue",
        title: "Pause or resume a queue",
        about: "Changes a queue.",
        choice: Action(&[("pause", "queues.pause"), ("resume", "queues.resume")]),
    },
];

/// A row of the table.
///
/// # Panics
/// When there is no such row.
pub(super) fn operation(id: &str) -> &'static Operation {
    OPERATIONS.iter().find(|operation| operation.id == id).expect("tools are made of rows of the table")
}

/// What clients learn about a tool besides its schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ToolHints {
    pub(super) effect: OperationEffect,
    pub(super) danger: Danger,
}

impl ToolSpec {
    /// The tools that may be called with this access.
    pub fn allowed(access: Access) -> impl Iterator<Item = &'static Self> {
        TOOLS.iter().filter(move |tool| match (tool.hints().effect, access) {
            (OperationEffect::Look, Access::Read | Access::Full)
            | (OperationEffect::Change, Access::Full) => true,
            (OperationEffect::Change, Access::Read) => false,
        })
    }

    /// The operations that it may run.
    pub(super) fn operations(&self) -> Vec<&'static Operation> {
        match self.choice {
            Only(id) => vec![operation(id)],
            Named { one, all, .. } => vec![operation(one), operation(all)],
            Action(actions) => actions.iter().map(|(_, id)| operation(id)).collect(),
        }
    }

    /// The worst of its operations.
    pub(super) fn hints(&self) -> ToolHints {
        let operations = self.operations();
        let any =
            |wanted: fn(&&Operation) -> bool| operations.iter().copied().any(|operation| wanted(&operation));
        let changes = any(|operation| operation.effect == OperationEffect::Change);
        let effect = if changes { OperationEffect::Change } else { OperationEffect::Look };
        let danger = if any(|operation| operation.danger == Danger::Destructive) {
            Danger::Destructive
        } else if any(|operation| operation.danger == Danger::Disruptive) {
            Danger::Disruptive
        } else {
            Danger::None
        };
        ToolHints { effect, danger }
    }

    /// What it does, by the sentences of its operations.
    pub(super) fn description(&self) -> String {
        let like = |operation: &Operation| match operation.command {
            "" => String::new(),
            command => format!(" Like `{command}`."),
        };
        match self.choice {
            Only(id) => format!("{}. {}{}", operation(id).summary, self.about, like(operation(id))),
            Named { one, .. } => format!("{}. {}{}", self.title, self.about, like(operation(one))),
            Action(actions) => {
                let lines = actions.iter().map(|(action, id)| {
                    format!("\n- {action}: {}.{}", operation(id).summary, like(operation(id)))
                });
                format!("{} `action` is one of:{}", self.about, lines.collect::<String>())
            }
        }
    }

    /// The schema of the arguments: path, query and body of its operations in one object.
    pub(super) fn schema(&self) -> Map<String, Value> {
        let (mut properties, mut required) = (Map::new(), Vec::new());
        for operation in self.operations() {
            for field in fields(operation) {
                let needed = match self.choice {
                    Only(_) => field.needed == Needed::Yes,
                    Named { .. } => false,
                    // What one action needs, another one does not have.
                    Action(_) => field.place == FieldPlace::Path,
                };
                if needed && !required.contains(&field.name) {
                    required.push(field.name.clone());
                }
                properties.entry(field.name).or_insert(field.schema);
            }
        }
        if let Action(actions) = self.choice {
            let names: Vec<&str> = actions.iter().map(|(name, _)| *name).collect();
            properties.insert(ACTION.to_owned(), json!({ "type": "string", "enum": names }));
            required.push(ACTION.to_owned());
        }
        let Value::Object(schema) = json!({
            "type": "object", "properties": properties, "required": required, "additionalProperties": false
        }) else {
            unreachable!("it is an object")
        };
        schema
    }
}

/// Makes schemas without references: not every client follows them.
fn generator() -> SchemaGenerator {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    settings.into_generator()
}

/// Where an argument goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldPlace {
    Path,
    Query,
    Body,
    Header,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Needed {
    Yes,
    No,
}

/// An argument of an operation.
pub(super) struct ToolField {
    pub(super) name: String,
    pub(super) place: FieldPlace,
    pub(super) needed: Needed,
    schema: Value,
}

/// The arguments of an operation.
pub(super) fn fields(operation: &Operation) -> Vec<ToolField> {
    let (mut all, mut generator) = (Vec::new(), generator());
    for name in operation.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')) {
        let about = match name {
            "id" => "The id of a task, four or more of its first or last letters, or key:K with `queue`.",
            "job" => "The id or the name of a job.",
            _ => "A name.",
        };
        let schema = json!({ "type": "string", "minLength": 1, "description": about });
        all.push(ToolField { name: name.to_owned(), place: FieldPlace::Path, needed: Needed::Yes, schema });
    }
    for (place, schema) in [(FieldPlace::Query, operation.query), (FieldPlace::Body, operation.body)] {
        let Some(schema) = schema else { continue };
        let whole = schema(&mut generator);
        // Of two forms of a body, a tool has the first one.
        let object = whole.as_value().pointer("/anyOf/0").unwrap_or(whole.as_value());
        let required = object.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
        for (name, schema) in object.get("properties").and_then(Value::as_object).into_iter().flatten() {
            let needed = if required.iter().any(|known| known == name) { Needed::Yes } else { Needed::No };
            all.push(ToolField { name: name.clone(), place, needed, schema: schema.clone() });
        }
    }
    if KEYED.contains(&operation.id) {
        let about = "A text of your choice: a repeated call with the same key makes nothing twice.";
        let schema = json!({ "type": "string", "minLength": 1, "maxLength": 255, "description": about });
        let name = IDEMPOTENCY_KEY.to_owned();
        all.push(ToolField { name, place: FieldPlace::Header, needed: Needed::No, schema });
    }
    all
}
