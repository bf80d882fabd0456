//! Warnings about shell injection: task data that an interpreter reads as program text.

use super::{ExecutorSettings, PoolSettings};
use crate::hooks::HookAct;
use crate::injection::{CommandWord, Data, pasted};
use crate::print::visible;

impl PoolSettings {
    /// Settings that are valid but dangerous: task data that an interpreter reads as program text.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let own = match &self.executor {
            ExecutorSettings::Command(policy) => Some(("command", policy.argv.as_slice())),
            // The arguments are the same for every task.
            ExecutorSettings::Process(_) => None,
        };
        let hooks = self.on_failed.iter().filter_map(|hook| match &hook.act {
            HookAct::Command(policy) => Some(("on_failed.command", policy.argv.as_slice())),
            HookAct::Webhook(_) | HookAct::Task { .. } => None,
        });
        own.into_iter().chain(hooks).filter_map(|(key, argv)| self.warning(key, argv)).collect()
    }

    fn warning(&self, key: &str, argv: &[String]) -> Option<String> {
        let argv: Vec<CommandWord<'_>> =
            argv.iter().map(|text| CommandWord { text, data: data_in(text) }).collect();
        let pasted = pasted(&argv)?;
        Some(format!(
            "pool.{}.{key}: \"{}\" is program text for {}, and task data is inserted into it, so anyone who can submit a task can \
             run anything: {}. The guide to processes shows how",
            self.name,
            visible(&pasted.argument),
            pasted.program,
            pasted.remedy
        ))
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

#[cfg(test)]
mod tests {
    use super::super::tests::{good, pool};
    use super::*;

    fn warned(lines: &str) -> Vec<String> {
        good(&pool(lines)).pools.remove(0).warnings()
    }

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

    #[test]
    fn hooks_are_looked_at_too() {
        let hook = r#"on_failed = { command = ["sh", "-c", "logger {{ payload.error.message }}"] }"#;
        let warnings = warned(hook);
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].starts_with("pool.shell.on_failed.command: "), "{warnings:?}");
        assert_eq!(warned(r#"on_failed = { command = ["logger", "{{ payload.error.message }}"] }"#), [""; 0]);
    }
}
