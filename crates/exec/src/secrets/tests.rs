//! Tests of redaction: whatever the form of a value, and wherever a text is split.

use std::collections::BTreeMap;
use std::sync::Arc;

use ostler_core::{Id, Overrides, WorkerId};
use proptest::prelude::*;

use super::*;
use crate::contract::{AttemptResult, Control, Executor, Served, Work};

/// This many cases, always the same ones, with no files left behind.
fn cases(cases: u32) -> proptest::test_runner::Config {
    let rng_seed = proptest::test_runner::RngSeed::Fixed(0x05_71_e3);
    proptest::test_runner::Config { cases, failure_persistence: None, rng_seed, ..Default::default() }
}

fn secrets(all: &[(&str, &str)]) -> Secrets {
    let all = all.iter().map(|(name, value)| Secret::new(*name, *value).expect("it is valid")).collect();
    Secrets::new(all, OutputRedaction::Off).expect("they are valid")
}

/// The text in these chunks, redacted as a stream.
fn streamed<'a>(secrets: &Secrets, chunks: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut stream = RedactedStream::new(secrets.clone());
    let mut redacted = Vec::new();
    for chunk in chunks {
        redacted.extend_from_slice(&stream.take(chunk));
    }
    redacted.extend_from_slice(&stream.flush());
    redacted
}

/// Redaction as one would describe it: at each place the longest value, if there is one.
fn naive(values: &[&str], text: &str) -> String {
    let (mut redacted, mut rest) = (String::new(), text);
    while let Some(first) = rest.chars().next() {
        let longest = values.iter().enumerate().filter(|(_, value)| rest.starts_with(**value));
        match longest.max_by_key(|(at, value)| (value.len(), usize::MAX - at)) {
            Some((at, value)) => {
                redacted.push_str(&format!("[secret S{at}]"));
                rest = &rest[value.len()..];
            }
            None => {
                redacted.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
    }
    redacted
}

#[test]
fn a_value_is_replaced_by_its_name_however_json_writes_it() {
    let all = secrets(&[("KEY", "sk-\u{e9}/line\n\"end\""), ("EMOJI", "pass😀word")]);
    for text in [
        "sk-é/line\n\"end\"",
        r#"sk-é/line\n\"end\""#,
        r#"sk-é\/line\n\"end\""#,
        r#"sk-\u00e9/line\n\"end\""#,
        r#"sk-\u00E9\/line\u000a\u0022end\u0022"#,
        r#"\u0073k-é/line\n\"end\""#,
        r#"sk-é/line\\n\\\"end\\\""#,
        r#"sk-\\u00e9/line\\n\\\"end\\\""#,
    ] {
        assert_eq!(all.redact(&format!("a {text} b")), "a [secret KEY] b", "{text}");
    }
    assert_eq!(all.redact(r"pass\ud83d\ude00word"), "[secret EMOJI]");
    assert_eq!(all.redact("no secret here \\n"), "no secret here \\n");
}

#[test]
fn the_longest_value_wins_and_short_ones_stay() {
    let all = secrets(&[("A", "abcdefgh"), ("B", "abcdefghij"), ("C", "hijklmnop"), ("SHORT", "abc1234")]);
    assert_eq!(all.redact("abcdefgh abcdefghi abcdefghijk"), "[secret A] [secret A]i [secret B]k");
    assert_eq!(all.redact("abcdefghijklmnop"), "[secret B]klmnop");
    assert_eq!(all.redact("abc1234"), "abc1234");
    let short: Vec<&str> = all.iter().filter(|secret| !secret.is_redacted()).map(Secret::name).collect();
    assert_eq!(short, ["SHORT"]);
}

#[test]
fn a_newline_at_the_end_of_a_value_need_not_be_printed() {
    let all = secrets(&[("TOKEN", "12345678\n")]);
    assert_eq!(all.redact("is 12345678."), "is [secret TOKEN].");
    assert_eq!(all.get("TOKEN").map(Secret::expose), Some("12345678\n"), "the work gets it as it is");
}

#[test]
fn a_stream_holds_back_only_what_may_be_a_secret() {
    let all = secrets(&[("KEY", "sk-12345678")]);
    let mut stream = RedactedStream::new(all);
    assert_eq!(&*stream.take(b"plain\n"), b"plain\n");
    assert_eq!(&*stream.take(b"cats"), b"cat", "a value begins with an s");
    assert_eq!(&*stream.take(b"\n"), b"s\n");
    assert_eq!(&*stream.take(b"sk-12"), b"");
    assert_eq!(&*stream.take(b"3456"), b"");
    assert_eq!(&*stream.take(b"78 sk-"), b"[secret KEY] ");
    assert_eq!(stream.flush(), b"sk-");
    assert_eq!(stream.flush(), b"");
    let mut plain = RedactedStream::default();
    assert!(matches!(plain.take(b"sk-12345678"), Cow::Borrowed(_)), "without secrets nothing is copied");
}

#[test]
fn long_texts_are_searched_in_parts_and_no_value_is_missed_between_them() {
    let long = "k".repeat(100_000 - 1) + "!";
    let all = secrets(&[("KEY", "ab\ncdéf/"), ("LONG", &long[50_000..])]);
    for before in 65_520..65_540 {
        let text = format!("{}ab\\ncd\\u00e9f/ end", "x".repeat(before));
        assert_eq!(all.redact(&text).len(), before + "[secret KEY] end".len(), "{before}");
    }
    let text = format!("{}{}", "k".repeat(70_000), &long[50_000..]);
    assert_eq!(all.redact(&text), "k".repeat(70_000) + "[secret LONG]");
}

#[test]
fn names_and_values_are_checked_and_no_error_or_debug_output_has_a_value() {
    let secret = Secret::new("KEY", "hunter2-hunter2").expect("it is valid");
    let all = Secrets::new(vec![secret.clone()], OutputRedaction::On).expect("they are valid");
    assert_eq!(format!("{secret:?} {all:?}"), "[secret KEY] [[secret KEY]]");
    for (name, value, error) in [
        ("", "12345678", SecretError::Name),
        ("1A", "12345678", SecretError::Name),
        ("A-B", "12345678", SecretError::Name),
        ("A", " \n", SecretError::Empty("A".into())),
        ("A", "1234-\0-567", SecretError::Nul("A".into())),
        ("A", &"x".repeat(MAX_SECRET_BYTES + 1), SecretError::TooLong("A".into())),
    ] {
        assert_eq!(Secret::new(name, value), Err(error));
    }
    let twice = Secrets::new(vec![secret.clone(), secret], OutputRedaction::Off);
    assert_eq!(twice, Err(SecretError::Twice("KEY".into())));
}

/// Texts in which values, and beginnings of values, are frequent.
fn texts() -> impl Strategy<Value = (Vec<String>, String)> {
    let values = proptest::collection::vec("[ab]{8,11}", 1..4);
    values.prop_flat_map(|values| {
        let parts = values.clone();
        let part = prop_oneof![
            proptest::sample::select(parts.clone()),
            (proptest::sample::select(parts), 0..8_usize).prop_map(|(value, end)| value[..end].to_owned()),
            "[abé]{0,4}",
        ];
        let text = proptest::collection::vec(part, 0..5).prop_map(|parts| parts.concat());
        (Just(values), text)
    })
}

/// A text with escapes, split anywhere: values written in JSON once or twice, and noise.
fn escaped_texts() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        Just(r"ab\ncd\u00e9f\/".to_owned()),
        Just(r"\u0061b\ncdé\u0066/".to_owned()),
        Just(r"ab\\ncd\\u00e9f\\/".to_owned()),
        Just("ab\ncdéf/".to_owned()),
        r"[ab\\nu0é]{0,6}",
    ];
    proptest::collection::vec(part, 0..5).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(cases(512))]

    #[test]
    fn a_stream_split_anywhere_is_redacted_like_the_whole_text((values, text) in texts(), chunk in 1..6_usize) {
        let named: Vec<(String, &str)> =
            values.iter().enumerate().map(|(at, value)| (format!("S{at}"), value.as_str())).collect();
        let pairs: Vec<(&str, &str)> = named.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        let all = secrets(&pairs);
        let expected = naive(&values.iter().map(String::as_str).collect::<Vec<_>>(), &text);
        prop_assert_eq!(all.redact(&text), expected.as_str());
        for split in 0..=text.len() {
            let (first, second) = text.as_bytes().split_at(split);
            prop_assert_eq!(streamed(&all, [first, second]), expected.as_bytes(), "split at {}", split);
        }
        prop_assert_eq!(streamed(&all, text.as_bytes().chunks(chunk)), expected.as_bytes());
    }

    #[test]
    fn escapes_split_anywhere_are_redacted_like_the_whole_text(text in escaped_texts(), chunk in 1..6_usize) {
        let all = secrets(&[("KEY", "ab\ncdéf/")]);
        let expected = all.redact(&text).into_owned();
        for split in 0..=text.len() {
            let (first, second) = text.as_bytes().split_at(split);
            prop_assert_eq!(streamed(&all, [first, second]), expected.as_bytes(), "split at {}", split);
        }
        prop_assert_eq!(streamed(&all, text.as_bytes().chunks(chunk)), expected.as_bytes());
    }
}

/// An executor whose workers run several attempts at once.
struct Shared;

#[async_trait::async_trait]
impl Executor for Shared {
    fn served(&self) -> Served {
        Served::Any
    }

    fn per_worker(&self) -> usize {
        50
    }

    fn slots(&self, _worker: WorkerId) -> usize {
        7
    }

    fn kind_options(&self) -> BTreeMap<String, Overrides> {
        BTreeMap::from([("mail".to_owned(), Overrides { attempts: Some(5), ..Overrides::NONE })])
    }

    async fn run(&self, _: Work, _: Control) -> AttemptResult {
        AttemptResult::cancelled()
    }
}

#[test]
fn a_pool_with_secrets_has_as_many_slots_and_the_same_options_as_one_without() {
    let guarded = secrets(&[("KEY", "sk-123456789")]).guard(Arc::new(Shared));
    assert_eq!((guarded.per_worker(), guarded.slots(WorkerId(Id::from_bits(1)))), (50, 7));
    assert_eq!(guarded.kind_options(), Shared.kind_options());
}
