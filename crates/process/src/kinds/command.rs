//! `executor = "command"`: the keys of a pool that runs one child per task.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use ostler_config::{
    BuildContext, BuildError, FindingLevel, LeftoverKeeper, PoolCommon, PoolDefaults, PoolFinding, PoolKind,
    PoolSpec, Section, StoreMark, WritablePath,
};
use ostler_core::visible;
use ostler_exec::Executor;

use super::{MAX_LOG_BYTES, MOST_BY_CORES, SUPERVISOR, children};
use crate::injection::{CommandWord, Data, Pasted, pasted};
use crate::{Codes, Command, CommandPolicy, Input, WorktreeKeeper};

/// One child per task.
#[derive(Clone, Copy, Debug)]
pub struct CommandKind;

impl PoolKind for CommandKind {
    fn name(&self) -> &'static str {
        "command"
    }

    fn read(&self, pool: &PoolCommon<'_>, section: &mut Section<'_>) -> Option<Box<dyn PoolSpec>> {
        const EXAMPLE: &str = "[\"sh\", \"-c\", \"date\"]";
        let argv = match section.find("command") {
            Some(found) => found.texts(EXAMPLE),
            None => {
                section.fault(
                    "command",
                    format!("is missing: the program and its arguments, such as {EXAMPLE}"),
                );
                None
            }
        };
        let default = CommandPolicy::new(argv.clone().unwrap_or_default());
        let wrong = argv.as_ref().map(|_| default.faults()).unwrap_or_default();
        for error in &wrong {
            section.fault("command", format!("cannot be run: {error}"));
        }
        let sandbox = children::sandbox(section);
        let inputs = [("nothing", Input::Nothing), ("payload", Input::Payload)];
        let policy = CommandPolicy {
            input: section.find("stdin").and_then(|found| found.one_of(&inputs)).unwrap_or(default.input),
            environment: children::environment(pool, section, default.environment),
            secrets: pool.secrets.clone(),
            codes: codes(section),
            output: default.output,
            stdout_log: default.stdout_log,
            max_output_bytes: children::bytes(section.find("max_output"), pool.output_limit)
                .unwrap_or(default.max_output_bytes),
            max_log_bytes: children::bytes(section.find("max_log"), MAX_LOG_BYTES)
                .unwrap_or(default.max_log_bytes),
            stuck_after: children::stuck_after(section),
            folders: children::folders_or_worktrees(pool.name, section, sandbox.as_ref()),
            sandbox,
            files: children::files(section),
            argv: default.argv,
        };
        (argv.is_some() && wrong.is_empty()).then(|| Box::new(policy) as Box<dyn PoolSpec>)
    }

    fn reference(&self) -> &'static str {
        include_str!("command.toml")
    }

    /// Those of all worktrees, also of other kinds.
    fn keepers(&self) -> Vec<Arc<dyn LeftoverKeeper>> {
        WorktreeKeeper::usual().map(|keeper| Arc::new(keeper) as _).into_iter().collect()
    }
}

#[async_trait]
impl PoolSpec for CommandPolicy {
    fn defaults(&self) -> PoolDefaults {
        PoolDefaults::by_cores(MOST_BY_CORES)
    }

    fn beside(&mut self, folder: &Path) {
        children::beside(&mut self.folders, self.sandbox.as_mut(), folder);
    }

    fn confine(&mut self, hidden: &[PathBuf]) -> Result<(), String> {
        children::confine(self.sandbox.as_mut(), hidden)
    }

    fn task_folders(&self) -> Option<&Path> {
        self.folders.each.as_deref()
    }

    fn writable(&self) -> Vec<WritablePath<'_>> {
        children::writable(&self.folders, self.sandbox.as_ref())
    }

    fn distrust(&mut self, writable: &[PathBuf]) {
        self.folders.guarded = writable.to_vec();
    }

    fn programs(&self) -> Vec<String> {
        // A template is only a program once there is a task.
        self.argv.first().filter(|program| !program.contains("{{")).cloned().into_iter().collect()
    }

    fn findings(&self, pool: &str) -> Vec<PoolFinding> {
        let injected = self.injection(&format!("pool.{pool}.command"));
        let worktrees = children::worktree_finding(pool, &self.folders);
        children::findings(pool, self.sandbox.as_ref()).into_iter().chain(injected).chain(worktrees).collect()
    }

    async fn prove(&self, context: BuildContext<'_>) -> Result<(), String> {
        children::prove(self.sandbox.as_ref(), context).await
    }

    fn build(&self, context: BuildContext<'_>) -> Result<Arc<dyn Executor>, BuildError> {
        let supervisor = context.need::<crate::supervisor::Supervisor>(SUPERVISOR)?.clone();
        let mut policy = self.clone();
        policy.folders.mark = context.resources.get::<StoreMark>().cloned();
        let command = Command::new(supervisor, policy);
        Ok(Arc::new(command.map_err(|error| BuildError::new(error.to_string()))?))
    }
}

impl CommandPolicy {
    /// Shell injection: task data that an interpreter reads as program text. `key` is the path of the command in the config.
    #[must_use]
    pub fn injection(&self, key: &str) -> Option<PoolFinding> {
        let words: Vec<CommandWord<'_>> =
            self.argv.iter().map(|text| CommandWord { text, data: data_in(text) }).collect();
        let Pasted { program, argument, remedy } = pasted(&words)?;
        let sentence = format!(
            "{key}: \"{}\" is program text for {program}, and task data is inserted into it, so anyone who can submit a task can run \
             anything: {remedy}",
            visible(&argument)
        );
        let advice = "The guide to processes shows how, for example: command = [\"sh\", \"-c\", \"convert \\\"$1\\\"\", \"sh\", \
                      \"{{ payload.file }}\"]";
        Some(PoolFinding { code: "script-injection", level: FindingLevel::Warning, sentence, advice })
    }
}

/// How much of an argument is data. Only what a submitter chooses counts: not the id, the attempt, or the pool's queue.
fn data_in(template: &str) -> Data {
    let chosen = |field: &str| field.trim() == "kind" || field.trim().starts_with("payload");
    let mut fields = template.split("{{").skip(1).filter_map(|part| part.split_once("}}"));
    let whole = template.trim();
    if whole.starts_with("{{") && whole.find("}}") == Some(whole.len().saturating_sub(2)) {
        return if fields.any(|(field, _)| chosen(field)) { Data::Whole } else { Data::None };
    }
    if fields.any(|(field, _)| chosen(field)) { Data::Piece } else { Data::None }
}

fn codes(section: &mut Section<'_>) -> Codes {
    /// Exit codes other than success.
    const CODES: RangeInclusive<u64> = 1..=255;
    let mut codes = section.section("exit_codes");
    let mut list = |key| {
        let numbers = codes.find(key).and_then(|found| found.numbers(&CODES)).unwrap_or_default();
        numbers.into_iter().filter_map(|code| i32::try_from(code).ok()).collect::<Vec<i32>>()
    };
    let read =
        Codes { permanent: list("permanent"), transient: list("transient"), queue_stop: list("queue_stop") };
    let mut all: Vec<i32> =
        [&read.permanent, &read.transient, &read.queue_stop].into_iter().flatten().copied().collect();
    all.sort_unstable();
    if let Some(twice) = all.windows(2).find(|pair| pair[0] == pair[1]) {
        section.fault("exit_codes", format!("has {} twice; a code can have only one meaning", twice[0]));
    }
    codes.close(&[]);
    read
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_submitter_chooses_is_data() {
        for (template, data) in [
            ("{{ payload.script }}", Data::Whole),
            (" {{payload}} ", Data::Whole),
            ("{{ kind }}", Data::Whole),
            ("x {{ payload.a }}", Data::Piece),
            ("{{ payload.a }}{{ payload.b }}", Data::Piece),
            ("{{ id }}: {{ kind }}", Data::Piece),
            ("{{ id }}/{{ attempt }} {{ queue }}", Data::None),
            ("{{ id }}", Data::None),
            ("plain", Data::None),
        ] {
            assert_eq!(data_in(template), data, "{template}");
        }
    }
}
