//! Money in a config and on the command line: `"$3"`, `"$0.25"`, or `0.25`.

pub use ostler_core::parse_usd as parse;

#[cfg(test)]
mod tests {
    use ostler_core::Cost;

    use super::*;

    #[test]
    fn an_amount_is_dollars_with_or_without_the_sign() {
        for (text, nanos) in [("$5", 5_000_000_000), ("0.25", 250_000_000), ("$0.000001", 1_000), ("0", 0)] {
            assert_eq!(parse(text).map(Cost::nanos), Ok(nanos), "{text}");
        }
        for text in ["", "$", "5$", "-1", "1e3", "nan", "inf", "€5", "1000001", "five"] {
            assert!(parse(text).is_err_and(|sentence| sentence.contains("$0.25")), "{text}");
        }
    }
}
