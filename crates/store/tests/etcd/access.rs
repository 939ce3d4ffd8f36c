//! Getting in, and being told plainly why not.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::Duration;

use model::{Key, Kind};
use store::etcd::{EtcdConfig, EtcdStore, PemSource};
use store::{Store, StoreError};
use testkit::certificates::Certificates;
use testkit::etcd::{EtcdCluster, Setup, start_or_skip};
use testkit::forwarder::Forwarder;
use testkit::process::run;

use crate::{connect, next};

/// The error and everything below it, as an operator would see it.
fn shown(error: &StoreError) -> String {
    model::text::on_one_line(error)
}

async fn refused(config: EtcdConfig) -> StoreError {
    EtcdStore::connect(config).await.expect_err("this must not get in")
}

/// Checks what kind of error it is, that it names the endpoint and the cause, and that there is advice.
async fn check_unreachable(config: EtcdConfig, cause: &str, advice: &str) {
    let endpoint = config.endpoints[0].clone();
    let error = refused(config).await;
    assert!(matches!(error, StoreError::Unreachable { .. }), "{error:?}");
    let text = shown(&error);
    assert!(text.contains(&endpoint) && text.contains(cause), "{text}");
    let hint = error.hint().unwrap_or_default();
    assert!(hint.contains(advice), "{text} / {hint}");
}

async fn check_denied(config: EtcdConfig, cause: &str) {
    let endpoint = config.endpoints[0].clone();
    let error = refused(config).await;
    assert!(matches!(error, StoreError::AccessDenied { .. }), "{error:?}");
    let text = shown(&error);
    assert!(text.contains(&endpoint) && text.contains(cause), "{text}");
    assert!(error.hint().is_some());
}

async fn check_works(config: EtcdConfig) {
    let store = EtcdStore::connect(config).await.unwrap_or_else(|error| panic!("{}", shown(&error)));
    let store: &dyn Store = &store;
    let key = Key::cluster(Kind::IpPool, "works");
    let revision = store.create(key.clone(), b"{}".to_vec()).await.unwrap();
    assert_eq!(store.get(&key).await.unwrap().unwrap().revision, revision);
    store.delete(key, revision).await.unwrap();
}

fn with_ca(cluster: &EtcdCluster, ca: &str) -> EtcdConfig {
    let ca = PemSource::file(cluster.certificates().cert(ca));
    EtcdConfig { ca: Some(ca), ..EtcdConfig::new(cluster.endpoints()) }
}

fn with_client(config: EtcdConfig, certificates: &Certificates, name: &str) -> EtcdConfig {
    EtcdConfig {
        cert: Some(PemSource::file(certificates.cert(name))),
        key: Some(PemSource::file(certificates.key(name))),
        ..config
    }
}

fn inline(source: &mut Option<PemSource>) {
    if let Some(PemSource::File(path)) = source {
        *source = Some(PemSource::Text(std::fs::read_to_string(path).unwrap()));
    }
}

#[tokio::test]
async fn client_certificates_open_the_door() {
    let Some(cluster) = start_or_skip("client_certificates_open_the_door", Setup::mutual_tls()) else {
        return;
    };
    let certificates = cluster.certificates();
    let good = with_client(with_ca(&cluster, "ca"), certificates, "client");
    check_works(good.clone()).await;

    let mut texts = good.clone();
    [&mut texts.ca, &mut texts.cert, &mut texts.key].into_iter().for_each(inline);
    check_works(texts).await;

    let by_name = format!("https://localhost:{}/", cluster.client_port(0));
    check_works(EtcdConfig { endpoints: vec![by_name], ..good.clone() }).await;
    let without_scheme = format!("127.0.0.1:{}", cluster.client_port(0));
    check_works(EtcdConfig { endpoints: vec![without_scheme], ..good.clone() }).await;

    check_denied(with_ca(&cluster, "ca"), "wants a client certificate").await;
    let stranger = with_client(with_ca(&cluster, "ca"), certificates, "stranger-client");
    check_denied(stranger, "does not accept the client certificate").await;
    let expired = with_client(with_ca(&cluster, "ca"), certificates, "expired-client");
    check_denied(expired, "does not accept the client certificate").await;

    let wrong_ca = with_client(with_ca(&cluster, "stranger-ca"), certificates, "client");
    check_unreachable(wrong_ca, "not signed by an authority trusted here", "ETCD_CA_CERT_FILE").await;
    let plain = format!("http://127.0.0.1:{}", cluster.client_port(0));
    check_unreachable(EtcdConfig::new([plain]), "speaks TLS only", "https://").await;
}

#[tokio::test]
async fn the_servers_certificate_must_be_good() {
    let setup = Setup::tls("expired-server", false);
    let Some(cluster) = start_or_skip("the_servers_certificate_must_be_good", setup) else { return };
    check_unreachable(with_ca(&cluster, "ca"), "has expired", "renew").await;
}

#[tokio::test]
async fn the_servers_certificate_must_name_the_endpoint() {
    let setup = Setup::tls("misnamed-server", false);
    let Some(cluster) = start_or_skip("the_servers_certificate_must_name_the_endpoint", setup) else {
        return;
    };
    check_unreachable(with_ca(&cluster, "ca"), "another name or address", "alternative names").await;
}

#[tokio::test]
async fn a_server_certificate_alone_will_do() {
    let setup = Setup::tls("server", false);
    let Some(cluster) = start_or_skip("a_server_certificate_alone_will_do", setup) else { return };
    check_works(with_ca(&cluster, "ca")).await;
}

#[tokio::test]
async fn tls_to_a_plain_port_is_named() {
    let Some(cluster) = start_or_skip("tls_to_a_plain_port_is_named", Setup::members(1)) else { return };
    let authority = tempfile::tempdir().unwrap();
    let certificates = Certificates::create(authority.path()).unwrap();
    let endpoint = format!("https://127.0.0.1:{}", cluster.client_port(0));
    let config =
        EtcdConfig { ca: Some(PemSource::file(certificates.cert("ca"))), ..EtcdConfig::new([endpoint]) };
    check_unreachable(config, "does not speak TLS", "http://").await;
}

#[tokio::test]
async fn user_and_password_open_the_door() {
    let setup = Setup::with_root_password("swordfish");
    let Some(cluster) = start_or_skip("user_and_password_open_the_door", setup) else { return };
    let user = |name: &str, password: &str| EtcdConfig {
        username: Some(name.to_owned()),
        password: Some(password.to_owned()),
        ..EtcdConfig::new(cluster.endpoints())
    };
    check_works(user("root", "swordfish")).await;
    check_denied(user("root", "wrong"), "the user or the password is wrong").await;
    check_denied(user("nobody", "swordfish"), "the user or the password is wrong").await;

    let store = connect(&cluster).await;
    let error = store.get(&Key::IpamConfig).await.unwrap_err();
    assert!(matches!(error, StoreError::AccessDenied { .. }), "{error:?}");
    assert!(shown(&error).contains("wants a user and a password"), "{}", shown(&error));

    run(cluster.etcdctl().args(["user", "add", "guest:guest"])).unwrap();
    let store = EtcdStore::connect(user("guest", "guest")).await.unwrap();
    let error = store.get(&Key::IpamConfig).await.unwrap_err();
    assert!(shown(&error).contains("do not allow reading IPAMConfiguration(default)"), "{}", shown(&error));
    let after = store::Revision::from(1);
    let mut watch = store.watch(model::KeyRange::Handles, after).await.unwrap();
    let error = watch.next().await.unwrap().unwrap_err();
    assert!(shown(&error).contains("do not allow watching"), "{}", shown(&error));
}

#[tokio::test]
async fn a_session_that_was_forgotten_is_renewed() {
    let mut setup = Setup::with_root_password("swordfish");
    setup.extra_args = ["--auth-token-ttl", "1"].map(str::to_owned).into();
    let Some(cluster) = start_or_skip("a_session_that_was_forgotten_is_renewed", setup) else { return };
    let config = EtcdConfig {
        username: Some("root".to_owned()),
        password: Some("swordfish".to_owned()),
        ..EtcdConfig::new(cluster.endpoints())
    };
    let store = EtcdStore::connect(config).await.unwrap();
    let key = Key::Handle("kept".into());
    let revision = (&store as &dyn Store).create(key.clone(), b"1".to_vec()).await.unwrap();
    // Turning authentication off and on again forgets every session at once.
    run(cluster.etcdctl().args(["auth", "disable"])).unwrap();
    run(cluster.etcdctl().args(["auth", "enable"])).unwrap();
    let found = store.get(&key).await.unwrap().unwrap();
    assert_eq!(found.revision, revision);
    run(cluster.etcdctl().args(["auth", "disable"])).unwrap();
    run(cluster.etcdctl().args(["auth", "enable"])).unwrap();
    let mut watch = store.watch(model::KeyRange::Handles, store::Revision::from(1)).await.unwrap();
    assert_eq!(next(&mut watch).await, Some(store::Event::Put(found)));
}

#[tokio::test]
async fn user_and_password_do_no_harm_where_nobody_asks() {
    let Some(cluster) = start_or_skip("user_and_password_do_no_harm_where_nobody_asks", Setup::members(1))
    else {
        return;
    };
    let config = EtcdConfig {
        username: Some("root".to_owned()),
        password: Some("any".to_owned()),
        ..EtcdConfig::new(cluster.endpoints())
    };
    check_works(config).await;
}

#[tokio::test]
async fn nobody_there_is_named() {
    let closed = || format!("http://127.0.0.1:{}", testkit::free_port());
    check_unreachable(EtcdConfig::new([closed()]), "refused", "is etcd running").await;
    let (one, two) = (closed(), closed());
    let error = refused(EtcdConfig::new([one.clone(), two.clone()])).await;
    assert!(shown(&error).contains(&one) && shown(&error).contains(&two), "{}", shown(&error));
    let unknown = "http://no-such-host.invalid:2379".to_owned();
    check_unreachable(EtcdConfig::new([unknown]), "cannot be resolved", "DNS").await;
}

#[tokio::test]
async fn a_port_that_swallows_everything_is_named() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", silent.local_addr().unwrap());
    let config = EtcdConfig { connect_timeout: Duration::from_secs(1), ..EtcdConfig::new([endpoint]) };
    check_unreachable(config, "no answer in time", "firewall").await;
}

/// Something listens there, but it is no etcd.
#[tokio::test]
async fn another_server_is_named() {
    const STRANGE: &str = "does not speak etcd's protocol";
    for (answer, cause) in [
        ("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", STRANGE),
        ("SSH-2.0-OpenSSH_9.2p1\r\n", STRANGE),
        ("", "the connection broke"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let _ = answer_and_hang_up(client, answer);
            }
        });
        check_unreachable(EtcdConfig::new([endpoint]), cause, "").await;
    }
}

fn answer_and_hang_up(mut client: TcpStream, answer: &str) -> std::io::Result<()> {
    let mut greeting = [0; 1024];
    let _greeted = client.read(&mut greeting)?;
    client.write_all(answer.as_bytes())?;
    client.shutdown(Shutdown::Write)?;
    // Closing with something unread would take the answer away again.
    while client.read(&mut greeting)? > 0 {}
    Ok(())
}

#[tokio::test]
async fn one_dead_endpoint_does_no_harm() {
    let Some(cluster) = start_or_skip("one_dead_endpoint_does_no_harm", Setup::members(1)) else { return };
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoints = [
        format!("http://127.0.0.1:{}", testkit::free_port()),
        format!("http://{}", silent.local_addr().unwrap()),
        cluster.endpoint(0),
    ];
    check_works(EtcdConfig { connect_timeout: Duration::from_secs(6), ..EtcdConfig::new(endpoints) }).await;
}

#[tokio::test]
async fn an_ipv6_endpoint_will_do() {
    const TEST: &str = "an_ipv6_endpoint_will_do";
    let Some(cluster) = start_or_skip(TEST, Setup::tls("server", false)) else { return };
    let Some(forwarder) = Forwarder::from_ipv6(cluster.client_port(0)) else {
        return testkit::skip(TEST, "this machine has no IPv6");
    };
    let endpoints = vec![format!("https://[::1]:{}", forwarder.port())];
    check_works(EtcdConfig { endpoints, ..with_ca(&cluster, "ca") }).await;
}

#[tokio::test]
async fn bad_settings_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let certificates = Certificates::create(directory.path()).unwrap();
    let junk = directory.path().join("junk.pem");
    std::fs::write(&junk, "not a certificate").unwrap();
    let base = || EtcdConfig::new(["https://127.0.0.1:1"]);
    let ca = |path: &std::path::Path| EtcdConfig { ca: Some(PemSource::file(path)), ..base() };
    let good_ca = || ca(&certificates.cert("ca"));
    let client = |cert: &str, key: &str| EtcdConfig {
        cert: Some(PemSource::file(certificates.cert(cert))),
        key: Some(PemSource::file(certificates.key(key))),
        ..good_ca()
    };
    let mut without_key = client("client", "client");
    without_key.key = None;
    let cases = [
        (EtcdConfig::new(Vec::<String>::new()), "endpoints are not given"),
        (EtcdConfig::new(["host"]), "port"),
        (ca(&directory.path().join("nowhere.pem")), "nowhere.pem cannot be read"),
        (ca(&junk), "junk.pem holds no certificate"),
        (without_key, "without its key"),
        (client("client", "server"), "does not belong to the client certificate"),
    ];
    for (config, expected) in cases {
        let error = refused(config).await;
        assert!(matches!(error, StoreError::BadSetting { .. }), "{error:?}");
        assert!(shown(&error).contains(expected), "{}", shown(&error));
    }
}
