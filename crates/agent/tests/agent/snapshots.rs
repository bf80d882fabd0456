//! Every recording gives the transcript, the usage and the ending that `tests/expected` has.
//!
//! `OSTLER_UPDATE=1 cargo test -p ostler-agent` writes these files anew; read the difference before you commit it.

use std::fmt::Write as _;

use ostler_agent::{AgentEnd, Dialect, Fact, PriceTable};
use ostler_core::{Cost, EventBody, Usage, beginning};

use crate::recording::{Case, NOW, Replay, cases, folder, named};

/// Characters of a text in a snapshot.
const SHOWN: usize = 160;

fn check(file: &str, dialect: impl Fn(&str) -> Dialect) {
    let mut text = String::new();
    for case in cases(file) {
        let replay = case.replay(dialect(&case.name), &[usize::MAX]);
        assert_raw_lines_are_whole(&case, &replay);
        let _ = write!(text, "=== {}\n{}\n", case.name, shown(&replay));
    }
    let path = folder("expected").join(file);
    if std::env::var_os("OSTLER_UPDATE").is_some() {
        std::fs::write(&path, &text).expect("the snapshot is written");
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    let wrong = text.lines().zip(expected.lines()).enumerate().find(|(_, (is, was))| is != was);
    if let Some((at, (is, was))) = wrong {
        panic!("{}:{}: expected\n  {was}\nand got\n  {is}", path.display(), at + 1);
    }
    assert_eq!(text.lines().count(), expected.lines().count(), "{} has another length", path.display());
}

/// What was kept as it was written is what was written, in order; only pieces of messages are left out.
fn assert_raw_lines_are_whole(case: &Case, replay: &Replay) {
    let mut written = case.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    for fact in &replay.facts {
        if let Fact::Event(EventBody::Raw { text }) = fact {
            let line: String = serde_json::from_str(text).expect("the recordings are UTF-8");
            assert!(written.any(|one| one == line.as_bytes()), "{}: it did not write {line}", case.name);
        }
    }
}

fn shown(replay: &Replay) -> String {
    let mut lines: Vec<String> = replay.facts.iter().filter_map(fact).collect();
    let report = &replay.report;
    lines.extend(report.unreported.iter().map(|usage| format!("unreported {}", of_usage(usage))));
    lines.push(match &report.end {
        AgentEnd::Done(answer) => {
            let structured = answer.structured.as_ref().map(|json| format!(" structured {json}"));
            let denied =
                if answer.denied.is_empty() { String::new() } else { format!(" denied {:?}", answer.denied) };
            format!("END done {:?}{}{denied}", cut(&answer.text), structured.unwrap_or_default())
        }
        AgentEnd::Failed(trouble) => {
            let (reason, failure) = (trouble.reason, trouble.failure(NOW));
            let wait =
                failure.retry_after.map(|wait| format!(", in {} s", wait.as_secs())).unwrap_or_default();
            let (name, class, then) = (reason.name(), failure.class.name(), reason.follow_up());
            format!("END {name} ({class}, {then:?}{wait}): {:?}", cut(&trouble.message))
        }
        AgentEnd::Cancelled => "END cancelled".to_owned(),
    });
    lines.iter().fold(String::new(), |text, line| text + line + "\n")
}

fn fact(fact: &Fact) -> Option<String> {
    Some(match fact {
        Fact::Event(EventBody::Raw { .. } | EventBody::Prompt { .. }) => return None,
        Fact::Event(EventBody::Usage(usage)) => format!("usage {}", of_usage(usage)),
        Fact::Event(EventBody::Session { id }) => format!("session {id}"),
        Fact::Event(EventBody::Message { role, text }) => format!("{} {:?}", role.name(), cut(text)),
        Fact::Event(EventBody::ToolCall { call, tool, input }) => {
            format!("tool_call {call} {tool} {}", cut(input))
        }
        Fact::Event(EventBody::ToolResult { call, status, output, .. }) => {
            format!("tool_result {call} {} {:?}", status.name(), cut(output))
        }
        Fact::Event(event) => format!("{} {:?}", event.kind().name(), cut(event.text().unwrap_or_default())),
        Fact::Cost(cost) => format!("cost ${}", cost.usd()),
        Fact::Limit(limit) => {
            let resets = limit.resets_at.map(ostler_core::Timestamp::millis);
            format!("limit {} {:?} {:?} resets {resets:?}", limit.name, limit.state, limit.utilization)
        }
        Fact::TurnStarted => "turn started".to_owned(),
        Fact::Turns(turns) => format!("turns {turns}"),
        // They follow the events of the tool.
        Fact::ToolStarted { .. } | Fact::ToolFinished { .. } => return None,
        Fact::Hopeless => "hopeless".to_owned(),
        Fact::ResultSeen => "result seen".to_owned(),
        Fact::Send(line) => format!("send {}", cut(line)),
        Fact::CloseStdin => "close stdin".to_owned(),
        Fact::TurnLimit => "turn limit".to_owned(),
    })
}

fn of_usage(usage: &Usage) -> String {
    let cost = usage.cost.map_or_else(|| "$?".to_owned(), |cost| format!("${}", cost.usd()));
    format!(
        "{} in {} out {} read {} written {} {cost}",
        usage.model.as_deref().unwrap_or("-"),
        usage.input_tokens,
        usage.output_tokens,
        usage.cache_read_tokens,
        usage.cache_write_tokens
    )
}

fn cut(text: &str) -> &str {
    beginning(text, SHOWN)
}

#[test]
fn every_recording_of_claude() {
    check("claude.txt", |_| Dialect::Claude);
}

#[test]
fn every_recording_of_an_older_claude() {
    check("claude-2.1.197.txt", |_| Dialect::Claude);
}

#[test]
fn every_recording_of_codex() {
    check("codex.txt", |_| Dialect::CodexExec);
}

#[test]
fn every_recording_of_a_usage_limit() {
    check("limits.txt", |name| if name.starts_with("claude") { Dialect::Claude } else { Dialect::CodexExec });
}

#[test]
fn every_recorded_dialogue_with_the_app_server() {
    check("app-server.txt", |_| Dialect::Codex);
}

/// The costs that claude reports are those of the built-in prices, so the prices are right for what the recordings show.
#[test]
fn the_built_in_prices_are_what_claude_charges() {
    let (prices, mut compared) = (PriceTable::built_in(), 0);
    for file in ["claude.txt", "claude-2.1.197.txt", "limits.txt"] {
        for case in cases(file).iter().filter(|case| !case.name.starts_with("codex")) {
            for fact in case.replay(Dialect::Claude, &[usize::MAX]).facts {
                let Fact::Event(EventBody::Usage(usage)) = fact else { continue };
                if usage.model.as_deref() == Some("claude-sonnet-4-5") {
                    assert_eq!(usage.cost, prices.cost(&usage), "{}", case.name);
                    compared += 1;
                }
            }
        }
    }
    assert!(compared > 80, "{compared}");
}

/// What several turns and a resume of one session cost is counted once.
#[test]
fn usage_over_turns_and_a_resume_is_a_difference_and_never_a_sum_of_totals() {
    let spent = |name: &str| -> Cost {
        let facts = named("claude.txt", name).replay(Dialect::Claude, &[usize::MAX]).facts;
        let of =
            |fact: &Fact| if let Fact::Event(EventBody::Usage(usage)) = fact { usage.cost } else { None };
        facts.iter().filter_map(of).sum()
    };
    assert_eq!(spent("session_new") + spent("resume"), Cost::from_usd(0.003_885 * 2.0).expect("money"));
    assert_eq!(spent("input_two_close"), Cost::from_usd(0.007_71).expect("money"));
    assert_eq!(spent("background_completes"), Cost::from_usd(0.012_57).expect("money"));
}

/// A resumed run of codex reports the total of its conversation.
#[test]
fn a_resumed_run_of_codex_exec_subtracts_what_the_conversation_spent_before() {
    let case = named("codex.txt", "resume_flag_order");
    let usage = |settings: &ostler_agent::AgentSettings| -> Vec<Usage> {
        let facts = case.replay_with(Dialect::CodexExec, settings, &[usize::MAX]).facts;
        let of =
            |fact: Fact| if let Fact::Event(EventBody::Usage(usage)) = fact { Some(usage) } else { None };
        facts.into_iter().filter_map(of).collect()
    };
    let whole = usage(&case.settings());
    let mut settings = case.settings();
    let first = Usage { input_tokens: 1_200, cache_read_tokens: 800, output_tokens: 3, ..Usage::default() };
    settings.spent_before = vec![first.clone(), first.clone()];
    let rest = usage(&settings);
    assert_eq!(rest[0].input_tokens + 2 * first.input_tokens, whole[0].input_tokens);
    assert_eq!(rest[0].output_tokens + 2 * first.output_tokens, whole[0].output_tokens);
    assert!(rest[0].cache_read_tokens < whole[0].cache_read_tokens);
}
