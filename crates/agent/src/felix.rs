//! Felix's variables in the environment, which take precedence over the node's FelixConfiguration.

use model::{Key, Kind, Resource};
use plan::between::{BetweenSettings, felix_variables, joined_settings};
use serde_json::{Map, Value};
use store::{Lookup, Store, StoreError};
use tracing::warn;

use crate::follow;

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

    /// What holds between nodes: by the records `FelixConfiguration(default)`, the node's own, and `BGPConfiguration(default)`, overridden
    /// by the environment.
    pub(crate) fn settings(
        &self,
        felix: Option<&Resource>,
        of_node: Option<&Resource>,
        bgp: Option<&Resource>,
    ) -> BetweenSettings {
        BetweenSettings::read(felix, self.before(of_node).as_ref(), bgp)
    }
}

/// What Felix's records and the environment say, for whoever has no cache of records.
pub(crate) async fn read_settings(store: &dyn Store, node: &str) -> Result<BetweenSettings, StoreError> {
    let kind = Kind::FelixConfiguration;
    let names = ["default".to_owned(), format!("node.{node}")];
    let lookups = names.map(|name| Lookup::Record(Key::cluster(kind, name))).into();
    let found = store.read(lookups).await?;
    let mut found = found.iter().map(|records| follow::decode(records.first()?, kind));
    let (of_all, of_node) = (found.next().flatten(), found.next().flatten());
    Ok(FelixEnvironment::read().settings(of_all.as_ref(), of_node.as_ref(), None))
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
