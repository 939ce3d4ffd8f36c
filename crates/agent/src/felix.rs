//! Felix's variables in this process's environment, as a record of their own that comes before the node's.

use model::Resource;
use plan::between::{felix_variables, joined_settings};
use serde_json::{Map, Value};
use tracing::warn;

/// What the environment says. Read once: it does not change.
#[derive(Clone, Debug, Default)]
pub(crate) struct FelixEnvironment {
    fields: Map<String, Value>,
}

impl FelixEnvironment {
    pub(crate) fn read() -> FelixEnvironment {
        let (fields, nonsense) = felix_variables(&crate::variables::text);
        nonsense.iter().for_each(|variable| warn!("{variable} means nothing, and is not heeded"));
        FelixEnvironment { fields }
    }

    /// The node's own settings, with those of the environment before them.
    pub(crate) fn before(&self, of_node: Option<&Resource>) -> Option<Resource> {
        joined_settings(&self.fields, of_node)
    }
}

#[cfg(test)]
mod tests {
    use model::Kind;
    use serde_json::json;

    use super::*;

    #[test]
    fn variables_come_before_records() {
        let mut of_node = Resource::new(Kind::FelixConfiguration, "node.a");
        of_node.body.insert("spec".to_owned(), json!({"vxlanMTU": 1300, "vxlanVNI": 7}));
        let none = FelixEnvironment { fields: Map::new() };
        assert_eq!(none.before(Some(&of_node)), Some(of_node.clone()));
        assert_eq!(none.before(None), None);
        let said = FelixEnvironment { fields: Map::from_iter([("vxlanMTU".to_owned(), json!(1400))]) };
        let joined = said.before(Some(&of_node)).unwrap();
        assert_eq!((joined.spec("vxlanMTU"), joined.spec("vxlanVNI")), (Some(&json!(1400)), Some(&json!(7))));
        assert_eq!(said.before(None).unwrap().spec("vxlanMTU"), Some(&json!(1400)));
    }
}
