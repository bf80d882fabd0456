//! Commands to nodes by one of them: drain, resume, resize, recycle; and a login link for its pages.

use ostler::{ApiMethod, ApiRequest, RemoteClient};
use ostler_ops::recycle::WorkersToRecycle;
use ostler_wire::action::NodeCommandView;
use serde::Deserialize;
use serde_json::json;

use crate::args::{OpenArgs, Recycle, Resize};
use crate::commands::{Console, drain, open, recycle, resize};
use crate::exit::{Code, refused};
use crate::up::login_link;

pub(super) async fn drain(console: &Console, node: &RemoteClient, name: &str) -> anyhow::Result<Code> {
    let request = ApiRequest::new(ApiMethod::Post, &["nodes", name, "drain"]);
    drain::draining(console, &node.request(request).await?)
}

pub(super) async fn resume(console: &Console, node: &RemoteClient, name: &str) -> anyhow::Result<Code> {
    let request = ApiRequest::new(ApiMethod::Post, &["nodes", name, "resume"]);
    drain::resumed(console, &node.request(request).await?)
}

pub(super) async fn resize(console: &Console, node: &RemoteClient, what: Resize) -> anyhow::Result<Code> {
    let request = resize::request(what)?;
    let body = json!({ "min": request.min, "max": request.max });
    let path = ["pools", &request.pool, "resize"];
    let told: Vec<NodeCommandView> =
        node.request(ApiRequest::new(ApiMethod::Post, &path).body(&body)).await?;
    resize::told(console, &request, &told)
}

pub(super) async fn recycle(console: &Console, node: &RemoteClient, whom: Recycle) -> anyhow::Result<Code> {
    let post = |parts: &[&str]| ApiRequest::new(ApiMethod::Post, parts);
    let request = match recycle::request(whom) {
        WorkersToRecycle::Worker(worker) => post(&["workers", &worker, "recycle"]),
        WorkersToRecycle::Any(pool) => post(&["pools", &pool, "recycle"]),
        WorkersToRecycle::All(pool) => post(&["pools", &pool, "recycle"]).body(&json!({ "all": true })),
    };
    recycle::told(console, &node.request(request).await?)
}

/// The text of a login link.
#[derive(Deserialize)]
struct LinkText {
    token: String,
}

pub(super) async fn open(console: &Console, node: &RemoteClient, open: &OpenArgs) -> anyhow::Result<Code> {
    let address = node.address();
    if address.starts_with("unix:") {
        return Err(refused(
            Code::BadInput,
            "no browser reaches a Unix socket; name the address of the pages",
        ));
    }
    let request = ApiRequest::new(ApiMethod::Post, &["login-links"]).body(&open::link_input(open));
    let LinkText { token } = node.request(request).await?;
    open::told(console, open, &login_link(&address, open.task, &token))
}
