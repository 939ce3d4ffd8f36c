//! Every form in which a secret was seen, alone, twice on a line, behind a decoy, and over several lines.

use proptest::prelude::*;

use super::keys::KEY_LINES_MAX;
use super::*;

fn mask(line: &str) -> String {
    Masker::default().mask(line.to_owned())
}

fn mask_lines(text: &str) -> String {
    let mut masker = Masker::default();
    text.lines().map(|line| masker.mask(line.to_owned())).collect::<Vec<_>>().join("\n")
}

#[test]
fn secrets_are_masked() {
    for (line, masked) in [
        ("K8S_API_TOKEN=abc123]\"", "K8S_API_TOKEN=[masked]]\""),
        ("    password: hunter2", "    password: [masked]"),
        ("- Password: three words long", "- Password: [masked]"),
        ("a -----BEGIN RSA PRIVATE KEY-----x\\ny-----END RSA PRIVATE KEY----- b", "a [masked] b"),
        (r#"{"token": "abc", "a": 1}"#, r#"{"token": "[masked]", "a": 1}"#),
        (r#"msg="x \"ETCD_PASSWORD\": \"pw\" y""#, r#"msg="x \"ETCD_PASSWORD\": \"[masked]\" y""#),
        ("Authorization: Bearer abcdefghijkl.mno", "Authorization: Bearer [masked]"),
        ("curl -H 'x' Bearer abcdefghijkl", "curl -H 'x' Bearer [masked]"),
        ("    client-key-data: LS0tLS1CRUdJTiBSU0E=", "    client-key-data: [masked]"),
        ("etcd at https://root:pw@10.0.0.1:2379/x", "etcd at https://root:[masked]@10.0.0.1:2379/x"),
        ("AWS_SECRET_ACCESS_KEY=aaaa b", "AWS_SECRET_ACCESS_KEY=[masked] b"),
        ("key AKIAIOSFODNN7EXAMPLE", "key [masked]"),
        ("  tls.key: aHVudGVyMg==", "  tls.key: [masked]"),
        ("ETCD_PASS=hunter2 x", "ETCD_PASS=[masked] x"),
        (r#"{"auth":"dXNlcjpwdw=="}"#, r#"{"auth":"[masked]"}"#),
        (".dockerconfigjson: e30K", ".dockerconfigjson: [masked]"),
        ("password => hunter2", "password => [masked]"),
        ("{user: root, password: two words, x: y}", "{user: root, password: [masked], x: y}"),
        ("token: [abc, def] x", "token: [[masked]] x"),
        ("  password \"hunter2\"; # BIRD", "  password \"[masked]\"; # BIRD"),
    ] {
        assert_eq!(mask(line), masked);
        assert_eq!(mask(masked), masked, "what is masked stays as it is");
    }
    let token = format!("got eyJhbGciOiJSUzI1NiJ9.{}.sig then", "a".repeat(40));
    assert_eq!(mask(&token), "got [masked] then");
}

const KEY: &str = "-----BEGIN PRIVATE KEY-----\\nHunter2\\n-----END PRIVATE KEY-----";
const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\\nMIIC\\n-----END CERTIFICATE-----";

#[test]
fn a_second_secret_of_a_line_is_masked_like_the_first() {
    let (jwt, aws) = (format!("eyJhbGciOi.{}.hunter2", "a".repeat(40)), "AKIAHUNTER2HUNTER2AB");
    for line in [
        format!("{CERTIFICATE}\\n{KEY}"),
        format!("{KEY}{CERTIFICATE}{KEY}"),
        format!("{}{KEY}", "-----BEGIN ".repeat(3)),
        "-----BEGIN PRIVATE KEY----- -----END CERTIFICATE----- Hunter2 -----END PRIVATE KEY-----".to_owned(),
        "Bearer aaaaaaaaaa and Bearer hunter2hunter2".to_owned(),
        "bearer: x, BEARER  hunter2hunter2".to_owned(),
        "Basic aaaaaaaa, Bearer hunter2hunter2, Basic hunter2hunter2".to_owned(),
        format!("AKIA, AKIADECOY and {aws} and AKIA{aws}"),
        format!("ASIAdecoy ASIA{}", "HUNTER2HUNTER2AB"),
        format!("eyJ eyJdecoy {jwt} {jwt}"),
        "http://a:b@c http://x https://root:hunter2@h,https://root:hunter2@g".to_owned(),
        r#"{"url":"http:\/\/root:hunter2@h\/"}"#.to_owned(),
        "parse \"http://root:hun/ter2hunter2@h:2379\": invalid port".to_owned(),
        "password= token:{ secret=hunter2 password=hunter2".to_owned(),
        "--token a --password hunter2 --user root:hunter2 -u root:hunter2".to_owned(),
        r#"args: ["--password", "hunter2", "--token=hunter2"]"#.to_owned(),
        r#"[{"name":"A","value":"1"},{"name":"ETCD_PASSWORD","value":"hunter2"}]"#.to_owned(),
        "Authorization: Token hunter2".to_owned(),
        r#"{"Authorization":["Digest hunter2"]}"#.to_owned(),
    ] {
        let masked = mask(&line);
        assert!(!masked.to_lowercase().contains("hunter2"), "{line}: {masked}");
        assert!(masked.contains(MASK), "{line}: {masked}");
    }
}

#[test]
fn escapes_do_not_part_a_secret() {
    for line in [
        r#"{"password":"a\"hunter2"}"#,
        r#"{"password":"a\u0026hunter2\\"}"#,
        r#"{"x":"{\"password\":\"a\\\"hunter2\"}","token":"hunter2"}"#,
        r#"{"x":"{\"y\":\"{\\\"password\\\":\\\"hunter2\\\\\\\"hunter2\\\"}\"}"}"#,
        r"password: 'it''s hunter2'",
        r#"{"data":"user: root\npassword: two hunter2 words\nx: y"}"#,
        r#"{"data":"LS0tLS1CRUdJTiBQUklWQVRFIEtFWS0tLS0t\naHVudGVyMg\nHunter2"}"#,
    ] {
        let masked = mask(line);
        assert!(!masked.to_lowercase().contains("hunter2"), "{line}: {masked}");
    }
    // What is around stays what it was.
    let nested = r#"{"x":"{\"password\":\"a\\\"b\",\"y\":1}"}"#;
    assert_eq!(mask(nested), r#"{"x":"{\"password\":\"[masked]\",\"y\":1}"}"#);
    assert!(serde_json::from_str::<serde_json::Value>(&mask(nested)).is_ok());
}

/// Base64 of a key, wherever in the encoded text the key begins.
#[test]
fn encoded_keys_are_masked() {
    for encoded in
        ["LS0tLS1CRUdJTiBQUklWQVRF", "Ci0tLS0tQkVHSU4gUFJJVkFURQ==", "CgotLS0tLUJFR0lOIFBSSVZBVEU="]
    {
        let decoded = String::from_utf8(crate::text::base64(encoded).unwrap()).unwrap();
        assert!(decoded.trim().starts_with("-----BEGIN PRIVATE"), "{decoded:?}");
        assert_eq!(mask(&format!("  x: {encoded}")), "  x: [masked]");
        assert_eq!(mask(&format!("\"x\":\"{encoded}\",\"y\":1")), "\"x\":\"[masked]\",\"y\":1");
    }
}

#[test]
fn private_keys_are_masked_to_their_end() {
    let mut masker = Masker::default();
    let lines = ["a: -----BEGIN RSA PRIVATE KEY-----", "MIIE", "-----END RSA PRIVATE KEY-----", "after"];
    let masked: Vec<String> = lines.iter().map(|line| masker.mask((*line).to_owned())).collect();
    assert_eq!(masked, ["a: [masked]", "[masked]", "[masked]", "after"]);
    masker.mask("-----BEGIN PRIVATE KEY-----".to_owned());
    let rest: Vec<String> = (0..=KEY_LINES_MAX).map(|_| masker.mask("x".to_owned())).collect();
    assert_eq!((rest[0].as_str(), rest[KEY_LINES_MAX].as_str()), (MASK, "x"), "a key that was cut");
    assert_eq!(mask("-----BEGIN CERTIFICATE-----"), "-----BEGIN CERTIFICATE-----");
    let two = "-----BEGIN EC PRIVATE KEY-----\nx\n-----END EC PRIVATE KEY----------BEGIN PRIVATE KEY-----\nhunter2\n\
               -----END CERTIFICATE-----\nhunter2\n-----END PRIVATE KEY----- after";
    assert_eq!(mask_lines(two), format!("{}[masked] after", "[masked]\n".repeat(6)));
    assert_eq!(mask_lines("-----BEGIN RSA PRIV\nhunter2"), "[masked]\n[masked]", "wrapped by a terminal");
    let ssh = "---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----\nhunter2\n---- END SSH2 ENCRYPTED PRIVATE KEY ----\nafter";
    assert_eq!(mask_lines(ssh), "[masked]\n[masked]\n[masked]\nafter");
}

#[test]
fn a_key_whose_beginning_is_missing_is_masked() {
    let body = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQDZq4Ylm8J9vFhN\nu5XQ==\n10.0.0.1 dev eth0";
    assert_eq!(mask_lines(body), "[masked]\n[masked]\n10.0.0.1 dev eth0");
    let listed = "  - \"MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQDZq4Ylm8J9vFhN\",";
    assert_eq!(mask(listed), "  - \"[masked]\",");
}

#[test]
fn values_below_their_names_are_masked() {
    for (text, masked) in [
        (
            "a:\n  tls.key: |\n    hunter2\n\n    hunter2\n  x: y",
            "a:\n  tls.key: |\n    [masked]\n\n    [masked]\n  x: y",
        ),
        (
            "- password: >-\n    two\n    words\n  user: x",
            "- password: >-\n    [masked]\n    [masked]\n  user: x",
        ),
        ("token: |2+ # remark\n   x\ny: z", "token: |2+ # remark\n   [masked]\ny: z"),
        ("password:\n  hunter2\nx: y", "password:\n  [masked]\nx: y"),
        ("token:\n  - hunter2\n  - \"x\"\ny: z", "token:\n  - [masked]\n  - [masked]\ny: z"),
        (
            "password:\n  secretKeyRef:\n    name: bgp\n    key: x",
            "password:\n  secretKeyRef:\n    name: bgp\n    key: x",
        ),
        ("password: \"two\n  lines\"\nx: y", "password: \"[masked]\n  [masked]\nx: y"),
        (
            "- name: ETCD_PASSWORD\n  value: hunter2\n- name: X\n  value: y",
            "- name: ETCD_PASSWORD\n  value: [masked]\n- name: X\n  value: y",
        ),
        ("\"name\": \"A_TOKEN\",\n\"value\": \"x\"\n", "\"name\": \"A_TOKEN\",\n\"value\": \"[masked]\""),
        ("- --password\n- hunter2\n- x", "- --password\n- [masked]\n- x"),
        ("\"--token\",\n\"hunter2\",\n\"x\"", "\"--token\",\n\"[masked]\",\n\"x\""),
    ] {
        assert_eq!(mask_lines(text), masked);
    }
}

#[test]
fn evidence_is_left_alone() {
    for line in [
        "ETCD_KEY_FILE=/etc/cni/net.d/calico-tls/etcd-key ETCD_CERT_FILE=/x",
        "192.168.91.33 dev calia3201341d16 lladdr c2:94:4b:7e:d0:fd REACHABLE",
        "Loading cert/key pair from \"/var/lib/kubelet/pki/kubelet-client-current.pem\".",
        "K8S_API_TOKEN=REDACTED]",
        "    tokenExpiry: x",
        "List Key: /calico/v1/host/dev-slave-107/workload/k8s/a.b/endpoint",
        "secrets/default: context deadline exceeded",
        "      password:",
        "        secretKeyRef: {name: bgp, key: x}",
        "https://10.96.0.1:443/apis",
        "https://10.96.0.1:443/apis/x@y",
        "password: $(ETCD_PASSWORD)",
        "f8189c4b982ab4d0dbf8f1a1cc0e2fc4c4e6dd5a3a7b2c7b4a7f61e3f5a1e0b9",
        "/calico/ipam/v2/assignment/ipv4/block/Aa1",
        "-----BEGIN a report",
    ] {
        assert_eq!(mask(line), line);
    }
}

/// Work is counted, not time: bytes that are read for one byte of a line.
#[test]
fn work_grows_with_the_length_of_a_line_alone() {
    const BYTES: usize = 200_000;
    const STEPS_PER_BYTE: usize = 200;
    let pieces = [
        "eyJ",
        "eyJ.",
        "://a:b@c ",
        "://a:b/",
        "://a:",
        "token:{",
        "token:",
        "token:/",
        "token:\\\"",
        "token=\\",
        "\\npassword: ",
        "password: '",
        "password \"",
        "-----BEGIN ",
        "-----BEGIN CERTIFICATE-----",
        "-----END ",
        "-----BEGIN PRIVATE KEY----------END X",
        "AKIA",
        "ASIA ",
        "Bearer ",
        "bearer a",
        "Basic aaaaaaaa",
        "LS0t",
        "LS0tLS1CRUdJ",
        "LS0tLS1CRUdJ\\n",
        "--token ",
        "-u x ",
        "--user ",
        "-",
        "- ",
        "a:",
        "a=",
        ":",
        "name: token ",
        "value:",
        "\"",
        "\\",
        "{password: x",
        "secret => [",
        "\u{e9}:",
        "password:\u{130} ",
    ];
    for piece in pieces {
        for start in ["", "  ", "password: |", "-----BEGIN PRIVATE KEY-----"] {
            let line = format!("{start}{}", piece.repeat(BYTES / piece.len()));
            let scan = Scan::new(&line);
            let mut masker = Masker::default();
            masker.find(&scan);
            let steps = scan.steps() / line.len();
            assert!(steps <= STEPS_PER_BYTE, "{start:?} and {piece:?} repeated: {steps} steps for each byte");
        }
    }
}

proptest! {
    #[test]
    fn any_line_can_be_masked(line in "\\PC{0,200}") {
        mask(&line);
    }

    #[test]
    fn any_signs_can_be_masked(lines in prop::collection::vec("(password|token:|\"|'|\\\\|\\\\n|://|@|-----BEGIN |PRIVATE KEY-----|-----END |eyJ|AKIA|LS0t|--|[|{}=:, ]|\u{e9}|Bearer |name|value|[a-zA-Z0-9]{1,30}){0,30}", 1..5)) {
        let mut masker = Masker::default();
        for line in lines {
            masker.mask(line);
        }
    }

    #[test]
    fn nothing_of_a_value_is_left(value in "[a-z0-9]{6,20}", name in "(password|apiToken|CLIENT_SECRET|tls\\.key|ETCD_PASS)", form in 0usize..10, decoy in "(|Bearer |eyJ|AKIA|token:\\{ |://a:b@c |-----BEGIN CERTIFICATE-----|password= |\\\\n)") {
        prop_assume!(!["masked", "password", "secret", "client", "bearer", "certificate"].iter().any(|word| word.contains(&value)));
        let line = match form {
            0 => format!("{decoy}x {name}={value} y"),
            1 => format!("{name}: {value}"),
            2 => format!("{decoy}{{\"{name}\":\"{value}\"}}"),
            3 => format!("--{name} '{name}': '{value}'"),
            4 => format!("{decoy} {name}={value} {name}={value}"),
            5 => format!("{decoy} {{\"name\":\"{name}\",\"value\":\"{value}\"}}"),
            6 => format!("{decoy} --{name} {value}"),
            7 => format!("{name}: |\n  {value}"),
            8 => format!("{{\"a\":\"{{\\\"{name}\\\":\\\"{value}\\\"}}\"}}"),
            _ => format!("{decoy} http://{value}x:{value}@host {name}={value}").replace(&format!("{value}x"), "user"),
        };
        let masked = mask_lines(&line);
        prop_assert!(!masked.contains(&value), "{}", masked);
    }
}
