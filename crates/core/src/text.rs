//! Truncation of long texts, with a mark at the cut; and spelling suggestions ("did you mean …?").

/// Words with a larger edit distance are not suggested.
const MAX_DISTANCE: usize = 3;
/// Longer words get no suggestion.
const MAX_GUESSED_BYTES: usize = 64;

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

/// The known word with the most similar spelling.
#[must_use]
pub fn nearest<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    if word.len() > MAX_GUESSED_BYTES {
        return None;
    }
    let short = known.iter().filter(|known| known.len() <= MAX_GUESSED_BYTES);
    let by_distance = short.map(|known| (edits(word, known), *known));
    // If half of a short word differs, it is another word.
    let near =
        by_distance.filter(|(distance, known)| *distance <= MAX_DISTANCE && distance * 2 <= known.len());
    near.min_by_key(|(distance, _)| *distance).map(|(_, known)| known)
}

/// The edit distance by optimal string alignment: inserted, removed, replaced and swapped neighbouring characters.
fn edits(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = replaced.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
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

    #[test]
    fn the_word_that_was_probably_meant_is_found() {
        for (a, b, distance) in [
            ("", "", 0),
            ("", "abc", 3),
            ("shel", "shell", 1),
            ("sned", "send", 1),
            ("größe", "grosse", 3),
            ("ca", "abc", 3),
        ] {
            assert_eq!((edits(a, b), edits(b, a)), (distance, distance), "{a} {b}");
        }
        assert_eq!(nearest("shel", &["mail", "shell", "shelf"]), Some("shell"));
        assert_eq!(nearest("x", &["y"]), None);
        assert_eq!(nearest(&"x".repeat(65), &["x"]), None);
    }
}
