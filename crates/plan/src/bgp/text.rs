//! BIRD's configuration, as text.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;
use model::Cidr;

use super::filter::{Direction, add_community};
use super::records::{BgpNode, NextHop};
use super::session::{Password, Session, SessionKind};
use super::{BgpPool, BgpView};

/// Names of the protocols whose routes are announced.
const OWN: &str = "own";
const SERVICES: &str = "services";
/// Ways to peers that are not in any network of the node.
const REACH: &str = "reach";

const LOG_BYTES_MAX: u32 = 1 << 20;
const PASSWORD_MAX: usize = 80;
/// BIRD's own limit is far above; it ends where a text is longer still.
const TEXT_MAX: usize = 1024;

/// Devices whose networks are nobody else's business.
const HIDDEN_DEVICES: [&str; 5] = ["cali*", "kube-ipvs*", "vxlan*.calico", "tunl0", "wireguard.cali"];

/// The two halves of the configuration: one for each IP version.
#[derive(Clone, Copy)]
struct Family {
    is_ipv4: bool,
    /// `ipv4` or `ipv6`: BIRD's name of the channel.
    channel: &'static str,
    /// Put behind names.
    suffix: &'static str,
}

const FAMILIES: [Family; 2] = [
    Family { is_ipv4: true, channel: "ipv4", suffix: "v4" },
    Family { is_ipv4: false, channel: "ipv6", suffix: "v6" },
];

pub(super) fn render(view: &BgpView, own: &BgpNode, sessions: &[Session]) -> String {
    let mut text =
        String::from("# Made by plumbd from the records of the cluster. Changes are overwritten.\n\n");
    let place = match view.log_file.as_deref().filter(|file| is_quotable(file)) {
        Some(file) => format!("\"{file}\" {LOG_BYTES_MAX} \"{file}.1\""),
        None => "stderr".to_owned(),
    };
    let _ = writeln!(text, "log {place} {{ info, remote, warning, error, auth, fatal, bug }};");
    let _ = writeln!(text, "router id {};", router_id(view, own));
    text.push_str("\nprotocol device { scan time 2; }\n");
    direct(&mut text, &view.settings.ignored_devices);
    for family in FAMILIES {
        static_routes(&mut text, view, own, sessions, family);
        announced(&mut text, view, own, family);
        from_mesh(&mut text, view, family);
        kernel(&mut text, view, family);
    }
    for session in sessions.iter().filter(|session| session.is_made()) {
        self::session(&mut text, view, own, session);
    }
    text
}

/// A text that BIRD reads between quotes as it stands.
pub(super) fn is_quotable(text: &str) -> bool {
    !text.is_empty() && text.len() <= TEXT_MAX && !text.contains(['"', '\n', '\r', '\0'])
}

/// What BIRD and the kernel take: signatures of TCP have keys of up to 80 bytes.
pub(super) fn is_password(text: &str) -> bool {
    is_quotable(text) && text.len() <= PASSWORD_MAX
}

/// The node's IPv4 address. A node that has none gets a number of its own, out of its name.
fn router_id(view: &BgpView, own: &BgpNode) -> Ipv4Addr {
    if let Some(id) = view.router_id {
        return id;
    }
    match own.v4 {
        Some(IpAddr::V4(address)) => address,
        _ => {
            let hash = view
                .node
                .bytes()
                .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
            Ipv4Addr::from(hash.max(1))
        }
    }
}

/// Networks of the node's cards: next hops are looked up there.
fn direct(text: &mut String, ignored: &[String]) {
    let ignored = ignored.iter().map(String::as_str);
    let hidden: Vec<String> =
        HIDDEN_DEVICES.into_iter().chain(ignored).map(|name| format!("-\"{name}\"")).collect();
    let _ = writeln!(text, "protocol direct {{ ipv4; ipv6; interface {}, \"*\"; }}", hidden.join(", "));
}

fn static_routes(text: &mut String, view: &BgpView, node: &BgpNode, sessions: &[Session], family: Family) {
    let suffix = family.suffix;
    let services: &[IpNet] = if node.is_kept_from_services() { &[] } else { &view.settings.services };
    let blocks = view.blocks.iter().filter_map(|block| block.to_string().parse::<IpNet>().ok());
    let borrowed = view.borrowed.iter().map(|address| IpNet::from(*address));
    // What a record claims outside of the pools is nobody's to announce.
    let own: Vec<IpNet> = blocks.chain(borrowed).filter(|net| is_in_pool(view, net)).collect();
    let mut group = |name: &str, routes: Vec<String>| {
        let _ = writeln!(text, "\nprotocol static {name}_{suffix} {{\n  {};", family.channel);
        for route in routes {
            let _ = writeln!(text, "  route {route};");
        }
        text.push_str("}\n");
    };
    let blackholes = |nets: Vec<IpNet>| nets.iter().map(|net| format!("{net} blackhole")).collect();
    group(OWN, blackholes(view.networks(&own, family.is_ipv4)));
    group(SERVICES, blackholes(view.networks(services, family.is_ipv4)));
    let reach = sessions.iter().filter(|session| session.peer.is_ipv4() == family.is_ipv4);
    let reach = reach.filter_map(|session| {
        let gateway = session.options.reachable_by.filter(|gateway| gateway.is_ipv4() == family.is_ipv4)?;
        Some(format!("{} via {gateway}", IpNet::from(session.peer)))
    });
    let mut reach: Vec<String> = reach.collect();
    reach.sort_unstable();
    reach.dedup();
    group(REACH, reach);
}

/// What is told to every peer, after its own filters: what this node has, and on a route reflector what others told it of pools.
fn announced(text: &mut String, view: &BgpView, own: &BgpNode, family: Family) {
    let suffix = family.suffix;
    let _ = writeln!(text, "\nfunction announce_{suffix}() {{");
    let pools = || view.pools.iter().filter(|pool| is_of(pool, family));
    let hidden: Vec<String> =
        pools().filter(|pool| !pool.is_exported).map(|pool| format!("{}+", pool.cidr)).collect();
    if !hidden.is_empty() {
        let _ = writeln!(text, "  if net ~ [ {} ] then reject;", hidden.join(", "));
    }
    for (net, communities) in &view.settings.advertisements {
        if net.addr().is_ipv4() == family.is_ipv4 {
            let adds: Vec<String> = communities.iter().map(add_community).collect();
            let _ = writeln!(text, "  if net ~ [ {net}+ ] then {{ {} }}", adds.join(" "));
        }
    }
    let _ = writeln!(text, "  if proto = \"{OWN}_{suffix}\" then accept;");
    let _ = writeln!(text, "  if proto = \"{SERVICES}_{suffix}\" then accept;");
    let shown: Vec<String> =
        pools().filter(|pool| pool.is_exported).map(|pool| format!("{}+", pool.cidr)).collect();
    if own.cluster_id.is_some() && !shown.is_empty() {
        let _ = writeln!(text, "  if source = RTS_BGP && net ~ [ {} ] then accept;", shown.join(", "));
    }
    text.push_str("  reject;\n}\n");
}

/// What is taken from nodes of the mesh: what pools hold, and the ranges of services, which every node announces. No node needs to be told
/// the way to another, so nothing that holds a node's address.
fn from_mesh(text: &mut String, view: &BgpView, family: Family) {
    let _ = writeln!(text, "\nfunction from_mesh_{}() {{", family.suffix);
    let pools = view.pools.iter().filter(|pool| is_of(pool, family)).map(|pool| format!("{}+", pool.cidr));
    let services = view.networks(&view.settings.services, family.is_ipv4);
    let taken: Vec<String> = pools.chain(services.iter().map(|net| format!("{net}+"))).collect();
    let addresses = view.nodes.values().flat_map(BgpNode::addresses).map(IpNet::from);
    let refused =
        view.refused.iter().filter(|cidr| (cidr.version() == model::IpVersion::V4) == family.is_ipv4);
    let mut kept_out: Vec<String> = addresses
        .filter(|net| net.addr().is_ipv4() == family.is_ipv4 && is_in_pool(view, net))
        .map(|net| format!("{net}-"))
        .collect();
    kept_out.extend(refused.map(ToString::to_string));
    kept_out.sort_unstable();
    kept_out.dedup();
    if !kept_out.is_empty() {
        let _ = writeln!(text, "  if net ~ [ {} ] then reject;", kept_out.join(", "));
    }
    if !taken.is_empty() {
        let _ = writeln!(text, "  if net ~ [ {} ] then accept;", taken.join(", "));
    }
    text.push_str("  reject;\n}\n");
}

fn is_in_pool(view: &BgpView, net: &IpNet) -> bool {
    let net = Cidr::containing(net.addr(), net.prefix_len());
    net.is_some_and(|net| view.pools.iter().any(|pool| pool.cidr.contains_cidr(&net)))
}

/// Which routes get into the kernel: those from outside, and those into pools that are BIRD's to write.
fn kernel(text: &mut String, view: &BgpView, family: Family) {
    let (suffix, channel) = (family.suffix, family.channel);
    let _ = writeln!(text, "\nfilter to_kernel_{suffix} {{");
    let _ = writeln!(text, "  if proto = \"{REACH}_{suffix}\" then accept;");
    text.push_str("  if source != RTS_BGP then reject;\n");
    let agents = view
        .pools
        .iter()
        .filter(|pool| is_of(pool, family) && !pool.is_birds)
        .map(|pool| format!("{}+", pool.cidr));
    let services = view.networks(&view.settings.services, family.is_ipv4);
    let kept_out: Vec<String> = agents.chain(services.iter().map(|net| format!("{net}+"))).collect();
    if !kept_out.is_empty() {
        let _ = writeln!(text, "  if net ~ [ {} ] then reject;", kept_out.join(", "));
    }
    text.push_str("  accept;\n}\n");
    let _ = writeln!(
        text,
        "protocol kernel kernel_{suffix} {{\n  learn;\n  persist;\n  scan time 2;\n  merge paths on;\n  graceful restart;\n  {channel} {{ import all; \
         export filter to_kernel_{suffix}; }};\n}}"
    );
}

fn is_of(pool: &BgpPool, family: Family) -> bool {
    (pool.cidr.version() == model::IpVersion::V4) == family.is_ipv4
}

fn session(text: &mut String, view: &BgpView, own: &BgpNode, session: &Session) {
    let options = &session.options;
    let _ = writeln!(text, "\nprotocol bgp {} {{", session.name());
    let mut line = |words: String| {
        let _ = writeln!(text, "  {words}");
    };
    if let Some(node) = session.node.as_deref().filter(|node| is_quotable(node)) {
        line(format!("description \"node {node}\";"));
    }
    let port = view.settings.port_of(&view.node);
    let source = if options.uses_node_address { format!("{} ", session.own) } else { String::new() };
    line(format!("local {source}port {port} as {};", session.local_as));
    let port = session.port.map_or_else(String::new, |port| format!("port {port} "));
    line(format!("neighbor {} {port}as {};", session.peer, session.peer_as));
    match options.hops {
        Some(hops) => {
            line(format!("multihop {hops};"));
            line("ttl security on;".to_owned());
        }
        None => line("multihop;".to_owned()),
    }
    line("connect delay time 1;".to_owned());
    line("connect retry time 5;".to_owned());
    line("error wait time 1, 30;".to_owned());
    line("graceful restart on;".to_owned());
    if let Some(seconds) = options.restart_seconds {
        line(format!("graceful restart time {seconds};"));
    }
    if let Some(seconds) = options.keepalive_seconds {
        line(format!("keepalive time {seconds};"));
        line(format!("hold time {};", seconds.saturating_mul(3).clamp(3, 65_535)));
    }
    if let Some(count) = options.allowed_local_as {
        line(format!("allow local as {count};"));
    }
    if session.is_passive {
        line("passive on;".to_owned());
    }
    if view.settings.binds_to_node_address && options.uses_node_address {
        line("strict bind on;".to_owned());
    }
    if session.is_client {
        line("rr client;".to_owned());
        line(format!("rr cluster id {};", own.cluster_id.expect("only a route reflector has clients")));
    }
    if let Password::Known(secret) = &session.password {
        line(format!("password \"{}\";", view.secrets[secret]));
    }
    channel(text, view, session);
    text.push_str("}\n");
}

/// What is exchanged.
fn channel(text: &mut String, view: &BgpView, session: &Session) {
    let family = FAMILIES[usize::from(!session.peer.is_ipv4())];
    let _ = writeln!(text, "  {} {{", family.channel);
    let taken = match session.kind {
        SessionKind::Mesh => format!("from_mesh_{}();", family.suffix),
        SessionKind::Global | SessionKind::Node => "accept;".to_owned(),
    };
    match &session.filters {
        None => text.push_str("    import none;\n    export none;\n"),
        Some(filters) => {
            for (direction, word, last) in [
                (Direction::Import, "import", taken.clone()),
                (Direction::Export, "export", format!("announce_{}();", family.suffix)),
            ] {
                let _ = writeln!(text, "    {word} filter {{");
                for statement in
                    filters.iter().flat_map(|name| view.filters[name].statements(direction, session))
                {
                    let _ = writeln!(text, "      {statement}");
                }
                let _ = writeln!(text, "      {last}\n    }};");
            }
        }
    }
    match session.options.next_hop {
        NextHop::Auto => {}
        NextHop::Own => text.push_str("    next hop self;\n"),
        NextHop::Keep => text.push_str("    next hop keep;\n"),
    }
    text.push_str("    gateway recursive;\n    add paths on;\n  };\n");
}
