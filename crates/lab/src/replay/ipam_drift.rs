//! The address book no longer matches reality: years of half-done releases, as the operators of the outage found it.
//!
//! Handles of pods that are long gone, addresses in use and marked free, counts that are wrong, a block that contradicts itself, blocks
//! of machines that were scrapped. They rewrote everything with scripts of their own, while no pod could start.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use ipam::{Owner, Reservations};
use model::ipam::{Affinity, Block, Handle};
use model::{AffinityOwner, Cidr, HandleId, Key};

use super::story::{Story, add, handle_of, ping};
use super::surgery::Surgery;
use crate::cluster::{Cluster, NETWORK};
use crate::kubelet::PodReport;
use crate::pinger::Pinger;

/// What is broken, by the doctor's words for it.
const BROKEN: [&str; 8] = [
    "address-leaked",
    "address-used-but-free",
    "affinity-contradicted",
    "affinity-of-gone-node",
    "block-contradicts-itself",
    "handle-by-name",
    "handle-count-wrong",
    "handle-unused",
];
const LEAKS: usize = 5;
const UNUSED_HANDLES: usize = 4;

/// The lab needs three nodes with agents. Pods start on the last one meanwhile: what a repair made of a whole block can be undone only
/// if nothing has changed the block since.
pub fn replay(cluster: &Cluster, tell: &dyn Fn(&str)) -> Result<()> {
    ensure!(cluster.description().nodes.len() >= 3, "this replay needs three nodes at least");
    Replay { cluster, surgery: Surgery::new(cluster)?, story: Story(tell) }.run()
}

struct Replay<'a> {
    cluster: &'a Cluster,
    surgery: Surgery<'a>,
    story: Story<'a>,
}

impl Replay<'_> {
    fn run(&self) -> Result<()> {
        self.story.step("Pods run, and all records agree");
        let first = add(self.cluster, self.node(0), &["web-0", "web-1", "web-2"])?;
        let second = add(self.cluster, self.node(1), &["shop-0", "shop-1", "shop-2"])?;
        self.surgery.ensure_clean()?;
        let pingers = self.ping(&first, 0)?.into_iter().chain(self.ping(&second, 1)?).collect::<Vec<_>>();
        self.story.step("The IPAM records drift away from reality");
        self.drift(&first, &second)?;
        self.find()?;
        self.story.step("plumb repair ipam --apply, while pods start");
        let started = self.while_pods_start(|| self.surgery.repair(&["ipam"]))?;
        self.story.note(&format!(
            "{} steps applied; the datastore was not locked, and {} pods started at the same time",
            started.0.1, started.1
        ));
        self.surgery.ensure_clean()?;
        self.story.note("the audit is clean");
        self.story.step(&format!("plumb repair undo {}", started.0.0));
        self.surgery.undo(&started.0.0)?;
        self.find()?;
        self.story.step("The same repair again");
        let (_, steps) = self.surgery.repair(&["ipam"])?;
        self.surgery.ensure_clean()?;
        self.story.note(&format!("{steps} steps applied, the audit is clean"));
        self.story.step("Traffic during all of this");
        self.story.end_of_all_traffic(pingers)
    }

    /// Exactly what was broken is found.
    fn find(&self) -> Result<()> {
        let found = super::wait_for("the doctor to find all faults", || {
            let found = self.surgery.findings()?;
            let codes: BTreeSet<&str> = found.keys().map(|(code, _)| code.as_str()).collect();
            ensure!(codes == BTreeSet::from(BROKEN), "it finds {found:#?}");
            Ok(found)
        })?;
        for code in BROKEN {
            let of_code: Vec<_> = found.iter().filter(|((found, _), _)| found == code).collect();
            let first = of_code.first().map(|(_, summary)| summary.as_str()).unwrap_or_default();
            let short: String = first.chars().take(100).collect();
            self.story.note(&format!("{code} ({}): {short}", of_code.len()));
        }
        Ok(())
    }

    fn drift(&self, first: &[PodReport], second: &[PodReport]) -> Result<()> {
        let node = self.node(0);
        let block = self.surgery.block_of(&first[0].addresses[0])?;
        self.leak(block, node, LEAKS, 'a')?;
        self.story.note(&format!("{LEAKS} addresses of {block} belong to sandboxes that no longer exist"));
        self.surgery.free(&first[0])?;
        self.story.note(&format!("{} of a running pod is marked free", first[0].addresses[0]));
        self.rename(&first[1])?;
        self.story.note(&format!(
            "{} has a handle named after the pod, as in Calico releases of 2017",
            first[1].addresses[0]
        ));
        let count = Handle { block: [(block.to_string(), 3)].into(), ..Handle::default() };
        self.surgery.put(&Key::Handle(handle_of(&first[2])), Some(count.encode()))?;
        for number in 0..UNUSED_HANDLES {
            let counts = Handle { block: [(block.to_string(), 1)].into(), ..Handle::default() };
            self.surgery.put(&Key::Handle(lost_handle('b', number)), Some(counts.encode()))?;
        }
        self.story.note(&format!(
            "one handle counts three addresses instead of one, {UNUSED_HANDLES} handles hold none"
        ));
        self.break_lists(&second[0])?;
        self.scrap_node()?;
        let nowhere: Cidr = "10.244.250.0/26".parse()?;
        let owner = AffinityOwner::Host(node.to_owned());
        self.surgery.put(&Key::Affinity { owner, block: nowhere }, Some(Affinity::default().encode()))?;
        self.story.note(&format!("{node} claims block {nowhere}, which does not exist"));
        Ok(())
    }

    fn leak(&self, block: Cidr, node: &str, count: usize, digit: char) -> Result<()> {
        for number in 0..count {
            let owner = Owner { handle: lost_handle(digit, number), attributes: Default::default() }
                .with(ipam::NODE_ATTRIBUTE, node)
                .with(ipam::NAMESPACE_ATTRIBUTE, "shop")
                .with(ipam::POD_ATTRIBUTE, &format!("gone-{number}"));
            self.surgery.edit_block(block, |block| {
                ipam::take(block, &owner, 1, &Reservations::default());
            })?;
            let counts = Handle { block: [(block.to_string(), 1)].into(), ..Handle::default() };
            self.surgery.put(&Key::Handle(owner.handle), Some(counts.encode()))?;
        }
        Ok(())
    }

    fn rename(&self, pod: &PodReport) -> Result<()> {
        let (old, new) = (handle_of(pod), HandleId::from(format!("{}.{}", pod.namespace, pod.name)));
        let block = self.surgery.block_of(&pod.addresses[0])?;
        self.surgery.edit_block(block, |block| {
            let held = block.attributes.iter_mut().filter(|held| held.handle() == Some(&old));
            held.for_each(|held| held.handle_id = Some((&new).into()));
        })?;
        let counts = self.surgery.get(&Key::Handle(old.clone()))?;
        self.surgery.put(&Key::Handle(old), None)?;
        self.surgery.put(&Key::Handle(new), counts)
    }

    fn break_lists(&self, pod: &PodReport) -> Result<()> {
        let (address, block) = (pod.addresses[0].parse()?, self.surgery.block_of(&pod.addresses[0])?);
        self.surgery.edit_block(block, |block| block.unallocated.extend(block.ordinal(address)))?;
        self.story.note(&format!("block {block} lists {address} both as allocated and as free"));
        Ok(())
    }

    fn scrap_node(&self) -> Result<()> {
        let block: Cidr = "10.244.251.0/26".parse()?;
        let owner = AffinityOwner::Host("scrapped".to_owned());
        self.surgery.put(&Key::Block(block), Some(Block::new(block, Some(&owner), 1).encode()))?;
        self.surgery.put(&Key::Affinity { owner, block }, Some(Affinity::default().encode()))?;
        self.leak(block, "scrapped", 2, 'c')?;
        self.story.note(&format!("block {block} belongs to a node that is gone for good"));
        Ok(())
    }

    /// Does something, and starts pods all the time until it is done.
    fn while_pods_start<T: Send>(&self, act: impl FnOnce() -> Result<T>) -> Result<(T, usize)> {
        let (cluster, node) = (self.cluster, self.node(2));
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let starting = scope.spawn(|| -> Result<usize> {
                let mut count = 0;
                while !stop.load(std::sync::atomic::Ordering::SeqCst) {
                    add(cluster, node, &[&format!("late-{count}")])?;
                    count += 1;
                }
                Ok(count)
            });
            let done = act();
            stop.store(true, std::sync::atomic::Ordering::SeqCst);
            let count =
                starting.join().map_err(|_| anyhow::anyhow!("the thread that starts pods panicked"))??;
            ensure!(count > 0, "no pod started at the same time");
            Ok((done?, count))
        })
    }

    fn ping(&self, pods: &[PodReport], node: usize) -> Result<Vec<Pinger>> {
        pods.iter().map(|pod| ping(self.cluster, self.node(node), pod)).collect()
    }

    fn node(&self, number: usize) -> &str {
        &self.cluster.description().nodes[number].name
    }
}

/// Of a sandbox that does not exist.
fn lost_handle(digit: char, number: usize) -> HandleId {
    HandleId::of_sandbox(NETWORK, &format!("{number:02x}{}", digit.to_string().repeat(62)))
}
