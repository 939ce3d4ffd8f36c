//! Felix's variables (`FELIX_VXLANMTU` and the like) as fields of FelixConfiguration. They come before every record.

use model::{Kind, Resource};
use serde_json::{Map, Value};

/// What a variable's text becomes.
#[derive(Clone, Copy, Debug)]
enum Sort {
    Flag,
    Number,
    Text,
    List,
}

/// Those that are heeded: by Felix's name, and as the record spells it.
const VARIABLES: [(&str, &str, Sort); 17] = [
    ("FELIX_VXLANENABLED", "vxlanEnabled", Sort::Flag),
    ("FELIX_VXLANVNI", "vxlanVNI", Sort::Number),
    ("FELIX_VXLANPORT", "vxlanPort", Sort::Number),
    ("FELIX_VXLANMTU", "vxlanMTU", Sort::Number),
    ("FELIX_VXLANMTUV6", "vxlanMTUV6", Sort::Number),
    ("FELIX_IPINIPMTU", "ipipMTU", Sort::Number),
    ("FELIX_MTUIFACEPATTERN", "mtuIfacePattern", Sort::Text),
    ("FELIX_PROGRAMCLUSTERROUTES", "programClusterRoutes", Sort::Text),
    ("FELIX_NATOUTGOINGADDRESS", "natOutgoingAddress", Sort::Text),
    ("FELIX_NATPORTRANGE", "natPortRange", Sort::Text),
    ("FELIX_NATOUTGOINGEXCLUSIONS", "natOutgoingExclusions", Sort::Text),
    ("FELIX_IPTABLESNATOUTGOINGINTERFACEFILTER", "iptablesNATOutgoingInterfaceFilter", Sort::Text),
    ("FELIX_EXTERNALNODESCIDRLIST", "externalNodesList", Sort::List),
    ("FELIX_ALLOWVXLANPACKETSFROMWORKLOADS", "allowVXLANPacketsFromWorkloads", Sort::Flag),
    ("FELIX_ALLOWIPIPPACKETSFROMWORKLOADS", "allowIPIPPacketsFromWorkloads", Sort::Flag),
    ("FELIX_INTERFACEPREFIX", "interfacePrefix", Sort::Text),
    ("FELIX_WORKLOADSOURCESPOOFING", "workloadSourceSpoofing", Sort::Text),
];

/// The names of the variables that are heeded.
pub fn felix_variable_names() -> impl Iterator<Item = &'static str> {
    VARIABLES.into_iter().map(|(variable, _, _)| variable)
}

/// The node's own FelixConfiguration, with the fields of its environment before it.
pub fn joined_settings(fields: &Map<String, Value>, of_node: Option<&Resource>) -> Option<Resource> {
    if fields.is_empty() {
        return of_node.cloned();
    }
    let mut joined =
        of_node.cloned().unwrap_or_else(|| Resource::new(Kind::FelixConfiguration, "environment"));
    joined.spec_mut().extend(fields.clone());
    Some(joined)
}

/// `read` gives a variable's text. One that means nothing is as if it were not there; its name is in the second list.
pub fn felix_variables(read: &dyn Fn(&str) -> Option<String>) -> (Map<String, Value>, Vec<&'static str>) {
    let (mut fields, mut nonsense) = (Map::new(), Vec::new());
    for (variable, field, sort) in VARIABLES {
        let Some(text) = read(variable).filter(|text| !text.trim().is_empty()) else { continue };
        match value(sort, text.trim()) {
            Some(value) => drop(fields.insert(field.to_owned(), value)),
            None => nonsense.push(variable),
        }
    }
    (fields, nonsense)
}

fn value(sort: Sort, text: &str) -> Option<Value> {
    match sort {
        // As Felix takes them.
        Sort::Flag => match text.to_ascii_lowercase().as_str() {
            "true" | "1" | "yes" | "y" | "t" => Some(true.into()),
            "false" | "0" | "no" | "n" | "f" => Some(false.into()),
            _ => None,
        },
        Sort::Number => text.parse::<u64>().ok().map(Value::from),
        Sort::Text => Some(text.into()),
        Sort::List => Some(text.split(',').map(str::trim).filter(|part| !part.is_empty()).collect()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn variables_become_fields_and_nonsense_is_named() {
        let said = [
            ("FELIX_VXLANMTU", "1400"),
            ("FELIX_VXLANENABLED", "False"),
            ("FELIX_EXTERNALNODESCIDRLIST", "10.0.0.1, 10.1.0.0/16,"),
            ("FELIX_VXLANPORT", "many"),
            ("FELIX_VXLANVNI", " "),
            ("FELIX_SOMETHINGELSE", "1"),
        ];
        let read =
            |name: &str| said.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        let (fields, nonsense) = felix_variables(&read);
        let expected = json!({
            "vxlanMTU": 1400, "vxlanEnabled": false, "externalNodesList": ["10.0.0.1", "10.1.0.0/16"],
        });
        assert_eq!(Value::Object(fields), expected);
        assert_eq!(nonsense, ["FELIX_VXLANPORT"]);
    }

    proptest! {
        #[test]
        fn any_text_can_be_said(text in "\\PC{0,30}") {
            let _ = felix_variables(&|_| Some(text.clone()));
        }
    }
}
