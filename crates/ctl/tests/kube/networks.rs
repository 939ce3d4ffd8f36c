//! Which texts the policies take for a network: each network has one, as Calico and Plumbline write it.

use std::net::Ipv6Addr;

use model::ipam::{Affinity, AffinityState};
use model::kube::encode;
use model::{AffinityOwner, Cidr, Key, Kind};
use serde_json::Value;
use testkit::kube::{Answer, Api};

use crate::acts::Act;
use crate::fixture::{Cluster, LAYOUTS};

const WRONG: &[&str] = &[
    "",
    "10.0.0.0",
    "10.0.0/26",
    "10.0.0.0/",
    "10.0.0.0/33",
    "10.0.0.0/026",
    "10.0.0.0/19",
    "10.0.0.0/0",
    "10.0.0.1/26",
    "10.0.0.32/26",
    "10.0.0.0.0/26",
    "010.0.0.0/26",
    "10.0.256.0/26",
    "-10.0.0.0/26",
    "10.0.0.0/26/26",
    "fd00::/129",
    "fd00::/115",
    "fd00::/0122",
    "fd00::1/122",
    "fd00::20/122",
    "fd00::00/122",
    "fd00::0/122",
    "0fd00::/122",
    "fd00:::/122",
    "fd00::1::/122",
    ":fd00::/122",
    "fd00:/122",
    "1:2:3:4:5:6:7::/122",
    "1:2:3:4:5:6:7:8::/122",
    "1:2:3:4:5:6:7/122",
    "::ffff:10.0.0.0/122",
];

/// The affinity of node-a for a block that is called so.
fn try_out(cluster: &Cluster, api: &Api, cidr: &str) -> Answer {
    let owner = AffinityOwner::Host("node-a".to_owned());
    let any = if cidr.contains(':') { "fd00::/122" } else { "10.0.0.0/26" };
    let key = Key::Affinity { owner, block: any.parse().unwrap() };
    let value = Affinity::new(AffinityState::Pending).encode();
    let mut document = Value::Object(encode(cluster.layout, &key, &value).unwrap());
    document["spec"]["cidr"] = cidr.into();
    // A name ends in a letter or a digit, and where the network's does not, nothing but the network is wrong.
    let name = format!("node-a-{}", cidr.replace(['.', ':', '/'], "-"));
    document["metadata"]["name"] = name.trim_end_matches('-').into();
    Act::create(cidr, &cluster.collection(Kind::BlockAffinity), document).try_out(api)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_has_one_name() {
    let Some(cluster) = Cluster::start("a_network_has_one_name", LAYOUTS[0]) else { return };
    cluster.add_policies();
    let api = cluster.server.api_as(&cluster.token("node-a"));
    let is_taken = |cidr: &str| {
        let answer = try_out(&cluster, &api, cidr);
        let is_refused = answer.status == 403 && answer.text.contains("plumb-node-affinities");
        assert!(is_refused || answer.status == 201, "{cidr}: {} {}", answer.status, answer.text);
        answer.status == 201
    };
    let taken: Vec<&&str> = WRONG.iter().filter(|cidr| is_taken(cidr)).collect();
    assert!(taken.is_empty(), "{taken:?}");
    for cidr in ["10.0.0.0/26", "10.0.0.64/26", "0.0.0.0/32", "255.255.240.0/20", "192.168.199.25/32"] {
        assert!(is_taken(cidr), "{cidr}");
    }
    // Every arrangement of zeros.
    for zeros in 0_u32..256 {
        let word = |place: u32| if zeros & (1 << place) == 0 { 0 } else { 0xa40 + 0x1000 * place as u16 };
        let words: [u16; 8] = std::array::from_fn(|place| word(place as u32));
        let usual = Cidr::parse_masked(&format!("{}/122", Ipv6Addr::from(words))).unwrap().to_string();
        let long = words.map(|word| format!("{word:x}")).join(":") + "/122";
        assert_eq!(is_taken(&usual), !usual.contains('.'), "{usual}");
        assert!(long == usual || !is_taken(&long), "{long}");
    }
}
