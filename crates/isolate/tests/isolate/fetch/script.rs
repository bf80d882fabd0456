//! `fetch` as a function sees it: the prelude over a real session.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use ostler_core::Level;
use ostler_isolate::fetch::FetchSession;
use ostler_isolate::{
    CallInfo, FunctionCall, FunctionHost, FunctionLimits, FunctionProgress, FunctionSource, HostAnswer,
    HostCall, HostReply, Reuse,
};
use tokio::runtime::{Handle, Runtime};
use tokio::sync::Notify;

use super::network::TestNetwork;
use super::server::{Reply, Server};
use super::session;
use crate::desk::{Output, worker};

/// A host that performs `fetch`, and nothing else.
struct Online {
    session: Arc<FetchSession>,
    runtime: Handle,
    /// Notified at each log line.
    logged: Arc<Notify>,
}

impl FunctionHost for Online {
    fn log(&self, _: Level, _: &str) {
        self.logged.notify_one();
    }

    fn progress(&self, _: &FunctionProgress) {}

    fn secret(&self, _: &str) -> Option<String> {
        None
    }

    fn call(&self, call: HostCall, reply: HostReply) {
        let session = Arc::clone(&self.session);
        match call {
            HostCall::Fetch(request) => {
                self.runtime.spawn(async move {
                    let head = session.fetch(request).await;
                    let json = |head| serde_json::to_string(&head).expect("it is JSON");
                    reply.send(head.map(|head| HostAnswer::Json(json(head))));
                });
            }
            HostCall::FetchBody { response } => {
                self.runtime.spawn(async move {
                    let piece = session.body(response).await;
                    reply.send(piece.map(|piece| piece.map_or(HostAnswer::Nothing, HostAnswer::Bytes)));
                });
            }
            HostCall::FetchClose { response } => {
                session.close(response);
                reply.send(Ok(HostAnswer::Nothing));
            }
            HostCall::BeginStep { .. } | HostCall::SaveStep { .. } | HostCall::WriteFile { .. } => {}
        }
    }
}

struct Scene {
    runtime: Runtime,
    server: Server,
    logged: Arc<Notify>,
    /// Kept until the end: a connection that is closed before was closed by the function.
    sessions: RefCell<Vec<Arc<FetchSession>>>,
}

impl Scene {
    fn new(route: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Self {
        let runtime = Runtime::new().expect("threads");
        let server = runtime.block_on(Server::start(route));
        Self { runtime, server, logged: Arc::new(Notify::new()), sessions: RefCell::default() }
    }

    /// Runs the body of a function. `at` is the address of the server.
    fn run(&self, body: &str) -> Output {
        let network = TestNetwork::default().shared();
        let session = Arc::new(session(&[&self.server.entry()], &network));
        self.sessions.borrow_mut().push(Arc::clone(&session));
        let host =
            Online { session, runtime: self.runtime.handle().clone(), logged: Arc::clone(&self.logged) };
        let module = format!("export default async (at) => {{ {body} }}");
        let call = FunctionCall::new(
            format!("\"http://{}\"", self.server.entry()),
            CallInfo::default(),
            Rc::new(host),
        );
        worker(FunctionLimits::default(), Reuse::Fresh).run(&FunctionSource::single("test.js", &module), call)
    }

    fn output(&self, body: &str) -> String {
        self.run(body).unwrap_or_else(|end| panic!("{body}: {end:?}")).expect("an output")
    }
}

/// Answers that the tests below ask for, by path.
fn pages(request: &str) -> Reply {
    match request.split(' ').nth(1).unwrap_or_default() {
        "/json" => Reply::with(
            "201 Created",
            &[("x-a", "b"), ("set-cookie", "a=1"), ("set-cookie", "b=2")],
            b"{\"n\":1}",
        ),
        "/moved" => Reply::redirect(302, "/json"),
        "/missing" => Reply::with("404 Not Found", &[], b"no"),
        "/echo" => Reply::text(request),
        "/silent" => Reply::Open(Vec::new()),
        "/open" => Reply::Open(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n".to_vec()),
        _ => Reply::text("page"),
    }
}

#[test]
fn responses_have_what_users_of_fetch_expect() {
    let scene = Scene::new(pages);
    let body = "const r = await fetch(at + '/moved'); \
        const [a, b] = [r.bodyUsed, await r.json()]; \
        return [r.status, r.statusText, r.ok, r.redirected, r.url === at + '/json', r.headers.get('X-A'), r.headers.getSetCookie(), a, b, r.bodyUsed]";
    assert_eq!(scene.output(body), r#"[201,"Created",true,true,true,"b",["a=1","b=2"],false,{"n":1},true]"#);
    let body = "const r = await fetch(new URL('/missing', at)); return [r.status, r.ok, r.redirected, r.statusText, await r.text()]";
    assert_eq!(scene.output(body), r#"[404,false,false,"Not Found","no"]"#);
    let body = "const r = await fetch(at, { method: 'HEAD' }); return [r.body, r.bodyUsed, await r.text()]";
    assert_eq!(scene.output(body), r#"[null,false,""]"#);
}

#[test]
fn requests_send_text_bytes_forms_and_streams() {
    let scene = Scene::new(pages);
    let echo = |init: &str| {
        scene.output(&format!("return (await fetch(at + '/echo', {{ method: 'POST', {init} }})).text()"))
    };
    for (init, sent, kind) in [
        ("body: 'ü'", "ü", "text/plain;charset=UTF-8"),
        (
            "body: new URLSearchParams({ a: '1 2' })",
            "a=1+2",
            "application/x-www-form-urlencoded;charset=UTF-8",
        ),
        ("body: new Uint8Array([65, 66]), headers: { 'Content-Type': 'x/y' }", "AB", "x/y"),
        (
            "body: (async function* () { yield 'a'; yield new Uint8Array([66]) })(), headers: [['content-type', 'x/z']]",
            "aB",
            "x/z",
        ),
    ] {
        let got: String = serde_json::from_str(&echo(init)).expect("text");
        assert!(
            got.starts_with("POST /echo HTTP/1.1\r\n") && got.ends_with(&format!("\r\n\r\n{sent}")),
            "{got}"
        );
        assert!(got.contains(&format!("content-type: {kind}\r\n")), "{got}");
    }
    // A response can be passed on as the body of a request, and a request as another one.
    let body = "const from = new Request(at + '/echo', { method: 'PUT', body: (await fetch(at)).body, headers: { 'x-b': 'c' } }); \
        return (await fetch(new Request(from, { redirect: 'error' }))).text()";
    let got: String = serde_json::from_str(&scene.output(body)).expect("text");
    assert!(got.starts_with("PUT ") && got.contains("x-b: c\r\n") && got.ends_with("\r\n\r\npage"), "{got}");
}

#[test]
fn redirects_are_followed_refused_or_returned() {
    let scene = Scene::new(pages);
    let body = "const r = await fetch(at + '/moved', { redirect: 'manual' }); return [r.status, r.headers.get('location'), r.redirected]";
    assert_eq!(scene.output(body), r#"[302,"/json",false]"#);
    let failed = |init: &str| {
        scene.output(&format!(
            "try {{ await fetch(at + '/moved', {init}) }} catch (e) {{ return [e instanceof TypeError, e.message] }}"
        ))
    };
    assert_eq!(
        failed("{ redirect: 'error' }"),
        r#"[true,"127.0.0.1 answered with a redirect, and the request has redirect: \"error\""]"#
    );
    assert!(failed("{ redirect: 'perhaps' }").starts_with("[true,"));
}

#[test]
fn a_refused_request_is_a_type_error_that_says_what_to_list() {
    let scene = Scene::new(pages);
    for (url, expected) in [
        ("http://169.254.169.254/", "is not a public address"),
        ("https://api.example.org/", "api.example.org:443 is not in the list `fetch` of the pool"),
        ("http://anna:x@api.example.org/", "user or a password"),
        ("ftp://api.example.org/", "only http: and https:"),
    ] {
        let body = format!("try {{ await fetch('{url}') }} catch (e) {{ return [e.name, e.message] }}");
        let said = scene.output(&body);
        assert!(said.starts_with(r#"["TypeError","#) && said.contains(expected), "{url}: {said}");
    }
}

#[test]
fn a_body_is_read_piece_by_piece_while_the_server_writes() {
    let release = Arc::new(Notify::new());
    let (begin, end) =
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n", b"6\r\nsecond\r\n0\r\n\r\n");
    let reply = Reply::Released(begin.to_vec(), Arc::clone(&release), end.to_vec());
    let mut scene = Scene::new(move |_| reply.clone());
    // The server goes on when the function has seen the first piece.
    scene.logged = release;
    for read in [
        "for await (const piece of r.body) { saw(piece) }",
        "const reader = r.body.getReader(); for (;;) { const { done, value } = await reader.read(); if (done) break; saw(value) }",
        "const copy = new Response(r.body); for await (const piece of copy.body) { saw(piece) }",
    ] {
        let body = format!(
            "const seen = [], saw = (piece) => {{ if (seen.push(new TextDecoder().decode(piece)) === 1) console.log('seen') }}; const r = await fetch(at); {read} return [seen.join(), r.bodyUsed, r.body.locked]"
        );
        assert_eq!(scene.output(&body), r#"["first,second",true,true]"#, "{read}");
    }
}

#[test]
fn an_aborted_fetch_stops_waiting_and_closes_the_connection() {
    let arrived = Arc::new(Notify::new());
    let scene = Scene::new(move |request| match request.split(' ').nth(1) {
        Some("/silent") => {
            arrived.notify_one();
            Reply::Open(Vec::new())
        }
        // Answered when the other request is there.
        Some("/arrived") => {
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_vec();
            Reply::Released(Vec::new(), Arc::clone(&arrived), answer)
        }
        Some(_) | None => pages(request),
    });
    let mut closed = 0;
    for (body, connections) in [
        (
            // Before its head.
            "const waits = fetch(at + '/silent', { signal: c.signal }); waits.catch(() => {}); \
             await (await fetch(at + '/arrived')).text(); c.abort(new RangeError('enough')); await waits",
            2,
        ),
        (
            // While its body is read.
            "const text = (await fetch(at + '/open', { signal: c.signal })).text(); text.catch(() => {}); \
             c.abort(new RangeError('enough')); await text",
            1,
        ),
        (
            // Between two reads.
            "const reader = (await fetch(at + '/open', { signal: c.signal })).body.getReader(); \
             await reader.read(); c.abort(new RangeError('enough')); await reader.read()",
            1,
        ),
    ] {
        let body =
            format!("const c = new AbortController(); try {{ {body} }} catch (e) {{ return e.message }}");
        assert_eq!(scene.output(&body), r#""enough""#, "{body}");
        closed += connections;
        scene.runtime.block_on(scene.server.gone(closed));
    }
    for (signal, name) in [("AbortSignal.abort()", "AbortError"), ("AbortSignal.timeout(50)", "TimeoutError")]
    {
        let body = format!(
            "try {{ await (await fetch(at + '/open', {{ signal: {signal} }})).text() }} catch (e) {{ return e.name }}"
        );
        assert_eq!(scene.output(&body), format!("\"{name}\""));
    }
}

#[test]
fn the_abort_of_a_finished_fetch_changes_nothing() {
    let scene = Scene::new(pages);
    let body = "const c = new AbortController(); const r = await fetch(at, { signal: c.signal }); const text = await r.text(); \
        c.abort(); return [text, (await (await fetch(at)).text())]";
    assert_eq!(scene.output(body), r#"["page","page"]"#);
}

#[test]
fn a_body_that_is_left_early_closes_the_connection() {
    let scene = Scene::new(pages);
    for (closed, leave) in [
        "for await (const piece of r.body) { break }",
        "try { for await (const piece of r.body) { throw new Error('x') } } catch {}",
        "await r.body.cancel()",
        "const reader = r.body.getReader(); await reader.read(); await reader.cancel(); if (!(await reader.read()).done) return 'more'",
    ]
    .into_iter()
    .enumerate()
    {
        let body = format!("const r = await fetch(at + '/open'); {leave}; return await (await fetch(at)).text()");
        assert_eq!(scene.output(&body), r#""page""#, "{leave}");
        // That one, and the page.
        scene.runtime.block_on(scene.server.gone(2 * (closed + 1)));
    }
}
