//! The kernel's numbers in the words that `ip route` prints and takes.

/// Those that everybody's `ip` knows. Any other number stands for itself.
const PROTOCOLS: [(u8, &str); 7] =
    [(1, "redirect"), (2, "kernel"), (3, "boot"), (4, "static"), (9, "ra"), (12, "bird"), (16, "dhcp")];
const SCOPES: [(u8, &str); 4] = [(0, "global"), (200, "site"), (253, "link"), (254, "host")];

/// Who made a route.
pub fn protocol_name(number: u8) -> String {
    let known = PROTOCOLS.iter().find(|(known, _)| *known == number);
    known.map_or_else(|| number.to_string(), |(_, name)| (*name).to_owned())
}

/// What [`protocol_name`] wrote, or the number itself.
pub fn protocol_number(name: &str) -> Option<u8> {
    let known = PROTOCOLS.iter().find(|(_, known)| *known == name);
    known.map(|(number, _)| *number).or_else(|| name.parse().ok())
}

/// `None` for those without a name.
pub fn scope_name(number: u8) -> Option<&'static str> {
    SCOPES.iter().find(|(known, _)| *known == number).map(|(_, name)| *name)
}

/// What [`scope_name`] wrote, or the number itself.
pub fn scope_number(name: &str) -> Option<u8> {
    let known = SCOPES.iter().find(|(_, known)| *known == name);
    known.map(|(number, _)| *number).or_else(|| name.parse().ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_survive_their_names(number: u8, text in "\\PC{0,8}") {
            prop_assert_eq!(protocol_number(&protocol_name(number)), Some(number));
            if let Some(name) = scope_name(number) {
                prop_assert_eq!(scope_number(name), Some(number));
            }
            let _ = (protocol_number(&text), scope_number(&text));
        }
    }
}
