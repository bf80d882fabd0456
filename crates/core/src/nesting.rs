//! Nesting depth of JSON texts. A text that is nested too deeply is rejected on input: many JSON parsers give up on it, or
//! overflow their stack.

/// The maximum depth of a payload, an output or the value of a step. The default of serde_json is 127 for a whole text, and Ostler
/// prints some objects around these.
pub const MAX_NESTING: usize = 120;

/// Whether a JSON text is nested deeper than [`MAX_NESTING`]. For a text that is not JSON the result is unspecified.
#[must_use]
pub fn is_too_deep(json: &str) -> bool {
    let (mut depth, mut in_text, mut escaped) = (0_usize, false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            b'[' | b'{' if !in_text => {
                depth += 1;
                if depth > MAX_NESTING {
                    return true;
                }
            }
            b']' | b'}' if !in_text => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested(levels: usize) -> String {
        "[{\"a\":".repeat(levels / 2)
            + &"[".repeat(levels % 2)
            + "1"
            + &"]".repeat(levels % 2)
            + &"}]".repeat(levels / 2)
    }

    #[test]
    fn levels_are_counted_up_to_the_bound() {
        for levels in [0, 1, 2, MAX_NESTING - 1, MAX_NESTING] {
            assert!(!is_too_deep(&nested(levels)), "{levels}");
        }
        for levels in [MAX_NESTING + 1, MAX_NESTING + 2, 100_000] {
            assert!(is_too_deep(&nested(levels)), "{levels}");
        }
    }

    #[test]
    fn brackets_in_texts_and_one_after_the_other_are_no_levels() {
        for json in [
            format!("\"{}\"", "[".repeat(1_000)),
            format!("\"\\\"{}\"", "{".repeat(1_000)),
            format!("[\"\\\\\",{}]", vec!["[]"; 1_000].join(",")),
            format!("{{\"{}\":1}}", "[".repeat(1_000)),
        ] {
            assert!(!is_too_deep(&json), "{}", &json[..20]);
        }
    }
}
