//! FelixConfiguration: rules over several fields.

use serde_json::Value;

use super::fields::Fields;
use super::{Report, formats, shown};
use crate::Resource;

const ROUTE_TABLES_MAX: i64 = 0xffff;
const ROUTE_TABLE_INDEX_MAX: i64 = 0xffff_ffff;
const ROUTE_TABLE_INDEX_MAX_OLD: i64 = 250;

pub(super) fn check(configuration: &Resource, report: &mut Report) {
    let spec = Fields::of_spec(configuration);
    let name = configuration.metadata.name.as_str();
    if (name == "default" || name.starts_with("node."))
        && let Some(value) = spec.value("nodeSelector")
    {
        let rule = "must not be set on the FelixConfiguration named default or node.NAME";
        report.broken(&spec.path("nodeSelector"), shown(value), rule);
    }
    for (path, item) in spec.items("kubeNodePortRanges") {
        if item.as_str().is_some_and(|text| formats::parse_ports(text).is_none()) {
            report.broken(&path, shown(item), "must be a port or a range of ports, not a name");
        }
    }
    let filters = spec.object("bpfLogFilters");
    for interface in filters.set_fields() {
        report.verdict(&filters.path(interface), &interface.into(), formats::interface(interface));
    }
    check_route_tables(&spec, report);
}

fn check_route_tables(spec: &Fields<'_>, report: &mut Report) {
    if spec.value("routeTableRange").is_some() && spec.value("routeTableRanges").is_some() {
        report.broken(&spec.path("routeTableRange"), "", "must not be set together with routeTableRanges");
    }
    let ends = |range: &Fields<'_>| {
        let end = |field| range.value(field).and_then(Value::as_i64);
        end("min").zip(end("max"))
    };
    let old = spec.object("routeTableRange");
    if let Some((min, max)) = ends(&old)
        && !(min >= 1 && max >= min && max <= ROUTE_TABLE_INDEX_MAX_OLD)
    {
        let rule = format!("must be a range of route tables within 1 to {ROUTE_TABLE_INDEX_MAX_OLD}");
        report.broken(old.own_path(), format!("{min} to {max}"), rule);
    }
    let mut tables: i64 = 0;
    for range in spec.objects("routeTableRanges") {
        let Some((min, max)) = ends(&range) else { continue };
        if min < 1 || max > ROUTE_TABLE_INDEX_MAX || min > max {
            let rule = format!("must be a range of route tables within 1 to {ROUTE_TABLE_INDEX_MAX}");
            report.broken(range.own_path(), format!("{min} to {max}"), rule);
            continue;
        }
        tables = tables.saturating_add(max - min + 1);
    }
    if tables > ROUTE_TABLES_MAX {
        let rule = format!("must not contain more than {ROUTE_TABLES_MAX} tables");
        report.broken(&spec.path("routeTableRanges"), tables.to_string(), rule);
    }
}
