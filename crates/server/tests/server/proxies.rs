//! A real nginx in front of the server, with its defaults and with the snippet of the guide; and a real Caddy: the prefix
//! kept and stripped, TLS, pages whose links stay below the prefix, streams that are not held back, and forged headers that change nothing.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use ostler_core::{ErrorClass, Failure, Outcome, TaskId};
use ostler_server::{ListenAddress, MetricsAccess, Server};
use ostler_store::calls::Claimed;
use ostler_testkit::{MAX_WAIT, TempStore};
use serde_json::{Value, json};

use crate::world::{Client, FULL, StorePlace, World, line, on_each_store, parts};

on_each_store!(
    behind_nginx_the_api_works_with_its_prefix_or_without_and_streams_are_not_held_back,
    behind_caddy_the_api_works_with_its_prefix_or_without_and_streams_are_not_held_back,
    links_of_all_pages_stay_below_the_prefix_of_a_proxy,
    headers_that_a_client_forges_change_nothing_behind_nginx,
    a_proxy_that_holds_streams_back_is_noticed,
);

/// A client of both sockets of the proxy. Each argument is a request; each line of its output is an answer. A stream is read up to its
/// first event. With `below`, it is the first of all pages that links lead to, and the answer is what is wrong with the links.
const CLIENT: &str = r#"
import html.parser, http.client, json, socket, ssl, sys, time
from urllib.parse import parse_qsl, urljoin, urlsplit

class Connection(http.client.HTTPConnection):
    def __init__(self, path, tls, patience):
        super().__init__("ostler.example.org", timeout=patience)
        self.path, self.tls = path, tls
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)
        if self.tls:
            context = ssl.create_default_context(cafile=self.tls)
            self.sock = context.wrap_socket(self.sock, server_hostname="ostler.example.org")

class Links(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)
    def handle_starttag(self, tag, attributes):
        self.found += [(name, to) for name, to in attributes if name in ("href", "src", "action", "formaction") and to is not None]

def connection(ask):
    tls = ask.get("tls", True)
    socket_name = ask.get("socket", "tls" if tls else "plain")
    return Connection(f"{folder}/{socket_name}.sock", f"{folder}/certificate.pem" if tls else None, ask.get("stream", 30))

def crawl(ask):
    root, below = "https://ostler.example.org", ask["below"]
    met, pages, wrong, waiting = set(), 0, [], [(ask["path"], "the start")]
    while waiting and pages < 300:
        path, source = waiting.pop()
        at = urlsplit(path)
        # Filters have too many values: one page for each set of names is enough.
        key = (at.path, frozenset(name for name, _ in parse_qsl(at.query)))
        if key in met:
            continue
        met.add(key)
        line = connection(ask)
        line.request("GET", path, headers=ask["headers"])
        answer = line.getresponse()
        body = answer.read().decode("utf-8", "replace")
        pages += 1
        links = Links(body).found if (answer.getheader("content-type") or "").startswith("text/html") else []
        if answer.status in (301, 302, 303, 307, 308):
            links = [("location", answer.getheader("location"))]
        elif answer.status != 200:
            wrong.append(f"{source}: {path} is {answer.status}")
        for name, to in links:
            whole = urlsplit(urljoin(root + path, to))
            place = whole.path + ("?" + whole.query if whole.query else "")
            if f"{whole.scheme}://{whole.netloc}" != root or not whole.path.startswith(below):
                wrong.append(f"{path}: {to} leads outside")
            elif whole.path.startswith(below + below[1:]):
                wrong.append(f"{path}: {to} has the prefix twice")
            elif name in ("href", "src", "location"):
                waiting.append((place, path))
    return {"pages": pages, "wrong": wrong}

folder = sys.argv[1]
for text in sys.argv[2:]:
    ask = json.loads(text)
    if "below" in ask:
        print(json.dumps(crawl(ask)))
        continue
    at = connection(ask)
    began, body = time.monotonic(), ""
    try:
        at.request(ask.get("method", "GET"), ask["path"], body=ask.get("body"), headers=ask.get("headers", {}))
        answer = at.getresponse()
        if ask.get("stream"):
            while "data:" not in body:
                piece = answer.read1(65536).decode()
                assert piece, "the stream ends before its first event"
                body += piece
        else:
            body = answer.read().decode()
    except TimeoutError:
        print(json.dumps({"held": body}))
        continue
    told = {"status": answer.status, "headers": {k.lower(): v for k, v in answer.getheaders()}, "body": body}
    print(json.dumps({**told, "seconds": time.monotonic() - began}))
"#;

/// How long the first event of a stream may take through a proxy, in seconds.
const STREAM_SECONDS: f64 = 3.0;

/// Whether the first event of a stream was not held back.
fn comes_at_once(answer: &Value) -> bool {
    answer["held"].is_null() && answer["seconds"].as_f64().is_some_and(|seconds| seconds < STREAM_SECONDS)
}

/// A proxy on sockets of its folder. Killed on drop.
struct ProxyProcess(Child);

/// The snippet for a proxy in the guide.
fn in_guide(language: &str) -> String {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/service.md");
    let page = std::fs::read_to_string(page).expect("the guide is there");
    let snippet = page.split_once(&format!("```{language}\n")).and_then(|(_, rest)| rest.split_once("```"));
    snippet.expect("the guide has a snippet").0.to_owned()
}

/// A certificate for the name of the tests, and its key.
fn make_certificate(folder: &Path) {
    let certificate = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=ostler"];
    let made = Command::new("openssl")
        .args(certificate)
        .args(["-addext", "subjectAltName=DNS:ostler.example.org", "-keyout", "key.pem", "-out"])
        .arg("certificate.pem")
        .current_dir(folder)
        .stderr(Stdio::null())
        .status();
    assert!(made.expect("openssl runs").success(), "a certificate is made");
}

impl ProxyProcess {
    /// nginx with one process.
    async fn nginx(folder: &Path, upstream: &str) -> Self {
        make_certificate(folder);
        let at = folder.display();
        let locations = format!(
            "location /ostler/ {{ proxy_pass http://{upstream}; }}
             location /stripped/ {{ proxy_pass http://{upstream}/; }}
             location /held/ {{ proxy_pass http://{upstream}/; proxy_ignore_headers X-Accel-Buffering; }}
             location /adding/ {{
                 proxy_pass http://{upstream}/;
                 proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
             }}"
        );
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .iter()
            .map(|kind| format!("{kind}_temp_path {at}/{kind}; "))
            .collect();
        let guide = in_guide("nginx")
            .replace("listen 443 ssl", &format!("listen unix:{at}/guide.sock ssl"))
            .replace("/etc/ssl/ostler.pem", &format!("{at}/certificate.pem"))
            .replace("/etc/ssl/ostler.key", &format!("{at}/key.pem"))
            .replace("127.0.0.1:7700", upstream);
        let config = format!(
            "daemon off; master_process off; pid {at}/nginx.pid; error_log {at}/error.log;
             events {{ worker_connections 100; }}
             http {{
                 access_log off; {temporary} {guide}
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
        Self::listening(child, &folder.join("tls.sock")).await
    }

    /// Caddy, with the snippet of the guide, and with a prefix that is stripped.
    async fn caddy(folder: &Path, upstream: &str) -> Self {
        make_certificate(folder);
        let at = folder.display();
        // Its sockets and its certificate in place of port 443 and of one that it would fetch.
        let here =
            format!("bind unix/{at}/guide.sock\n tls {at}/certificate.pem {at}/key.pem\n reverse_proxy");
        let guide = in_guide("text").replace("127.0.0.1:7700", upstream).replace("reverse_proxy", &here);
        let config = format!(
            "{{\n admin off\n auto_https off\n storage file_system {at}/caddy\n}}\n{guide}\n\
             http://ostler.example.org {{\n bind unix/{at}/plain.sock\n\
             handle_path /stripped/* {{\n reverse_proxy {upstream}\n }}\n\
             handle {{\n reverse_proxy {upstream}\n }}\n}}\n"
        );
        std::fs::write(folder.join("Caddyfile"), config).expect("it is written");
        let child = Command::new("caddy")
            .args(["run", "--config", "Caddyfile", "--adapter", "caddyfile"])
            .current_dir(folder)
            .env("HOME", folder)
            .stdin(Stdio::null())
            .stderr(std::fs::File::create(folder.join("caddy.log")).expect("it is made"))
            .spawn()
            .expect("Caddy runs");
        Self::listening(child, &folder.join("plain.sock")).await
    }

    async fn listening(child: Child, socket: &Path) -> Self {
        let started = Self(child);
        let listens = async {
            while tokio::net::UnixStream::connect(socket).await.is_err() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(MAX_WAIT, listens).await.expect("the proxy listens");
        started
    }
}

impl Drop for ProxyProcess {
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

/// A task that goes on, and has written less than a buffer of a proxy.
async fn started_to_write(world: &World) -> (TaskId, Vec<Claimed>) {
    let id = world.enqueue(1).await[0];
    let session = world.node().await;
    let claimed = world.claim(session, 1).await;
    world.store.append(claimed[0].lease.as_ref(), vec![line("line 1".to_owned())]).await.expect("appended");
    (id, claimed)
}

async fn behind_nginx_the_api_works_with_its_prefix_or_without_and_streams_are_not_held_back(world: World) {
    let folder = world.place.folder().to_owned();
    let _proxy = ProxyProcess::nginx(&folder, &world.address).await;
    let (id, claimed) = started_to_write(&world).await;
    let ways = [
        ("plain", "/ostler"),
        ("plain", "/stripped"),
        ("tls", "/ostler"),
        ("tls", "/stripped"),
        ("guide", "/ostler"),
    ];
    for (socket, prefix) in ways {
        works_through(&world, &folder, (socket, prefix), &id.to_string()).await;
    }
    world.finish(claimed, &Outcome::Success).await;
}

async fn behind_caddy_the_api_works_with_its_prefix_or_without_and_streams_are_not_held_back(world: World) {
    let folder = world.place.folder().to_owned();
    let _proxy = ProxyProcess::caddy(&folder, &world.address).await;
    let (id, claimed) = started_to_write(&world).await;
    for way in [("plain", "/ostler"), ("plain", "/stripped"), ("guide", "/ostler")] {
        works_through(&world, &folder, way, &id.to_string()).await;
    }
    world.finish(claimed, &Outcome::Success).await;
}

/// The API, streams and the login through one way of the proxy.
async fn works_through(world: &World, folder: &Path, (socket, prefix): (&str, &str), id: &str) {
    let bearer = json!({"authorization": format!("Bearer {FULL}")});
    let link = world.server().login_text().expect("a link");
    let from_page = json!({
        "origin": "https://ostler.example.org", "sec-fetch-site": "same-origin",
        "content-type": "application/json"
    });
    let login = json!({"token": link}).to_string();
    let ask = |path: &str, more: Value| {
        let mut ask = json!({"path": format!("{prefix}{path}"), "socket": socket, "tls": socket != "plain"});
        ask.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
        ask
    };
    let stream = json!({"headers": bearer, "stream": STREAM_SECONDS});
    let answers = through(
        folder,
        &[
            ask("/api/v1/stats", json!({"headers": bearer})),
            ask(&format!("/api/v1/tasks/{id}/events"), stream.clone()),
            ask("/api/v1/live", stream),
            ask("/login", json!({"method": "POST", "headers": from_page, "body": login})),
            ask("/api/v1/stats", json!({})),
        ],
    )
    .await;
    let statuses: Vec<&Value> = answers.iter().map(|answer| &answer["status"]).collect();
    assert_eq!(statuses, [200, 200, 200, 200, 401], "{prefix} {socket}: {answers:?}");
    assert!(comes_at_once(&answers[1]) && comes_at_once(&answers[2]), "{answers:?}");
    assert!(answers[1]["body"].as_str().is_some_and(|body| body.contains("line 1")), "{answers:?}");
    let cookie = answers[3]["headers"]["set-cookie"].as_str().expect("a cookie");
    for part in ["HttpOnly", "SameSite=Lax", "Secure", "Path=/ostler"] {
        assert!(cookie.contains(part), "{part}: {cookie}");
    }
    let pair = cookie.split(';').next().expect("a pair");
    let with_cookie = json!({"cookie": pair, "sec-fetch-site": "same-origin"});
    let seen = through(folder, &[ask("/api/v1/session", json!({"headers": with_cookie}))]).await;
    assert_eq!(seen[0]["status"], 200, "{seen:?}");
}

/// Something in each view: tasks of all ends, a job, a schedule and a queue that is paused.
async fn fill(world: &World) {
    world.enqueue(4).await;
    let session = world.node().await;
    let mut claimed = world.claim(session, 3).await;
    world.store.append(claimed[0].lease.as_ref(), vec![line("line 1".to_owned())]).await.expect("appended");
    let failure = Failure::new(ErrorClass::Permanent, "no such host");
    world.finish(claimed.split_off(2), &Outcome::Failed(failure)).await;
    world.finish(claimed.split_off(1), &Outcome::Success).await;
    world.post("/api/v1/jobs", r#"{"pool":"none","items":["a","b"],"name":"letters"}"#).await.is(201);
    world.put("/api/v1/schedules/hourly", &json!({"queue": "mail", "kind": "send", "every": "1h"})).await;
    world.post("/api/v1/queues/mail/pause", r#"{"reason":"lunch"}"#).await.is(200);
}

async fn links_of_all_pages_stay_below_the_prefix_of_a_proxy(world: World) {
    fill(&world).await;
    let links = async |proxy: ProxyProcess, ways: &[(&str, &str)]| {
        for (socket, prefix) in ways {
            let link = world.server().login_text().expect("a link");
            let from_page = json!({
                "origin": "https://ostler.example.org", "sec-fetch-site": "same-origin",
                "content-type": "application/json"
            });
            let tls = *socket != "plain";
            let login = json!({"method": "POST", "path": format!("{prefix}/login"), "socket": socket, "tls": tls,
                "headers": from_page, "body": json!({"token": link}).to_string()});
            let folder = world.place.folder().to_owned();
            let answer = through(&folder, &[login]).await.remove(0);
            let cookie = answer["headers"]["set-cookie"].as_str().expect("a cookie");
            let headers = json!({"cookie": cookie.split(';').next(), "accept": "text/html"});
            let crawl = |path: &str, below: &str| json!({"path": path, "below": below, "socket": socket, "tls": tls, "headers": headers});
            let start = format!("{prefix}/");
            let whole = through(&folder, &[crawl(&start, &start)]).await.remove(0);
            assert_eq!(whole["wrong"], json!([]), "{socket} {prefix}");
            assert!(whole["pages"].as_u64().is_some_and(|pages| pages >= 20), "{socket} {prefix}: {whole}");
            // A crawler that expects another prefix finds that links leave it.
            let deeper = format!("{prefix}/tasks");
            let strict = through(&folder, &[crawl(&deeper, &format!("{prefix}/tasks/"))]).await.remove(0);
            assert!(strict["wrong"].to_string().contains("leads outside"), "{strict}");
        }
        drop(proxy);
    };
    let nginx = ProxyProcess::nginx(world.place.folder(), &world.address).await;
    links(nginx, &[("plain", "/ostler"), ("tls", "/stripped"), ("guide", "/ostler")]).await;
    // The sockets of one proxy are in the way of the other.
    for socket in ["plain", "tls", "guide"] {
        std::fs::remove_file(world.place.folder().join(format!("{socket}.sock"))).expect("it is removed");
    }
    let caddy = ProxyProcess::caddy(world.place.folder(), &world.address).await;
    links(caddy, &[("plain", "/ostler"), ("plain", "/stripped"), ("guide", "/ostler")]).await;
}

async fn a_proxy_that_holds_streams_back_is_noticed(world: World) {
    let folder = world.place.folder().to_owned();
    let _proxy = ProxyProcess::nginx(&folder, &world.address).await;
    let (id, _claimed) = started_to_write(&world).await;
    let bearer = json!({"authorization": format!("Bearer {FULL}")});
    let path = format!("/held/api/v1/tasks/{id}/events");
    let held = through(&folder, &[json!({"path": path, "headers": bearer, "stream": STREAM_SECONDS})]).await;
    assert!(!comes_at_once(&held[0]), "{held:?}");
}

async fn headers_that_a_client_forges_change_nothing_behind_nginx(world: World) {
    let folder = world.place.folder().to_owned();
    let _proxy = ProxyProcess::nginx(&folder, &world.address).await;
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
