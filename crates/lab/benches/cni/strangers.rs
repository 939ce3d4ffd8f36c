//! How long the work of a stranger's hand lasts: from the moment it begins until the node is right again.

use std::fs;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use host::Host;
use lab::{Lab, Pod};
use model::{DeviceName, Sandbox};
use plan::{Attachment, NodeFacts, PodWiring};
use serde_json::{Value, json};
use testkit::figures::Run;

use crate::contender::Contender;
use crate::plugin::Plugin;

/// How long a repair may take before the measurement is given up.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_micros(500);
/// So that harm falls into every part of the time between two looks of the agent.
const SILENT_STAGGER: Duration = Duration::from_millis(1700);

/// What a stranger does to a pod's device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Harm {
    Route,
    Neighbour,
    Address,
    Down,
    Rename,
    Setting,
    /// A setting whose change the kernel does not announce.
    SilentSetting,
}

impl Harm {
    const ANNOUNCED: [Harm; 6] =
        [Harm::Route, Harm::Neighbour, Harm::Address, Harm::Down, Harm::Rename, Harm::Setting];

    pub(crate) fn words(self) -> &'static str {
        match self {
            Harm::Route => "a deleted route",
            Harm::Neighbour => "a deleted neighbour",
            Harm::Address => "a deleted address",
            Harm::Down => "a device set down",
            Harm::Rename => "a renamed device",
            Harm::Setting => "an announced setting",
            Harm::SilentSetting => "an unannounced setting",
        }
    }

    /// The calling thread is on the node.
    fn inflict(self, wiring: &PodWiring) -> Result<()> {
        let device = wiring.host.device.as_str();
        let route = wiring.host.routes.first().context("a pod has a route")?.destination.addr().to_string();
        let address = || wiring.host.addresses.first().map(ToString::to_string).context("an address");
        match self {
            Harm::Route => ip(&["route", "del", &route]),
            Harm::Neighbour => ip(&["neigh", "del", &route, "dev", device]),
            Harm::Address => ip(&["addr", "del", &address()?, "dev", device]),
            Harm::Down => ip(&["link", "set", device, "down"]),
            Harm::Rename => ip(&["link", "set", device, "name", "stolen0"]),
            Harm::Setting => set(&format!("net/ipv4/conf/{device}/proxy_arp"), "0"),
            Harm::SilentSetting => set(&format!("net/ipv4/conf/{device}/route_localnet"), "0"),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Strangers {
    /// How long each lasted.
    pub(crate) repairs: Vec<(Harm, Run)>,
}

impl Strangers {
    /// On a contender's node, whatever other pods it has.
    pub(crate) fn measure(lab: &Lab, contender: &Contender, count: usize) -> Result<Strangers> {
        let both = json!({"assign_ipv4": "true", "assign_ipv6": "true"});
        let plugin = contender.plugin.clone().with("ipam", both);
        let pods: Vec<Pod> =
            (0..count).map(|number| lab.pod("bench", &format!("harmed-{number}"))).collect::<Result<_>>()?;
        contender.visit(|| {
            let facts = Host::here()?.facts()?;
            let wirings: Vec<PodWiring> =
                pods.iter().map(|pod| connect(&plugin, pod, &facts)).collect::<Result<_>>()?;
            let mut repairs = Vec::new();
            for harm in Harm::ANNOUNCED {
                repairs.push((harm, Run::new(one_by_one(harm, &wirings)?)));
            }
            repairs.push((Harm::SilentSetting, Run::new(staggered(Harm::SilentSetting, &wirings)?)));
            pods.iter().try_for_each(|pod| plugin.call("DEL", pod).map(drop))?;
            Ok(Strangers { repairs })
        })?
    }
}

fn connect(plugin: &Plugin, pod: &Pod, facts: &NodeFacts) -> Result<PodWiring> {
    let answer = plugin.ask("ADD", pod)?;
    let text = |value: &Value| value.as_str().map(str::to_owned).context("a text in the answer");
    let addresses = answer["ips"].as_array().context("addresses in the answer")?.iter().map(|ip| {
        let address = text(&ip["address"])?;
        Ok(address.split('/').next().unwrap_or_default().parse()?)
    });
    let attachment = Attachment {
        sandbox: Sandbox::new(Lab::NETWORK, &pod.container_id, &pod.interface)?,
        device: DeviceName::new(&text(&answer["interfaces"][0]["name"])?)?,
        mac: text(&answer["interfaces"][1]["mac"])?.parse()?,
        mtu: 1450,
        addresses: addresses.collect::<Result<_>>()?,
        pod_forwards: false,
        pod_routes: Vec::new(),
    };
    Ok(PodWiring::new(&attachment, facts)?)
}

fn one_by_one(harm: Harm, wirings: &[PodWiring]) -> Result<Vec<Duration>> {
    let mut host = Host::here()?;
    let mut times = Vec::new();
    for wiring in wirings {
        ensure!(is_right(&mut host, wiring)?, "{} is not right to begin with", wiring.host.device);
        let started = Instant::now();
        harm.inflict(wiring)?;
        times.push(await_repair(&mut host, harm, wiring, started)?);
    }
    Ok(times)
}

/// Several at once: each takes long.
fn staggered(harm: Harm, wirings: &[PodWiring]) -> Result<Vec<Duration>> {
    let home = host::NetNs::current()?;
    let wait = |wiring: &PodWiring, delay: Duration| -> Result<Duration> {
        home.visit(|| {
            sleep(delay);
            let started = Instant::now();
            harm.inflict(wiring)?;
            await_repair(&mut Host::here()?, harm, wiring, started)
        })?
    };
    std::thread::scope(|scope| {
        let wait = &wait;
        let waiting: Vec<_> = (0..)
            .zip(wirings.iter().take(5))
            .map(|(number, wiring)| scope.spawn(move || wait(wiring, SILENT_STAGGER * number)))
            .collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<Duration>>| {
            thread.join().map_err(|_| anyhow::anyhow!("a stranger broke"))?
        };
        waiting.into_iter().map(join).collect()
    })
}

fn await_repair(host: &mut Host, harm: Harm, wiring: &PodWiring, started: Instant) -> Result<Duration> {
    loop {
        if is_right(host, wiring)? {
            return Ok(started.elapsed());
        }
        if started.elapsed() > PATIENCE {
            bail!("{} on {} is not put right", harm.words(), wiring.host.device);
        }
        // What nobody announces takes seconds; looking all the time would only get in the way.
        sleep(if harm == Harm::SilentSetting { 20 * LOOK_EVERY } else { LOOK_EVERY });
    }
}

fn is_right(host: &mut Host, wiring: &PodWiring) -> Result<bool> {
    Ok(host.check_host_end(wiring, None)?.is_empty())
}

fn ip(arguments: &[&str]) -> Result<()> {
    let output = Command::new("ip").args(arguments).output().context("cannot run ip")?;
    ensure!(output.status.success(), "ip {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

fn set(path: &str, value: &str) -> Result<()> {
    fs::write(format!("/proc/sys/{path}"), value).with_context(|| format!("cannot set {path}"))
}
