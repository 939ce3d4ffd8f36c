//! What looks like a secret is masked before anybody sees it.
//!
//! Goes by names (`password=…`, `"token": "…"`), by shapes (tokens in three parts, keys of clouds) and by blocks
//! (private keys). It rather masks too much: nothing that is diagnosed here is ever spelled like that.

/// What stands in the place of a secret.
pub const MASK: &str = "[masked]";

/// Ends of names whose values are secrets. Paths to files with secrets are not secrets.
const SECRET_NAMES: &[&str] = &[
    "password",
    "passwd",
    "passphrase",
    "token",
    "secret",
    "secret-key",
    "secret_key",
    "secretkey",
    "api-key",
    "api_key",
    "apikey",
    "access-key",
    "access_key",
    "accesskey",
    "private-key",
    "private_key",
    "privatekey",
    "key-data",
    "keydata",
    "credential",
    "credentials",
    "authorization",
    "psk",
    "presharedkey",
    "auth-key",
    "auth_key",
];

/// What every such name has in it, and schemes of authorization. A line without any of them is not looked at further, which
/// is nearly every line of a log.
const ROOTS: &[&[u8]] =
    &[b"pass", b"token", b"secret", b"key", b"cred", b"auth", b"psk", b"bearer", b"basic"];

/// A private key has no more lines than this; more are masked of no text that was cut before the end of one.
const KEY_LINES_MAX: usize = 200;

/// Masks line by line; remembers whether it is inside a private key.
#[derive(Debug, Default)]
pub(crate) struct Masker {
    /// How many more lines the key may have.
    key_lines: usize,
}

impl Masker {
    pub(crate) fn mask(&mut self, line: String) -> String {
        if self.key_lines > 0 {
            self.key_lines = if line.contains("-----END ") { 0 } else { self.key_lines - 1 };
            return MASK.to_owned();
        }
        let line = match private_key(&line) {
            Some((start, Some(end))) => format!("{}{MASK}{}", &line[..start], &line[end..]),
            Some((start, None)) => {
                self.key_lines = KEY_LINES_MAX;
                return format!("{}{MASK}", &line[..start]);
            }
            None => line,
        };
        let line = if has_root(line.as_bytes()) { mask_named(&line).unwrap_or(line) } else { line };
        mask_shapes(&line).unwrap_or(line)
    }
}

/// Where a private key begins, and where it ends if that is on the same line.
fn private_key(line: &str) -> Option<(usize, Option<usize>)> {
    let start = line.find("-----BEGIN ")?;
    if !line[start..].contains("PRIVATE KEY") {
        return None;
    }
    let end = line[start..].find("-----END ").map(|end| start + end + "-----END ".len());
    let end = end.and_then(|end| line[end..].find("-----").map(|dashes| end + dashes + "-----".len()));
    Some((start, end))
}

fn has_root(line: &[u8]) -> bool {
    let begins = |at: usize, root: &[u8]| {
        line.len() - at >= root.len() && line[at..at + root.len()].eq_ignore_ascii_case(root)
    };
    (0..line.len()).any(|at| {
        let first = line[at] | 0x20;
        ROOTS.iter().any(|root| root[0] == first && begins(at, root))
    })
}

/// Values after `name=`, `name:`, `"name": "…"`, and after `Bearer` and `Basic`. `None`: there are none.
fn mask_named(line: &str) -> Option<String> {
    let mut masked = String::new();
    let mut rest = line;
    let mut is_changed = false;
    while let Some(separator) = rest.find(['=', ':']) {
        let (name, value) = rest.split_at(separator + 1);
        let is_first = masked.is_empty() && is_lone_name(&name[..separator]);
        masked.push_str(name);
        rest = value;
        if is_secret_name(&name[..separator])
            && let Some((before, secret)) = find_value(value, is_first)
        {
            masked.push_str(&value[..before]);
            masked.push_str(MASK);
            rest = &value[before + secret..];
            is_changed = true;
        }
    }
    masked.push_str(rest);
    let masked = mask_scheme(&masked, "Bearer ")
        .or_else(|| mask_scheme(&masked, "Basic "))
        .or(is_changed.then_some(masked))?;
    Some(masked)
}

/// A field of YAML: its value may have spaces, and goes on to the end of the line.
fn is_lone_name(before: &str) -> bool {
    !before.trim_start_matches([' ', '-']).contains(' ')
}

/// Whether the name right before a separator is a secret's.
/// Whether a name, or a text that ends in one, is that of a secret.
pub fn is_secret_name(before: &str) -> bool {
    let name = before.trim_end().trim_end_matches(['"', '\'', '\\']);
    SECRET_NAMES.iter().any(|secret| {
        let at = name.len().checked_sub(secret.len());
        at.is_some_and(|at| name.as_bytes()[at..].eq_ignore_ascii_case(secret.as_bytes()))
    })
}

/// Where the value of a secret starts and how long it is. A path, an empty value or a nested object is none.
fn find_value(value: &str, is_lone: bool) -> Option<(usize, usize)> {
    let trimmed = value.trim_start();
    let mut before = value.len() - trimmed.len();
    let mut quote = None;
    let unquoted = trimmed.trim_start_matches('\\');
    if let Some(character) = unquoted.chars().next().filter(|character| "\"'".contains(*character)) {
        quote = Some(character);
        before += trimmed.len() - unquoted.len() + 1;
    }
    let text = &value[before..];
    if ["Bearer ", "Basic "].iter().any(|scheme| text.starts_with(scheme)) {
        return None;
    }
    let end = match quote {
        Some(quote) => text.find(['\\', quote]),
        None if is_lone && before > 0 => None,
        None => text.find(|character: char| character.is_whitespace() || ",;]})&\"".contains(character)),
    };
    let secret = &text[..end.unwrap_or(text.len())];
    let is_none = secret.is_empty()
        || secret.starts_with(['/', '{', '[', '<', '$', '&'])
        || matches!(secret, "null" | "nil" | "true" | "false" | "REDACTED" | "none" | "|" | ">");
    (!is_none).then_some((before, secret.len()))
}

fn mask_scheme(line: &str, scheme: &str) -> Option<String> {
    let start = line.find(scheme)? + scheme.len();
    let end =
        line[start..].find(|character: char| !is_token(character)).map_or(line.len(), |end| start + end);
    (end - start >= 8).then(|| format!("{}{MASK}{}", &line[..start], &line[end..]))
}

fn is_token(character: char) -> bool {
    character.is_ascii_alphanumeric() || "-_.+/=~".contains(character)
}

/// Tokens in three parts (`eyJ….….…`), names and passwords in addresses, keys of clouds. `None`: there are none.
fn mask_shapes(line: &str) -> Option<String> {
    let mut masked: Option<String> = None;
    for shape in [web_token, url_password, cloud_key] {
        // Each round removes one; what is masked does not match again.
        while let Some((start, end)) = shape(masked.as_deref().unwrap_or(line)) {
            let text = masked.as_deref().unwrap_or(line);
            masked = Some(format!("{}{MASK}{}", &text[..start], &text[end..]));
        }
    }
    masked
}

fn web_token(line: &str) -> Option<(usize, usize)> {
    let mut from = 0;
    while let Some(found) = line[from..].find("eyJ") {
        let start = from + found;
        let is_part = |character: char| character.is_ascii_alphanumeric() || "-_.".contains(character);
        let end = line[start..].find(|character| !is_part(character)).map_or(line.len(), |end| start + end);
        if end - start > 40 && line[start..end].matches('.').count() >= 1 {
            return Some((start, end));
        }
        from = start + 3;
    }
    None
}

fn url_password(line: &str) -> Option<(usize, usize)> {
    let mut from = 0;
    while let Some(found) = line[from..].find("://") {
        let start = from + found + 3;
        let authority = line[start..]
            .find(|character: char| "/ \"'".contains(character))
            .map_or(line.len(), |end| start + end);
        if let Some(at) = line[start..authority].rfind('@')
            && let Some(colon) = line[start..start + at].find(':')
            && &line[start + colon + 1..start + at] != MASK
        {
            return Some((start + colon + 1, start + at));
        }
        from = start;
    }
    None
}

fn cloud_key(line: &str) -> Option<(usize, usize)> {
    let start = line.find("AKIA")?;
    let end = line[start..]
        .find(|character: char| !character.is_ascii_alphanumeric())
        .map_or(line.len(), |end| start + end);
    (end - start == 20).then_some((start, end))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn mask(line: &str) -> String {
        Masker::default().mask(line.to_owned())
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
        ] {
            assert_eq!(mask(line), masked);
        }
        let token = format!("got eyJhbGciOiJSUzI1NiJ9.{}.sig then", "a".repeat(40));
        assert_eq!(mask(&token), "got [masked] then");
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
        ] {
            assert_eq!(mask(line), line);
        }
    }

    proptest! {
        #[test]
        fn any_line_can_be_masked(line in "\\PC{0,200}") {
            mask(&line);
        }

        #[test]
        fn nothing_of_a_value_is_left(value in "[a-z0-9]{6,20}", name in "(password|apiToken|CLIENT_SECRET)", form in 0usize..4) {
            let line = match form {
                0 => format!("x {name}={value} y"),
                1 => format!("{name}: {value}"),
                2 => format!("{{\"{name}\":\"{value}\"}}"),
                _ => format!("--{name} '{name}': '{value}'"),
            };
            prop_assert!(!mask(&line).contains(&value), "{}", mask(&line));
        }
    }
}
