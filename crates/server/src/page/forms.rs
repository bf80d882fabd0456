//! Fields of a form, as the operation that it runs takes them. The beginning of a name says what a field is:
//! `p:` a parameter of the path, `s:` text, `l:` a text of a list, `n:` a whole number, `t:` true, `j:` JSON as it was typed, `f:` a condition of the filter.

use std::collections::BTreeMap;

use percent_encoding::percent_decode_str;
use serde_json::value::RawValue;

use crate::answer::RequestError;
use crate::operations::Operation;

/// Fields of one form, such as the tasks of a page that were selected.
const MAX_FORM_FIELDS: usize = 2_000;
/// The button of a question was pressed.
pub(super) const CONFIRMED: &str = "confirmed";
/// The page to go back to.
pub(super) const BACK: &str = "back";

/// The fields of a form, in their order.
#[derive(Clone, Debug, Default)]
pub(crate) struct FormFields(pub(crate) Vec<(String, String)>);

impl FormFields {
    /// # Errors
    /// When there are too many.
    pub(crate) fn read(text: &str) -> Result<Self, RequestError> {
        let pairs = form_urlencoded::parse(text.as_bytes()).into_owned();
        let all: Vec<(String, String)> = pairs.take(MAX_FORM_FIELDS + 1).collect();
        if all.len() > MAX_FORM_FIELDS {
            return Err(RequestError::invalid(format!("a form has at most {MAX_FORM_FIELDS} fields")));
        }
        Ok(Self(all))
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    /// All values of a field.
    pub(crate) fn all<'f>(&'f self, name: &'f str) -> impl Iterator<Item = &'f str> {
        let found = self.0.iter().filter(move |(known, _)| known == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    pub(crate) fn is_confirmed(&self) -> bool {
        self.get(CONFIRMED).is_some()
    }

    /// The address to go back to, from the root of the pages. It is appended to `../`, so it cannot lead to another site.
    pub(crate) fn back(&self) -> String {
        let wanted = self.get(BACK).unwrap_or_default();
        let plain = percent_decode_str(wanted).decode_utf8_lossy();
        let leaves = plain.split(['/', '?']).any(|part| part == "..") || plain.contains(['\\', '\r', '\n']);
        if leaves || wanted.starts_with('/') { String::new() } else { wanted.to_owned() }
    }

    /// The parameters of the path for each run of the operation: one run for each value of `p:id`, and one if there is none.
    pub(crate) fn runs(&self, operation: &Operation) -> Vec<Vec<(String, String)>> {
        let names = operation.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        let names: Vec<&str> = names.collect();
        let fixed = |name: &str| self.get(&format!("p:{name}")).unwrap_or_default().to_owned();
        if !names.contains(&"id") {
            return vec![names.iter().map(|name| ((*name).to_owned(), fixed(name))).collect()];
        }
        let one = |id: &str| {
            let value = |name: &str| if name == "id" { id.to_owned() } else { fixed(name) };
            names.iter().map(|name| ((*name).to_owned(), value(name))).collect()
        };
        self.all("p:id").map(one).collect()
    }

    /// The body of the operation.
    ///
    /// # Errors
    /// When a number or JSON cannot be read.
    pub(crate) fn body(&self) -> Result<String, RequestError> {
        let mut body: BTreeMap<&str, Box<RawValue>> = BTreeMap::new();
        let mut filter: BTreeMap<&str, Box<RawValue>> = BTreeMap::new();
        let mut lists: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (name, value) in &self.0 {
            let Some((sort, field)) = name.split_once(':') else { continue };
            if value.is_empty() {
                continue;
            }
            match sort {
                "s" => {
                    body.insert(field, raw(&serde_json::Value::from(value.as_str()).to_string())?);
                }
                "l" => lists.entry(field).or_default().push(value),
                "n" => {
                    let number: u64 = value.trim().parse().map_err(|_| {
                        RequestError::field(field, format!("{field}: expected a whole number"))
                    })?;
                    body.insert(field, raw(&number.to_string())?);
                }
                "t" => {
                    body.insert(field, raw("true")?);
                }
                "f" if field == "stale" => {
                    filter.insert(field, raw("true")?);
                }
                "f" => {
                    filter.insert(field, raw(&serde_json::Value::from(value.as_str()).to_string())?);
                }
                "j" => {
                    // Browsers send lines with CR LF. In JSON a line ends only between two tokens, so no value changes.
                    let text = value.replace("\r\n", "\n");
                    let text = RawValue::from_string(text).map_err(|error| {
                        RequestError::field(field, format!("{field}: this is not JSON: {error}"))
                    })?;
                    body.insert(field, text);
                }
                _ => {}
            }
        }
        for (field, all) in lists {
            body.insert(field, raw(&serde_json::Value::from(all).to_string())?);
        }
        if !filter.is_empty() {
            body.insert("filter", raw(&text_of(&filter)?)?);
        }
        text_of(&body)
    }
}

fn raw(json: &str) -> Result<Box<RawValue>, RequestError> {
    RawValue::from_string(json.to_owned()).map_err(|error| RequestError::invalid(error.to_string()))
}

fn text_of(fields: &BTreeMap<&str, Box<RawValue>>) -> Result<String, RequestError> {
    serde_json::to_string(fields).map_err(|error| RequestError::invalid(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(pairs: &[(&str, &str)]) -> FormFields {
        FormFields(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn json_keeps_every_digit() {
        let payload = r#"{"n":9007199254740993,"x":1.10,"u":"\u0000"}"#;
        let body = fields(&[("j:payload", payload), ("t:from_scratch", "on"), ("s:empty", "")]).body();
        assert_eq!(body.expect("a body"), format!(r#"{{"from_scratch":true,"payload":{payload}}}"#));
        let rates = fields(&[("l:rate", "60/m"), ("n:concurrency", "2"), ("l:rate", "900/h")]).body();
        assert_eq!(rates.expect("a body"), r#"{"concurrency":2,"rate":["60/m","900/h"]}"#);
        let wrong = fields(&[("j:payload", "{\"n\":")]).body().expect_err("no JSON");
        assert_eq!(wrong.details["field"], "payload");
    }

    #[test]
    fn the_way_back_stays_on_the_pages() {
        for (back, goes) in [
            ("tasks?state=failed", "tasks?state=failed"),
            ("../../x", ""),
            ("%2e%2e/x", ""),
            ("//evil.test", ""),
            ("a\\b", ""),
        ] {
            assert_eq!(fields(&[(BACK, back)]).back(), goes, "{back}");
        }
    }
}
