//! Stories with other plugins: one that gives us addresses, and one that gets them from us.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::cells::Cell;
use crate::scene::Scene;
use crate::stories::{POD, arm};

/// Has an address book of its own.
pub(crate) const NETWORK: &str = "others";
/// Before the lab's own.
const CONFLIST: &str = "etc/cni/net.d/05-others.conflist";
/// Where `host-local` keeps what it has given.
const GIVEN: &str = "run/host-local";

/// `host-local` gives the address, and we do the rest.
pub(crate) fn agent_dies_delegating(scene: &Scene, cell: &Cell) -> Result<()> {
    let folder = format!("/{GIVEN}");
    let ipam = json!({"type": "host-local", "subnet": "10.99.0.0/24", "dataDir": folder});
    live_and_die(scene, cell, json!({"type": "plumb-cni", "mtu": 1450, "ipam": ipam}))?;
    let given =
        fs::read_dir(scene.root()?.join(GIVEN).join(NETWORK)).context("host-local has given something")?;
    let is_address = |name: &String| name.starts_with("10.");
    let left: Vec<String> = given
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<Vec<String>>>()?
        .into_iter()
        .filter(is_address)
        .collect();
    ensure!(left.is_empty(), "host-local still counts on {left:?}");
    Ok(())
}

/// `ptp` makes the network, with an address of ours.
pub(crate) fn agent_dies_giving(scene: &Scene, cell: &Cell) -> Result<()> {
    live_and_die(scene, cell, json!({"type": "ptp", "mtu": 1450, "ipam": {"type": "plumb-ipam"}}))
}

/// A pod comes to run in that network in spite of the agent's death, and ends.
fn live_and_die(scene: &Scene, cell: &Cell, mut plugin: Value) -> Result<()> {
    arm(scene, cell)?;
    plugin["agent_socket"] = json!("/run/plumb/agent.sock");
    // Debian's plugins know no later version.
    let conflist = json!({"cniVersion": "1.0.0", "name": NETWORK, "plugins": [plugin]});
    let path = scene.root()?.join(CONFLIST);
    fs::write(&path, conflist.to_string())?;
    scene.begin_add(POD)?;
    scene.see_agent_die_at(&cell.point)?;
    scene.start_agent()?;
    scene.wait_until_running(POD)?;
    scene.delete(POD)?;
    Ok(fs::remove_file(path)?)
}
