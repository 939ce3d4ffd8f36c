//! ADDs and DELs one at a time and in bursts, in a cluster of one node: requests, and times beside other stores.

use std::time::Duration;

use anyhow::{Context as _, Result};
use lab::{Lab, Pod};
use model::{Kind, Resource};
use serde_json::json;
use store::kube::KubeConfig;
use store::{OpenMode, StoreConfig};
use testkit::etcd::{EtcdCluster, Setup};
use testkit::figures::{Figure, Goal, median};
use testkit::kube::{self, Api, KubeApiServer};

use crate::Extent;
use crate::requests::Requests;
use crate::side::{self, Place, Side};

/// How long an agent without work is listened to.
const IDLE: Duration = Duration::from_secs(30);
/// Tests spare themselves durable commits; a measurement must not.
const DURABLE: &str = "--unsafe-no-fsync=false";

pub(crate) fn measure(lab: &Lab, extent: Extent) -> Result<Vec<Figure>> {
    let node = lab.node("kube")?;
    let setup = kube::Setup { etcd_args: vec![DURABLE.to_owned()], ..kube::Setup::default() };
    let program = extent.plugin(lab)?;
    let (server, kubeconfig) = node.namespace().visit(|| -> Result<_> {
        let server = KubeApiServer::start(setup)?;
        let api = server.api();
        api.define(&model::kube::definitions(model::kube::Layout::V1))?;
        fill(&Place::Kubernetes { kubeconfig: server.kubeconfig()?, api: server.api() })?;
        side::install_access(&api)?;
        side::register(&api, node.name(), "none")?;
        let kubeconfig = side::credential(&server, &server.url(), node.name())?;
        Ok((server, kubeconfig))
    })??;
    let place = Place::Kubernetes { kubeconfig, api: server.api() };
    let kubernetes = Side::start(lab, node, place, "none", program.clone())?;

    let node = lab.node("etcd")?;
    let setup = Setup { extra_args: vec![DURABLE.to_owned()], ..Setup::default() };
    let etcd = node.namespace().visit(|| EtcdCluster::start(setup))??;
    let place = Place::Etcd(etcd.endpoint(0));
    node.namespace().visit(|| fill(&place))??;
    let on_etcd = Side::start(lab, node, place, "none", program.clone())?;

    let node = lab.node("sqlite")?;
    let place = Place::Sqlite(lab.folder().join("kube-bench.db"));
    fill(&place)?;
    let on_sqlite = Side::start(lab, node, place, "none", program)?;

    let mut figures = requests(lab, extent, &kubernetes, &server.api())?;
    figures.extend(times(lab, extent, [kubernetes, on_etcd, on_sqlite])?);
    drop((server, etcd));
    Ok(figures)
}

/// Makes the pool that pods need. The calling thread is on the store's node.
fn fill(place: &Place) -> Result<()> {
    let config = match place {
        Place::Sqlite(path) => StoreConfig::Sqlite { path: path.clone() },
        Place::Etcd(endpoint) => StoreConfig::Etcd(store::etcd::EtcdConfig::new([endpoint.as_str()])),
        Place::Kubernetes { kubeconfig, .. } => StoreConfig::Kubernetes(KubeConfig {
            kubeconfig: Some(kubeconfig.clone()),
            ..KubeConfig::default()
        }),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let store = store::open(&config, OpenMode::CreateIfMissing).await?;
        let mut pool = Resource::new(Kind::IpPool, "pods");
        pool.body.insert("spec".to_owned(), json!({ "cidr": "10.244.0.0/16" }));
        pool.fill_defaults();
        store.create(pool.key(), pool.encode()).await?;
        Ok(())
    })
}

/// All take turns, pod by pod: whatever else the machine does hits all of them.
fn times(lab: &Lab, extent: Extent, mut sides: [Side; 3]) -> Result<Vec<Figure>> {
    for run in 0..extent.runs {
        eprintln!("measuring: times of ADDs, run {} of {}", run + 1, extent.runs);
        for number in 0..extent.singles {
            for side in &mut sides {
                side.single(lab, &format!("single-{number}"))?;
            }
        }
        sides.iter_mut().for_each(Side::end_run);
    }
    let [own, etcd, sqlite] = sides.map(|side| side.runs);
    let figures = [(0.5, "p50"), (0.99, "p99")].map(|(quantile, words)| {
        let figure =
            |name: &str| Figure::of_runs(format!("agent, Kubernetes: {name} {words}"), &own, quantile);
        [
            ("single ADD beside etcd,", "agent, etcd", &etcd),
            ("single ADD beside SQLite,", "agent, SQLite", &sqlite),
        ]
        .map(|(name, peer, runs)| figure(name).beside(peer, &own, runs, quantile))
    });
    Ok(figures.into_iter().flatten().collect())
}

/// What calls cost the API server.
fn requests(lab: &Lab, extent: Extent, side: &Side, api: &Api) -> Result<Vec<Figure>> {
    let visit = |act: &(dyn Fn() -> Result<Vec<Figure>> + Sync)| side.node.namespace().visit(act);
    visit(&|| {
        eprintln!("measuring: requests of an agent without work");
        let requests = Requests::new(api, IDLE)?;
        let per_minute = requests.idle_per_second * 60.0;
        let mut figures =
            vec![Figure::new("API requests of an agent without work", per_minute, "per minute")];
        for count in [1, extent.bursts[0], extent.bursts[1]] {
            eprintln!("measuring: requests of ADDs and DELs, {count} at once");
            figures.extend(requests_of(lab, extent, side, &requests, count)?);
        }
        Ok(figures)
    })?
}

fn requests_of(
    lab: &Lab,
    extent: Extent,
    side: &Side,
    requests: &Requests<'_>,
    at_once: usize,
) -> Result<Vec<Figure>> {
    let is_single = at_once == 1;
    let count = if is_single { extent.singles } else { at_once };
    let names: Vec<String> = (0..count).map(|number| format!("counted-{number}")).collect();
    let (mut adds, mut dels) = (Vec::new(), Vec::new());
    for _ in 0..extent.runs {
        let pods = side.pods(lab, &names)?;
        for (verb, costs) in [("ADD", &mut adds), ("DEL", &mut dels)] {
            let (cost, words) = requests.of(|| call(side, verb, &pods, is_single))?;
            eprintln!("{count} {verb}s: {words}");
            costs.push(cost / count as f64);
        }
        side.remove(&pods).context("removing the pods")?;
    }
    let which = if is_single { "single".to_owned() } else { format!("in a burst of {at_once}") };
    let figure = |verb: &str, costs: Vec<f64>, most: f64| {
        let name = format!("API requests per {verb}, {which}");
        Figure::new(name, median(costs), "requests").wanted(Goal::ValueAtMost(most))
    };
    let [add_most, del_most] = if is_single { [4.0, 4.0] } else { [2.2, 3.2] };
    Ok(vec![figure("ADD", adds, add_most), figure("DEL", dels, del_most)])
}

fn call(side: &Side, verb: &str, pods: &[Pod], is_single: bool) -> Result<()> {
    if is_single { side.one_by_one(verb, pods).map(drop) } else { side.at_once(verb, pods) }
}
