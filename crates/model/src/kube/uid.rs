//! UIDs of the v3 API on `crd.projectcalico.org/v1`: derived from that of the custom resource, so that an object of the one
//! API is never taken for one of the other.

/// The other UID: the bits within each byte reversed, except in the two bytes that hold version and variant. Its own inverse.
/// What is not a UUID stays as it is.
pub fn convert_uid(uid: &str) -> String {
    convert(uid).unwrap_or_else(|| uid.to_owned())
}

const DASHES: [usize; 4] = [8, 13, 18, 23];
/// By their order among the 16.
const KEPT: [usize; 2] = [6, 8];

fn convert(uid: &str) -> Option<String> {
    let has_dashes = DASHES.iter().all(|&at| uid.as_bytes().get(at) == Some(&b'-'));
    let digits: String = uid.chars().filter(|character| *character != '-').collect();
    if uid.len() != 36 || !has_dashes || digits.len() != 32 {
        return None;
    }
    let mut converted = String::with_capacity(36);
    for (index, pair) in digits.as_bytes().chunks(2).enumerate() {
        let byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        let byte = if KEPT.contains(&index) { byte } else { byte.reverse_bits() };
        if DASHES.contains(&converted.len()) {
            converted.push('-');
        }
        converted.push_str(&format!("{byte:02x}"));
    }
    Some(converted)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn uids_are_converted_as_calico_does() {
        let (one, other) = ("01234567-89ab-4def-8123-456789abcdef", "80c4a2e6-91d5-4df7-81c4-a2e691d5b3f7");
        assert_eq!(convert_uid(one), other);
        assert_eq!(convert_uid(other), one);
    }

    #[test]
    fn what_is_no_uid_stays() {
        for text in ["", "x", "01234567-89ab-4def-8123-456789abcdeg", "01234567089ab04def08123-456789abcdef"]
        {
            assert_eq!(convert_uid(text), text);
        }
    }

    proptest! {
        #[test]
        fn converting_twice_changes_nothing(uid in "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}") {
            prop_assert_eq!(convert_uid(&convert_uid(&uid)), uid);
        }

        #[test]
        fn any_text_is_survived(text in "\\PC*") {
            convert_uid(&text);
        }
    }
}
