//! What a failed readiness probe of calico-node says, in an event or in a log.

use std::net::IpAddr;

use crate::address_of;

/// `BGP not established with 10.0.0.1,10.0.0.2`. The probe's output follows without a gap, so an address may end in
/// the digits of a year: see [`peers`].
pub fn peers_without_session(message: &str) -> Option<Vec<IpAddr>> {
    let list = message.split_once("BGP not established with ")?.1;
    Some(peers(list))
}

/// The addresses at the start of a list.
fn peers(list: &str) -> Vec<IpAddr> {
    let mut found = Vec::new();
    for part in list.split([',', ' ']).filter(|part| !part.is_empty()) {
        match address_of(part) {
            Some(address) => found.push(address),
            None => {
                found.extend(glued_to_a_date(part));
                break;
            }
        }
    }
    found
}

/// `10.0.0.662020-05-27`: the longest address before what can be a date.
fn glued_to_a_date(text: &str) -> Option<IpAddr> {
    let dash = text.find('-')?;
    let year = dash.checked_sub(4)?;
    address_of(text.get(..year)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_is_glued_to_a_date_is_found() {
        let found = |list: &str| peers(list).iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        assert_eq!(found("10.0.0.662020-05-27 03:45:40.461 [INFO]"), "10.0.0.66");
        assert_eq!(found("10.0.0.1,10.0.0.22020-05-27 x"), "10.0.0.1 10.0.0.2");
        assert_eq!(found("10.0.0.1, 10.0.0.2 x"), "10.0.0.1 10.0.0.2");
        assert_eq!(found("nothing"), "");
    }
}
