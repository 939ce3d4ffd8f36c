//! Checklist: determinePools tables for v4 and v6: enabled/disabled × selector × requested (requested overrides
//! selectors; disabled requested is an error); namespace selectors; uses.

use ipam::{PoolUse, Want};
use model::{IpVersion, Kind, Resource};
use serde_json::json;

use crate::common::{World, labels, owner};

struct Case {
    version: IpVersion,
    node: &'static [(&'static str, &'static str)],
    namespace: &'static [(&'static str, &'static str)],
    purpose: PoolUse,
    asked: &'static [&'static str],
    /// The pool of the address, or the beginning of the error.
    expected: Result<&'static str, &'static str>,
}

const BASE: Case = Case {
    version: IpVersion::V4,
    node: &[],
    namespace: &[],
    purpose: PoolUse::Workload,
    asked: &[],
    expected: Ok("any"),
};

const PICKY: &[(&str, &str)] = &[("picky", "")];
const NONE: Result<&str, &str> =
    Err("no enabled IP pool gives IPv4 addresses for Workload use on node node-a");

const CASES: &[Case] = &[
    BASE,
    Case { node: &[("rack", "a")], ..BASE },
    Case { node: PICKY, expected: NONE, ..BASE },
    Case { node: &[("picky", ""), ("rack", "a")], expected: Ok("rack-a"), ..BASE },
    Case { asked: &["rack-a"], expected: Ok("rack-a"), ..BASE },
    Case { asked: &["10.1.0.0/16"], expected: Ok("rack-a"), ..BASE },
    Case { asked: &["manual"], expected: Ok("manual"), ..BASE },
    Case { asked: &["rack-a", "manual"], expected: Ok("rack-a"), ..BASE },
    Case { asked: &["manual", "rack-a"], expected: Ok("manual"), ..BASE },
    Case { asked: &["off"], expected: Err("the IP pool off that was asked for"), ..BASE },
    Case { asked: &["rack-a", "off"], expected: Err("the IP pool off that was asked for"), ..BASE },
    Case { asked: &["nowhere"], expected: Err("the IP pool nowhere that was asked for"), ..BASE },
    Case { asked: &["six"], expected: Err("the IP pool six that was asked for"), ..BASE },
    Case { asked: &["going"], expected: Err("the IP pool going that was asked for"), ..BASE },
    Case { asked: &["unfit"], expected: Err("the IP pool unfit that was asked for"), ..BASE },
    // Pool with only Tunnel refused for Workload and the reverse.
    Case { asked: &["tunnels"], expected: NONE, ..BASE },
    Case { purpose: PoolUse::Tunnel, asked: &["tunnels"], expected: Ok("tunnels"), ..BASE },
    Case { purpose: PoolUse::Tunnel, asked: &["team-x"], expected: Err("no enabled IP pool"), ..BASE },
    Case { purpose: PoolUse::LoadBalancer, expected: Err("no enabled IP pool"), ..BASE },
    Case { version: IpVersion::V6, expected: Ok("six"), ..BASE },
    Case { version: IpVersion::V6, asked: &["six"], expected: Ok("six"), ..BASE },
    Case { version: IpVersion::V6, asked: &["fd00::/64"], expected: Ok("six"), ..BASE },
    Case { version: IpVersion::V6, asked: &["six-off"], expected: Err("the IP pool six-off"), ..BASE },
    Case { version: IpVersion::V6, asked: &["any"], expected: Err("the IP pool any"), ..BASE },
    // Namespace selectors.
    Case { node: PICKY, namespace: &[("team", "x")], expected: Ok("team-x"), ..BASE },
    Case { node: PICKY, namespace: &[("team", "y")], expected: NONE, ..BASE },
    Case { namespace: &[("team", "x")], ..BASE },
    Case { node: PICKY, asked: &["team-x"], expected: Ok("team-x"), ..BASE },
    Case { asked: &["team-x"], expected: Ok("team-x"), ..BASE },
    Case { node: PICKY, namespace: &[("team", "z"), ("tier", "1")], expected: Ok("team-z"), ..BASE },
    Case { node: PICKY, namespace: &[("team", "z"), ("tier", "3")], expected: NONE, ..BASE },
];

fn world() -> World {
    let mut world = World::with_pools(&[]);
    world.put_pool("any", json!({"cidr": "10.0.0.0/16", "nodeSelector": "!has(picky)"}));
    world.put_pool("rack-a", json!({"cidr": "10.1.0.0/16", "nodeSelector": "rack == 'a'"}));
    world.put_pool("off", json!({"cidr": "10.2.0.0/16", "disabled": true}));
    world.put_pool("manual", json!({"cidr": "10.3.0.0/16", "assignmentMode": "Manual"}));
    let tunnels = json!({"cidr": "10.4.0.0/16", "allowedUses": ["Tunnel"]});
    world.put_pool("tunnels", tunnels);
    let of_namespace = |cidr: &str, selector: &str| {
        json!({"cidr": cidr, "namespaceSelector": selector, "nodeSelector": "has(picky)",
               "allowedUses": ["Workload"]})
    };
    world.put_pool("team-x", of_namespace("10.5.0.0/16", "team == 'x'"));
    world.put_pool("team-z", of_namespace("10.8.0.0/16", "team in {'z', 'w'} && tier != '3' && !has(old)"));
    world.put_pool("six", json!({"cidr": "fd00::/64"}));
    world.put_pool("six-off", json!({"cidr": "fd01::/64", "disabled": true}));
    let mut going = Resource::new(Kind::IpPool, "going");
    going.body.insert("spec".to_owned(), json!({"cidr": "10.6.0.0/16"}));
    going.metadata.extra.insert("deletionTimestamp".to_owned(), "2026-01-01T00:00:00Z".into());
    world.store.put(going.key(), going.encode());
    let mut unfit = Resource::new(Kind::IpPool, "unfit");
    unfit.body.insert("spec".to_owned(), json!({"cidr": "10.7.0.0/16"}));
    let conditions = json!({"conditions": [{"type": "Allocatable", "status": "False"}]});
    unfit.body.insert("status".to_owned(), conditions);
    world.store.put(unfit.key(), unfit.encode());
    world
}

#[test]
fn determine_pools() {
    let world = world();
    for (position, case) in CASES.iter().enumerate() {
        let mut request = world.request("node-a", vec![Want::one_each(owner("a.0"), None, &[case.version])]);
        request.node_labels = labels(case.node);
        request.namespace_labels = labels(case.namespace);
        request.purpose = case.purpose;
        let asked = case.asked.iter().map(|name| (*name).to_owned()).collect();
        match case.version {
            IpVersion::V4 => request.pools_v4 = asked,
            IpVersion::V6 => request.pools_v6 = asked,
        }
        match (world.plan(request).and_then(ipam::Assigned::single), case.expected) {
            (Ok((granted, _)), Ok(name)) => {
                let pools = world.pools();
                let pool = pools.iter().find(|pool| pool.value.cidr.contains(granted[0].address)).unwrap();
                assert_eq!(pool.value.name, name, "case {position}");
            }
            (Err(error), Err(start)) => {
                assert!(error.to_string().starts_with(start), "case {position}: {error}")
            }
            (got, _) => panic!("case {position}: {got:?}"),
        }
    }
}
