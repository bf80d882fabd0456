//! A real nginx in front of the server, with its defaults: the prefix kept and stripped, TLS, streams that are not held back, and forged
//! headers that change nothing.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use ostler_core::Outcome;
use ostler_server::{ListenAddress, MetricsAccess, Server};
use ostler_testkit::{MAX_WAIT, TempStore};
use serde_json::{Value, json};

use crate::world::{Client, FULL, StorePlace, World, line, parts};

/// A client of both sockets of the proxy. Each argument is a request; each line of its output is an answer. A stream is read up to its
/// first event.
const CLIENT: &str = r#"
import http.client, json, socket, ssl, sys

class Connection(http.client.HTTPConnection):
    def __init__(self, path, tls):
        super().__init__("ostler.example.org", timeout=30)
        self.path, self.tls = path, tls
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(30)
        self.sock.connect(self.path)
        if self.tls:
            context = ssl.create_default_context(cafile=self.tls)
            self.sock = context.wrap_socket(self.sock, server_hostname="ostler.example.org")

folder = sys.argv[1]
for text in sys.argv[2:]:
    ask = json.loads(text)
    tls = ask.get("tls", True)
    at = Connection(f"{folder}/{'tls' if tls else 'plain'}.sock", f"{folder}/certificate.pem" if tls else None)
    at.request(ask.get("method", "GET"), ask["path"], body=ask.get("body"), headers=ask.get("headers", {}))
    answer = at.getresponse()
    if ask.get("stream"):
        body = ""
        while "data:" not in body:
            piece = answer.read1(65536).decode()
            assert piece, "the stream ends before its first event"
            body += piece
    else:
        body = answer.read().decode()
    print(json.dumps({"status": answer.status, "headers": {k.lower(): v for k, v in answer.getheaders()}, "body": body}))
"#;

/// nginx with one process, on two sockets of its folder. Killed on drop.
struct Nginx(Child);

impl Nginx {
    async fn start(folder: &Path, upstream: &str) -> Self {
        let certificate =
            ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=ostler"];
        let made = Command::new("openssl")
            .args(certificate)
            .args(["-addext", "subjectAltName=DNS:ostler.example.org", "-keyout", "key.pem", "-out"])
            .arg("certificate.pem")
            .current_dir(folder)
            .stderr(Stdio::null())
            .status();
        assert!(made.expect("openssl runs").success(), "a certificate is made");
        let at = folder.display();
        let locations = format!(
            "location /ostler/ {{ proxy_pass http://{upstream}; }}
             location /stripped/ {{ proxy_pass http://{upstream}/; }}
             location /adding/ {{
                 proxy_pass http://{upstream}/;
                 proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
             }}"
        );
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .iter()
            .map(|kind| format!("{kind}_temp_path {at}/{kind}; "))
            .collect();
        let config = format!(
            "daemon off; master_process off; pid {at}/nginx.pid; error_log {at}/error.log;
             events {{ worker_connections 100; }}
             http {{
                 access_log off; {temporary}
                 server {{ listen unix:{at}/plain.sock; {locations} }}
                 server {{
                     listen unix:{at}/tls.sock ssl;
                     ssl_certificate {at}/certificate.pem; ssl_certificate_key {at}/key.pem;
                     {locations}
                 }}
             }}"
        );
        std::fs::write(folder.join("nginx.conf"), config).expect("it is written");
        let program = if Path::new("/usr/sbin/nginx").exists() { "/usr/sbin/nginx" } else { "nginx" };
        let child = Command::new(program)
            .arg("-p")
            .arg(folder)
            .args(["-c", "nginx.conf", "-e", "error.log"])
            .stdin(Stdio::null())
            .spawn()
            .expect("nginx runs");
        let started = Self(child);
        let listens = async {
            while tokio::net::UnixStream::connect(folder.join("tls.sock")).await.is_err() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(MAX_WAIT, listens).await.expect("nginx listens");
        started
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends these requests through the proxy.
async fn through(folder: &Path, asks: &[Value]) -> Vec<Value> {
    let mut command = Command::new("python3");
    command.args(["-c", CLIENT]).arg(folder).args(asks.iter().map(Value::to_string));
    let done = tokio::task::spawn_blocking(move || command.output()).await.expect("it ends");
    let done = done.expect("python3 runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let text = String::from_utf8(done.stdout).expect("text");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn behind_nginx_the_api_works_with_its_prefix_or_without_and_streams_are_not_held_back() {
    let world = World::new().await;
    let folder = world.place.folder().to_owned();
    let _nginx = Nginx::start(&folder, &world.address).await;
    let id = world.enqueue(1).await[0];
    let session = world.node().await;
    let claimed = world.claim(session, 1).await;
    // Less than a buffer of the proxy, of a task that goes on.
    world.store.append(claimed[0].lease.as_ref(), vec![line("line 1".to_owned())]).await.expect("appended");
    let bearer = json!({"authorization": format!("Bearer {FULL}")});
    for tls in [false, true] {
        for prefix in ["/ostler", "/stripped"] {
            let link = world.server().login_text().expect("a link");
            let from_page = json!({
                "origin": "https://ostler.example.org", "sec-fetch-site": "same-origin",
                "content-type": "application/json"
            });
            let login = json!({"token": link}).to_string();
            let answers = through(
                &folder,
                &[
                    json!({"path": format!("{prefix}/api/v1/stats"), "headers": bearer, "tls": tls}),
                    json!({"path": format!("{prefix}/api/v1/tasks/{id}/events"), "headers": bearer, "stream": true, "tls": tls}),
                    json!({"path": format!("{prefix}/api/v1/live"), "headers": bearer, "stream": true, "tls": tls}),
                    json!({"path": format!("{prefix}/login"), "method": "POST", "headers": from_page, "body": login, "tls": tls}),
                    json!({"path": format!("{prefix}/api/v1/stats"), "tls": tls}),
                ],
            )
            .await;
            let statuses: Vec<&Value> = answers.iter().map(|answer| &answer["status"]).collect();
            assert_eq!(statuses, [200, 200, 200, 200, 401], "{prefix} {tls}: {answers:?}");
            assert!(answers[1]["body"].as_str().is_some_and(|body| body.contains("line 1")), "{answers:?}");
            let cookie = answers[3]["headers"]["set-cookie"].as_str().expect("a cookie");
            for part in ["HttpOnly", "SameSite=Lax", "Secure", "Path=/ostler"] {
                assert!(cookie.contains(part), "{part}: {cookie}");
            }
            let pair = cookie.split(';').next().expect("a pair");
            let with_cookie = json!({"cookie": pair, "sec-fetch-site": "same-origin"});
            let path = format!("{prefix}/api/v1/session");
            let seen = through(&folder, &[json!({"path": path, "headers": with_cookie, "tls": tls})]).await;
            assert_eq!(seen[0]["status"], 200, "{seen:?}");
        }
    }
    world.finish(claimed, &Outcome::Success).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_that_a_client_forges_change_nothing_behind_nginx() {
    let world = World::new().await;
    let folder = world.place.folder().to_owned();
    let _nginx = Nginx::start(&folder, &world.address).await;
    let forged = json!({
        "x-forwarded-for": "192.0.2.9", "x-real-ip": "192.0.2.9", "x-forwarded-host": "ostler.example.org",
        "x-forwarded-proto": "https", "x-forwarded-prefix": "/evil", "forwarded": "for=192.0.2.9;host=evil.test",
        "x-original-url": "/health", "x-rewrite-url": "/health"
    });
    let mut full = forged.clone();
    full["authorization"] = format!("Bearer {FULL}").into();
    let mut foreign = full.clone();
    foreign["origin"] = "http://evil.test".into();
    let ask = |headers: &Value| json!({"path": "/adding/api/v1/queues/mail/pause", "method": "POST", "headers": headers});
    let answers = through(&folder, &[ask(&forged), ask(&foreign), ask(&full)]).await;
    let statuses: Vec<&Value> = answers.iter().map(|answer| &answer["status"]).collect();
    assert_eq!(statuses, [401, 403, 200], "{answers:?}");
    let audit = world.get("/api/v1/audit").await.json();
    assert_eq!(
        (audit.as_array().map(Vec::len), &audit[0]["from"]),
        (Some(1), &json!("127.0.0.1")),
        "{audit}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forwarded_address_counts_only_from_a_trusted_proxy() {
    let place = Arc::new(StorePlace::File(TempStore::real()));
    let StorePlace::File(files) = &*place else { unreachable!("it is a file") };
    let (mut parts, _) = parts(files.second(), files.folder(), 900, MetricsAccess::Token);
    parts.trusted_proxies.clear();
    let bound = ListenAddress::Tcp(([127, 0, 0, 1], 0).into()).bind().await.expect("it listens");
    let server = Server::start(parts, bound).expect("it starts");
    let bearer = format!("Bearer {FULL}");
    let headers = [("authorization", bearer.as_str()), ("x-forwarded-for", "192.0.2.7")];
    let mut client = Client::connect(&server.address().to_string()).await;
    client.ask("POST", "/api/v1/queues/mail/pause", &headers, "{}").await.is(200);
    let audit = client.ask("GET", "/api/v1/audit", &headers[..1], "").await.json();
    assert_eq!(audit[0]["from"], "127.0.0.1", "{audit}");
}
