//! The commands in the doctor's advice, as buttons that run them.

use super::parts::button::ActionButton;

/// The longest command that has a button.
const MAX_WORDS: usize = 16;

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
        ["ostler", "job", "resume", job, "--max-cost", most] => {
            ActionButton::new("jobs.resume", "Raise its budget", &[("p:job", job), ("s:max_cost", most)])
        }
        ["ostler", "resize", pool, min, max] => {
            ActionButton::new("pools.resize", "Resize", &[("p:pool", pool), ("n:min", min), ("n:max", max)])
        }
        ["ostler", "queue", "set", queue, options @ ..] if !options.is_empty() => {
            let mut fields = vec![("p:queue", *queue)];
            for option in options.chunks(2) {
                let [name, value] = option else { return None };
                fields.push((limit(name)?, *value));
            }
            ActionButton::new("queues.set", "Raise the limit", &fields)
        }
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

/// The field of a form for an option of `ostler queue set`.
fn limit(option: &str) -> Option<&'static str> {
    Some(match option {
        "--rate" => "l:rate",
        "--key-rate" => "l:key_rate",
        "--concurrency" => "n:concurrency",
        "--key-concurrency" => "n:key_concurrency",
        "--budget" => "s:budget",
        "--budget-per-day" => "s:budget_per_day",
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
                if all.len() > MAX_WORDS {
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
            (
                "To let more start: ostler queue set mail --rate 120/m,burst=20 --rate 2000/h. Or resize: ostler resize mail 2 8",
                vec!["ostler queue set mail --rate 120/m,burst=20 --rate 2000/h", "ostler resize mail 2 8"],
            ),
            (
                "To go on: ostler queue set 'old mail' --budget-per-day 2; or: ostler job resume 01J --max-cost 4",
                vec!["ostler queue set 'old mail' --budget-per-day 2", "ostler job resume 01J --max-cost 4"],
            ),
            ("ostler queue set mail --priority strict", vec![]),
            ("Restart the node: ostler drain NODE, then ostler up", vec![]),
        ] {
            let found: Vec<String> = buttons(advice).iter().map(ActionButton::command).collect();
            assert_eq!(found, commands, "{advice}");
        }
    }
}
