//! Forms of pages, pressed as a browser without script does: the fields as they stand, and then the question, if there is one.

use crate::world::{FULL, Reply, World};

pub(crate) const FORM: &str = "application/x-www-form-urlencoded";

/// Fields as a browser sends them.
pub(crate) fn encoded<N: AsRef<str>, V: AsRef<str>>(pairs: &[(N, V)]) -> String {
    let escape = |text: &str| {
        text.bytes()
            .map(|byte| {
                if byte.is_ascii_alphanumeric() { (byte as char).to_string() } else { format!("%{byte:02X}") }
            })
            .collect::<String>()
    };
    let pair = |(name, value): &(N, V)| format!("{}={}", escape(name.as_ref()), escape(value.as_ref()));
    pairs.iter().map(pair).collect::<Vec<_>>().join("&")
}

/// A form as it stands on a page.
#[derive(Debug)]
struct PageForm {
    /// The operation that it runs.
    operation: String,
    /// Its hidden inputs, with their values.
    fields: Vec<(String, String)>,
    /// All of its markup, as text.
    text: String,
}

fn plain(text: &str) -> String {
    text.replace("&quot;", "\"").replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
}

/// The value of an attribute of a tag.
fn attribute(tag: &str, name: &str) -> Option<String> {
    let value = tag.split(&format!(" {name}=\"")).nth(1)?.split('"').next()?;
    Some(plain(value))
}

fn forms(page: &str) -> Vec<PageForm> {
    let form = |whole: &str| {
        let tag = whole.split('>').next().unwrap_or_default();
        let inputs = whole.split("<input ").skip(1).filter_map(|rest| rest.split('>').next());
        let hidden = inputs.map(|input| format!(" {input}")).filter(|tag| tag.contains(" type=\"hidden\""));
        let action = attribute(tag, "action").unwrap_or_default();
        PageForm {
            operation: action.rsplit('/').next().unwrap_or_default().to_owned(),
            fields: hidden.filter_map(|tag| Some((attribute(&tag, "name")?, attribute(&tag, "value")?))).collect(),
            text: plain(whole),
        }
    };
    page.split("<form").skip(1).filter_map(|rest| rest.split("</form>").next()).map(form).collect()
}

/// Posts a form.
pub(crate) async fn post_form(world: &World, operation: &str, fields: &[(&str, &str)]) -> Reply {
    let token = format!("Bearer {FULL}");
    let headers = [("authorization", token.as_str()), ("content-type", FORM)];
    world.client().await.ask("POST", &format!("/do/{operation}"), &headers, &encoded(fields)).await
}

/// Presses the button of a page that runs this operation and shows these words, such as its command. What is asked is answered with yes.
/// Returns the notice on the page to which that leads.
pub(crate) async fn press_button(world: &World, path: &str, operation: &str, words: &str) -> String {
    press_filled(world, path, operation, words, &[]).await
}

/// The same, with fields that are filled in by hand.
pub(crate) async fn press_filled(
    world: &World,
    path: &str,
    operation: &str,
    words: &str,
    typed: &[(&str, &str)],
) -> String {
    let page = world.get(path).await.is(200).body.clone();
    let all = forms(&page);
    let found = all.iter().find(|form| form.operation == operation && form.text.contains(words));
    let found = found.unwrap_or_else(|| panic!("{path} has no button {operation} with {words}: {all:#?}"));
    let fields = found.fields.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let fields: Vec<(&str, &str)> = fields.chain(typed.iter().copied()).collect();
    let mut reply = post_form(world, operation, &fields).await;
    if reply.status == 200 {
        let asked = forms(&reply.body);
        let question = asked.iter().find(|form| form.operation == operation).expect("a question");
        assert!(question.fields.iter().any(|(name, _)| name == "confirmed"), "{question:?}");
        let fields = question.fields.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        reply = post_form(world, operation, &fields.collect::<Vec<_>>()).await;
    }
    notice(world, &reply).await
}

/// The notice on the page to which an answer leads.
pub(crate) async fn notice(world: &World, reply: &Reply) -> String {
    let to = reply.is(303).header("location").expect("a way back").trim_start_matches("..").to_owned();
    let page = world.get(&to).await.is(200).body.clone();
    let text =
        page.split("class=\"notice ").nth(1).and_then(|rest| rest.split("</p>").next()).unwrap_or_default();
    text.to_owned()
}
