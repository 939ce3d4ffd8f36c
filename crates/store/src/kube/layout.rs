//! Which of Calico's API groups keeps the records, found out as Calico does.

use http::StatusCode;
use model::kube::Layout;
use serde::Deserialize;

use super::client::{Client, Request};
use super::failure::refusal;
use crate::StoreError;

#[derive(Debug, Deserialize)]
struct Groups {
    groups: Vec<Group>,
}

#[derive(Debug, Deserialize)]
struct Group {
    name: String,
}

/// What was configured decides. Else the v3 group is used only where the v1 group is not served: where both are, the v3 API is a view
/// that an aggregated server gives of the v1 resources.
pub(super) async fn choose(client: &Client, configured: Option<&str>) -> Result<Layout, StoreError> {
    if let Some(group) = configured.filter(|group| !group.is_empty()) {
        return Ok(Layout::configured(group));
    }
    // As in Calico, an answer that says nothing stands for the older group. It need not be the last word: see `served`.
    Ok(served(client).await?.unwrap_or(Layout::V1))
}

/// What the cluster says that it serves; `None` if it does not say, as to somebody who may not ask.
pub(super) async fn served(client: &Client) -> Result<Option<Layout>, StoreError> {
    let answer = client.send(&Request::get("/apis".to_owned())).await?;
    if answer.status == StatusCode::UNAUTHORIZED {
        return Err(refusal(client.address(), "reading the API groups", &answer));
    }
    let served = serde_json::from_slice(&answer.body).ok().filter(|_| answer.status == StatusCode::OK);
    Ok(served.as_ref().map(of_groups))
}

fn of_groups(served: &Groups) -> Layout {
    let serves = |layout: Layout| served.groups.iter().any(|group| group.name == layout.group());
    if serves(Layout::V3) && !serves(Layout::V1) { Layout::V3 } else { Layout::V1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v3_is_used_only_where_it_is_alone() {
        let groups = |names: &[&str]| Groups {
            groups: names.iter().map(|name| Group { name: (*name).to_owned() }).collect(),
        };
        assert_eq!(of_groups(&groups(&["apps", "projectcalico.org"])), Layout::V3);
        assert_eq!(of_groups(&groups(&["crd.projectcalico.org", "projectcalico.org"])), Layout::V1);
        assert_eq!(of_groups(&groups(&["crd.projectcalico.org"])), Layout::V1);
        assert_eq!(of_groups(&groups(&[])), Layout::V1);
    }
}
