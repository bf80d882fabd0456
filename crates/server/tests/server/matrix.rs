//! Every operation, method, credential, Host, Origin and Fetch Metadata, generated from the table: each cell as the rules say.

use ostler_server::operations::{Answers, Credentials, OPERATIONS, Operation, OperationEffect};
use ostler_server::{
    Access, AllowedCaller, ApiRefusal, CSP, Caller, Credential, Guard, GuardPolicy, MetricsAccess,
    RequestFacts, Verdict,
};

use crate::world::{Client, FULL, READ, Reply, World};

const METHODS: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND", "TRACE"];
const SITES: [Option<&str>; 5] =
    [None, Some("same-origin"), Some("same-site"), Some("cross-site"), Some("none")];
const OURS: &str = "http://127.0.0.1:7700";
const ORIGINS: [Option<&str>; 5] =
    [None, Some(OURS), Some("http://evil.test"), Some("null"), Some("http://127.0.0.1:9999")];
const HOSTS: [Option<&str>; 4] =
    [Some("127.0.0.1:7700"), Some("evil.test:7700"), Some("127.0.0.1:9999"), None];

fn guard() -> Guard {
    Guard {
        policy: GuardPolicy {
            hosts: ["127.0.0.1:7700", "localhost:7700", "[::1]:7700"].map(str::to_owned).to_vec(),
            origins: vec![OURS.to_owned()],
            ..GuardPolicy::default()
        },
    }
}

/// Changes that a reader may make: they are about its own session.
const FOR_READERS: [&str; 3] = ["logout", "login.link", "page.log_out"];

fn credentials() -> [Credential; 8] {
    let caller = |access| Caller { name: "t".to_owned(), access };
    [
        Credential::None,
        Credential::Wrong,
        Credential::Bearer(caller(Access::Read)),
        Credential::Bearer(caller(Access::Full)),
        Credential::Cookie(caller(Access::Read)),
        Credential::Cookie(caller(Access::Full)),
        Credential::Both(caller(Access::Read)),
        Credential::Both(caller(Access::Full)),
    ]
}

/// The rules once more, in the words of the page about security.
fn expected(
    operation: &Operation,
    host: Option<&str>,
    origin: Option<&str>,
    site: Option<&str>,
    navigates: bool,
    credential: &Credential,
) -> Result<(), ApiRefusal> {
    if host != HOSTS[0] {
        return Err(ApiRefusal::Misdirected);
    }
    if origin.is_some() && origin != Some(OURS) {
        return Err(ApiRefusal::CrossSite);
    }
    let (bearer_alone, has_cookie) = match credential {
        Credential::Bearer(_) => (true, false),
        Credential::Cookie(_) | Credential::Both(_) => (false, true),
        Credential::None | Credential::Wrong => (false, false),
    };
    let changes = operation.effect == OperationEffect::Change;
    let from_elsewhere = matches!(site, Some("same-site" | "cross-site"));
    if changes && site != Some("same-origin") && !bearer_alone && (has_cookie || site.is_some()) {
        return Err(ApiRefusal::CrossSite);
    }
    if !changes && from_elsewhere && !navigates {
        return Err(ApiRefusal::CrossSite);
    }
    if operation.credentials == Credentials::NotNeeded {
        return Ok(());
    }
    match credential {
        Credential::None | Credential::Wrong => Err(ApiRefusal::Unauthorized),
        Credential::Cookie(_) if operation.credentials == Credentials::Token => Err(ApiRefusal::Unauthorized),
        Credential::Bearer(caller) | Credential::Cookie(caller) | Credential::Both(caller) => {
            let may = !changes || FOR_READERS.contains(&operation.id) || caller.access == Access::Full;
            if may { Ok(()) } else { Err(ApiRefusal::ReadOnly) }
        }
    }
}

/// The cells in which a guard differs from the rules, and the number of all cells.
fn differences(guard: &Guard) -> (Vec<String>, usize) {
    differences_of(&|operation, facts, credential| guard.admit(operation, facts, credential))
}

/// Decides about a request.
type Admit<'a> = &'a dyn Fn(&Operation, &RequestFacts<'_>, &Credential) -> Verdict;

fn differences_of(admit: Admit<'_>) -> (Vec<String>, usize) {
    let (mut wrong, mut cells) = (Vec::new(), 0);
    for operation in OPERATIONS {
        for host in HOSTS {
            for origin in ORIGINS {
                for fetch_site in SITES {
                    for navigates in [false, true] {
                        for credential in &credentials() {
                            let facts = RequestFacts {
                                host,
                                origin,
                                fetch_site,
                                fetch_mode: navigates.then_some("navigate"),
                                fetch_dest: navigates.then_some("document"),
                            };
                            let is = admit(operation, &facts, credential).map(|allowed| match allowed {
                                AllowedCaller::Anyone | AllowedCaller::By(_) => (),
                            });
                            let must = expected(operation, host, origin, fetch_site, navigates, credential);
                            if is != must {
                                wrong.push(format!("{} {facts:?} {credential:?}: {is:?}", operation.id));
                            }
                            cells += 1;
                        }
                    }
                }
            }
        }
    }
    (wrong, cells)
}

#[test]
fn every_cell_of_the_matrix_is_as_the_rules_say() {
    let (wrong, cells) = differences(&guard());
    assert_eq!(wrong, Vec::<String>::new());
    assert!(cells > 120_000, "{cells} cells");
}

#[test]
fn a_guard_that_is_switched_off_is_noticed() {
    let anywhere = GuardPolicy { hosts: Vec::new(), ..guard().policy };
    let mut foreign = guard().policy;
    foreign.origins.extend(["http://evil.test".to_owned(), "null".to_owned()]);
    let mut rebound = guard().policy;
    rebound.hosts.push("evil.test:7700".to_owned());
    for policy in [anywhere, foreign, rebound] {
        let (wrong, _) = differences(&Guard { policy });
        assert!(wrong.len() > 1_000, "{} cells differ", wrong.len());
    }
}

/// The same, if the browser does not say that the request is from such a page.
fn without_site<'r>(facts: &RequestFacts<'r>, hidden: &str) -> RequestFacts<'r> {
    RequestFacts { fetch_site: facts.fetch_site.filter(|site| *site != hidden), ..facts.clone() }
}

#[test]
fn a_guard_without_one_of_its_checks_is_noticed() {
    let guard = guard();
    let owner = || Caller { name: "t".to_owned(), access: Access::Full };
    let full = |caller: &Caller| Caller { access: Access::Full, ..caller.clone() };
    let checks: [(&str, Admit<'_>); 6] = [
        ("tokens", &|operation, facts, credential| match credential {
            Credential::None | Credential::Wrong => {
                guard.admit(operation, facts, &Credential::Bearer(owner()))
            }
            Credential::Bearer(_) | Credential::Cookie(_) | Credential::Both(_) => {
                guard.admit(operation, facts, credential)
            }
        }),
        ("permissions", &|operation, facts, credential| {
            let credential = match credential {
                Credential::Bearer(caller) => Credential::Bearer(full(caller)),
                Credential::Cookie(caller) => Credential::Cookie(full(caller)),
                Credential::Both(caller) => Credential::Both(full(caller)),
                Credential::None | Credential::Wrong => credential.clone(),
            };
            guard.admit(operation, facts, &credential)
        }),
        ("sessions are no tokens", &|operation, facts, credential| match credential {
            Credential::Cookie(caller) | Credential::Both(caller) => {
                guard.admit(operation, facts, &Credential::Bearer(caller.clone()))
            }
            Credential::None | Credential::Wrong | Credential::Bearer(_) => {
                guard.admit(operation, facts, credential)
            }
        }),
        ("same-site pages", &|operation, facts, credential| {
            guard.admit(operation, &without_site(facts, "same-site"), credential)
        }),
        ("cross-site pages", &|operation, facts, credential| {
            guard.admit(operation, &without_site(facts, "cross-site"), credential)
        }),
        ("navigation", &|operation, facts, credential| {
            let facts =
                RequestFacts { fetch_mode: Some("navigate"), fetch_dest: Some("document"), ..facts.clone() };
            guard.admit(operation, &facts, credential)
        }),
    ];
    for (check, admit) in checks {
        let (wrong, _) = differences_of(admit);
        // None of them lets a foreign Host or Origin through: what differs is that check.
        assert!(wrong.len() > 50, "{check}: {} cells differ", wrong.len());
    }
}

#[test]
fn open_metrics_open_nothing_else() {
    let open = GuardPolicy { metrics: MetricsAccess::Open, ..guard().policy };
    let (wrong, _) = differences(&Guard { policy: open });
    assert!(!wrong.is_empty() && wrong.iter().all(|cell| cell.starts_with("metrics ")), "{wrong:?}");
    assert!(
        wrong.iter().all(|cell| cell.ends_with("None: Ok(())") || cell.ends_with("Wrong: Ok(())")),
        "{wrong:?}"
    );
}

/// The path of an operation, with names of things that do not exist.
fn path(operation: &Operation) -> String {
    let part = |part: &str| match part {
        "{id}" => "01JC8Z0Q4M9T7N3V5X1B2D6F8H".to_owned(),
        "{*path}" => "a/b".to_owned(),
        part if part.starts_with('{') => "absent".to_owned(),
        part => part.to_owned(),
    };
    operation.path.split('/').map(part).collect::<Vec<_>>().join("/")
}

/// Whether a browser would keep to exactly our policy.
fn has_policy(reply: &Reply) -> bool {
    let mut all = reply.headers.iter().filter(|(name, _)| name == "content-security-policy");
    all.next().is_some_and(|(_, policy)| policy == CSP) && all.next().is_none()
}

#[test]
fn a_policy_that_lets_a_script_in_is_noticed() {
    let with = |policies: &[&str]| Reply {
        status: 200,
        headers: policies
            .iter()
            .map(|csp| ("content-security-policy".to_owned(), (*csp).to_owned()))
            .collect(),
        body: String::new(),
    };
    assert!(has_policy(&with(&[CSP])));
    let inline = CSP.replace("script-src 'self'", "script-src 'self' 'unsafe-inline'");
    let elsewhere = CSP.replace("default-src 'none'", "default-src https:");
    let untrusted = CSP.replace("; require-trusted-types-for 'script'", "");
    for wrong in [&[][..], &[inline.as_str()], &[elsewhere.as_str()], &[untrusted.as_str()], &[CSP, CSP]] {
        assert!(!has_policy(&with(wrong)), "{wrong:?}");
    }
}

/// Whether a request came through to its operation.
fn came_through(status: u16, code: &str) -> bool {
    !matches!(status, 401 | 403 | 405 | 421) && code != "nothing"
}

/// The cookie of a session that was opened with a link of this token.
async fn cookie_of(world: &World, token: &str) -> String {
    let token = format!("Bearer {token}");
    let headers = [("authorization", token.as_str())];
    let link = world.client().await.ask("POST", "/api/v1/login-links", &headers, "").await.is(200).json();
    let logged_in = world.post("/login", &serde_json::json!({ "token": link["token"] }).to_string()).await;
    let cookie = logged_in.is(200).header("set-cookie").expect("a cookie");
    cookie.split(';').next().expect("a pair").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn over_a_socket_each_route_has_its_methods_its_credentials_and_its_headers() {
    let world = World::new().await;
    let (cookie, looking) = (cookie_of(&world, FULL).await, cookie_of(&world, READ).await);
    let (full, read) = (format!("Bearer {FULL}"), format!("Bearer {READ}"));
    let creds: [(&str, Vec<(&str, &str)>); 5] = [
        ("nothing", vec![]),
        ("read", vec![("authorization", read.as_str())]),
        ("full", vec![("authorization", full.as_str())]),
        ("cookie", vec![("cookie", cookie.as_str()), ("sec-fetch-site", "same-origin")]),
        ("read cookie", vec![("cookie", looking.as_str()), ("sec-fetch-site", "same-origin")]),
    ];
    let mut client = world.client().await;
    let mut requests = 0;
    for operation in OPERATIONS.iter().filter(|operation| !matches!(operation.id, "logout" | "page.log_out"))
    {
        let same_path = |method: &str| {
            OPERATIONS.iter().find(|other| other.path == operation.path && other.method.name() == method)
        };
        for method in METHODS {
            for (name, headers) in &creds {
                let host = world.address.clone();
                let mut all = vec![("host", host.as_str())];
                all.extend(headers);
                client.raw(method, &path(operation), &all, "").await;
                let reply = client.head().await;
                let must = match same_path(method) {
                    None => 405,
                    Some(known) if known.credentials != Credentials::NotNeeded && *name == "nothing" => 401,
                    Some(known) if known.credentials == Credentials::Token && name.ends_with("cookie") => 401,
                    Some(known)
                        if known.effect == OperationEffect::Change
                            && known.credentials != Credentials::NotNeeded
                            && !FOR_READERS.contains(&known.id)
                            && name.starts_with("read") =>
                    {
                        403
                    }
                    Some(_) => 0,
                };
                let place = format!("{method} {} {name}", operation.path);
                if must == 0 {
                    assert!(came_through(reply.status, ""), "{place}: {reply:?}");
                } else {
                    assert_eq!(reply.status, must, "{place}");
                }
                if must == 405 {
                    assert!(reply.header("allow").is_some(), "{place}");
                }
                assert!(has_policy(&reply), "{place}: {reply:?}");
                assert_eq!(reply.header("x-content-type-options"), Some("nosniff"), "{place}");
                // A form of a page that sends no referrer would have no origin.
                let is_page =
                    reply.header("content-type").is_some_and(|media| media.starts_with("text/html"));
                let referrer = if is_page { "same-origin" } else { "no-referrer" };
                assert_eq!(reply.header("referrer-policy"), Some(referrer), "{place}");
                assert_eq!(reply.header("cache-control"), Some("no-store"), "{place}");
                assert_eq!(reply.header("cross-origin-opener-policy"), Some("same-origin"), "{place}");
                assert_eq!(reply.header("cross-origin-resource-policy"), Some("same-origin"), "{place}");
                assert!(reply.headers.iter().all(|(name, _)| !name.starts_with("access-control")), "{place}");
                requests += 1;
                client = world.client().await;
            }
        }
    }
    assert!(requests > 2_000, "{requests} requests");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_host_reaches_no_route_and_a_foreign_page_none_with_a_cookie() {
    let world = World::new().await;
    let full = format!("Bearer {FULL}");
    for host in [Some("evil.test"), Some("127.0.0.1"), Some("127.0.0.1:1"), None] {
        for operation in OPERATIONS {
            let mut client = world.client().await;
            let mut headers = vec![("authorization", full.as_str())];
            headers.extend(host.map(|host| ("host", host)));
            client.raw(operation.method.name(), &path(operation), &headers, "").await;
            let reply = client.head().await;
            assert!(reply.status == 421 && has_policy(&reply), "{}: {reply:?}", operation.id);
        }
    }
    for path in ["/nowhere", "/tasks/", "/api/v1", "/api/v1/tasks/", "/api/v2/tasks"] {
        world.get(path).await.is(404);
        let mut client = world.client().await;
        client.raw("GET", path, &[("host", "evil.test")], "").await;
        assert_eq!(client.head().await.status, 421, "{path}");
    }
    for (origin, site) in
        [("http://evil.test", "cross-site"), ("null", "cross-site"), ("http://127.0.0.1:9", "same-site")]
    {
        let mut client = world.client().await;
        let headers = [("authorization", full.as_str()), ("origin", origin), ("sec-fetch-site", site)];
        let reply = client.ask("POST", "/api/v1/queues/mail/pause", &headers, "{}").await;
        assert_eq!((reply.status, reply.code().as_str()), (403, "cross_site"));
    }
    // The address by which browsers reach it through a proxy is one of ours.
    let mut client = Client::connect(&world.address).await;
    let public = [
        ("host", "ostler.example.org"),
        ("origin", "https://ostler.example.org"),
        ("authorization", full.as_str()),
    ];
    client.raw("GET", "/ostler/api/v1/stats", &public, "").await;
    assert_eq!(client.head().await.status, 200, "with the base path");
    // What a proxy forwards changes nothing that decides.
    let mut client = Client::connect(&world.address).await;
    let forged =
        [("host", "evil.test"), ("x-forwarded-host", "ostler.example.org"), ("authorization", full.as_str())];
    client.raw("GET", "/api/v1/stats", &forged, "").await;
    assert_eq!(client.head().await.status, 421);
}

#[test]
fn the_table_has_what_its_users_need() {
    let mut ids: Vec<&str> = OPERATIONS.iter().map(|operation| operation.id).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), OPERATIONS.len(), "each id once");
    for operation in OPERATIONS {
        let is_get = operation.method.name() == "GET";
        assert_eq!(
            operation.effect == OperationEffect::Look,
            is_get,
            "{}: GET looks, and nothing else does",
            operation.id
        );
        assert!(operation.path.starts_with('/') && !operation.summary.is_empty(), "{}", operation.id);
        if matches!(operation.answers, Answers::Events(_)) {
            assert!(is_get, "{}", operation.id);
        }
    }
}
