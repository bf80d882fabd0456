//! `ostler open`: makes a login link for the pages of a running node, and opens it in a browser.

use std::process::{Command, Stdio};

use anyhow::Context as _;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{Console, config};
use crate::args::OpenArgs;
use crate::config::{Config, Listen};
use crate::exit::{Code, refused};
use crate::up::{api_token, login_address};

/// Bytes of an answer.
const MAX_ANSWER_BYTES: u64 = 16 * 1024;
/// How long a node may take to answer.
const MAX_ANSWER: std::time::Duration = std::time::Duration::from_secs(5);
/// What opens an address on this machine.
const OPENERS: [&str; 2] = ["xdg-open", "open"];

/// What `open --json` prints.
#[derive(Serialize)]
struct OpenedLink {
    link: String,
}

/// What the node is asked for: a link whose session may do what the token may, or only look.
pub(super) fn link_input(wanted: &OpenArgs) -> Value {
    if wanted.readonly { json!({ "access": "read" }) } else { json!({}) }
}

pub(super) async fn run(console: &Console, wanted: &OpenArgs) -> anyhow::Result<Code> {
    let place = console.place()?;
    let api = match console.config_file() {
        Some(path) => config::required(&path)?.api,
        None => Config::default().api,
    };
    let address = match api.listen {
        Listen::Nowhere => return Err(refused(Code::BadInput, "listen = \"none\": the node has no pages")),
        Listen::Usual => ostler_server::ListenAddress::usual(),
        Listen::At(address) => address,
    };
    let token = api_token(place.url())?;
    let answer =
        tokio::time::timeout(MAX_ANSWER, ask(&address, &token, &link_input(wanted).to_string())).await;
    let answer = answer.context("the node does not answer in time")?;
    let (status, body) = answer.map_err(|error| {
        refused(Code::NotFound, format!("no node answers at {address}: {error}; start one: ostler up"))
    })?;
    if status == 401 {
        let sentence =
            format!("the node at {address} does not know the token of this store; it may serve another one");
        return Err(refused(Code::BadInput, sentence));
    }
    let body: Value = serde_json::from_str(&body).context("the node's answer is not JSON")?;
    let text = body.get("token").and_then(Value::as_str).context("the node's answer has no token")?;
    let link = login_address(&address, api.public_url.as_deref(), &api.base_path, wanted.task, text);
    told(console, wanted, &link)
}

/// Prints the link, and opens it.
pub(super) fn told(console: &Console, wanted: &OpenArgs, link: &str) -> anyhow::Result<Code> {
    console.out.answer(&OpenedLink { link: link.to_owned() }, |_| format!("{link}\n"))?;
    if !wanted.print {
        open(link);
    }
    Ok(Code::Done)
}

/// Opens a browser, if there is one. The link is in its arguments for a moment; it is valid once.
fn open(link: &str) {
    for opener in OPENERS {
        let mut command = Command::new(opener);
        command.arg(link).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if command.spawn().is_ok() {
            return;
        }
    }
}

async fn ask(
    address: &ostler_server::ListenAddress,
    token: &str,
    body: &str,
) -> std::io::Result<(u16, String)> {
    let host = address.to_string();
    let request = format!(
        "POST /api/v1/login-links HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let mut answer = String::new();
    match address {
        ostler_server::ListenAddress::Tcp(socket) => {
            let mut stream = tokio::net::TcpStream::connect(socket).await?;
            stream.write_all(request.as_bytes()).await?;
            stream.take(MAX_ANSWER_BYTES).read_to_string(&mut answer).await?;
        }
        ostler_server::ListenAddress::Unix(path) => {
            let mut stream = tokio::net::UnixStream::connect(path).await?;
            stream.write_all(request.as_bytes()).await?;
            stream.take(MAX_ANSWER_BYTES).read_to_string(&mut answer).await?;
        }
    }
    let wrong = || std::io::Error::other("this is no HTTP answer");
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(wrong)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(wrong)?;
    Ok((status, body.to_owned()))
}
