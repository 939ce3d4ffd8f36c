//! Lines of logs as programs print them, each the only sign of its fault.

use doctor::diagnose;

const FELIX: &str = "2026-03-04 10:11:02.812 [ERROR][63] felix/";

#[track_caller]
fn found(file: &str, text: &str) -> Vec<(&'static str, String)> {
    let nodes = b"NAME   STATUS   ROLES    AGE   VERSION\nn1     Ready    <none>   9d    v1.29.3\n";
    let evidence = intake::read([("nodes.txt", nodes.as_slice()), (file, text.as_bytes())]);
    let report = diagnose(&evidence);
    report.findings.iter().map(|finding| (finding.code.as_str(), finding.subject.to_string())).collect()
}

#[test]
fn the_kernel_and_other_programs_name_their_trouble() {
    let many = |line: String| format!("{line}\n").repeat(4);
    for (file, text, code, subject) in [
        (
            "n1.dmesg.txt",
            "[Wed Mar  4 10:05:11 2026] neighbour: arp_cache: neighbor table overflow!\n".to_owned(),
            "neighbour-table-full",
            "node n1",
        ),
        (
            "n1.journal.txt",
            many("Mar 04 10:05:11 n1 kernel: IPv4: martian source 10.244.1.5 from 10.244.2.3, on dev eth1".to_owned()),
            "martian-packets",
            "node n1",
        ),
        (
            "n1.dmesg.txt",
            "[12345.678901] NETDEV WATCHDOG: eth0 (tg3): transmit queue 0 timed out\n".to_owned(),
            "nic-failing",
            "node n1",
        ),
        (
            "n1.calico-node.log",
            many(format!("{FELIX}vxlan_mgr.go 414: Failed to configure VXLAN tunnel device, retrying... error=file exists")),
            "tunnel-not-made",
            "node n1",
        ),
        (
            "n1.kube-proxy.log",
            many("E0304 10:17:01.130045       1 proxier.go:1565] \"Failed to execute iptables-restore\" err=\"exit status 4\"".to_owned()),
            "rules-not-written",
            "node n1",
        ),
        (
            "n1.calico-node.log",
            "2026-03-04 10:11:02.812 [WARNING][9] startup/autodetection_methods.go 99: Unable to auto-detect an IPv4 address using interface regexes [eth9]: no valid host interfaces found\n"
                .to_owned(),
            "node-address-undetected",
            "node n1",
        ),
        (
            "kube-controllers.log",
            many("W0304 10:17:01.130045       1 reflector.go:547] failed to list *v3.IPPool: ippools.crd.projectcalico.org is forbidden: User \"system:serviceaccount:kube-system:calico-kube-controllers\" cannot list resource \"ippools\"".to_owned()),
            "rights-missing",
            "cluster",
        ),
        (
            "n1.kubelet.log",
            "Mar 04 10:17:01 n1 kubelet[811]: E0304 10:17:01.130045     811 controller.go:145] \"Failed to ensure lease exists\" err=\"Get \\\"https://192.0.2.11:6443\\\": tls: failed to verify certificate: x509: certificate has expired or is not yet valid: current time 2026-03-04T10:17:01Z is after 2026-03-01T00:00:00Z\"\n"
                .to_owned(),
            "credentials-expired",
            "node n1",
        ),
        (
            "n1.calico-node.log",
            "2026-03-04 10:11:02.812 [WARNING][9] startup/startup.go 787: Calico node 'n7' is already using the IPv4 address 192.0.2.12.\n"
                .to_owned(),
            "node-address-shared",
            "node n1",
        ),
    ] {
        assert_eq!(found(file, &text), [(code, subject.to_owned())], "{text}");
    }
}

#[test]
fn lines_of_every_day_are_no_finding() {
    let text = "2026-03-04 10:11:02.812 [INFO][63] felix/int_dataplane.go 1836: Completed first update to dataplane.\n\
        2026-03-04 10:11:03.812 [WARNING][63] felix/sync_client.go 320: Failed to connect to typha endpoint 192.0.2.11:5473. Will try another if available...\n\
        2026-03-04 10:11:04.812 [INFO][63] felix/sync_client.go 290: Connected to Typha.\n";
    assert_eq!(found("n1.calico-node.log", text), []);
    let text = "[12345.678901] IPv4: martian source 10.244.1.5 from 10.244.2.3, on dev eth1\n\
        [12346.678901] Out of memory: Killed process 4711 (java) total-vm:1884308kB\n";
    assert_eq!(found("n1.dmesg.txt", text), []);
}
