//! What is written is read, and what is damaged or too much is said.

use std::collections::BTreeMap;
use std::io;

use evidence::{Evidence, NodeEvidence, Origin, Sighted, Unseen, sample};
use jiff::Timestamp;
use model::{Key, Kind};
use proptest::prelude::*;
use serde_json::json;

use super::read::{LINE_BYTES_MAX, UNSEEN_MAX, VALUES_MAX};
use super::*;

fn write(act: impl FnOnce(&mut BundleWriter<Vec<u8>>) -> io::Result<()>) -> Vec<u8> {
    let mut writer = BundleWriter::new(Vec::new());
    act(&mut writer).unwrap();
    writer.finish().unwrap()
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn reported(words: &str) -> Unseen {
    Unseen::Reported(words.to_owned())
}

fn words(evidence: &Evidence) -> Vec<String> {
    evidence.unseen.iter().map(Unseen::to_string).collect()
}

#[test]
fn what_is_written_is_read() {
    let sample = sample::small();
    let pool = Key::cluster(Kind::IpPool, "pods");
    let bundle = write(|writer| {
        writer.look(at(1))?;
        writer.record(&pool, br#"{"spec":{"cidr":"10.0.0.0/16"}}"#)?;
        writer.record(&Key::Handle("h".into()), br#"{"block":{"10.0.0.0/26":9007199254740993}}"#)?;
        writer.whole_store()?;
        writer.nodes(sample.clone())?;
        writer.unseen(&reported("something"))
    });
    assert!(is_bundle(&bundle));
    let evidence = read("b", &mut &bundle[..]).unwrap();
    assert_eq!((evidence.taken_at, words(&evidence)), (Some(at(1)), vec!["something".to_owned()]));
    assert_eq!(evidence.nodes, sample.nodes);
    assert!(evidence.records.find(Kind::IpPool, "pods").is_some());
    assert!(evidence.records.of(Kind::Node).is_some(), "a whole store has no nodes");
    let books = evidence.ipam.unwrap().books;
    assert_eq!(
        books.handles["h"].value.block.values().next(),
        Some(&9_007_199_254_740_993),
        "to the last digit"
    );
}

#[test]
fn what_kubernetes_said_is_read() {
    let sample = sample::small();
    let said = |sample: &Evidence| Evidence {
        pods: sample.pods.clone(),
        kube_nodes: sample.kube_nodes.clone(),
        ..Evidence::default()
    };
    let bundle = |kubernetes: &Evidence| {
        write(|writer| {
            writer.look(at(1))?;
            writer.kubernetes(kubernetes)?;
            writer.nodes(sample.clone())
        })
    };
    let evidence = read("b", &mut &bundle(&said(&sample))[..]).unwrap();
    assert_eq!((&evidence.pods, &evidence.kube_nodes), (&sample.pods, &sample.kube_nodes));
    assert_eq!(evidence.partial, evidence::Partial::default());
    let none = Evidence { pods: Some(Vec::new()), ..said(&sample) };
    assert_eq!(
        read("b", &mut &bundle(&none)[..]).unwrap().pods,
        Some(Vec::new()),
        "that there is none is known"
    );
    let cut: Vec<u8> = bundle(&said(&sample))
        .split_inclusive(|byte| *byte == b'\n')
        .filter(|line| !line.starts_with(b"{\"wholeKubernetes"))
        .flatten()
        .copied()
        .collect();
    let cut = read("b", &mut &cut[..]).unwrap();
    assert!(cut.partial.pods && cut.partial.kube_nodes && cut.pods.is_some());
}

#[test]
fn the_last_look_counts_and_the_others_are_earlier() {
    let bundle = write(|writer| {
        writer.look(at(1))?;
        writer.unseen(&reported("then"))?;
        writer.look(at(2))?;
        writer.unseen(&reported("now"))
    });
    let evidence = read("b", &mut &bundle[..]).unwrap();
    assert_eq!(words(&evidence), ["now"]);
    assert_eq!(evidence.earlier.unwrap().taken_at, Some(at(1)));
}

/// Each look held the one before it, and the last of them was dropped with all others on the stack.
#[test]
fn any_number_of_looks_can_be_read() {
    let mut bundle = b"{\"plumbBundle\":1,\"takenAt\":\"2026-01-01T00:00:00Z\"}\n".repeat(300_000);
    bundle.extend(write(|writer| {
        writer.look(at(1))?;
        writer.unseen(&reported("then"))?;
        writer.look(at(2))?;
        writer.unseen(&reported("now"))
    }));
    let evidence = read("b", &mut &bundle[..]).unwrap();
    assert_eq!(words(&evidence), ["now"]);
    let earlier = evidence.earlier.unwrap();
    assert_eq!(words(&earlier), ["then"]);
    assert!(earlier.earlier.is_none());
}

#[test]
fn what_is_too_large_is_skipped_and_hides_nothing() {
    let long = format!("{{\"unread\":\"{}\"}}", "x".repeat(LINE_BYTES_MAX));
    let many = format!("{{\"unread\":[0{}]}}", ",0".repeat(VALUES_MAX));
    let bundle = format!("{{\"plumbBundle\":1}}\n{long}\n{many}\n{{\"unread\":\"x\"}}\n");
    let evidence = read("b", &mut bundle.as_bytes()).unwrap();
    let told =
        ["b:2 could not be used: it is too long", "b:3 could not be used: it has too many values", "x"];
    assert_eq!(words(&evidence), told);
    let nonsense = format!("{{\"plumbBundle\":1}}\n{}", "nonsense\n".repeat(UNSEEN_MAX + 5));
    let evidence = read("b", &mut nonsense.as_bytes()).unwrap();
    assert_eq!(evidence.unseen.len(), UNSEEN_MAX + 1);
    assert_eq!(words(&evidence)[UNSEEN_MAX], "b: 5 more lines could not be used");
}

/// By whatever wrote it, also by an older version that knew fewer forms.
#[test]
fn secrets_do_not_get_out_of_a_bundle() {
    let mut node = NodeEvidence::new("a");
    let seen = |text: &str| Sighted::new(text.to_owned(), Origin::file("x"));
    node.setup.environment = Some(BTreeMap::from([
        ("ETCD_PASSWORD".to_owned(), seen("hunter2")),
        ("X".to_owned(), seen("Bearer aaaaaaaa Bearer hunter2hunter2")),
    ]));
    let record = json!({"record": {"key": "/calico/resources/v3/projectcalico.org/bgppeers/p",
        "value": {"spec": {"token": ["hunter2"], "password": "hunter2"}}}});
    let unread = json!({"unread": "cannot ask https://root:hunter2@h"});
    let bundle = format!("{{\"plumbBundle\":1}}\n{}\n{record}\n{unread}\n", json!({"node": node}));
    assert!(bundle.contains("hunter2"));
    let evidence = read("b", &mut bundle.as_bytes()).unwrap();
    assert_eq!(evidence.nodes.len(), 1);
    let shown = format!("{evidence:?}");
    assert!(!shown.contains("hunter2") && shown.contains(model::text::MASK), "{shown}");
}

#[test]
fn a_store_that_was_not_written_to_its_end_is_a_part() {
    let read_back = |is_whole: bool| {
        let bundle = write(|writer| {
            writer.look(at(1))?;
            let value = br#"{"spec":{"node":"a","ipNetworks":["10.0.0.1/32"]}}"#;
            writer.record(&Key::namespaced(Kind::WorkloadEndpoint, "shop", "a-k8s-cart-eth0"), value)?;
            if is_whole { writer.whole_store() } else { Ok(()) }
        });
        read("b", &mut &bundle[..]).unwrap()
    };
    let (part, whole) = (read_back(false), read_back(true));
    assert!(part.partial.endpoints && !whole.partial.endpoints);
    assert!(part.records.of(Kind::Node).is_none() && whole.records.of(Kind::Node).is_some());
    assert!(!part.ipam.unwrap().whole.blocks && whole.ipam.unwrap().whole.blocks);
}

#[test]
fn secrets_do_not_get_in() {
    let bundle = write(|writer| {
        writer.look(at(1))?;
        writer.unseen(&reported("http://root:hunter2@h: no answer"))?;
        let listed = br#"{"spec":{"tls.key":"hunter2","pin":{"token":["hunter2"]},"password":7331,
            "env":[{"value":"hunter2","name":"ETCD_PASSWORD"}]}}"#;
        writer.record(&Key::cluster(Kind::IpPool, "q"), listed)?;
        let value = br#"{"spec":{"password":"hunter2","ref":{"secretKeyRef":{"name":"bgp","key":"pw"}},
            "note":"eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrdWJlcm5ldGVzIn0.c2lnbmF0dXJlLXNpZ25hdHVyZQ"}}"#;
        writer.record(&Key::cluster(Kind::BgpPeer, "p"), value)?;
        writer.record(&Key::IpamConfig, b"password=hunter2")
    });
    let text = String::from_utf8(bundle).unwrap();
    assert!(!text.contains("hunter2") && !text.contains("7331") && !text.contains("eyJpc3Mi"), "{text}");
    assert!(
        text.contains(r#""secretKeyRef":{"key":"pw","name":"bgp"}"#),
        "the name of a secret is none: {text}"
    );
}

#[test]
fn damaged_lines_are_said_and_hide_nothing() {
    let bundle = b"{\"plumbBundle\":1}\nnonsense\n{\"record\":{\"key\":\"/x\"}}\n{\"unread\":\"x\"}\n{\"else\":1}\n{\"node\":[]}";
    let evidence = read("b", &mut &bundle[..]).unwrap();
    assert_eq!(evidence.unseen.len(), 5, "{:?}", evidence.unseen);
    assert_eq!(words(&evidence)[0], "b:2 could not be used: it is not JSON");
    let later = read("b", &mut &b"{\"plumbBundle\":2}\n"[..]).unwrap();
    assert_eq!(words(&later), ["b:1 could not be used: bundle version 2 is not supported"]);
}

/// Each look of it has a record, a pod, a list that is whole, and a node.
fn two_looks(pods: usize) -> Vec<u8> {
    let sample = sample::small();
    let pod = &sample.pods.as_ref().unwrap()[0];
    write(|writer| {
        for second in [1, 2] {
            writer.look(at(second))?;
            writer.record(&Key::cluster(Kind::IpPool, "pods"), br#"{"spec":{"cidr":"10.0.0.0/16"}}"#)?;
            writer.whole_store()?;
            let (pods, kube_nodes) = (Some(vec![pod.clone(); pods]), sample.kube_nodes.clone());
            writer.kubernetes(&Evidence { pods, kube_nodes, ..Evidence::default() })?;
            writer.node(NodeEvidence::new(sample.kube_nodes.as_ref().unwrap()[0].seen.name.as_str()))?;
        }
        Ok(())
    })
}

fn within(bundle: &[u8], room: usize) -> (Evidence, Kept) {
    let Taken { evidence, kept } = read_within("b", &mut &bundle[..], room).unwrap();
    (evidence, kept)
}

/// The earlier look goes first, then the lists; nodes stay as long as there is room.
#[test]
fn what_does_not_fit_is_skipped_and_said() {
    let bundle = two_looks(20);
    let (all, kept) = within(&bundle, KEPT_BYTES_MAX);
    assert!(all.unseen.is_empty() && all.earlier.is_some() && kept.store > 0 && kept.kubernetes > kept.store);
    assert_eq!(within(&bundle, kept.sum()).1, kept, "exactly as much as it takes is enough");

    let (one, of_one) = within(&bundle, kept.sum() - 1);
    assert!(one.earlier.is_none(), "the earlier look");
    assert_eq!((one.pods.as_ref().map(Vec::len), one.partial.pods), (Some(20), false));
    let lines = 1 + 20 + sample::small().kube_nodes.unwrap().len() + 1;
    let skipped =
        |count| format!("b: {count} lines or items were skipped, because they hold more than can be kept");
    assert_eq!(words(&one), [skipped(lines)]);
    assert_eq!(of_one.sum() * 2, kept.sum());

    let (nodes, of_nodes) = within(&bundle, of_one.sum() - 1);
    assert!(nodes.pods.is_none() && nodes.ipam.is_none() && nodes.records.of(Kind::IpPool).is_none());
    assert_eq!((nodes.nodes.len(), of_nodes.store, of_nodes.kubernetes), (1, 0, 0));
    assert_eq!(
        words(&nodes),
        [skipped(2 * lines - 1)],
        "all of the earlier look, and of this one all but its node"
    );

    let (none, of_none) = within(&bundle, 10);
    assert_eq!((none.nodes.len(), of_none.sum(), words(&none).len()), (0, 0, 1));
    assert_eq!(none.taken_at, Some(at(2)), "when it was taken is known");
}

/// A node of which only the name is said takes far more than its line.
#[test]
fn nodes_without_content_count_too() {
    let lines: String = (0..100).map(|number| format!("{{\"node\":{{\"name\":\"n{number}\"}}}}\n")).collect();
    let bundle = format!("{{\"plumbBundle\":1}}\n{lines}");
    let (evidence, kept) = within(bundle.as_bytes(), 100_000);
    assert!((20..60).contains(&evidence.nodes.len()), "{}", evidence.nodes.len());
    assert!(
        kept.sum() <= 100_000 && words(&evidence)[0].ends_with("because they hold more than can be kept")
    );
}

/// A later look begins with nothing, whatever the one before was too large for.
#[test]
fn a_look_that_did_not_fit_does_not_hide_the_next() {
    let (large, small) = (two_looks(200), two_looks(1));
    let room = within(&two_looks(2), KEPT_BYTES_MAX).1.sum();
    let (evidence, _) = within(&[large, small].concat(), room);
    assert_eq!(evidence.pods.as_ref().map(Vec::len), Some(1));
    assert!(evidence.earlier.is_some() && evidence.ipam.is_some());
}

proptest! {
    #[test]
    fn anything_can_be_read(text in any::<String>(), bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        let _ = read("b", &mut text.as_bytes()).unwrap();
        let _ = read("b", &mut &bytes[..]).unwrap();
        let _ = read("b", &mut format!("{{\"plumbBundle\":1}}\n{{\"node\":{text:?}}}").as_bytes()).unwrap();
    }
}
