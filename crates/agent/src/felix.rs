//! Felix's variables in the environment, which take precedence over the node's FelixConfiguration.

use model::Resource;
use plan::between::{felix_variables, joined_settings};
use serde_json::{Map, Value};
use tracing::warn;

/// Read once: the environment does not change.
#[derive(Clone, Debug, Default)]
pub(crate) struct FelixEnvironment {
    fields: Map<String, Value>,
}

impl FelixEnvironment {
    pub(crate) fn read() -> FelixEnvironment {
        let (fields, invalid) = felix_variables(&crate::variables::text);
        invalid.iter().for_each(|variable| warn!(variable, "ignored a variable with an invalid value"));
        FelixEnvironment { fields }
    }

    /// The node's own settings, overridden by the environment.
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
    fn variables_take_precedence_over_records() {
        let mut of_node = Resource::new(Kind::FelixConfiguration, "node.a");
        of_node.body.insert("spec".to_owned(), json!({"vxlanMTU": 1300, "vxlanVNI": 7}));
        let none = FelixEnvironment { fields: Map::new() };
        assert_eq!(none.before(Some(&of_node)), Some(of_node.clone()));
        assert_eq!(none.before(None), None);
        let set = FelixEnvironment { fields: Map::from_iter([("vxlanMTU".to_owned(), json!(1400))]) };
        let joined = set.before(Some(&of_node)).unwrap();
        assert_eq!((joined.spec("vxlanMTU"), joined.spec("vxlanVNI")), (Some(&json!(1400)), Some(&json!(7))));
        assert_eq!(set.before(None).unwrap().spec("vxlanMTU"), Some(&json!(1400)));
    }
}
