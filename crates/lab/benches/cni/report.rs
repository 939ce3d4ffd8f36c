//! The figures, with what the issue wants of them.

use testkit::figures::{Figure, Goal, Peer, Run, median};

use crate::Between;
use crate::contender::{self, Contender, Who};
use crate::floor::Floor;
use crate::idle::Idle;
use crate::rounds::Rounds;
use crate::strangers::Harm;

#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) contenders: Vec<Contender>,
    pub(crate) floor: Floor,
    pub(crate) between: Option<Between>,
    pub(crate) bursts: [usize; 2],
}

const PTP: &str = "ptp + host-local";

impl Measured {
    pub(crate) fn figures(&self) -> Vec<Figure> {
        let mut figures = self.floor_figures();
        for contender in self.contenders.iter().filter(|one| one.who != Who::Ptp) {
            figures.extend(self.figures_of(contender));
        }
        let ptp =
            |name: &str, runs: &[Run], quantile| Figure::of_runs(format!("{PTP}: {name}"), runs, quantile);
        figures.extend(
            each_call(&self.of(Who::Ptp).singles).map(|call| ptp(&call.name(), call.runs, call.quantile)),
        );
        figures.extend(self.crowded_figures());
        if let Some(between) = &self.between {
            figures.extend(idle_figures(&between.idle));
            let repairs = between.strangers.repairs.iter();
            figures.extend(repairs.flat_map(|(harm, run)| repair_figures(*harm, run)));
        }
        figures
    }

    fn of(&self, who: Who) -> &Contender {
        contender::find(&self.contenders, who)
    }

    /// The kernel, a process, a commit: and what an ADD is beyond them.
    fn floor_figures(&self) -> Vec<Figure> {
        let floor = &self.floor;
        let alone = |name: &str, runs: &[Run]| Figure::of_runs(format!("floor: {name}, p50"), runs, 0.5);
        let beyond = |who: Who, commits: &[Run]| {
            let own = &self.of(who).singles.adds;
            let sums: Vec<f64> = (0..own.len())
                .map(|run| {
                    [&floor.kernel, &floor.starts].map(|times| times.runs[run].at(0.5)).iter().sum::<f64>()
                        + commits[run].at(0.5)
                })
                .collect();
            let ratios = own.iter().zip(&sums).map(|(own, sum)| own.at(0.5) / sum).collect();
            let peer =
                Peer { name: "kernel + process + commit", value: median(sums), ratio: Some(median(ratios)) };
            let name = format!("{}: single ADD beyond the floor, p50", name(who));
            Figure::of_runs(name, own, 0.5).with_peer(peer).wanted(Goal::RatioAtMost(1.5))
        };
        vec![
            alone("the kernel's objects of one pod", &floor.kernel.runs),
            alone("start of plumb-cni (VERSION)", &floor.starts.runs),
            alone("one commit on SQLite", &floor.sqlite_commits.runs),
            alone("one commit on etcd", &floor.etcd_commits.runs),
            beyond(Who::AgentOnSqlite, &floor.sqlite_commits.runs),
            beyond(Who::AgentOnEtcd, &floor.etcd_commits.runs),
        ]
    }

    /// On busy cores an agent must not cost a pod more than having none.
    fn crowded_figures(&self) -> Vec<Figure> {
        let alone = &self.of(Who::OneShotOnSqlite).crowded;
        let beside_none = |who: Who| {
            let own = &self.of(who).crowded;
            let figure =
                Figure::of_runs(format!("{}, all cores busy: single ADD, p50", name(who)), &own.adds, 0.5);
            figure.beside(name(Who::OneShotOnSqlite), &own.adds, &alone.adds, 0.5)
        };
        vec![beside_none(Who::AgentOnSqlite).wanted(Goal::RatioAtMost(1.0)), beside_none(Who::AgentOnEtcd)]
    }

    /// Everything of one contender, beside the peer.
    fn figures_of(&self, contender: &Contender) -> Vec<Figure> {
        let ptp = self.of(Who::Ptp);
        let who = contender.who;
        let mut figures = beside(who, "single", &contender.singles, &ptp.singles);
        for (index, count) in self.bursts.iter().enumerate() {
            let (own, peer) = (&contender.bursts[index], &ptp.bursts[index]);
            if own.adds.is_empty() {
                continue;
            }
            figures.extend(beside(who, &format!("burst of {count}"), own, peer));
            figures.extend(rates(who, *count, own, peer, index == 1));
        }
        figures
    }
}

fn idle_figures(idle: &Idle) -> [Figure; 3] {
    let Idle { pods, resident_mib, cpu_percent, wakeups_per_second } = *idle;
    [
        Figure::new(format!("agent with {pods} pods: resident memory"), resident_mib, "MiB")
            .wanted(Goal::ValueAtMost(16.0)),
        Figure::new(format!("agent with {pods} pods, idle: CPU"), cpu_percent, "%")
            .wanted(Goal::ValueAtMost(0.05)),
        Figure::new(format!("agent with {pods} pods, idle: wakeups"), wakeups_per_second, "per second"),
    ]
}

fn repair_figures(harm: Harm, run: &Run) -> [Figure; 2] {
    let most = if harm == Harm::SilentSetting { 10_000.0 } else { 100.0 };
    let name = |what: &str| format!("{} is put right, {what}", harm.words());
    [
        Figure::new(name("p50"), run.at(0.5), "ms"),
        Figure::new(name("longest"), run.at(1.0), "ms").wanted(Goal::ValueAtMost(most)),
    ]
}

fn name(who: Who) -> &'static str {
    match who {
        Who::AgentOnSqlite => "agent, SQLite",
        Who::AgentOnEtcd => "agent, etcd",
        Who::OneShotOnSqlite => "no agent, SQLite",
        Who::Ptp => PTP,
        Who::Bridge => "bridge + host-local",
    }
}

/// Times of one verb at one quantile.
struct Call<'a> {
    verb: &'static str,
    quantile: f64,
    runs: &'a [Run],
}

impl Call<'_> {
    fn name(&self) -> String {
        format!("{}, p{:.0}", self.verb, self.quantile * 100.0)
    }
}

fn each_call(rounds: &Rounds) -> impl Iterator<Item = Call<'_>> {
    let verbs = [("ADD", &rounds.adds), ("DEL", &rounds.dels)];
    verbs.into_iter().flat_map(|(verb, runs)| [0.5, 0.99].map(|quantile| Call { verb, quantile, runs }))
}

fn beside(who: Who, kind: &str, own: &Rounds, peer: &Rounds) -> Vec<Figure> {
    let pairs = each_call(own).zip(each_call(peer));
    let figure = |(own, peer): (Call<'_>, Call<'_>)| {
        let name = format!("{}: {kind} {}", name(who), own.name());
        let figure = Figure::of_runs(name, own.runs, own.quantile);
        let figure = figure.beside(PTP, own.runs, peer.runs, own.quantile);
        match goal(who, kind, &own) {
            Some(goal) => figure.wanted(goal),
            None => figure,
        }
    };
    pairs.map(figure).collect()
}

fn goal(who: Who, kind: &str, call: &Call<'_>) -> Option<Goal> {
    let most = match (who, kind, call.verb, call.quantile) {
        (Who::AgentOnSqlite, "single", "ADD", 0.5) => 0.25,
        (Who::AgentOnEtcd, "single", "ADD", 0.5) => 0.30,
        (Who::AgentOnSqlite | Who::AgentOnEtcd, "single", "DEL", 0.5) => 0.06,
        _ => return None,
    };
    Some(Goal::RatioAtMost(most))
}

fn rates(who: Who, count: usize, own: &Rounds, peer: &Rounds, is_wanted: bool) -> Vec<Figure> {
    // An answer before the link is gone is no saving if it never goes: what remains to be done counts, too.
    let verbs = [
        ("ADDs", &own.add_rates, &peer.add_rates),
        ("DELs", &own.del_rates, &peer.del_rates),
        ("links removed", &own.removal_rates, &peer.removal_rates),
    ];
    let figure = |(verb, own, peer): (&str, &Vec<f64>, &Vec<f64>)| {
        let ratios = own.iter().zip(peer).map(|(own, peer)| own / peer).collect();
        let peer = Peer { name: PTP, value: median(peer.clone()), ratio: Some(median(ratios)) };
        let name = format!("{}: {verb} in a burst of {count}", name(who));
        let figure = Figure::new(name, median(own.clone()), "per second").with_peer(peer);
        let is_ours = matches!(who, Who::AgentOnSqlite | Who::AgentOnEtcd);
        if is_wanted && is_ours && verb == "ADDs" { figure.wanted(Goal::RatioAtLeast(6.0)) } else { figure }
    };
    verbs.into_iter().map(figure).collect()
}
