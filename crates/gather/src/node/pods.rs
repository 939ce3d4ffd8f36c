//! Pods from inside: what their own namespaces hold.

use std::fs;
use std::path::Path;

use model::NodeName;

use evidence::kernel::PodView;
use evidence::{NodeGap, Unseen};
use evidence::{Origin, Sighted};
use host::survey::{Bounds, Cut, Survey};
use host::{HostError, NetNs};

use super::{Inside, kernel};

/// More than a node runs.
pub(super) const PODS_MAX: usize = 1_000;

/// Where runtimes keep namespaces.
const FOLDER: &str = "/run/netns";

/// How many links are read from one pod, and of everything else: a pod can make as many as it likes.
const POD_MAX: Bounds = Bounds { links: 256, others: 2_048 };
/// The same of all pods of a node together.
const NODE_MAX: Bounds = Bounds { links: 4_096, others: 32_768 };
/// Whatever others have made, this much is read from each pod: more than an ordinary one has.
const POD_MIN: Bounds = Bounds { links: 16, others: 64 };

/// What may still be read from pods.
#[derive(Debug)]
pub(super) struct Allowance(Bounds);

impl Allowance {
    pub(super) fn full() -> Allowance {
        Allowance(NODE_MAX)
    }

    fn for_next_pod(&self) -> Bounds {
        Bounds {
            links: self.0.links.clamp(POD_MIN.links, POD_MAX.links),
            others: self.0.others.clamp(POD_MIN.others, POD_MAX.others),
        }
    }

    fn spend(&mut self, survey: &Survey) {
        let others = survey.addresses.len() + survey.routes.len() + survey.neighbours.len();
        self.0.links = self.0.links.saturating_sub(survey.links.len());
        self.0.others = self.0.others.saturating_sub(others);
    }
}

/// A pod from inside.
pub(super) struct Seen {
    pub(super) view: PodView,
    /// What was not seen whole, in words.
    pub(super) unseen: Option<Unseen>,
}

/// `None` if the pod has no namespace of its own.
pub(super) fn look_inside(
    inside: &Inside,
    home: &NetNs,
    node: &NodeName,
    allowance: &mut Allowance,
) -> Result<Option<Seen>, HostError> {
    let namespace = NetNs::open(&inside.netns)?;
    if namespace.is_same(home)? {
        return Ok(None);
    }
    let bounds = allowance.for_next_pod();
    let survey = namespace.visit(|| Survey::within(bounds))??;
    allowance.spend(&survey);
    let whose = match &inside.pod {
        Some(pod) => format!("pod {pod}"),
        None => format!("sandbox {}", inside.container_id),
    };
    let view = PodView {
        pod: inside.pod.clone(),
        container_id: Some(inside.container_id.clone()),
        kernel: kernel::of_survey(&survey, node, &format!(" of {whose}")),
        too_many: too_many(survey.cut, bounds),
    };
    let unseen = (!view.too_many.is_empty())
        .then(|| Unseen::node(node, NodeGap::PodCut { whose, lists: view.too_many.clone() }));
    Ok(Some(Seen { view, unseen }))
}

fn too_many(cut: Cut, bounds: Bounds) -> Vec<String> {
    let lists = [
        (cut.links, "links", bounds.links),
        (cut.addresses, "addresses", bounds.others),
        (cut.routes, "routes", bounds.others),
        (cut.neighbours, "neighbours", bounds.others),
    ];
    let cut = lists.into_iter().filter(|(is_cut, ..)| *is_cut);
    cut.map(|(_, what, max)| format!("more than {max} {what}")).collect()
}

/// Those with a name.
pub(super) fn namespaces(origin: &Origin) -> Vec<Sighted<String>> {
    let entries = fs::read_dir(Path::new(FOLDER)).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.path().to_string_lossy().into_owned()).collect();
    names.sort();
    names.into_iter().map(|name| Sighted::new(name, origin.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pod_is_read_to_some_extent_whatever_others_have_made() {
        let mut allowance = Allowance::full();
        assert_eq!(allowance.for_next_pod(), POD_MAX);
        let mut survey = Survey { links: vec![Default::default(); POD_MAX.links], ..Survey::default() };
        survey.neighbours = vec![
            host::survey::SurveyedNeighbour {
                address: [10, 0, 0, 1].into(),
                index: 1,
                mac: None,
                state: 0,
                is_proxy: false
            };
            POD_MAX.others
        ];
        for _ in 0..100 {
            allowance.spend(&survey);
        }
        assert_eq!(allowance.for_next_pod(), POD_MIN);
    }

    #[test]
    fn what_was_cut_is_named() {
        assert_eq!(too_many(Cut::default(), POD_MAX), [] as [&str; 0]);
        let cut = Cut { routes: true, links: true, ..Cut::default() };
        assert_eq!(too_many(cut, POD_MAX), ["more than 256 links", "more than 2048 routes"]);
    }
}
