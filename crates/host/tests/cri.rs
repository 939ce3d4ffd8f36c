//! The runtime client asks a real containerd.

use std::path::Path;

use host::cri::RuntimeClient;
use testkit::process::{Process, command, on_path, wait_until};

/// A containerd of the test's own, with nothing in it.
struct Containerd {
    _process: Process,
    client: RuntimeClient,
    _folder: tempfile::TempDir,
}

impl Containerd {
    fn start(test: &str) -> Option<Containerd> {
        if !on_path("containerd") {
            testkit::skip(test, "there is no containerd (Debian package containerd)");
            return None;
        }
        let folder = testkit::scratch("containerd").unwrap();
        let socket = folder.path().join("containerd.sock");
        let config = folder.path().join("config.toml");
        std::fs::write(&config, configuration(folder.path())).unwrap();
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let mut daemon = command("containerd");
        daemon.arg("--config").arg(&config).stdout(log.try_clone().unwrap()).stderr(log);
        let process = Process::spawn(daemon).unwrap();
        Some(Containerd { _process: process, client: RuntimeClient::new(socket), _folder: folder })
    }

    fn wait(&self, runtime: &tokio::runtime::Runtime) {
        let is_up = || runtime.block_on(self.client.version()).is_ok();
        wait_until("containerd to answer", is_up).unwrap();
    }
}

fn configuration(folder: &Path) -> String {
    let at = |name: &str| folder.join(name).display().to_string();
    format!(
        "version = 2\nroot = {:?}\nstate = {:?}\n[grpc]\naddress = {:?}\n[ttrpc]\naddress = {:?}\n\
         [plugins.\"io.containerd.grpc.v1.cri\"]\ndisable_apparmor = true\nrestrict_oom_score_adj = true\n\
         [plugins.\"io.containerd.grpc.v1.cri\".cni]\nbin_dir = {:?}\nconf_dir = {:?}\n",
        at("root"),
        at("state"),
        at("containerd.sock"),
        at("containerd.ttrpc"),
        at("bin"),
        at("net.d")
    )
}

#[test]
fn a_real_containerd_tells_what_it_has() {
    let Some(containerd) = Containerd::start("a_real_containerd_tells_what_it_has") else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    containerd.wait(&runtime);
    let client = &containerd.client;
    let version = runtime.block_on(client.version()).unwrap();
    assert_eq!((&*version.name, &*version.api_version), ("containerd", "v1"));
    let sandboxes = runtime.block_on(client.sandboxes()).unwrap();
    assert!(sandboxes.is_empty(), "{sandboxes:?}");
    let network = runtime.block_on(client.network()).unwrap().expect("containerd speaks of its network");
    assert!(!network.is_ready && network.message.contains("cni"), "{network:?}");
    let error = runtime.block_on(client.namespace_of("0123")).unwrap_err();
    assert!(error.is_not_found(), "{error}");
}
