//! `kubectl get services` and `kubectl get namespaces`.

use crate::command;
use crate::draft::{Draft, Section};
use evidence::answers::Row;
use evidence::{Setting, SettingKind};
use model::text::Line;

pub(super) fn service_row(row: &Row<'_>, line: &Line, section: &Section, draft: &mut Draft) -> Option<()> {
    let address = row.get("CLUSTER-IP")?;
    if address != "None" && address.parse::<std::net::IpAddr>().is_err() {
        return None;
    }
    let asked = || command::namespace(section.command.as_deref()?);
    let namespace = row.get("NAMESPACE").or_else(asked).unwrap_or("default");
    if address != "None" {
        let value = format!("{address} {namespace}/{}", row.get("NAME")?);
        add(SettingKind::ServiceAddress, value, line, draft);
    }
    Some(())
}

pub(super) fn namespace_row(row: &Row<'_>, line: &Line, draft: &mut Draft) -> Option<()> {
    match row.get("STATUS")? {
        "Active" => {}
        "Terminating" => add(SettingKind::NamespaceTerminating, row.get("NAME")?.to_owned(), line, draft),
        _ => return None,
    }
    Some(())
}

fn add(kind: SettingKind, value: String, line: &Line, draft: &mut Draft) {
    let setting = draft.sight(line, Setting { kind, value });
    draft.cluster.settings.get_or_insert_default().push(setting);
}
