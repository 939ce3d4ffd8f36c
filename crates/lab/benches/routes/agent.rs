//! The real agent on a node, and whether packets would find their way.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use lab::{Lab, Node};
use testkit::PATIENCE;
use testkit::process::{Process, command};

use crate::world::World;

/// How long to wait between two tries.
const TICK: Duration = Duration::from_micros(100);

pub(crate) struct Agent {
    process: Option<Process>,
    number: u8,
    node: Node,
}

impl Agent {
    /// Starts it on a node that has its card, and waits until it is ready.
    pub(crate) fn start(lab: &Lab, node: Node, world: &World, number: u8) -> Result<Agent> {
        let mut agent = Agent { process: None, number, node };
        agent.restart(lab, world)?;
        Ok(agent)
    }

    pub(crate) fn restart(&mut self, lab: &Lab, world: &World) -> Result<()> {
        self.process = None;
        let folder = lab.state_folder(&self.node);
        std::fs::create_dir_all(&folder)?;
        let log = File::options().create(true).append(true).open(folder.join("agent.log"))?;
        let mut agent = command("ip");
        agent.args(["netns", "exec", self.node.namespace().name()]).arg(lab.programs().daemon());
        agent.args(["node", "--node-name", &format!("here-{}", self.number), "--doctor-every", "0s"]);
        agent.arg("--socket").arg(folder.join("agent.sock")).arg("--state-dir").arg(&folder);
        agent.envs(world.place.environment()).env("NO_DEFAULT_POOLS", "true");
        agent.env("IP", format!("{}/12", World::own_address(self.number)));
        agent.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.process = Some(Process::spawn(agent)?);
        let deadline = Instant::now() + PATIENCE;
        while !self.is_ready()? {
            ensure!(
                Instant::now() < deadline,
                "the agent never got ready: {}",
                tail(&folder.join("agent.log"))
            );
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.as_ref().expect("it was started").id()
    }

    pub(crate) fn visit<T: Send>(&self, act: impl FnOnce() -> T + Send) -> Result<T> {
        self.node.namespace().visit(act)
    }

    fn is_ready(&self) -> Result<bool> {
        self.visit(|| {
            let Ok(mut stream) = TcpStream::connect("127.0.0.1:9099") else { return false };
            let mut answer = String::new();
            let asked = stream.write_all(b"GET /readiness HTTP/1.1\r\n\r\n");
            asked.and_then(|()| stream.read_to_string(&mut answer)).is_ok()
                && answer.starts_with("HTTP/1.1 200")
        })
    }

    /// Waits until packets to this address can be sent; nothing is sent.
    pub(crate) fn await_route(&self, address: Ipv4Addr) -> Result<()> {
        self.visit(|| {
            let socket = UdpSocket::bind("0.0.0.0:0")?;
            let deadline = Instant::now() + PATIENCE;
            while socket.connect((address, 9)).is_err() {
                ensure!(Instant::now() < deadline, "{address} is never routed");
                std::thread::sleep(TICK);
            }
            Ok(())
        })?
    }

    fn routes(&self) -> Result<String> {
        let protocol = plan::between::BETWEEN_PROTOCOL.to_string();
        self.node.namespace().ip(&["-4", "route", "show", "proto", &protocol])
    }

    pub(crate) fn route_count(&self) -> Result<usize> {
        Ok(self.routes()?.lines().count())
    }

    pub(crate) fn flush_routes(&mut self) -> Result<()> {
        // The agent would put them back.
        self.process = None;
        let protocol = plan::between::BETWEEN_PROTOCOL.to_string();
        self.node
            .namespace()
            .ip(&["-4", "route", "flush", "proto", &protocol])
            .context("cannot flush the routes")?;
        Ok(())
    }
}

fn tail(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(10)..].join("\n")
}
