//! The policy for what an agent asks: each question is answered at once by the permission of the settings. There is no one else to ask.

use std::path::{Component, Path};

use super::messages::{AcpToolCall, PermissionOption};
use crate::json::text;
use crate::settings::{AgentSettings, Permission};

/// Sorts of tools that only look, in the words of the protocol.
const READING: [&str; 3] = ["read", "search", "think"];
/// Sorts of tools that change files.
const CHANGING: [&str; 3] = ["edit", "delete", "move"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    Allow,
    Deny,
}

/// Whether a tool may be used. It is named by its sort (`execute`) or its title.
pub(super) fn decide(tool: &AcpToolCall, settings: &AgentSettings) -> Decision {
    let kind = tool.kind.as_deref().unwrap_or("other");
    let is_named = |rules: &[String]| {
        rules.iter().any(|rule| rule == kind || tool.title.as_deref() == Some(rule.as_str()))
    };
    if is_named(&settings.tools.denied) {
        return Decision::Deny;
    }
    let is_within = || {
        let mut paths =
            tool.locations.iter().chain(&tool.content).flatten().filter_map(|part| text(part, "path"));
        paths.all(|path| is_inside(Path::new(path), &settings.folder))
    };
    let is_allowed = is_named(&settings.tools.allowed)
        || match settings.permission {
            Permission::Everything => true,
            Permission::Edit => (READING.contains(&kind) || CHANGING.contains(&kind)) && is_within(),
            Permission::ReadOnly => READING.contains(&kind) && is_within(),
        };
    if is_allowed { Decision::Allow } else { Decision::Deny }
}

/// The option that says it: for this once, where there is such an option. What cannot be allowed is denied.
pub(super) fn option(decision: Decision, options: &[PermissionOption]) -> Option<&PermissionOption> {
    let of = |kind: &str| options.iter().find(|option| option.kind == kind);
    let allowing = match decision {
        Decision::Allow => of("allow_once").or_else(|| of("allow_always")),
        Decision::Deny => None,
    };
    allowing.or_else(|| of("reject_once")).or_else(|| of("reject_always"))
}

/// Whether a path stays in the folder. Links are not followed: the agent itself resolves them, or its sandbox does.
fn is_inside(path: &Path, folder: &Path) -> bool {
    let climbs = path.components().any(|part| part == Component::ParentDir);
    !climbs && (path.is_relative() || path.starts_with(folder))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::settings::{SessionStart, ToolRules};

    fn tool(kind: &str, path: &str) -> AcpToolCall {
        let call =
            json!({"toolCallId": "1", "kind": kind, "title": "A title", "locations": [{"path": path}]});
        serde_json::from_value(call).expect("a tool call")
    }

    fn settings(permission: Permission) -> AgentSettings {
        let settings = AgentSettings::new("x", SessionStart::New { id: "s".into() });
        AgentSettings { permission, folder: "/srv/site".into(), ..settings }
    }

    #[test]
    fn each_permission_allows_its_sorts_of_tools_inside_the_folder() {
        let inside = "/srv/site/a.rs";
        for (permission, kind, path, decision) in [
            (Permission::ReadOnly, "read", inside, Decision::Allow),
            (Permission::ReadOnly, "read", "/etc/passwd", Decision::Deny),
            (Permission::ReadOnly, "read", "/srv/site/../../etc/passwd", Decision::Deny),
            (Permission::ReadOnly, "edit", inside, Decision::Deny),
            (Permission::ReadOnly, "fetch", inside, Decision::Deny),
            (Permission::Edit, "edit", inside, Decision::Allow),
            (Permission::Edit, "delete", "a.rs", Decision::Allow),
            (Permission::Edit, "edit", "/srv/site2/a.rs", Decision::Deny),
            (Permission::Edit, "execute", inside, Decision::Deny),
            (Permission::Edit, "something_new", inside, Decision::Deny),
            (Permission::Everything, "execute", "/etc/passwd", Decision::Allow),
        ] {
            let decided = decide(&tool(kind, path), &settings(permission));
            assert_eq!(decided, decision, "{permission:?} {kind} {path}");
        }
    }

    #[test]
    fn a_path_in_a_difference_counts_too() {
        let mut call = tool("edit", "/srv/site/a.rs");
        call.content = Some(vec![json!({"type": "diff", "path": "/etc/passwd"})]);
        assert_eq!(decide(&call, &settings(Permission::Edit)), Decision::Deny);
    }

    #[test]
    fn tools_are_allowed_and_denied_by_sort_or_title_and_a_denial_wins() {
        let mut settings = settings(Permission::ReadOnly);
        settings.tools = ToolRules { allowed: vec!["execute".into()], denied: Vec::new() };
        assert_eq!(decide(&tool("execute", "x"), &settings), Decision::Allow);
        settings.tools.denied = vec!["A title".into()];
        assert_eq!(decide(&tool("execute", "x"), &settings), Decision::Deny);
    }

    #[test]
    fn an_option_for_once_comes_before_one_for_ever_and_no_option_allows_what_is_denied() {
        let option_of = |decision, kinds: &[&str]| {
            let options: Vec<_> = kinds
                .iter()
                .map(|kind| PermissionOption { option_id: (*kind).to_owned(), kind: (*kind).to_owned() })
                .collect();
            option(decision, &options).map(|option| option.kind.clone())
        };
        let all = ["allow_always", "allow_once", "reject_always", "reject_once"];
        assert_eq!(option_of(Decision::Allow, &all).as_deref(), Some("allow_once"));
        assert_eq!(option_of(Decision::Deny, &all).as_deref(), Some("reject_once"));
        assert_eq!(option_of(Decision::Allow, &["allow_always"]).as_deref(), Some("allow_always"));
        assert_eq!(option_of(Decision::Allow, &["reject_once"]).as_deref(), Some("reject_once"));
        assert_eq!(option_of(Decision::Deny, &["allow_once", "allow_always"]), None);
    }
}
