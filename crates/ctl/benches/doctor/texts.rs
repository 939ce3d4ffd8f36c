//! What texts cost that somebody wrote to keep the doctor busy: time and memory for a hundred megabytes of each sort.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;
use testkit::figures::{Figure, Goal};
use testkit::process::peak_mib;

const PLUMB: &str = env!("CARGO_BIN_EXE_plumb");
const SECONDS_MAX: f64 = 60.0;
const MEBIBYTES_MAX: f64 = 512.0;

/// One sort of text: what it is called, its file, and its pieces by number.
struct Sort {
    name: &'static str,
    file: &'static str,
    piece: fn(u64) -> String,
}

const SORTS: &[Sort] = &[
    Sort { name: "eyJ repeated", file: "a.log", piece: |_| "eyJ".to_owned() },
    Sort { name: "eyJ repeated, in a document", file: "a.json", piece: |n| in_document(n, "eyJ") },
    Sort { name: "://a:b@c repeated, in a document", file: "a.json", piece: |n| in_document(n, "://a:b@c ") },
    Sort { name: "token:{ repeated, in a document", file: "a.json", piece: |n| in_document(n, "token:{") },
    Sort { name: "beginnings of keys", file: "a.json", piece: |n| in_document(n, "-----BEGIN ") },
    Sort { name: "DELs of one pod", file: "n.kubelet.log", piece: |n| call("DEL", n) },
    Sort { name: "stale DELs of one pod", file: "n.kubelet.log", piece: stale_del },
    Sort { name: "a kubelet's log", file: "n.kubelet.log", piece: klog },
    Sort {
        name: "numbers in a list of JSON",
        file: "a.json",
        piece: |n| if n == 0 { "[0".to_owned() } else { ",0".to_owned() },
    },
    Sort { name: "brackets", file: "a.json", piece: |_| "[".to_owned() },
    Sort { name: "documents that are cut", file: "a.json", piece: |_| "{\"\n".to_owned() },
    Sort { name: "pods as JSON", file: "pods.json", piece: pod_json },
    Sort { name: "pods as YAML", file: "pods.yaml", piece: pod_yaml },
    Sort { name: "pods as a table", file: "pods.txt", piece: pod_row },
    Sort {
        name: "routes",
        file: "n.route.txt",
        piece: |n| format!("{} dev cali{n:011x} scope link\n", address(n)),
    },
    Sort { name: "links and addresses", file: "n.addr.txt", piece: link },
    Sort {
        name: "prompts of many machines",
        file: "paste.txt",
        piece: |n| format!("root@h{n}:~# ip r\ndefault via {} dev eth0\n", address(n)),
    },
    Sort {
        name: "views from inside many pods",
        file: "paste.txt",
        piece: |n| format!("$ kubectl exec p{n} -n a -- ip r\ndefault via 169.254.1.1 dev eth0\n"),
    },
    Sort {
        name: "prompts and events in turn",
        file: "paste.txt",
        piece: |n| format!("root@h{}:~# date\n{}", n % 9, call("ADD", n)),
    },
    Sort {
        name: "chains of iptables",
        file: "n.iptables.txt",
        piece: |n| rules(n, |n| format!(":c{n} - [0:0]\n")),
    },
    Sort { name: "rules of iptables", file: "n.iptables.txt", piece: rules_of_many_chains },
    Sort {
        name: "small dumps of iptables",
        file: "paste.txt",
        piece: |n| format!("# iptables-save\n*filter\n:c{n} - [0:0]\n-A c{n} -j DROP\nCOMMIT\n"),
    },
    Sort { name: "chains that call each other", file: "paste.txt", piece: calling_chains },
    Sort { name: "an INFO of BGP over many rows", file: "n.bgp.txt", piece: wrapped_info },
    Sort { name: "pods and pools of a Kubernetes store", file: "all.txt", piece: pods_and_pools },
    Sort { name: "blocks and nodes of a bundle", file: "a.bundle", piece: blocks_and_nodes },
    Sort { name: "records of a bundle", file: "a.bundle", piece: record_line },
    Sort { name: "lines that nobody knows", file: "a.txt", piece: |n| format!("what is this {n}\n") },
    Sort {
        name: "looks of a bundle",
        file: "a.bundle",
        piece: |_| "{\"plumbBundle\":1,\"takenAt\":\"2026-01-01T00:00:00Z\"}\n".to_owned(),
    },
    Sort { name: "nodes of a bundle", file: "a.bundle", piece: node_line },
];

/// The same compressed: nothing of it is larger than what it unpacks to.
const PACKED: &[&str] = &["numbers in a list of JSON", "routes"];

pub(crate) fn figures(megabytes: usize) -> Result<Vec<Figure>> {
    let folder = TempDir::with_prefix("plumb-bench-")?;
    let mut figures = Vec::new();
    for sort in SORTS {
        let path = folder.path().join(sort.file);
        write(&path, sort, megabytes << 20)?;
        figures.extend(measure(&path, sort.name, megabytes)?);
        if PACKED.contains(&sort.name) {
            let status = Command::new("gzip").arg("-f").arg(&path).status().context("cannot start gzip")?;
            ensure!(status.success(), "gzip failed ({status})");
            let packed = path.with_added_extension("gz");
            figures.extend(measure(&packed, &format!("{}, compressed", sort.name), megabytes)?);
            std::fs::remove_file(packed)?;
        } else {
            std::fs::remove_file(path)?;
        }
    }
    Ok(figures)
}

fn write(path: &Path, sort: &Sort, bytes: usize) -> Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    let (mut written, mut number) = (0, 0);
    while written < bytes {
        let piece = (sort.piece)(number);
        file.write_all(piece.as_bytes())?;
        written += piece.len();
        number += 1;
    }
    Ok(file.flush()?)
}

fn measure(path: &Path, name: &str, megabytes: usize) -> Result<[Figure; 2]> {
    let started = Instant::now();
    // 0: nothing wrong; 1: findings; 2: nothing that could be looked at. It must end by itself.
    let status = doctor(path).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    ensure!(matches!(status.code(), Some(0..=2)), "the doctor failed on {name} ({status})");
    let seconds = started.elapsed().as_secs_f64();
    eprintln!("{megabytes} MB of {name}: {seconds:.1} s");
    let peak = peak_mib(succeeding(path)?)?;
    let time = Figure::new(format!("{megabytes} MB of {name}"), seconds, "s");
    let memory = Figure::new(format!("{megabytes} MB of {name}, peak memory"), peak, "MiB");
    Ok([time.wanted(Goal::ValueAtMost(SECONDS_MAX)), memory.wanted(Goal::ValueAtMost(MEBIBYTES_MAX))])
}

fn doctor(path: &Path) -> Command {
    let mut command = Command::new(PLUMB);
    command.args(["doctor", "-o", "json", "--from"]).arg(path).stdin(Stdio::null());
    command
}

/// What measures memory wants a program that succeeds, whatever the doctor finds.
fn succeeding(path: &Path) -> Result<Command> {
    let mut command = Command::new("sh");
    let path = path.to_str().context("a path of ours is text")?;
    command.args(["-c", "\"$0\" doctor -o json --from \"$1\" >/dev/null 2>&1; test $? -le 2", PLUMB, path]);
    command.stdin(Stdio::null());
    Ok(command)
}

fn in_document(number: u64, piece: &str) -> String {
    if number == 0 { format!("{{\"a\":\"{piece}") } else { piece.to_owned() }
}

fn address(number: u64) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0a00_0000 | (number as u32 & 0x00ff_ffff))
}

fn time(number: u64) -> String {
    format!("2017-12-12T{:02}:{:02}:{:02}+08:00", number / 3_600 % 24, number / 60 % 60, number % 60)
}

fn call(command: &str, number: u64) -> String {
    format!(
        "time=\"{}\" level=info msg=\"Configured environment: [CNI_COMMAND={command} CNI_CONTAINERID={number:064x} \
         CNI_IFNAME=eth0 CNI_NETNS= CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0 X=1]\"\n",
        time(number)
    )
}

fn stale_del(number: u64) -> String {
    if number == 0 {
        return call("ADD", u64::MAX);
    }
    let released =
        format!("time=\"{}\" level=info msg=\"Releasing all IPs with handle 'shop.web-0'\"\n", time(number));
    call("DEL", number / 40) + &released
}

fn klog(number: u64) -> String {
    format!(
        "Dec 12 20:00:18 n kubelet[1]: I1212 20:00:18.000000 1 a.go:{number}] nothing of interest, with a key and a token\n"
    )
}

fn pod_json(number: u64) -> String {
    let start = if number == 0 { "{\"kind\":\"List\",\"items\":[\n" } else { "," };
    format!(
        "{start}{{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":{{\"name\":\"p{number}\",\"namespace\":\"n{}\"}},\
         \"spec\":{{\"nodeName\":\"n{}\"}},\"status\":{{\"podIP\":\"{}\"}}}}\n",
        number % 50,
        number % 1_000,
        address(number)
    )
}

fn pod_yaml(number: u64) -> String {
    let start = if number == 0 { "apiVersion: v1\nitems:\n" } else { "" };
    format!(
        "{start}- kind: Pod\n  apiVersion: v1\n  metadata:\n    name: p{number}\n    namespace: n{}\n  spec:\n    \
         nodeName: n{}\n  status:\n    podIP: {}\n",
        number % 50,
        number % 1_000,
        address(number)
    )
}

fn pod_row(number: u64) -> String {
    if number == 0 {
        return "NAMESPACE   NAME   READY   STATUS   RESTARTS   AGE   IP   NODE\n".to_owned();
    }
    format!("ns{} web-{number} 1/1 Running 0 1m {} node-{}\n", number % 100, address(number), number % 1_000)
}

fn link(number: u64) -> String {
    format!(
        "{number}: e{number}@if3: <BROADCAST,UP> mtu 1440 state UP\n    inet {}/32 scope global e{number}\n",
        address(number)
    )
}

fn node_line(number: u64) -> String {
    let start = if number == 0 { "{\"plumbBundle\":1}\n" } else { "" };
    format!("{start}{{\"node\":{{\"name\":\"node-{number}\"}}}}\n")
}

fn rules(number: u64, rule: fn(u64) -> String) -> String {
    let start = if number == 0 { "*filter\n:FORWARD ACCEPT [0:0]\n" } else { "" };
    format!("{start}{}", rule(number))
}

/// As many chains as are read, then rules of the last ones.
fn rules_of_many_chains(number: u64) -> String {
    const CHAINS: u64 = 50_000;
    rules(number, |number| match number {
        0..CHAINS => format!(":c{number} - [0:0]\n"),
        _ => format!("-A c{} -s {} -j ACCEPT\n", CHAINS - 1 - number % CHAINS, address(number)),
    })
}

/// A machine whose chains lead a packet over very many ways.
fn calling_chains(number: u64) -> String {
    const DEPTH: u64 = 16;
    let chains: String = (0..DEPTH).map(|depth| format!(":c{depth} - [0:0]\n")).collect();
    let calls: String =
        (1..DEPTH).map(|depth| format!("-A c{} -j c{depth}\n", depth - 1).repeat(2)).collect();
    format!(
        "root@h{number}:~# iptables-save\n*filter\n:FORWARD DROP [0:0]\n{chains}-A FORWARD -j c0\n{calls}COMMIT\n"
    )
}

fn wrapped_info(number: u64) -> String {
    if number == 0 {
        return "| PEER ADDRESS | PEER TYPE | STATE | SINCE | INFO |\n| 10.0.0.1 | global | up | 10:00 | a |\n".to_owned();
    }
    "| | | | | more |\n".to_owned()
}

fn pods_and_pools(number: u64) -> String {
    let pool = format!(
        "apiVersion: crd.projectcalico.org/v1\nkind: IPPool\nmetadata:\n  name: p{number}\nspec:\n  cidr: {}/32\n---\n",
        address(number)
    );
    match number {
        0..10_000 => pool,
        10_000 => format!("{pool}\n{}", pod_row(0)),
        _ => pod_row(number),
    }
}

fn blocks_and_nodes(number: u64) -> String {
    let start = if number == 0 { "{\"plumbBundle\":1}\n{\"wholeStore\":true}\n" } else { "" };
    let of = format!("10.{}.{}.{}", number >> 16 & 255, number >> 8 & 255, number & 255);
    let (kind, key, value) = match number % 3 {
        0 => ("nodes", format!("n{number}"), format!("{{\"bgp\":{{\"ipv4Address\":\"{of}/8\"}}}}")),
        1 => ("ippools", format!("p{number}"), format!("{{\"cidr\":\"{of}/32\",\"blockSize\":32}}")),
        _ => {
            return format!(
                "{start}{{\"record\":{{\"key\":\"/calico/ipam/v2/assignment/ipv4/block/{of}-32\",\"value\":{{\"cidr\":\"{of}/32\",\
                 \"allocations\":[null],\"unallocated\":[0],\"attributes\":[]}}}}}}\n"
            );
        }
    };
    format!(
        "{start}{{\"record\":{{\"key\":\"/calico/resources/v3/projectcalico.org/{kind}/{key}\",\"value\":{{\"metadata\":\
         {{\"name\":\"{key}\"}},\"spec\":{value}}}}}}}\n"
    )
}

fn record_line(number: u64) -> String {
    let start = if number == 0 { "{\"plumbBundle\":1}\n" } else { "" };
    format!(
        "{start}{{\"record\":{{\"key\":\"/calico/resources/v3/projectcalico.org/globalnetworksets/s{number}\",\
         \"value\":{{\"spec\":{{\"nets\":[{}0]}}}}}}}}\n",
        "0,".repeat(20)
    )
}
