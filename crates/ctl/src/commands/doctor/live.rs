//! An examination of what is alive: collect, run the checks, and once more where something may just be coming or going.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use book::load::Progress;
use doctor::{Diagnosis, Next, Options, Report, Rule};
use evidence::{Evidence, Unseen};
use gather::{CollectError, LiveSources, ProbeTargets};
use jiff::{SignedDuration, Timestamp};
use store::StoreConfig;
use store::kube::{KubeConfig, KubeObjects};

use super::{Examined, node};
use crate::cli::Global;
use crate::cli::doctor::{Doctor, ThisNode};
use crate::failure::Failure;
use crate::{connect, progress};

/// Fails if there is nothing at all to observe.
pub(in crate::commands) async fn open(
    global: &Global,
    this_node: &ThisNode,
    from: &[PathBuf],
) -> Result<LiveSources, Failure> {
    let nodes = node::find(this_node)?;
    let kubernetes = beside_the_store(global, this_node).await?;
    let store = match connect::open_for_reading(global).await {
        Err(failure) if nodes.is_empty() => {
            return Err(failure.or_hint(
                "choose a store (ETCD_ENDPOINTS, SQLITE_PATH, KUBECONFIG), or observe this machine as a node (--node NAME)",
            ));
        }
        store => store.map_err(|failure| failure.words()),
    };
    Ok(LiveSources::new(store, nodes).with_kubernetes(kubernetes).with_texts(texts(from)?))
}

/// The cluster to ask for pods and nodes, if one is named. One that is only in the environment is not: it may be any other.
async fn beside_the_store(global: &Global, this_node: &ThisNode) -> Result<Option<KubeObjects>, Failure> {
    let Some(path) = &this_node.kubeconfig else { return Ok(None) };
    if matches!(connect::select(global)?.config, StoreConfig::Kubernetes(_)) {
        return Err(Failure::usage(
            "--kubeconfig is for other stores; this one is Kubernetes, which is asked anyway",
        )
        .hint("set KUBECONFIG to choose the cluster that keeps the records"));
    }
    let (kubeconfig, context) = (Some(path.clone()), global.context.clone());
    Ok(Some(KubeObjects::connect(&KubeConfig { kubeconfig, context, ..KubeConfig::default() }).await?))
}

/// Has nodes send packets, if that is wanted.
pub(in crate::commands) fn probes(is_wanted: bool, options: Options) -> Option<Box<ProbeTargets>> {
    is_wanted.then(|| -> Box<ProbeTargets> {
        Box::new(move |evidence| doctor::probe::targets(evidence, &options))
    })
}

fn texts(paths: &[PathBuf]) -> Result<Evidence, Failure> {
    let begun_at = Timestamp::now();
    let mut texts = crate::texts::of_files(paths).map_err(|error| Failure::of(&error))?;
    if texts.pods.is_some() {
        texts.pods_at = paths.iter().map(|path| made_at(path).unwrap_or(begun_at)).min();
    }
    Ok(texts)
}

/// When a file was written, or the oldest of a directory; of a pipe that is not known.
fn made_at(path: &Path) -> Option<Timestamp> {
    let metadata = std::fs::metadata(path).ok()?;
    if metadata.is_dir() {
        let files = std::fs::read_dir(path).ok()?.filter_map(|entry| made_at(&entry.ok()?.path()));
        return files.min();
    }
    if !metadata.is_file() {
        return None;
    }
    metadata.modified().ok()?.try_into().ok()
}

/// Observations of live sources, until there is something to report.
pub(in crate::commands) struct Examiner<'s> {
    sources: &'s LiveSources,
    diagnosis: Diagnosis<'static>,
    /// Whether the observation before the last is kept with it: a repair asks its witnesses, too.
    keeps_earlier: bool,
    settle: Duration,
    since: Instant,
    pub(in crate::commands) loading: Duration,
    pub(in crate::commands) analysis: Duration,
}

impl<'s> Examiner<'s> {
    pub(in crate::commands) fn new(sources: &'s LiveSources, rule: Rule, options: Options) -> Examiner<'s> {
        let (loading, analysis) = (Duration::ZERO, Duration::ZERO);
        let (diagnosis, settle, since) = (Diagnosis::new(rule, options), rule.settle, Instant::now());
        Examiner { sources, diagnosis, keeps_earlier: false, settle, since, loading, analysis }
    }

    #[must_use]
    pub(in crate::commands) fn keeping_earlier(self) -> Examiner<'s> {
        Examiner { keeps_earlier: true, ..self }
    }

    /// Observes, as often as it takes.
    pub(in crate::commands) async fn run(&mut self) -> Result<Examined, Failure> {
        let mut last: Option<Evidence> = None;
        loop {
            match self.diagnosis.poll(self.since.elapsed()) {
                Next::Wait(time) => tokio::time::sleep(time).await,
                Next::Collect => {
                    let earlier = last.take().filter(|_| self.keeps_earlier).map(Box::new);
                    last = Some(Evidence { earlier, ..self.observe().await? });
                }
                Next::Report => {
                    let (evidence, report) = (last.unwrap_or_default(), self.diagnosis.report());
                    return Ok(Examined { evidence, report });
                }
            }
        }
    }

    /// After this time there is another observation, and a report of what two in a row have found.
    pub(super) fn next_round(&mut self, after: Duration) {
        self.diagnosis.next_round(self.since.elapsed() + after, Rule::rolling(self.settle.min(after)));
    }

    async fn observe(&mut self) -> Result<Evidence, Failure> {
        let (start, records) = (Instant::now(), Progress::default());
        let evidence = progress::while_reading(&records, self.sources.collect(&records)).await;
        let evidence = evidence.map_err(|error| match error {
            CollectError::Store(error) => Failure::from(error),
            other => Failure::of(&other),
        })?;
        self.loading += start.elapsed();
        let start = Instant::now();
        self.diagnosis.observe(self.since.elapsed(), &evidence);
        self.analysis = self.analysis.max(start.elapsed());
        Ok(evidence)
    }
}

pub(super) async fn examine(global: &Global, doctor: &Doctor) -> Result<Examined, Failure> {
    let sources = open_for(global, doctor).await?;
    let mut examiner = Examiner::new(&sources, rule(doctor.settle), options(doctor));
    let examined = examiner.run().await?;
    note_timings(doctor, &examiner);
    Ok(examined)
}

pub(super) async fn open_for(global: &Global, doctor: &Doctor) -> Result<LiveSources, Failure> {
    let sources = open(global, &doctor.this_node, &doctor.from).await?;
    Ok(sources.with_probes(probes(doctor.probe, options(doctor))))
}

pub(super) fn note_timings(doctor: &Doctor, examiner: &Examiner<'_>) {
    if doctor.timings {
        let [loading, analysis] = [examiner.loading, examiner.analysis].map(|time| time.as_millis());
        eprintln!("timings: loading_ms={loading} analysis_ms={analysis}");
    }
}

/// What could not be read of what most checks need.
pub(super) fn essential_gap(report: &Report) -> Option<Failure> {
    let gap = report.unseen.iter().find(|unseen| unseen.is_essential())?;
    Some(match gap {
        Unseen::Store { .. } => Failure::new("the records of the store could not be checked"),
        gap => Failure::new(gap.to_string()),
    })
}

/// Two observations, so many seconds apart.
pub(in crate::commands) fn rule(settle: f64) -> Rule {
    Rule::twice(Duration::try_from_secs_f64(settle).unwrap_or_default())
}

/// How the operator wants it judged.
pub(super) fn options(doctor: &Doctor) -> Options {
    Options { grace: SignedDuration::try_from_secs_f64(doctor.grace).unwrap_or(doctor::GRACE) }
}
