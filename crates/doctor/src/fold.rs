//! A root cause swallows its symptoms: findings that another finding explains become part of it.
//!
//! A finding says with [`Finding::explains`] what it would explain. Explanations chain (a wrong address explains a
//! missing session, which explains a missing route); everything that can be reached belongs to the root. What two
//! roots explain is told with both. Where findings explain each other in a circle, the first in order is the root.

use std::collections::{BTreeMap, BTreeSet};

use crate::finding::{Finding, Symptom};
use crate::{FindingCode, Subject};
use evidence::Exhibit;

/// Of findings with one code and one subject no more are explained by another: so many of each would be told with each.
const SAME_MAX: usize = 50;

/// A chain longer than this is summed up.
const STEPS_TOLD_MAX: usize = 20;

pub(crate) fn fold(mut findings: Vec<Finding>) -> Vec<Finding> {
    let chains = chains(&targets(&findings));
    let told: Vec<(usize, Vec<Told>)> = chains
        .iter()
        .filter(|(_, chain)| !chain.is_empty())
        .map(|(root, chain)| (*root, chain.iter().map(|index| tell(&findings[*index])).collect()))
        .collect();
    for (root, chain) in told {
        swallow(&mut findings[root], chain);
    }
    let mut index = 0;
    findings.retain(|_| {
        index += 1;
        chains.contains_key(&(index - 1))
    });
    findings
}

/// A symptom and what it was seen in.
type Told = (Symptom, Vec<Exhibit>);

/// The roots, each with everything that follows from it.
fn chains(targets: &[Vec<usize>]) -> BTreeMap<usize, Vec<usize>> {
    let is_explained: BTreeSet<usize> = targets.iter().flatten().copied().collect();
    let first = (0..targets.len()).filter(|index| !is_explained.contains(index));
    // Those in circles come last: whoever is reached from outside the circle is no root.
    let last = (0..targets.len()).filter(|index| is_explained.contains(index));
    let mut swallowed: BTreeSet<usize> = BTreeSet::new();
    let mut chains: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for root in first.chain(last) {
        if swallowed.contains(&root) {
            continue;
        }
        let chain = reach(root, targets);
        for index in &chain {
            swallowed.insert(*index);
            // One circle may lead into another that came first.
            chains.remove(index);
        }
        chains.insert(root, chain);
    }
    chains
}

/// For each finding, which others it explains.
fn targets(findings: &[Finding]) -> Vec<Vec<usize>> {
    if findings.iter().all(|finding| finding.explains.is_empty()) {
        return vec![Vec::new(); findings.len()];
    }
    let mut places: BTreeMap<(FindingCode, &Subject), Vec<usize>> = BTreeMap::new();
    for (index, finding) in findings.iter().enumerate() {
        let same = places.entry((finding.code, &finding.subject)).or_default();
        if same.len() < SAME_MAX {
            same.push(index);
        }
    }
    let explained = |(index, finding): (usize, &Finding)| -> Vec<usize> {
        let found = finding.explains.iter().filter_map(|(code, subject)| places.get(&(*code, subject)));
        found.flatten().copied().filter(|target| *target != index).collect()
    };
    findings.iter().enumerate().map(explained).collect()
}

/// Everything that follows from `root`, nearest first.
fn reach(root: usize, targets: &[Vec<usize>]) -> Vec<usize> {
    let mut seen = BTreeSet::from([root]);
    let mut chain = Vec::new();
    let mut front = vec![root];
    while !front.is_empty() {
        let next: Vec<usize> = front
            .iter()
            .flat_map(|index| &targets[*index])
            .copied()
            .filter(|index| seen.insert(*index))
            .collect();
        chain.extend(&next);
        front = next;
    }
    chain
}

fn tell(finding: &Finding) -> Told {
    let symptom = Symptom {
        code: finding.code,
        severity: finding.severity,
        subject: finding.subject.clone(),
        summary: finding.summary.clone(),
    };
    (symptom, finding.evidence.clone())
}

fn swallow(root: &mut Finding, chain: Vec<Told>) {
    let more = chain.len().saturating_sub(STEPS_TOLD_MAX);
    root.cause.extend(chain.iter().take(STEPS_TOLD_MAX).map(|(symptom, _)| symptom.summary.clone()));
    if more > 0 {
        root.cause.push(format!("and {more} more follow from it"));
    }
    let mut known: BTreeSet<Exhibit> = root.evidence.iter().cloned().collect();
    for (symptom, evidence) in chain {
        root.severity = root.severity.max(symptom.severity);
        root.evidence.extend(evidence.into_iter().filter(|exhibit| known.insert(exhibit.clone())));
        root.symptoms.push(symptom);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Severity;
    use proptest::prelude::*;

    const CODES: &[FindingCode] = FindingCode::ALL.split_at(6).0;

    fn letter(code: FindingCode) -> char {
        let place = CODES.iter().position(|known| *known == code).unwrap();
        ('a'..).nth(place).unwrap()
    }

    /// Finding `index` explains the findings of `edges`.
    fn findings(count: usize, edges: &[(usize, usize)]) -> Vec<Finding> {
        let finding = |index: usize| Finding {
            code: CODES[index],
            severity: if index == 2 { Severity::Error } else { Severity::Warning },
            subject: Subject::node("N"),
            summary: format!("{} happened", letter(CODES[index])),
            cause: Vec::new(),
            evidence: vec![Exhibit { file: "f".into(), line: Some(index as u32), text: String::new() }],
            remedy: String::new(),
            commands: Vec::new(),
            symptoms: Vec::new(),
            explains: edges
                .iter()
                .filter(|(from, _)| *from == index)
                .map(|(_, to)| (CODES[*to], Subject::node("n")))
                .collect(),
            identity: None,
        };
        (0..count).map(finding).collect()
    }

    fn folded(count: usize, edges: &[(usize, usize)]) -> Vec<(char, String)> {
        let codes = |finding: &Finding| finding.symptoms.iter().map(|symptom| letter(symptom.code)).collect();
        fold(findings(count, edges)).iter().map(|finding| (letter(finding.code), codes(finding))).collect()
    }

    fn expect(count: usize, edges: &[(usize, usize)], roots: &[(char, &str)]) {
        let roots: Vec<_> = roots.iter().map(|(code, symptoms)| (*code, (*symptoms).to_owned())).collect();
        assert_eq!(folded(count, edges), roots);
    }

    #[test]
    fn a_chain_becomes_one_finding() {
        expect(4, &[(3, 0), (0, 2), (2, 1)], &[('d', "acb")]);
        let chain = fold(findings(4, &[(3, 0), (0, 2), (2, 1)])).remove(0);
        assert_eq!(chain.severity, Severity::Error, "as bad as the worst of its symptoms");
        assert_eq!(chain.cause, ["a happened", "c happened", "b happened"]);
        assert_eq!(chain.evidence.len(), 4);
    }

    #[test]
    fn what_nothing_explains_stands_alone() {
        expect(3, &[(0, 1)], &[('a', "b"), ('c', "")]);
        expect(2, &[], &[('a', ""), ('b', "")]);
        expect(2, &[(0, 0)], &[('a', ""), ('b', "")]);
    }

    #[test]
    fn two_roots_share_a_symptom_and_circles_have_a_first() {
        expect(3, &[(0, 2), (1, 2)], &[('a', "c"), ('b', "c")]);
        expect(3, &[(1, 2), (2, 1)], &[('a', ""), ('b', "c")]);
        expect(4, &[(1, 2), (2, 1), (3, 2)], &[('a', ""), ('d', "cb")]);
    }

    /// A thousand causes of a thousand symptoms are not a million lines.
    #[test]
    fn many_causes_of_many_symptoms_stay_few() {
        let both = findings(2, &[(0, 1)]);
        let many: Vec<Finding> = both.iter().flat_map(|finding| vec![finding.clone(); 1_000]).collect();
        let folded = fold(many);
        assert_eq!(folded.len(), 2_000 - SAME_MAX);
        assert!(folded.iter().all(|finding| finding.symptoms.len() <= SAME_MAX));
    }

    #[test]
    fn another_subject_is_another_story() {
        let mut two = findings(2, &[(0, 1)]);
        two[1].subject = Subject::node("other");
        assert_eq!(fold(two).len(), 2);
    }

    proptest! {
        #[test]
        fn nothing_is_lost(edges in prop::collection::vec((0usize..6, 0usize..6), 0..12)) {
            let folded = fold(findings(6, &edges));
            let mut told: BTreeSet<FindingCode> = folded.iter().map(|finding| finding.code).collect();
            let roots = told.len();
            prop_assert_eq!(roots, folded.len());
            told.extend(folded.iter().flat_map(|finding| finding.symptoms.iter().map(|symptom| symptom.code)));
            prop_assert_eq!(told.len(), 6);
            for root in &folded {
                prop_assert!(root.symptoms.iter().all(|symptom| folded.iter().all(|other| other.code != symptom.code)));
            }
        }
    }
}
