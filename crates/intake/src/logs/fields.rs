//! `key=value` and `key="value"` beside a message, and names of pods as logs spell them.

use std::borrow::Cow;

use evidence::PodName;

/// The value of a key. Keys begin at the start or after a space.
pub(super) fn find<'a>(text: &'a str, key: &str) -> Option<Cow<'a, str>> {
    for (start, _) in text.match_indices(key) {
        let (before, after) = text.split_at_checked(start)?;
        let is_key = before.is_empty() || before.ends_with([' ', '\t', ';', '[']);
        if let Some(told) =
            after.strip_prefix(key).and_then(|after| after.strip_prefix('=')).filter(|_| is_key)
        {
            return Some(value(told).0).filter(|value| !value.is_empty());
        }
    }
    None
}

/// The value that a text begins with, quoted or up to the next space, and what follows.
pub(super) fn value(text: &str) -> (Cow<'_, str>, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([' ', '\t']).unwrap_or(text.len());
        let (value, rest) = text.split_at_checked(end).unwrap_or((text, ""));
        return (Cow::Borrowed(value), rest);
    };
    let mut is_escaped = false;
    let mut has_escapes = false;
    for (offset, character) in quoted.char_indices() {
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' => {
                is_escaped = true;
                has_escapes = true;
            }
            '"' => {
                let (inside, rest) = quoted.split_at_checked(offset).unwrap_or((quoted, ""));
                let inside = if has_escapes { Cow::Owned(unescape(inside)) } else { Cow::Borrowed(inside) };
                return (inside, rest.strip_prefix('"').unwrap_or(rest));
            }
            _ => {}
        }
    }
    // The end is missing.
    (Cow::Owned(unescape(quoted)), "")
}

fn unescape(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match (character, characters.clone().next()) {
            ('\\', Some(escaped @ ('"' | '\\' | 'n'))) => {
                plain.push(if escaped == 'n' { ' ' } else { escaped });
                characters.next();
            }
            _ => plain.push(character),
        }
    }
    plain
}

/// What stands between two texts.
pub(super) fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    Some(text.split_once(before)?.1.split_once(after)?.0)
}

/// What stands after a text, up to the next of these.
pub(super) fn word_after<'a>(text: &'a str, before: &str, ends: &[char]) -> Option<&'a str> {
    text.split_once(before)?.1.split(ends).next().filter(|word| !word.is_empty())
}

/// `name_namespace(uid)` or `name_namespace`, as kubelets spelled it; `namespace/name`, as they do now.
pub(super) fn pod(text: &str) -> Option<(PodName, Option<String>)> {
    let (text, uid) = match text.split_once('(') {
        Some((text, uid)) => (text, uid.split(')').next().filter(|uid| !uid.is_empty()).map(str::to_owned)),
        None => (text, None),
    };
    let (namespace, name) =
        text.split_once('/').or_else(|| text.split_once('_').map(|(name, namespace)| (namespace, name)))?;
    let is_name = |word: &str| {
        !word.is_empty()
            && word.len() < 254
            && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte))
    };
    (is_name(namespace) && is_name(name)).then(|| (PodName::new(namespace, name), uid))
}

/// `namespace.pod`: what the plugin of 2017 called a workload. Namespaces have no dots.
pub(super) fn workload(text: &str) -> Option<PodName> {
    let (namespace, name) = text.split_once('.')?;
    (!namespace.is_empty() && !name.is_empty()).then(|| PodName::new(namespace, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found() {
        let text = r#"msg="a \"b\" Workload=no" Workload=ns.pod MAC="82:5b" CNI_NETNS= CNI_ARGS=A=1;K8S_POD_NAME=x;B"#;
        assert_eq!(find(text, "msg").as_deref(), Some(r#"a "b" Workload=no"#));
        assert_eq!(find(text, "MAC").as_deref(), Some("82:5b"));
        assert_eq!(find(text, "CNI_NETNS"), None);
        assert_eq!(find(text, "CNI"), None);
        assert_eq!(find("a=\"open", "a").as_deref(), Some("open"));
        assert_eq!(find(r#"a="1\n2\\n\"3\t""#, "a").as_deref(), Some(r#"1 2\n"3\t"#));
    }

    #[test]
    fn pods_are_found() {
        let (name, uid) = pod("etcd1-0_lijiaob(1d402e65-d898)").unwrap();
        assert_eq!((name.to_string().as_str(), uid.as_deref()), ("lijiaob/etcd1-0", Some("1d402e65-d898")));
        assert_eq!(pod("shop/web-0").unwrap().0.to_string(), "shop/web-0");
        assert_eq!(pod("nothing"), None);
        assert_eq!(workload("a.b.c").unwrap().to_string(), "a/b.c");
    }
}
