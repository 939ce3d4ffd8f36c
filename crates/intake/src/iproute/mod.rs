//! What `ip link`, `ip addr`, `ip route`, `ip neigh`, `route` and `arp` print, as text. Each line tells by itself what
//! it is, except those that belong to the device or the heading above them.

mod arp;
mod brief;
mod fdb;
pub(crate) mod json;
mod legacy;
mod link;
mod neigh;
mod route;
mod rule;

use std::collections::BTreeSet;

use evidence::kernel::{Kernel, Route};
use evidence::{Origin, Sighted};

/// Reads lines of these tools into a kernel.
#[derive(Debug, Default)]
pub(crate) struct IpReader {
    pub(crate) kernel: Kernel,
    /// Names of the kernel's links.
    known: BTreeSet<String>,
    /// The device whose lines are being read.
    device: Option<String>,
    is_in_arp_table: bool,
    /// A route whose several ways are being read.
    parted: Option<Route>,
    is_in_brief_list: bool,
    /// The heading of `route`'s table.
    columns: Option<legacy::Columns>,
    /// Some of its routes are to names, and left out.
    has_names: bool,
}

impl IpReader {
    /// Takes in a line. `false`: it is none of these tools'.
    pub(crate) fn line(&mut self, text: &str, origin: impl Fn() -> Origin) -> bool {
        if let Some(link) = link::head(text) {
            self.device = Some(link.name.clone());
            self.known.insert(link.name.clone());
            self.kernel.links.get_or_insert_default().push(Sighted::new(link, origin()));
            return true;
        }
        if link::detail(text, self.kernel.links.as_mut().and_then(|links| links.last_mut())) {
            return true;
        }
        if let Some(address) = link::address(text, self.device.as_deref()) {
            self.kernel.addresses.get_or_insert_default().push(Sighted::new(address, origin()));
            return true;
        }
        if let Some(forward) = fdb::read(text) {
            let known = self.kernel.forwards.get_or_insert_default();
            if let fdb::Entry::Forward(forward) = forward {
                known.push(Sighted::new(forward, origin()));
            }
            return true;
        }
        if let Some(neighbour) = neigh::read(text) {
            self.kernel.neighbours.get_or_insert_default().push(Sighted::new(neighbour, origin()));
            return true;
        }
        if let Some(rule) = rule::read(text) {
            self.kernel.rules.get_or_insert_default().push(Sighted::new(rule, origin()));
            return true;
        }
        if let Some(route) = route::read(text) {
            self.kernel.routes.get_or_insert_default().push(Sighted::new(route, origin()));
            return true;
        }
        self.parted_route(text, &origin)
            || self.legacy_route(text, &origin)
            || self.brief_line(text, &origin)
            || self.arp_line(text, &origin)
            || self.sysctl_line(text)
    }

    fn parted_route(&mut self, text: &str, origin: &impl Fn() -> Origin) -> bool {
        if let Some(route) = self.parted.as_ref().and_then(|head| route::next_hop(text, head)) {
            self.kernel.routes.get_or_insert_default().push(Sighted::new(route, origin()));
            return true;
        }
        self.parted = route::head(text);
        self.parted.is_some()
    }

    fn legacy_route(&mut self, text: &str, origin: &impl Fn() -> Origin) -> bool {
        if let Some(columns) = legacy::header(text) {
            self.columns = Some(columns);
            self.kernel.routes.get_or_insert_default();
            return true;
        }
        if legacy::is_title(text) {
            return true;
        }
        let Some(entry) = self.columns.as_ref().and_then(|columns| legacy::read(text, columns)) else {
            return false;
        };
        // Names in place of networks do not tell which.
        if let legacy::Entry::Route(route) = entry {
            self.kernel.routes.get_or_insert_default().push(Sighted::new(route, origin()));
        } else {
            self.has_names = true;
        }
        true
    }

    fn brief_line(&mut self, text: &str, origin: &impl Fn() -> Origin) -> bool {
        let brief = brief::read(text, self.is_in_brief_list);
        self.is_in_brief_list = brief.is_some();
        let Some(brief) = brief else { return false };
        // Links and addresses are asked for one after the other: the second list has nothing new to say of the device.
        if self.known.insert(brief.link.name.clone()) {
            self.kernel.links.get_or_insert_default().push(Sighted::new(brief.link, origin()));
        }
        for address in brief.addresses.into_iter().flatten() {
            self.kernel.addresses.get_or_insert_default().push(Sighted::new(address, origin()));
        }
        true
    }

    fn arp_line(&mut self, text: &str, origin: &impl Fn() -> Origin) -> bool {
        if arp::is_header(text) {
            self.is_in_arp_table = true;
            self.kernel.neighbours.get_or_insert_default();
            return true;
        }
        let Some(entry) = arp::read(text, self.is_in_arp_table) else { return false };
        // Names in place of addresses cannot be told from each other.
        if let arp::Entry::Neighbour(neighbour) = entry {
            self.kernel.neighbours.get_or_insert_default().push(Sighted::new(neighbour, origin()));
        }
        true
    }

    /// Lines that stand without meaning under a device: `valid_lft forever`.
    fn sysctl_line(&self, text: &str) -> bool {
        let text = text.trim_start();
        self.device.is_some() && (text.starts_with("valid_lft") || text.starts_with("alias "))
    }

    /// What the command was asked tells whether its answer is whole; without a command, what the answer holds.
    pub(crate) fn finish(mut self, command: Option<&str>) -> Kernel {
        let is_filtered = command.is_some_and(|command| {
            let words: Vec<&str> = command.split_whitespace().collect();
            let after_show =
                words.iter().skip_while(|word| !matches!(**word, "show" | "list" | "ls")).nth(1).is_some();
            command.contains('|') || after_show || words.contains(&"get")
        });
        if let Some(table) = command.and_then(rule::asked_table)
            && let Some(mut routes) = self.kernel.routes.take()
        {
            routes.iter_mut().for_each(|route| route.seen.table = Some(table.to_owned()));
            self.kernel.other_routes = Some(routes);
        }
        let routes = self.kernel.routes.iter().flatten();
        let has_default = routes.clone().any(|route| {
            route.seen.destination.prefix_len() == 0 || route.seen.protocol.as_deref() == Some("kernel")
        });
        let has_loopback = self.kernel.links.iter().flatten().any(|link| link.seen.name == "lo");
        let partial = &mut self.kernel.partial;
        partial.routes = self.kernel.routes.is_some() && (is_filtered || !has_default || self.has_names);
        partial.links = self.kernel.links.is_some() && (is_filtered || !has_loopback);
        partial.addresses = self.kernel.addresses.is_some() && (is_filtered || !has_loopback);
        partial.neighbours = self.kernel.neighbours.is_some() && (is_filtered || command.is_none());
        self.kernel
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use evidence::kernel::{NeighbourState, RouteKind};

    fn read(text: &str, command: Option<&str>) -> Kernel {
        let mut reader = IpReader::default();
        for line in text.lines() {
            assert!(reader.line(line, || Origin::file("f")), "{line}");
        }
        reader.finish(command)
    }

    #[test]
    fn links_and_addresses() {
        let kernel = read(
            "1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 qdisc noqueue state UNKNOWN group default qlen 1000\n    \
             link/loopback 00:00:00:00:00:00 brd 00:00:00:00:00:00\n    inet 127.0.0.1/8 scope host lo\n       \
             valid_lft forever preferred_lft forever\n\
             2: ens18: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc fq_codel state UP\n    \
             link/ether 52:54:00:12:34:56 brd ff:ff:ff:ff:ff:ff\n    \
             inet 172.17.73.66/22 brd 172.17.75.255 scope global ens18\n    \
             inet 172.17.73.63/22 scope global secondary ens18\n    \
             inet6 fe80::1/64 scope link dadfailed tentative\n\
             57: cali69de609d5af@if3: <BROADCAST,MULTICAST> mtu 1440 qdisc noqueue state DOWN\n    \
             link/ether ee:ee:ee:ee:ee:ee brd ff:ff:ff:ff:ff:ff link-netnsid 2\n    alias plumb/k/c/eth0",
            None,
        );
        let links = kernel.links.as_ref().unwrap();
        assert_eq!(links.len(), 3);
        let cali = &links[2].seen;
        assert_eq!((cali.index, cali.peer_index, cali.mtu), (Some(57), Some(3), Some(1440)));
        assert_eq!((cali.is_up, cali.has_peer_elsewhere), (Some(false), Some(true)));
        assert_eq!(cali.alias.as_deref(), Some("plumb/k/c/eth0"));
        let addresses = kernel.addresses.as_ref().unwrap();
        assert_eq!(addresses.len(), 4);
        assert!(addresses[2].seen.is_secondary && addresses[3].seen.is_duplicate);
        assert_eq!(addresses[3].seen.device, "ens18");
        assert!(!kernel.partial.links && !kernel.partial.addresses);
    }

    #[test]
    fn lines_of_a_grep_name_their_device() {
        let kernel = read("    inet 172.17.73.65/22 brd 172.17.75.255 scope global ens18", None);
        let address = &kernel.addresses.as_ref().unwrap()[0].seen;
        assert_eq!((address.device.as_str(), address.net.to_string().as_str()), ("ens18", "172.17.73.65/22"));
        assert!(kernel.partial.addresses);
    }

    #[test]
    fn routes() {
        let kernel = read(
            "default via 10.0.0.1 dev eth0 proto dhcp src 10.0.0.5 metric 100\n\
             blackhole 192.168.8.0/26 proto bird\n192.168.9.0/26 via 10.0.0.6 dev tunl0 proto bird onlink\n\
             192.168.8.42 dev cali69de609d5af  scope link\nunreachable 10.9.0.0/16 metric 1 linkdown\n\
             fd00::/64 dev eth0 proto kernel metric 256 pref medium",
            Some("ip route"),
        );
        let routes = kernel.routes.as_ref().unwrap();
        let kinds: Vec<RouteKind> = routes.iter().map(|route| route.seen.kind).collect();
        assert_eq!(kinds[1], RouteKind::Blackhole);
        assert_eq!(kinds[4], RouteKind::Unreachable);
        assert_eq!(routes[0].seen.source.unwrap().to_string(), "10.0.0.5");
        assert!(routes[2].seen.is_onlink && routes[2].seen.protocol.as_deref() == Some("bird"));
        assert_eq!(routes[3].seen.to_string(), "192.168.8.42/32 dev cali69de609d5af");
        assert!(!kernel.partial.routes);
        assert!(read("10.0.0.1 dev cali1 scope link", None).partial.routes);
        assert!(read("default via 10.0.0.1 dev eth0", Some("ip route | grep default")).partial.routes);
    }

    #[test]
    fn routes_with_several_ways() {
        let kernel = read(
            "default proto static metric 1024 \n\tnexthop via fe80::1 dev eth0 weight 1 \n\tnexthop via fe80::2 dev eth1 weight 1 \n\
             192.168.9.0/26 proto bird \n\tnexthop via 10.0.0.6 dev eth0 weight 1 onlink \n\tnexthop dev tun0 weight 1 dead linkdown \n\
             10.0.0.0/24 dev eth0 proto kernel scope link src 10.0.0.5",
            Some("ip route"),
        );
        let told: Vec<String> = kernel.routes.iter().flatten().map(|route| route.seen.to_string()).collect();
        assert_eq!(
            told,
            [
                "::/0 via fe80::1 dev eth0",
                "::/0 via fe80::2 dev eth1",
                "192.168.9.0/26 via 10.0.0.6 dev eth0",
                "192.168.9.0/26 dev tun0",
                "10.0.0.0/24 dev eth0"
            ]
        );
        let routes = kernel.routes.unwrap();
        assert!(routes[2].seen.protocol.as_deref() == Some("bird") && routes[2].seen.is_onlink);
        assert!(routes[3].seen.is_dead && !routes[2].seen.is_dead);
        assert!(!IpReader::default().line("\tnexthop via 10.0.0.6 dev eth0", || Origin::file("f")));
    }

    #[test]
    fn details_and_statistics_of_links() {
        let kernel = read(
            "2: ens3: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc fq_codel state UP mode DEFAULT group default qlen 1000\n    \
             link/ether fa:16:3e:11:22:33 brd ff:ff:ff:ff:ff:ff promiscuity 0 minmtu 68 maxmtu 65535 addrgenmode eui64\n    \
             altname enp0s3\n    RX: bytes  packets  errors  dropped overrun mcast   \n    98273498   982734   0       12      0       0       \n    \
             TX: bytes  packets  errors  dropped carrier collsns \n    98273498   982734   0       0       0       0       \n\
             6: vxlan.calico: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1450 qdisc noqueue state UNKNOWN mode DEFAULT group default \n    \
             link/ether 66:5d:11:22:33:44 brd ff:ff:ff:ff:ff:ff promiscuity 0 \n    \
             vxlan id 4096 local 10.0.0.12 dev ens3 srcport 0 0 dstport 4789 nolearning ttl auto ageing 300 udpcsum\n\
             8: veth0: <BROADCAST> mtu 1500\n    link/ether 66:5d:11:22:33:45\n    bridge_slave state forwarding priority 32 cost 2\n    vlan protocol 802.1Q id 7 <REORDER_HDR>",
            Some("ip -d -s link"),
        );
        let links = kernel.links.as_ref().unwrap();
        assert_eq!(links.len(), 3);
        assert_eq!(links[1].seen.vxlan.as_ref().unwrap().vni, Some(4096));
    }

    /// `/proc/net/arp`
    #[test]
    fn the_kernels_own_table_of_neighbours() {
        let kernel = read(
            "IP address       HW type     Flags       HW address            Mask     Device\n\
             10.0.0.1         0x1         0x2         fa:16:3e:99:99:99     *        ens3\n\
             10.0.0.13        0x1         0x0         00:00:00:00:00:00     *        ens3\n\
             192.168.84.131   0x1         0x6         3a:11:22:33:44:55     *        cali11111111111\n\
             10.0.0.14        0x1         0xc         00:00:00:00:00:00     *        ens3",
            None,
        );
        let neighbours = kernel.neighbours.as_ref().unwrap();
        let states: Vec<NeighbourState> = neighbours.iter().map(|neighbour| neighbour.seen.state).collect();
        use NeighbourState::{Known, Missing, Permanent};
        assert_eq!(states, [Known, Missing, Permanent, Permanent]);
        assert!(neighbours[3].seen.is_proxy && !neighbours[2].seen.is_proxy);
        assert_eq!((neighbours[1].seen.mac, neighbours[2].seen.device.as_str()), (None, "cali11111111111"));
    }

    #[test]
    fn neighbours() {
        let kernel = read(
            "192.168.91.33 dev calic49657a1e1a lladdr 9e:83:2f:5d:c5:1e PERMANENT\n169.254.1.1 dev eth0  INCOMPLETE\n\
             fe80::1 dev eth0 lladdr ee:ee:ee:ee:ee:ee router STALE\n10.0.0.1 dev eth0 FAILED\n\
             ? (169.254.1.1) at <incomplete>  on eth0\n? (10.0.0.9) at ee:ee:ee:ee:ee:ee [ether] PERM on cali1\n\
             Address                  HWtype  HWaddress           Flags Mask            Iface\n\
             192.168.8.42             ether   b2:21:5b:82:e1:27   CM                    cali69de609d5af\n\
             gateway                  ether   ea:88:97:5f:06:d9   C                     eth0\n\
             10.0.0.7                         (incomplete)                              eth0",
            None,
        );
        let states: Vec<NeighbourState> =
            kernel.neighbours.iter().flatten().map(|neighbour| neighbour.seen.state).collect();
        use NeighbourState::{Known, Missing, Permanent, Stale};
        assert_eq!(states, [Permanent, Missing, Stale, Missing, Missing, Permanent, Permanent, Missing]);
        assert_eq!(kernel.neighbours.as_ref().unwrap()[7].seen.device, "eth0");
        assert_ne!(states[0], Known);
    }

    proptest! {
        #[test]
        fn any_line_can_be_tried(lines in prop::collection::vec("\\PC{0,60}", 0..6)) {
            let mut reader = IpReader::default();
            for line in &lines {
                reader.line(line, || Origin::file("f"));
            }
            reader.finish(None);
        }

        #[test]
        fn words_in_any_order_are_survived(words in prop::collection::vec("(via|nexthop|dev|10\\.0\\.0\\.1|default|lladdr|metric|inet|at|on|peer|UP|DOWN|<UP>|\\*|UG|255\\.255\\.0\\.0|\\d: x@y: <UP>|[a-z]{1,4})", 0..9)) {
            let mut reader = IpReader::default();
            reader.line("Destination Gateway Genmask Flags Metric Ref Use Iface", || Origin::file("f"));
            reader.line("lo UNKNOWN 127.0.0.1/8", || Origin::file("f"));
            reader.line(&words.join(" "), || Origin::file("f"));
        }
    }
}
