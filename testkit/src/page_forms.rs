//! Forms of HTML pages, as a browser without script sends them.

/// A form as it stands on a page.
#[derive(Debug)]
pub struct PageForm {
    /// The last part of the address that it is sent to: the operation that it runs.
    pub operation: String,
    /// Its hidden inputs, with their values.
    pub fields: Vec<(String, String)>,
    /// All of its markup, as text.
    pub text: String,
}

impl PageForm {
    /// All forms of a page.
    #[must_use]
    pub fn all(page: &str) -> Vec<Self> {
        page.split("<form").skip(1).filter_map(|rest| rest.split("</form>").next()).map(Self::read).collect()
    }

    fn read(whole: &str) -> Self {
        let tag = whole.split('>').next().unwrap_or_default();
        let inputs = whole.split("<input ").skip(1).filter_map(|rest| rest.split('>').next());
        let hidden = inputs.map(|input| format!(" {input}")).filter(|tag| tag.contains(" type=\"hidden\""));
        let action = attribute(tag, "action").unwrap_or_default();
        Self {
            operation: action.rsplit('/').next().unwrap_or_default().to_owned(),
            fields: hidden
                .filter_map(|tag| Some((attribute(&tag, "name")?, attribute(&tag, "value")?)))
                .collect(),
            text: plain(whole),
        }
    }

    /// Its fields and these, as the body of a request.
    #[must_use]
    pub fn body(&self, typed: &[(&str, &str)]) -> String {
        let own = self.fields.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        form_body(&own.chain(typed.iter().copied()).collect::<Vec<_>>())
    }
}

/// Fields as a browser sends them.
#[must_use]
pub fn form_body(pairs: &[(&str, &str)]) -> String {
    let escape = |text: &str| {
        text.bytes()
            .map(|byte| {
                if byte.is_ascii_alphanumeric() { (byte as char).to_string() } else { format!("%{byte:02X}") }
            })
            .collect::<String>()
    };
    pairs
        .iter()
        .map(|(name, value)| format!("{}={}", escape(name), escape(value)))
        .collect::<Vec<_>>()
        .join("&")
}

fn plain(text: &str) -> String {
    text.replace("&quot;", "\"").replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
}

/// The value of an attribute of a tag.
fn attribute(tag: &str, name: &str) -> Option<String> {
    let value = tag.split(&format!(" {name}=\"")).nth(1)?.split('"').next()?;
    Some(plain(value))
}
