//! The globals of the prelude.

use ostler_isolate::FunctionEnd;

use crate::desk::{output, run};

on_each_engine!(
    timers_fire_in_order_and_can_be_cleared,
    urls_are_parsed_and_changed,
    text_is_encoded_and_decoded,
    values_are_cloned,
    random_values_differ,
    abort_signals_fire_once,
    fetch_is_done_by_the_host,
    a_handler_of_requests_serves_a_payload,
);

/// Evaluates expressions, and compares them with JSON.
fn all(cases: &[(&str, &str)]) {
    for (expression, json) in cases {
        assert_eq!(output(&format!("return {expression}")), *json, "{expression}");
    }
}

fn timers_fire_in_order_and_can_be_cleared() {
    let body = "const seen = []; const at = (n, ms) => setTimeout(() => seen.push(n), ms); \
                at(3, 30); at(1, 0); at(2, 0); const gone = at(9, 1); clearTimeout(gone); \
                await new Promise((done) => setTimeout(done, 31)); \
                await new Promise((done) => { let n = 0; const tick = setInterval((x) => { seen.push(x); if (++n === 3) { clearInterval(tick); done() } }, 1, 't') }); \
                return seen";
    assert_eq!(output(body), r#"[1,2,3,"t","t","t"]"#);
    all(&[("typeof setTimeout(() => {})", r#""number""#)]);
}

fn urls_are_parsed_and_changed() {
    all(&[
        (
            "new URL('../b?x=1#h', 'https://u:p@example.org:8080/a/c').href",
            r##""https://u:p@example.org:8080/b?x=1#h""##,
        ),
        (
            "(() => { const u = new URL('https://example.org/'); u.pathname = '/x y'; u.searchParams.append('q', 'a&b'); u.hash = 'z'; u.port = '81'; return [u.href, u.host, u.origin, u.search] })()",
            r##"["https://example.org:81/x%20y?q=a%26b#z","example.org:81","https://example.org:81","?q=a%26b"]"##,
        ),
        (
            "(() => { const u = new URL('https://example.org/?a=1'); const p = u.searchParams; u.search = '?b=2'; return [...p] })()",
            r#"[["b","2"]]"#,
        ),
        ("[URL.canParse('nope'), URL.canParse('http://x')]", "[false,true]"),
        ("JSON.stringify({ u: new URL('http://x/') })", r#""{\"u\":\"http://x/\"}""#),
        ("new URLSearchParams('a=1&b=%C3%BC+x&a=2&c').getAll('a')", r#"["1","2"]"#),
        ("new URLSearchParams('b=%C3%BC+x%').get('b')", r#""ü x%""#),
        ("new URLSearchParams({ z: \"~'!\", a: 'ü ' }).toString()", r#""z=%7E%27%21&a=%C3%BC+""#),
        (
            "(() => { const p = new URLSearchParams([['b','1'],['a','2'],['b','3']]); p.sort(); p.set('b', '9'); p.delete('a'); return [p.toString(), p.size, p.has('b'), p.has('a')] })()",
            r#"["b=9",1,true,false]"#,
        ),
    ]);
    let (output, _) = run("export default () => new URL('nope')", "null");
    assert!(
        matches!(&output, Err(FunctionEnd::Thrown(error)) if error.name == "TypeError" && error.message.contains("Invalid URL"))
    );
}

fn text_is_encoded_and_decoded() {
    all(&[
        (
            "[...new TextEncoder().encode('aü€😀\\ud800')]",
            "[97,195,188,226,130,172,240,159,152,128,239,191,189]",
        ),
        ("new TextDecoder().decode(new Uint8Array([97,195,188,226,130,172,240,159,152,128]))", r#""aü€😀""#),
        (
            "new TextDecoder().decode(new Uint8Array([0xef,0xbb,0xbf,97,0xff,0xc3,97,0xe2,0x82]))",
            "\"a\u{fffd}\u{fffd}a\u{fffd}\"",
        ),
        (
            "new TextDecoder('utf-8', { ignoreBOM: true }).decode(new Uint8Array([0xef,0xbb,0xbf,97])).length",
            "2",
        ),
        (
            "(() => { const d = new TextDecoder(); return d.decode(new Uint8Array([0xe2,0x82]), { stream: true }) + d.decode(new Uint8Array([0xac])) })()",
            r#""€""#,
        ),
        (
            "(() => { try { new TextDecoder('utf-8', { fatal: true }).decode(new Uint8Array([255])) } catch (e) { return e.name } })()",
            r#""TypeError""#,
        ),
        ("(() => { try { new TextDecoder('latin1') } catch (e) { return e.name } })()", r#""RangeError""#),
        (
            "[btoa(''), btoa('a'), btoa('ab'), btoa('abc'), btoa('\\xff\\xfe')]",
            r#"["","YQ==","YWI=","YWJj","//4="]"#,
        ),
        (
            "[atob('YQ=='), atob('YWI'), atob(' YWJj\\n'), atob('//4=').charCodeAt(0)]",
            r#"["a","ab","abc",255]"#,
        ),
        (
            "['a', '****', 'YQ=', 'YQ==='].map((t) => { try { return atob(t) } catch (e) { return e.name } })",
            r#"["InvalidCharacterError","InvalidCharacterError","InvalidCharacterError","InvalidCharacterError"]"#,
        ),
    ]);
}

fn values_are_cloned() {
    all(&[
        (
            "(() => { const a = { d: new Date(5), m: new Map([[1, new Set([2])]]), r: /x/gi, u: undefined, b: 10n, t: new Uint16Array([7]), e: new RangeError('e') }; a.self = a; \
          const c = structuredClone(a); return [c !== a, c.self === c, c.d.getTime(), [...c.m.get(1)], c.r.flags, 'u' in c, String(c.b), c.t[0], c.t.buffer !== a.t.buffer, c.e instanceof RangeError, c.e.message] })()",
            r#"[true,true,5,[2],"gi",true,"10",7,true,true,"e"]"#,
        ),
        (
            "(() => { const c = structuredClone(JSON.parse('{\"__proto__\":{\"x\":1}}')); return [Object.keys(c), c.x === undefined] })()",
            r#"[["__proto__"],true]"#,
        ),
        (
            "[() => {}, Symbol('x'), Promise.resolve()].map((v) => { try { structuredClone(v) } catch (e) { return e.name } })",
            r#"["DataCloneError","DataCloneError","DataCloneError"]"#,
        ),
    ]);
}

fn random_values_differ() {
    all(&[
        (
            "/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/.test(crypto.randomUUID())",
            "true",
        ),
        ("crypto.randomUUID() === crypto.randomUUID()", "false"),
        ("crypto.getRandomValues(new Uint32Array(64)).every((n) => n === 0)", "false"),
        (
            "[new Float64Array(1), [1], new Uint8Array(65537)].map((v) => { try { crypto.getRandomValues(v) } catch (e) { return e.name } })",
            r#"["TypeError","TypeError","TypeError"]"#,
        ),
    ]);
}

fn abort_signals_fire_once() {
    all(&[
        (
            "(() => { const c = new AbortController(); let n = 0; c.signal.addEventListener('abort', () => n++); c.signal.onabort = () => n += 10; c.abort('why'); c.abort(); return [n, c.signal.aborted, c.signal.reason] })()",
            r#"[11,true,"why"]"#,
        ),
        ("AbortSignal.abort().reason.name", r#""AbortError""#),
        (
            "await new Promise((done) => { const s = AbortSignal.any([AbortSignal.timeout(1)]); s.addEventListener('abort', () => done(s.reason.name)) })",
            r#""TimeoutError""#,
        ),
        ("(() => { try { new AbortSignal() } catch (e) { return e.name } })()", r#""TypeError""#),
        (
            "[Object.keys(AbortSignal), 'of' in AbortSignal, 'bind' in URLSearchParams.__proto__]",
            r#"[[],false,true]"#,
        ),
    ]);
}

fn fetch_is_done_by_the_host() {
    let host = std::rc::Rc::new(crate::desk::Desk::default());
    host.pages
        .borrow_mut()
        .insert("https://example.org/a".to_owned(), vec![b"{\"n\":".to_vec(), "\"ü\"}".as_bytes().to_vec()]);
    let module = "export default async () => { \
        const response = await fetch('https://example.org/a', { method: 'post', body: 'x', headers: { 'X-A': 1 } }); \
        const json = await response.json(); \
        let again; try { await response.text() } catch (e) { again = e.name } \
        const pieces = []; for await (const piece of (await fetch('https://example.org/a')).body) pieces.push(piece.length); \
        let failed; try { await fetch('https://example.org/missing') } catch (e) { failed = e.message } \
        const c = new AbortController(); setTimeout(() => c.abort(), 1); \
        let aborted; try { await fetch('https://example.org/never', { signal: c.signal }) } catch (e) { aborted = e.name } \
        return [response.status, response.ok, response.headers.get('Content-Type'), json, again, pieces, failed, aborted] }";
    let source = ostler_isolate::FunctionSource::single("test.js", module);
    let mut worker =
        crate::desk::worker(ostler_isolate::FunctionLimits::default(), ostler_isolate::Reuse::Fresh);
    let output = worker.run(&source, crate::desk::call("null", &host));
    let expected = r#"[200,true,"text/plain",{"n":"ü"},"TypeError",[5,5],"fetch failed","AbortError"]"#;
    assert_eq!(output, Ok(Some(expected.to_owned())));
    let requests = host.requests.borrow();
    assert_eq!((requests[0].method.as_str(), requests[0].body.as_deref()), ("POST", Some(&b"x"[..])));
    assert!(requests[0].headers.contains(&("x-a".to_owned(), "1".to_owned())), "{:?}", requests[0].headers);
}

fn a_handler_of_requests_serves_a_payload() {
    let module = "export default { async fetch(request, ctx) { \
        const { name } = await request.json(); \
        return new Response(`hello ${name} from ${new URL(request.url).pathname}`, { status: 201, headers: { 'x-kind': ctx.kind } }) } }";
    let payload = r#"{"url":"https://example.org/p","method":"POST","body":"{\"name\":\"ü\"}"}"#;
    let (output, _) = run(module, payload);
    let expected = r#"{"status":201,"headers":{"content-type":"text/plain;charset=UTF-8","x-kind":"test"},"body":"hello ü from /p"}"#;
    assert_eq!(output, Ok(Some(expected.to_owned())));
    let (output, _) = run("export default { fetch: () => 'text' }", "null");
    assert!(matches!(output, Err(FunctionEnd::Thrown(error)) if error.message.contains("no Response")));
}
