//! Escapes control characters in text of tasks and users: nothing in it may move the cursor, set the title or the clipboard, change
//! colours, or reverse the direction of text.

/// Whether a terminal would act on this character instead of showing it: C0 and C1 controls, DEL, marks and embeddings of text
/// direction, and line separators other than line feed.
const fn acts(c: char) -> bool {
    matches!(c,
        '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}'
        | '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Escapes the text into one line.
#[must_use]
pub fn visible(text: &str) -> String {
    escaped(text, escape, &[])
}

/// Escapes the text, but keeps its lines and tabs.
#[must_use]
pub fn visible_lines(text: &str) -> String {
    escaped(text, escape, &['\n', '\t'])
}

/// Escapes JSON text without changing its meaning.
#[must_use]
pub fn visible_json(json: &str) -> String {
    // Outside of strings, JSON contains no control characters but line ends and tabs.
    escaped(json, |c| format!("\\u{:04x}", u32::from(c)), &['\n', '\t', '\r'])
}

/// Rust's notation: `\n`, `\u{1b}`.
fn escape(c: char) -> String {
    if c.is_control() { c.escape_debug().collect() } else { c.escape_unicode().collect() }
}

fn escaped(text: &str, escape: impl Fn(char) -> String, kept: &[char]) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if acts(c) && !kept.contains(&c) {
            shown.push_str(&escape(c));
        } else {
            shown.push(c);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Clears the screen and sets the clipboard, both with C1 and C0 controls, and reverses text.
    const HOSTILE: &str = "\u{1b}[2J\u{9b}2J\u{1b}]52;c;aGk=\u{7}\u{9d}0;t\u{9c}\u{202e}a\u{2066}b\u{200f}\u{61c}\u{7f}\r\u{8}\u{2028}";

    #[test]
    fn nothing_is_left_that_a_terminal_would_act_on() {
        for shown in [visible(HOSTILE), visible_lines(HOSTILE)] {
            assert!(shown.chars().all(|c| c.is_ascii() && !c.is_control()), "{shown}");
            assert!(
                shown.starts_with("\\u{1b}[2J\\u{9b}2J") && shown.contains("\\u{202e}a\\u{2066}b"),
                "{shown}"
            );
        }
        assert_eq!(visible("a\tb\nc"), "a\\tb\\nc");
        assert_eq!(visible_lines("a\tb\nc\rd"), "a\tb\nc\\rd");
        let plain = "größer, שלום, 日本, 😀, e\u{301}";
        assert_eq!(
            (visible(plain), visible_lines(plain), visible_json(plain)),
            (plain.into(), plain.into(), plain.into())
        );
    }

    #[test]
    fn json_means_the_same_as_before() {
        let json = serde_json::to_string(HOSTILE).expect("a text");
        let shown = visible_json(&json);
        assert!(shown.chars().all(|c| c.is_ascii() && !c.is_control()), "{shown}");
        assert_eq!(serde_json::from_str::<String>(&shown).expect("JSON"), HOSTILE);
    }
}
