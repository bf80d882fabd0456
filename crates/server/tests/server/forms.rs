//! Buttons of pages, pressed as a browser without script does: the fields as they stand, and then the question, if there is one.

use ostler_testkit::{PageForm, form_body};

use crate::world::{FULL, Reply, World};

pub(crate) const FORM: &str = "application/x-www-form-urlencoded";

/// Posts these fields to an operation.
pub(crate) async fn post_form(world: &World, operation: &str, fields: &[(&str, &str)]) -> Reply {
    post(world, operation, &form_body(fields)).await
}

async fn post(world: &World, operation: &str, body: &str) -> Reply {
    let token = format!("Bearer {FULL}");
    let headers = [("authorization", token.as_str()), ("content-type", FORM)];
    world.client().await.ask("POST", &format!("/do/{operation}"), &headers, body).await
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
    let all = PageForm::all(&page);
    let found = all.iter().find(|form| form.operation == operation && form.text.contains(words));
    let found = found.unwrap_or_else(|| panic!("{path} has no button {operation} with {words}: {all:#?}"));
    let mut reply = post(world, operation, &found.body(typed)).await;
    if reply.status == 200 {
        let asked = PageForm::all(&reply.body);
        let question = asked.iter().find(|form| form.operation == operation).expect("a question");
        assert!(question.fields.iter().any(|(name, _)| name == "confirmed"), "{question:?}");
        reply = post(world, operation, &question.body(&[])).await;
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
