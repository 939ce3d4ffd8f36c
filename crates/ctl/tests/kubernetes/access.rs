//! Every way to be let in: what a kubeconfig may hold, where it may be, and how the server is reached.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use testkit::kube::ADMIN_TOKEN;

use crate::cluster::Cluster;
use crate::harness::{Desk, PLUMB, Ran, finish};

/// Whoever is let in sees that there is no pool.
const NO_POOLS: &str = "NAME   CIDR   SELECTOR\n";

fn get(desk: &Desk) -> Ran {
    desk.plumb(&["get", "ippools"])
}

fn with(desk: &Desk, words: &[&str], variables: &[(&str, &str)]) -> Ran {
    finish(desk.command(PLUMB).args(words).envs(variables.iter().copied()))
}

fn written(cluster: &Cluster, name: &str, user: Value) -> Desk {
    cluster.desk_with(cluster.server.write_kubeconfig(name, &cluster.server.url(), user).unwrap())
}

#[test]
fn every_kind_of_credential_lets_in() {
    let Some(cluster) = Cluster::for_test("every_kind_of_credential_lets_in") else { return };
    assert_eq!(get(&cluster.desk()).succeeded(), NO_POOLS, "a client certificate");
    assert_eq!(get(&written(&cluster, "token", json!({ "token": ADMIN_TOKEN }))).succeeded(), NO_POOLS);

    // Beside the kubeconfig, which names it without its directory.
    let beside = cluster.server.kubeconfig().unwrap().with_file_name("my-token");
    std::fs::write(&beside, ADMIN_TOKEN).unwrap();
    assert_eq!(
        get(&written(&cluster, "token-file", json!({ "tokenFile": "my-token" }))).succeeded(),
        NO_POOLS
    );

    let script = beside.with_file_name("credentials.sh");
    let credential = json!({ "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
        "status": { "token": ADMIN_TOKEN } });
    std::fs::write(&script, format!("#!/bin/sh\ntest \"$1 $SECRET\" = 'login x' && echo '{credential}'\n"))
        .unwrap();
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
    let exec = json!({ "exec": { "apiVersion": "client.authentication.k8s.io/v1", "command": script, "args": ["login"],
        "env": [{ "name": "SECRET", "value": "x" }], "interactiveMode": "Never" } });
    assert_eq!(get(&written(&cluster, "exec", exec)).succeeded(), NO_POOLS);

    // All of it in one text.
    let whole = |path: std::path::PathBuf| {
        use base64::Engine as _;
        base64::engine::general_purpose::STANDARD.encode(std::fs::read(path).unwrap())
    };
    let pki = cluster.server.certificates();
    let data = json!({ "client-certificate-data": whole(pki.cert("admin")), "client-key-data": whole(pki.key("admin")) });
    assert_eq!(get(&written(&cluster, "data", data)).succeeded(), NO_POOLS);
}

#[test]
fn contexts_and_several_files_are_one_kubeconfig() {
    let Some(cluster) = Cluster::for_test("contexts_and_several_files_are_one_kubeconfig") else { return };
    let desk = written(&cluster, "wrong", json!({ "token": "nobody-has-it" }));
    get(&desk).refused(1, &["it does not accept the credentials (401)", "hint: renew the token"]);
    let first = cluster.server.kubeconfig().unwrap().with_file_name("wrong.kubeconfig");
    let second = first.with_file_name("second");
    let config = json!({ "apiVersion": "v1", "kind": "Config", "current-context": "ignored",
        "users": [{ "name": "right", "user": { "token": ADMIN_TOKEN } }],
        "contexts": [{ "name": "right", "context": { "cluster": "test", "user": "right" } }] });
    std::fs::write(&second, config.to_string()).unwrap();
    let several = std::env::join_paths([&first, &first.with_file_name("missing"), &second]).unwrap();
    let several = several.to_str().unwrap();
    let right = with(&desk, &["get", "ippools", "--context", "right"], &[("KUBECONFIG", several)]);
    assert_eq!(right.succeeded(), NO_POOLS);
    let variables = [("KUBECONFIG", several), ("K8S_CURRENT_CONTEXT", "right")];
    assert_eq!(with(&desk, &["get", "ippools"], &variables).succeeded(), NO_POOLS);
    with(&desk, &["get", "ippools", "--context", "nowhere"], &[("KUBECONFIG", several)])
        .refused(1, &["has no context \"nowhere\"; it has test, right"]);
    with(&desk, &["get", "ippools"], &[("KUBECONFIG", several)]).refused(1, &["(401)"]);

    // Where KUBECONFIG is not set, the file in the home directory is the one.
    let home = desk.folder.path().to_owned();
    std::fs::create_dir(home.join(".kube")).unwrap();
    std::fs::copy(cluster.server.kubeconfig().unwrap(), home.join(".kube/config")).unwrap();
    let at_home = |words: &[&str], store: &str| {
        let mut command = desk.command(PLUMB);
        finish(command.args(words).env_remove("KUBECONFIG").env("HOME", &home).env("DATASTORE_TYPE", store))
    };
    assert_eq!(at_home(&["get", "ippools"], "kubernetes").succeeded(), NO_POOLS);
    assert_eq!(at_home(&["get", "ippools", "--context", "test"], "").succeeded(), NO_POOLS);
}

/// As a pod has it: files where the kubelet mounts them, and the server's address in the environment.
#[test]
fn the_service_account_of_a_pod_lets_in() {
    let test = "the_service_account_of_a_pod_lets_in";
    if !rustix::process::geteuid().is_root() {
        testkit::skip(test, "mounting needs root");
        return;
    }
    let Some(cluster) = Cluster::for_test(test) else { return };
    let desk = cluster.desk();
    let ca = std::fs::read(cluster.server.certificates().cert("ca")).unwrap();
    desk.file("account/ca.crt", ca);
    desk.file("account/namespace", "kube-system");
    desk.file("account/token", ADMIN_TOKEN);
    let get = || {
        // Only this command sees the mount.
        let mounted = "mount -t tmpfs none /var/run/ && mkdir -p /var/run/secrets/kubernetes.io && \
            cp -r account /var/run/secrets/kubernetes.io/serviceaccount && exec \"$@\"";
        let mut command = desk.command("unshare");
        command
            .args(["--mount", "sh", "-c", mounted, "sh", PLUMB, "get", "ippools"])
            .env_remove("KUBECONFIG");
        command.env("KUBERNETES_SERVICE_HOST", "127.0.0.1");
        finish(command.env("KUBERNETES_SERVICE_PORT", cluster.server.port().to_string()))
    };
    assert_eq!(get().succeeded(), NO_POOLS);
    desk.file("account/token", "expired");
    get().refused(1, &["it does not accept the credentials (401)"]);
}

/// `plumb install` gives the plugin credentials only if asked, and then all that it needs in one file.
#[test]
fn credentials_of_one_shot_calls_are_installed_if_asked() {
    let Some(cluster) = Cluster::for_test("credentials_of_one_shot_calls_are_installed_if_asked") else {
        return;
    };
    let desk = cluster.desk();
    for program in ["plumb", "plumbd", "plumb-cni"] {
        desk.file(&format!("programs/{program}"), program);
    }
    let install = |flags: &[&str]| {
        desk.plumb(&[&["install", "--root", "image", "--bin-dir", "programs"], flags].concat())
    };
    let folder = desk.folder.path().join("image/etc/cni/net.d");
    let plugin = || {
        let conflist = std::fs::read(folder.join("10-plumb.conflist")).unwrap();
        serde_json::from_slice::<Value>(&conflist).unwrap()["plugins"][0].clone()
    };
    assert_eq!(install(&[]).code, Some(0));
    assert!(!folder.join("plumb-kubeconfig").exists() && plugin()["kubernetes"].is_null());
    assert_eq!(plugin()["agent_socket"], "/run/plumb/agent.sock");

    let installed = install(&["--one-shot-kubeconfig", "--replace-config"]);
    let line = "installed image/etc/cni/net.d/plumb-kubeconfig\n";
    assert!(installed.code == Some(0) && installed.stdout.contains(line), "{installed:?}");
    assert!(installed.stderr.contains("an administrator of the cluster, by the group system:masters"));
    assert_eq!(plugin()["kubernetes"]["kubeconfig"], "/etc/cni/net.d/plumb-kubeconfig");
    assert!(plugin()["agent_socket"].is_null());
    let written = folder.join("plumb-kubeconfig");
    assert_eq!(std::fs::metadata(&written).unwrap().permissions().mode() & 0o777, 0o600);
    // It names no file that may go.
    let text = std::fs::read_to_string(&written).unwrap();
    assert!(text.contains("client-key-data") && !text.contains("pki"), "{text}");
    assert_eq!(get(&cluster.desk_with(written)).succeeded(), NO_POOLS);

    let exec = json!({ "exec": { "apiVersion": "client.authentication.k8s.io/v1", "command": "login",
        "interactiveMode": "Never" } });
    let words = ["install", "--root", "other", "--bin-dir", "programs", "--one-shot-kubeconfig"];
    let kubeconfig = cluster.server.write_kubeconfig("by-program", &cluster.server.url(), exec).unwrap();
    with(&desk, &words, &[("KUBECONFIG", kubeconfig.to_str().unwrap())])
        .refused(1, &["gets its credentials from a program"]);
    with(&desk, &words, &[("DATASTORE_TYPE", "sqlite"), ("SQLITE_PATH", "x.db")])
        .refused(2, &["--one-shot-kubeconfig requires the Kubernetes store"]);
    assert!(!desk.folder.path().join("other").exists());
}

/// calicoctl's settings for single parts of a kubeconfig.
#[test]
fn calicoctls_settings_are_taken() {
    let Some(cluster) = Cluster::for_test("calicoctls_settings_are_taken") else { return };
    let desk = cluster.desk();
    let pki = cluster.server.certificates();
    let [ca, cert, key] =
        [pki.cert("ca"), pki.cert("admin"), pki.key("admin")].map(|path| path.display().to_string());
    let url = cluster.server.url();
    let run = |variables: &[(&str, &str)]| {
        let mut command = desk.command(PLUMB);
        finish(command.args(["get", "ippools"]).env_remove("KUBECONFIG").envs(variables.iter().copied()))
    };
    let endpoint = ("K8S_API_ENDPOINT", url.as_str());
    let token = ("K8S_API_TOKEN", ADMIN_TOKEN);
    assert_eq!(run(&[endpoint, token, ("K8S_CA_FILE", &ca)]).succeeded(), NO_POOLS);
    assert_eq!(run(&[endpoint, token, ("K8S_INSECURE_SKIP_TLS_VERIFY", "true")]).succeeded(), NO_POOLS);
    let pair = [endpoint, ("K8S_CA_FILE", &ca), ("K8S_CERT_FILE", &cert), ("K8S_KEY_FILE", &key)];
    assert_eq!(run(&pair).succeeded(), NO_POOLS);
    let inline = std::fs::read_to_string(cluster.server.kubeconfig().unwrap()).unwrap();
    assert_eq!(run(&[("KUBECONFIG_INLINE", &inline)]).succeeded(), NO_POOLS);
    run(&[endpoint, token]).refused(1, &["certificate", "hint: the kubeconfig must name the authority"]);

    let file = format!(
        "apiVersion: projectcalico.org/v3\nkind: CalicoAPIConfig\nspec:\n  datastoreType: kubernetes\n  \
         k8sAPIEndpoint: {url}\n  k8sCAFile: {ca}\n  k8sAPIToken: {ADMIN_TOKEN}\n"
    );
    desk.file("calicoctl.cfg", file);
    assert_eq!(desk.plumb(&["-c", "calicoctl.cfg", "get", "ippools"]).succeeded(), NO_POOLS);
}

/// A proxy that speaks HTTP or SOCKS5, to one server. Says how often it was used as it wants to be.
fn proxy(port: u16) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (own, uses) = (listener.local_addr().unwrap().port(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&uses);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, counted) = (stream.unwrap(), Arc::clone(&counted));
            std::thread::spawn(move || serve(stream, port, &counted));
        }
    });
    (own, uses)
}

fn serve(mut stream: TcpStream, port: u16, uses: &AtomicUsize) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let first = reader.fill_buf().unwrap()[0];
    if first == 5 {
        let mut greeting = [0; 2];
        reader.read_exact(&mut greeting).unwrap();
        reader.read_exact(&mut vec![0; greeting[1].into()]).unwrap();
        stream.write_all(&[5, 0]).unwrap();
        // An IPv4 address and a port.
        reader.read_exact(&mut [0; 10]).unwrap();
        stream.write_all(&[5, 0, 0, 1, 127, 0, 0, 1, 0, 0]).unwrap();
    } else {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            reader.read_line(&mut head).unwrap();
        }
        // joe:p@ss
        if !head.to_ascii_lowercase().contains("proxy-authorization: basic am9lonbac3m=") {
            stream.write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n").unwrap();
            return;
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
    }
    uses.fetch_add(1, Ordering::Relaxed);
    let server = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let (mut up, mut down) = (server.try_clone().unwrap(), stream.try_clone().unwrap());
    std::thread::spawn(move || std::io::copy(&mut reader, &mut up));
    // Whoever hangs up ends it.
    let _ = std::io::copy(&mut &server, &mut down);
}

fn through(cluster: &Cluster, name: &str, proxy: &str) -> Desk {
    let path = cluster
        .server
        .write_kubeconfig(name, &cluster.server.url(), json!({ "token": ADMIN_TOKEN }))
        .unwrap();
    edit(&path, |config| config["clusters"][0]["cluster"]["proxy-url"] = proxy.into());
    cluster.desk_with(path)
}

fn edit(path: &Path, change: impl FnOnce(&mut Value)) {
    let mut config: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    change(&mut config);
    std::fs::write(path, config.to_string()).unwrap();
}

#[test]
fn proxies_lead_to_the_server() {
    let Some(cluster) = Cluster::for_test("proxies_lead_to_the_server") else { return };
    let (port, uses) = proxy(cluster.server.port());
    let desk = through(&cluster, "http-proxy", &format!("http://joe:p%40ss@127.0.0.1:{port}"));
    assert_eq!(get(&desk).succeeded(), NO_POOLS);
    assert_eq!(uses.load(Ordering::Relaxed), 1);
    let desk = through(&cluster, "socks", &format!("socks5://127.0.0.1:{port}"));
    assert_eq!(get(&desk).succeeded(), NO_POOLS);
    assert_eq!(uses.load(Ordering::Relaxed), 2);
    let desk = through(&cluster, "no-password", &format!("http://127.0.0.1:{port}"));
    get(&desk).refused(1, &["cannot reach the store at https://127.0.0.1"]);
    let desk = through(&cluster, "odd", "ftp://joe:hunter2@127.0.0.1:1");
    let odd = get(&desk);
    odd.refused(1, &["the proxy ftp://127.0.0.1:1 is neither http:// nor socks5://"]);
    assert!(!odd.stderr.contains("hunter2"), "{odd:?}");
    // A server on this machine is reached without the proxy of the environment, as kubectl does.
    let variables = [("HTTPS_PROXY", "http://127.0.0.1:1")];
    assert_eq!(with(&cluster.desk(), &["get", "ippools"], &variables).succeeded(), NO_POOLS);
}
