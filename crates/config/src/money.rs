//! Money in a config and on the command line: `"$3"`, `"$0.25"`, or `0.25`.

use ostler_core::Cost;

/// The largest amount: a million dollars.
const MAX_USD: f64 = 1e6;

/// Parses an amount of US dollars.
///
/// # Errors
/// A sentence with examples.
pub fn parse(text: &str) -> Result<Cost, String> {
    let number = text.trim().strip_prefix('$').unwrap_or(text.trim());
    let plain = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let usd = number.parse::<f64>().ok().filter(|usd| plain && *usd <= MAX_USD);
    usd.and_then(Cost::from_usd).ok_or_else(|| {
        "expected an amount in US dollars such as $5, $0.25 or 0.25, up to $1000000".to_owned()
    })
}

#[cfg(test)]
mod tests {
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
