//! What functions do not reach: services inside, however they are named, resolved or redirected to.

use std::sync::Arc;

use ostler_isolate::fetch::{FetchLimits, FetchRules, Fetcher};

use super::network::TestNetwork;
use super::server::{Canary, Reply, Server};
use super::{PUBLIC, get, page, refused, rules, session};

#[tokio::test]
async fn a_name_is_resolved_once_and_its_checked_address_is_connected_to() {
    let (server, canary) = (Server::always(Reply::text("public")).await, Canary::start().await);
    let port = canary.address.port();
    let network = TestNetwork::default()
        .name("rebind.example", &[&[PUBLIC], &["127.0.0.1"]])
        .route(PUBLIC, port, server.address)
        .shared();
    let session = session(&[&format!("rebind.example:{port}")], &network);
    let url = format!("http://rebind.example:{port}/");
    assert_eq!(page(&session, get(&url)).await, Ok((200, "public".to_owned())));
    assert_eq!(network.lookups(), ["rebind.example"], "a second answer would be that of an attacker");
    assert!(server.request().await.contains(&format!("host: rebind.example:{port}\r\n")));
    // The next request resolves again, and is checked again.
    let why = refused(&session, get(&url)).await;
    assert!(why.contains("rebind.example resolves to 127.0.0.1, which is not a public address"), "{why}");
    assert_eq!(network.dialled().len(), 1);
    assert_eq!(canary.connections().await, 0);
}

#[tokio::test]
async fn a_listed_name_does_not_lead_inside() {
    let canary = Canary::start().await;
    let port = canary.address.port();
    for inside in
        ["127.0.0.1", "10.0.0.5", "169.254.169.254", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "fd00::1"]
    {
        for answer in [&[inside][..], &[PUBLIC, inside], &[inside, PUBLIC]] {
            let network = TestNetwork::default()
                .name("api.example.org", &[answer])
                .route(PUBLIC, port, canary.address)
                .shared();
            // Not even if the address itself is listed: that is for URLs that have it.
            let session = session(
                &[&format!("api.example.org:{port}"), &format!("*:{port}"), &format!("127.0.0.1:{port}")],
                &network,
            );
            let why = refused(&session, get(format!("http://api.example.org:{port}/"))).await;
            assert!(why.contains("not a public address") && why.contains(inside), "{why}");
            assert!(network.dialled().is_empty(), "{answer:?}");
        }
    }
    assert_eq!(canary.connections().await, 0);
}

#[tokio::test]
async fn redirects_do_not_lead_inside() {
    let canary = Canary::start().await;
    let inside = canary.address;
    for location in [
        "http://169.254.169.254/latest/meta-data/".to_owned(),
        format!("http://{inside}/"),
        format!("//{inside}/"),
        format!("http://0x7f.1:{}/", inside.port()),
        format!("http://[::ffff:127.0.0.1]:{}/", inside.port()),
        format!("http://inside.example:{}/", inside.port()),
        "http://[fd00:ec2::254]/".to_owned(),
    ] {
        let server = Server::always(Reply::redirect(302, &location)).await;
        let network = TestNetwork::default()
            .name("start.example", &[&[PUBLIC]])
            .name("inside.example", &[&["127.0.0.1"]])
            .route(PUBLIC, 80, server.address)
            .shared();
        let session = session(&["*", &format!("*:{}", inside.port())], &network);
        let why = refused(&session, get("http://start.example/")).await;
        assert!(why.contains("not a public address"), "{location}: {why}");
        assert_eq!(network.dialled().len(), 1, "{location}: only the first host was connected to");
    }
    assert_eq!(canary.connections().await, 0);
}

#[tokio::test]
async fn a_redirect_leads_only_to_hosts_that_are_listed() {
    let server = Server::always(Reply::redirect(302, "http://other.example/")).await;
    let network = TestNetwork::default()
        .name("start.example", &[&[PUBLIC]])
        .name("other.example", &[&[PUBLIC]])
        .route(PUBLIC, 80, server.address)
        .shared();
    let why = refused(&session(&["start.example"], &network), get("http://start.example/")).await;
    assert!(why.contains("other.example:80 is not in the list `fetch` of the pool"), "{why}");
    assert_eq!(network.lookups(), ["start.example"], "a name that is not listed is not even resolved");
}

#[tokio::test]
async fn this_machine_is_refused_in_every_spelling() {
    let canary = Canary::start().await;
    let port = canary.address.port();
    let list = ["*".to_owned(), format!("*:{port}"), "api.example.org".to_owned(), "127.0.0.1:1".to_owned()];
    let list: Vec<&str> = list.iter().map(String::as_str).collect();
    let network = TestNetwork::default()
        .name("localhost", &[&["127.0.0.1", "::1"]])
        .name("x.localhost", &[&["127.0.0.1"]])
        .shared();
    let tested = session(&list, &network);
    // The resolver of the machine answers for names; the network is loopback, or nothing.
    let real = Fetcher::new(rules(&list), FetchLimits::default()).session();
    for host in [
        "127.0.0.1",
        "0x7f.1",
        "0x7f000001",
        "2130706433",
        "0177.0.0.1",
        "127.1",
        "127.0.0.1.",
        "127.0.0.2",
        "0.0.0.0",
        "0",
        "localhost",
        "LOCALHOST.",
        "x.localhost",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "[64:ff9b::127.0.0.1]",
        "[2002:7f00:1::]",
        "\u{ff11}27.0.0.1",
        "127\u{3002}0.0.1",
    ] {
        // What loopback does not know, the resolver would ask elsewhere for.
        let real = (host != "x.localhost").then_some(&real);
        for session in [&tested].into_iter().chain(real) {
            let why = refused(session, get(format!("http://{host}:{port}/"))).await;
            // Not every resolver knows each name; none of them may connect.
            assert!(why.contains("not a public address") || why.contains("was not found"), "{host}: {why}");
        }
    }
    assert!(network.dialled().is_empty());
    assert_eq!(canary.connections().await, 0);
}

#[tokio::test]
async fn an_address_inside_is_reached_if_the_list_has_it_with_its_port() {
    let server = Server::always(Reply::text("inside")).await;
    let session = Fetcher::new(rules(&[&server.entry()]), FetchLimits::default()).session();
    assert_eq!(page(&session, get(server.url("/"))).await, Ok((200, "inside".to_owned())));
    let canary = Canary::start().await;
    let why = refused(&session, get(format!("http://{}/", canary.address))).await;
    assert!(why.contains(&format!("has \"{}\"", canary.address)), "it says what to list: {why}");
    assert_eq!(canary.connections().await, 0);
}

#[tokio::test]
async fn users_in_urls_and_other_schemes_are_refused_before_anything_is_resolved() {
    let network = Arc::new(TestNetwork::default().name("api.example.org", &[&[PUBLIC]]));
    let session = session(&["*"], &network);
    for (url, expected) in [
        ("http://anna:secret@api.example.org/", "user or a password"),
        ("http://api.example.org@127.0.0.1/", "user or a password"),
        ("http://anna@api.example.org/", "user or a password"),
        ("ftp://api.example.org/", "only http: and https:"),
        ("file:///etc/hostname", "only http: and https:"),
        ("http://", "invalid"),
    ] {
        let why = refused(&session, get(url)).await;
        assert!(why.contains(expected) && !why.contains("secret"), "{url}: {why}");
    }
    assert_eq!((network.lookups().len(), network.dialled().len()), (0, 0));
}

#[tokio::test]
async fn without_a_list_nothing_is_sent_and_the_key_is_named() {
    let network = TestNetwork::default().name("api.example.org", &[&[PUBLIC]]).shared();
    let fetcher =
        Fetcher::over(FetchRules::none(), FetchLimits::default(), Arc::<TestNetwork>::clone(&network));
    let why = refused(&fetcher.session(), get("https://api.example.org/")).await;
    assert!(why.contains("Its key `fetch` allows them"), "{why}");
    assert_eq!(network.lookups().len(), 0);
}
