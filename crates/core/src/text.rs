//! Truncation of long texts, with a mark at the cut.

const CUT: &str = " … (cut)";

/// Truncates a text to at most `most` bytes, at a character boundary, and marks the cut. A bound not longer than the mark leaves
/// the mark out.
#[must_use]
pub fn cut(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let (mark, room) = if most > CUT.len() { (CUT, most - CUT.len()) } else { ("", most) };
    format!("{}{mark}", beginning(text, room))
}

/// The beginning of a text, at most `most` bytes, up to a character boundary.
#[must_use]
pub fn beginning(text: &str, most: usize) -> &str {
    if text.len() <= most {
        return text;
    }
    let end = (0..=most).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_within_the_bound_stays_as_it_is() {
        assert_eq!(cut("short", 5), "short");
    }

    #[test]
    fn a_longer_one_is_cut_between_characters_and_marked() {
        for most in 0..64 {
            let short = cut(&"ä€😀".repeat(20), most);
            assert!(short.len() <= most, "{} bytes, {most} allowed", short.len());
            assert!(most <= CUT.len() || short.ends_with(CUT), "{short}");
        }
    }
}
