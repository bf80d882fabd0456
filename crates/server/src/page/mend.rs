//! The commands in the doctor's advice, as buttons that run them.

use super::parts::button::ActionButton;

/// The buttons for the commands in a text, as far as a page can run them.
pub(super) fn buttons(advice: &str) -> Vec<ActionButton> {
    advice.match_indices("ostler ").filter_map(|(at, _)| button(&words(&advice[at..]))).collect()
}

/// The button that runs exactly this command, with this label.
pub(super) fn labelled(label: &str, command: &str) -> Option<ActionButton> {
    button(&words(command)).map(|button| button.labelled(label)).filter(|button| button.command() == command)
}

fn button(words: &[String]) -> Option<ActionButton> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let is_name =
        |name: &str| !name.starts_with('-') && name.chars().any(|c| !c.is_ascii_uppercase() && c != '_');
    Some(match words.as_slice() {
        ["ostler", "account", "release", name] => {
            ActionButton::new("accounts.release", "Release it", &[("p:account", name)])
        }
        ["ostler", "account", "cap", name, most] => {
            ActionButton::new("accounts.cap", "Slow down", &[("p:account", name), ("s:most", most)])
        }
        ["ostler", "job", "approve", job] => ActionButton::new("jobs.approve", "Approve", &[("p:job", job)]),
        ["ostler", "job", "reject", job] => ActionButton::new("jobs.reject", "Reject", &[("p:job", job)]),
        ["ostler", "job", "resume", job] => ActionButton::new("jobs.resume", "Resume", &[("p:job", job)]),
        ["ostler", "job", "cancel", job] if is_name(job) => {
            ActionButton::new("jobs.cancel", "Cancel it", &[("p:job", job)])
        }
        ["ostler", "job", "rm", job] if is_name(job) => {
            ActionButton::new("jobs.remove", "Remove it", &[("p:job", job)])
        }
        ["ostler", "breaker", "reset", queue] => {
            ActionButton::new("breakers.reset", "Reset the breaker", &[("p:queue", queue)])
        }
        ["ostler", "breaker", "reset", queue, "--key", key] => {
            ActionButton::new("breakers.reset", "Reset the breaker", &[("p:queue", queue), ("s:key", key)])
        }
        ["ostler", "queue", "release", queue] => {
            ActionButton::new("queues.release", "Resume now", &[("p:queue", queue)])
        }
        ["ostler", "queue", "release", queue, "--key", key] => {
            ActionButton::new("queues.release", "Resume now", &[("p:queue", queue), ("s:key", key)])
        }
        ["ostler", "resume", queue] if is_name(queue) => {
            ActionButton::new("queues.resume", "Resume it", &[("p:queue", queue)])
        }
        ["ostler", "cancel", "--queue", queue] => {
            ActionButton::new("tasks.act", "Cancel the tasks", &[("s:action", "cancel"), ("f:queue", queue)])
        }
        ["ostler", "schedule", "rm", name] => {
            ActionButton::new("schedules.remove", "Remove it", &[("p:name", name)])
        }
        ["ostler", "dead", "replay", "--matching", text] => {
            ActionButton::new("tasks.act", "Replay them", &[("s:action", "replay"), ("f:text", text)])
        }
        ["ostler", "retry", id] if is_name(id) => {
            ActionButton::new("tasks.retry", "Retry it", &[("p:id", id)])
        }
        ["ostler", "dead", "replay", id] => ActionButton::new("dead.replay", "Replay it", &[("p:id", id)]),
        ["ostler", "db", "prune", ..] => ActionButton::new("prune", "Prune now", &[]),
        _ => return None,
    })
}

/// The words of the command with which a text begins. A sentence ends it.
fn words(text: &str) -> Vec<String> {
    let (mut all, mut word, mut quoted) = (Vec::new(), String::new(), false);
    let mut letters = text.chars().peekable();
    while let Some(c) = letters.next() {
        match c {
            '\'' => quoted = !quoted,
            '\\' if !quoted => word.extend(letters.next()),
            ' ' if !quoted => {
                all.push(std::mem::take(&mut word));
                if all.len() > 6 {
                    break;
                }
            }
            '.' | ';' | ',' | ')' if !quoted && letters.peek().is_none_or(|next| *next == ' ') => break,
            c => word.push(c),
        }
    }
    if !word.is_empty() {
        all.push(word);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_becomes_buttons_that_run_its_commands() {
        for (advice, commands) in [
            ("To resume it: ostler resume mail", vec!["ostler resume mail"]),
            (
                "To see failures: ostler ls --queue 'old mail'. When the cause is fixed: ostler breaker reset 'old mail' --key 'it'\\''s'",
                vec![r"ostler breaker reset 'old mail' --key 'it'\''s'"],
            ),
            (
                "See ostler dead ls. When the cause is fixed: ostler dead replay --matching 'no such host'",
                vec!["ostler dead replay --text 'no such host'"],
            ),
            (
                "Go on. To give it up: ostler job cancel 01J; to remove it: ostler job rm 01J",
                vec!["ostler job cancel 01J", "ostler job rm 01J"],
            ),
            ("Restart the node: ostler drain NODE, then ostler up", vec![]),
        ] {
            let found: Vec<String> = buttons(advice).iter().map(ActionButton::command).collect();
            assert_eq!(found, commands, "{advice}");
        }
    }
}
