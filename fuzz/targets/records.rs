//! Records as anybody may write them into a store. The first line is the key, or the number of one of the usual keys.

#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::json;

const KEYS: [&str; 12] = [
    "/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-26",
    "/calico/ipam/v2/handle/k8s-pod-network.abc",
    "/calico/ipam/v2/host/a/ipv4/block/10.0.0.0-26",
    "/calico/ipam/v2/config",
    "/calico/resources/v3/projectcalico.org/ippools/p",
    "/calico/resources/v3/projectcalico.org/nodes/a",
    "/calico/resources/v3/projectcalico.org/workloadendpoints/shop/a-k8s-web-eth0",
    "/calico/resources/v3/projectcalico.org/bgppeers/p",
    "/calico/resources/v3/projectcalico.org/bgpconfigurations/default",
    "/calico/resources/v3/projectcalico.org/felixconfigurations/default",
    "/calico/resources/v3/projectcalico.org/bgpfilters/f",
    "/calico/resources/v3/projectcalico.org/globalnetworkpolicies/g",
];

fuzz_target!(|data: &[u8]| {
    let mut bundle = b"{\"plumbBundle\":1}\n".to_vec();
    // A record per paragraph: what contradicts each other is in several.
    for record in data.split(|byte| *byte == 0) {
        let (key, value) = record.split_at(record.iter().position(|byte| *byte == b'\n').unwrap_or(0));
        let key = match key {
            [number] => KEYS[usize::from(*number) % KEYS.len()].to_owned(),
            key => String::from_utf8_lossy(key).into_owned(),
        };
        let _ = model::Key::from_etcd_text(&key);
        let value = String::from_utf8_lossy(value);
        let record = match serde_json::from_str::<serde_json::Value>(&value) {
            Ok(value) => json!({"record": {"key": key, "value": value}}),
            Err(_) => json!({"record": {"key": key, "text": value}}),
        };
        bundle.extend(record.to_string().into_bytes());
        bundle.push(b'\n');
    }
    bundle.extend(b"{\"wholeStore\":true}\n");
    let evidence = gather::bundle::read("b", &mut &bundle[..]).expect("memory can be read");
    let report = doctor::diagnose(&evidence);
    let _ = render::json(&report, None);
});
