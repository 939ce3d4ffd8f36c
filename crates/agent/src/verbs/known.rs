//! What Kubernetes says of a call's pod, wherever it keeps the records: annotations, labels, ports.

use std::collections::BTreeMap;

use book::Book;
use model::Resource;
use store::Record;

use super::endpoint::{Described, Keeping};
use super::error::CniError;
use super::{Call, kubernetes, pod, profile};
use crate::namespaces::Annotations;
use crate::services::Services;

#[derive(Debug, Default)]
pub(super) struct Known {
    /// The call with what the pod and its namespace ask for.
    pub(super) annotated: Option<Call>,
    /// The record of the pod, where endpoints are views of pods.
    pub(super) recorded_pod: Option<(Record, Resource)>,
    pub(super) described: Described,
    pub(super) pod_annotations: Annotations,
    pub(super) namespace_labels: BTreeMap<String, String>,
}

impl Known {
    pub(super) async fn read(
        call: &Call,
        node: &str,
        book: &Book,
        services: Services<'_>,
    ) -> Result<Known, CniError> {
        if Keeping::of(book) == Keeping::Views {
            let recorded_pod = pod::find(call, node, book, services).await?;
            let annotated = pod::annotated(call, recorded_pod.as_ref(), book, services).await?;
            return Ok(Known { annotated, recorded_pod, ..Known::default() });
        }
        let Some(facts) = kubernetes::facts(call, node, services).await? else { return Ok(Known::default()) };
        let annotated = pod::with_annotations(call, &facts.of_namespace, &facts.annotations)?;
        let described = facts.described();
        let (pod_annotations, namespace_labels) = (facts.annotations, facts.namespace_labels);
        Ok(Known { annotated, recorded_pod: None, described, pod_annotations, namespace_labels })
    }
}

/// The description with what the call and the pod's annotations say themselves.
pub(super) fn with_asked(mut described: Described, call: &Call) -> Described {
    let (netconf, asked) = (&call.netconf, &call.netconf.asked);
    described.profiles = profile::of_endpoint(call).or(described.profiles);
    if call.request.pod.is_none() && !netconf.calico.labels.is_empty() {
        described.labels = Some(netconf.calico.labels.clone());
    }
    if !asked.more_sources.is_empty() {
        let networks: Vec<String> = asked.more_sources.iter().map(ToString::to_string).collect();
        described.fields.insert("allowSpoofedSourcePrefixes".to_owned(), networks.into());
    }
    described.floating.clone_from(&asked.floating);
    described
}
