//! Environment variables in the strings of the config: `${NAME}`.
//!
//! `$${` is a literal `${`. Any other `$` is left alone: strings are often commands, and `$1` or `$$` means something to a
//! shell.

use ostler_exec::is_variable_name;

use crate::duration::short;

const OPEN: &str = "${";

/// Why a string cannot be expanded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExpandError {
    #[error("the variable {0} is not set; for a literal ${{{0}}} write $${{{0}}}")]
    NotSet(String),
    /// The text between the braces is not the name of a variable.
    #[error("\"{0}\" is not the name of a variable; for a literal ${{ write $${{")]
    NotAName(String),
    #[error("\"${{\" without \"}}\"; for a literal ${{ write $${{")]
    Open,
}

/// Replaces variables, once: their values are not expanded again.
pub(crate) fn expand(text: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<String, ExpandError> {
    let mut expanded = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(OPEN) {
        if let Some(before) = before.strip_suffix('$') {
            expanded.push_str(before);
            expanded.push_str(OPEN);
            rest = after;
            continue;
        }
        let (name, after) = after.split_once('}').ok_or(ExpandError::Open)?;
        if !is_variable_name(name) {
            return Err(ExpandError::NotAName(short(name)));
        }
        expanded.push_str(before);
        expanded.push_str(&env(name).ok_or_else(|| ExpandError::NotSet(name.to_owned()))?);
        rest = after;
    }
    expanded.push_str(rest);
    Ok(expanded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(name: &str) -> Option<String> {
        match name {
            "HOME" => Some("/home/anna".to_owned()),
            "NESTED" => Some("${HOME}".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        }
    }

    #[test]
    fn variables_are_replaced_once() {
        for (text, expanded) in [
            ("", ""),
            ("plain", "plain"),
            ("${HOME}/x", "/home/anna/x"),
            ("${HOME}${HOME}", "/home/anna/home/anna"),
            ("[${EMPTY}]", "[]"),
            ("${NESTED}", "${HOME}"),
            ("$${HOME}", "${HOME}"),
            ("a $${x:-y} b ${HOME}", "a ${x:-y} b /home/anna"),
            ("$HOME $1 $$ $", "$HOME $1 $$ $"),
            ("$(date) }", "$(date) }"),
        ] {
            assert_eq!(expand(text, &env).as_deref(), Ok(expanded), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_replaced_is_refused_with_how_to_write_it() {
        for (text, sentence) in [
            (
                "${NOT_THERE}",
                "the variable NOT_THERE is not set; for a literal ${NOT_THERE} write $${NOT_THERE}",
            ),
            ("${x:-y}", "\"x:-y\" is not the name of a variable; for a literal ${ write $${"),
            ("${}", "\"\" is not the name"),
            ("${1}", "\"1\" is not the name"),
            ("${HOME", "\"${\" without \"}\""),
        ] {
            let error = expand(text, &env).expect_err(text).to_string();
            assert!(error.contains(sentence), "{text}: {error}");
        }
    }
}
