//! The main job, shown: two pods on one node, from an empty store to an empty store, with the real programs.
//!
//! `cargo xtask demo` builds the programs and runs this. It fails loudly if anything is not as it says.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Parser;
use lab::{CniCall, Lab, Node, Pod, Programs};

/// Two pods on one node: addresses, ping, removal.
#[derive(Debug, Parser)]
#[command(name = "plumb-demo", version)]
struct Arguments {
    /// The folder with plumb, plumbd and plumb-cni; that of this program if not given.
    #[arg(long)]
    bin_dir: Option<PathBuf>,
}

const POOL: &str = "\
apiVersion: projectcalico.org/v3
kind: IPPool
metadata:
  name: demo-pool
spec:
  cidr: 10.244.0.0/16
";

fn main() -> ExitCode {
    match Arguments::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("plumb-demo: {error:#}");
            ExitCode::FAILURE
        }
    }
}

impl Arguments {
    fn run(self) -> Result<()> {
        if let Some(reason) = lab::missing() {
            bail!("the demo cannot run here: {reason}");
        }
        let folder = match self.bin_dir {
            Some(folder) => folder,
            None => std::env::current_exe()?.parent().context("this program lies in a folder")?.to_owned(),
        };
        let programs = Programs::in_folder(&folder)?;
        ensure!(programs.plumb().is_file(), "there is no plumb in {}", folder.display());
        let started = Instant::now();
        println!("Two pods on one node, from an empty store to an empty store.");
        let story = Story::begin(Lab::new(programs)?)?;
        let names = story.tell()?;
        step("The lab itself is gone");
        for name in names {
            ensure!(!Path::new("/run/netns").join(&name).exists(), "namespace {name} is still there");
            note(&format!("no namespace {name}"));
        }
        println!("\nDone in {:.1} s: everything was as it should be.", started.elapsed().as_secs_f32());
        Ok(())
    }
}

struct Story {
    // Before the lab, so that namespaces go before the folder.
    node: Node,
    config: PathBuf,
    lab: Lab,
}

impl Story {
    fn begin(lab: Lab) -> Result<Story> {
        step("An empty SQLite store, and a pool of addresses in it");
        let config = lab.folder().join("plumb.cfg");
        let settings = serde_json::json!({
            "apiVersion": "projectcalico.org/v3", "kind": "CalicoAPIConfig", "metadata": {},
            "spec": {"datastoreType": "sqlite", "sqlitePath": lab.store_path()},
        });
        std::fs::write(&config, settings.to_string())?;
        let node = lab.node("node-a")?;
        let story = Story { node, config, lab };
        let pool = story.lab.folder().join("pool.yaml");
        std::fs::write(&pool, POOL)?;
        show(POOL);
        story.plumb(&["apply", "-f", &pool.display().to_string()], "apply -f pool.yaml")?;
        step("A node");
        let (name, address) = (story.node.namespace().name(), story.node.address());
        note(&format!("node-a is network namespace {name}; its pods reach it at {address}"));
        Ok(story)
    }

    /// The names of the namespaces that must be gone afterwards.
    fn tell(self) -> Result<Vec<String>> {
        let (web, db) = (self.lab.pod("shop", "web-0")?, self.lab.pod("shop", "db-0")?);
        step("The runtime calls plumb-cni for two pods: ADD");
        let web_answer = self.add(&web)?;
        let db_answer = self.add(&db)?;
        let (web_address, db_address) = (web_answer.address()?, db_answer.address()?);
        ensure!(web_address != db_address, "both pods got {web_address}");
        self.ping_all(&[(&web, web_address), (&db, db_address)])?;
        self.show_kernel(&web)?;
        step("What the store holds");
        self.plumb(&["get", "wep", "-A", "-o", "wide"], "get wep -A -o wide")?;
        self.plumb(&["get", "blockaffinities"], "get blockaffinities")?;
        step("CHECK looks at links, addresses, routes, neighbours and records of both");
        for (pod, answer) in [(&web, &web_answer), (&db, &db_answer)] {
            let call = self.call("CHECK", pod).with_netconf("prevResult", answer.result()?);
            let outcome = call.run(&self.node)?;
            ensure!(outcome.success, "CHECK of {} failed: {}", pod.name, outcome.stdout);
            note(&format!("{}/{}: as it should be", pod.namespace, pod.name));
        }
        step("The pods go: DEL, and DEL again, as runtimes do");
        for pod in [&web, &db] {
            for _ in 0..2 {
                let outcome = self.call("DEL", pod).run(&self.node)?;
                ensure!(outcome.success, "DEL of {} failed: {}", pod.name, outcome.stdout);
            }
            note(&format!("{}/{} is gone", pod.namespace, pod.name));
        }
        self.show_nothing_is_left()?;
        let namespaces = [self.node.namespace(), web.netns(), db.netns()];
        Ok(namespaces.map(|namespace| namespace.name().to_owned()).into())
    }

    fn add(&self, pod: &Pod) -> Result<lab::CniOutcome> {
        let started = Instant::now();
        let outcome = self.call("ADD", pod).run(&self.node)?;
        let took = started.elapsed().as_millis();
        let result = outcome.result().with_context(|| format!("ADD of {}/{}", pod.namespace, pod.name))?;
        let device = result["interfaces"][0]["name"].as_str().unwrap_or_default();
        let address = outcome.address()?;
        let (namespace, name) = (&pod.namespace, &pod.name);
        note(&format!("{namespace}/{name}: {address} on eth0, {device} on the node ({took} ms)"));
        Ok(outcome)
    }

    fn call(&self, verb: &str, pod: &Pod) -> CniCall {
        CniCall::new(&self.lab, &self.node, verb, pod)
    }

    fn ping_all(&self, pods: &[(&Pod, IpAddr)]) -> Result<()> {
        step("Everybody pings everybody, right away");
        for (from, _) in pods {
            for (to, address) in pods.iter().filter(|(to, _)| to.name != from.name) {
                let answers = from.netns().can_ping(&address.to_string())?;
                ensure!(answers, "{} gets no answer from {} ({address})", from.name, to.name);
                note(&format!("{} -> {} ({address}): answered", from.name, to.name));
            }
            let node = self.node.address();
            ensure!(from.netns().can_ping(node)?, "{} gets no answer from its node", from.name);
            note(&format!("{} -> node-a ({node}): answered", from.name));
        }
        for (to, address) in pods {
            let answers = self.node.namespace().can_ping(&address.to_string())?;
            ensure!(answers, "the node gets no answer from {} ({address})", to.name);
            note(&format!("node-a -> {} ({address}): answered", to.name));
        }
        Ok(())
    }

    fn show_kernel(&self, pod: &Pod) -> Result<()> {
        step("What the kernel holds");
        for arguments in [&["-4", "route", "show"][..], &["-4", "neigh", "show", "nud", "permanent"]] {
            let shown = self.node.namespace().ip(arguments)?;
            ensure!(!shown.trim().is_empty(), "the node holds nothing: ip {}", arguments.join(" "));
            command(&format!("ip {}", arguments.join(" ")), "node-a");
            show(&shown);
        }
        for arguments in [&["-4", "-br", "address", "show", "dev", "eth0"][..], &["-4", "route", "show"]] {
            let shown = pod.netns().ip(arguments)?;
            command(&format!("ip {}", arguments.join(" ")), &pod.name);
            show(&shown);
        }
        Ok(())
    }

    fn show_nothing_is_left(&self) -> Result<()> {
        step("Nothing is left");
        let node = self.node.namespace();
        for (what, shown) in [
            ("cali* links", node.ip(&["-br", "link", "show", "type", "veth"])?),
            ("routes", node.ip(&["-4", "route", "show"])?),
            ("permanent neighbours", node.ip(&["-4", "neigh", "show", "nud", "permanent"])?),
            ("endpoint records", self.plumb_names(&["get", "wep", "-A"])?),
            ("address handles", self.plumb_names(&["get", "ipamhandles"])?),
            ("taken addresses", self.taken_addresses()?),
        ] {
            ensure!(shown.trim().is_empty(), "{what} are left: {shown}");
            note(&format!("no {what}"));
        }
        note("what stays: the pool, and the node's claim on its block, for the next pods");
        Ok(())
    }

    fn taken_addresses(&self) -> Result<String> {
        let blocks: serde_json::Value =
            serde_json::from_str(&self.plumb_output(&["get", "ipamblocks", "-o", "json"])?)?;
        let items = blocks["items"].as_array().context("plumb lists blocks as items")?;
        ensure!(!items.is_empty(), "the node's block has disappeared");
        let allocations = items.iter().filter_map(|block| block["spec"]["allocations"].as_array()).flatten();
        let taken: Vec<String> =
            allocations.filter(|entry| !entry.is_null()).map(ToString::to_string).collect();
        Ok(taken.join(" "))
    }

    fn plumb_names(&self, arguments: &[&str]) -> Result<String> {
        self.plumb_output(&[arguments, &["-o", "name"]].concat())
    }

    /// Runs `plumb` and shows what it prints.
    fn plumb(&self, arguments: &[&str], shown_as: &str) -> Result<()> {
        let output = self.plumb_output(arguments)?;
        command(&format!("plumb {shown_as}"), "");
        show(&output);
        Ok(())
    }

    fn plumb_output(&self, arguments: &[&str]) -> Result<String> {
        let mut plumb = Command::new(self.lab.programs().plumb());
        let output =
            plumb.arg("-c").arg(&self.config).args(arguments).output().context("cannot run plumb")?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "plumb {} failed: {}", arguments.join(" "), errors.trim());
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

fn step(title: &str) {
    println!("\n== {title}");
}

fn note(line: &str) {
    println!("   {line}");
}

fn command(line: &str, place: &str) {
    let place = if place.is_empty() { String::new() } else { format!("[{place}] ") };
    println!("   {place}$ {line}");
}

fn show(text: &str) {
    for line in text.lines() {
        println!("     {}", line.trim_end());
    }
}
