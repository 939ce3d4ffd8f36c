//! Events: the table of `kubectl get events`, and the one at the end of `kubectl describe`.

use crate::command;
use crate::draft::{Draft, Section};
use crate::words;
use evidence::Event;
use evidence::answers::Row;
use model::text::Line;

pub(super) fn row(row: &Row<'_>, line: &Line, section: &Section, draft: &mut Draft) -> Option<()> {
    row.get("TYPE").filter(|kind| matches!(*kind, "Normal" | "Warning"))?;
    let asked = || command::namespace(section.command.as_deref()?);
    let mut event = Event {
        reason: row.get("REASON")?.to_owned(),
        object: row.get("OBJECT").map(|object| object_in(row.get("NAMESPACE").or_else(asked), object)),
        message: row.get("MESSAGE").unwrap_or_default().to_owned(),
        count: row.get("COUNT").and_then(|cell| cell.parse().ok()).unwrap_or(1),
        ..Event::default()
    };
    read_age(&mut event, row.get("AGE").or_else(|| row.get("LAST SEEN")).unwrap_or_default());
    // `kubelet, node-a`.
    let node = row.get("FROM").and_then(|cell| cell.split_once(", ")).map(|(_, node)| node);
    event.node = node.filter(|node| !node.is_empty()).map(Into::into);
    let event = draft.sight(line, event);
    draft.cluster.events.get_or_insert_default().push(event);
    Some(())
}

/// `pod/web-0`, with its namespace in between where the table has one.
fn object_in(namespace: Option<&str>, object: &str) -> String {
    match (namespace, object.split_once('/')) {
        (Some(namespace), Some((kind, name))) => format!("{kind}/{namespace}/{name}"),
        _ => object.to_owned(),
    }
}

/// `2m4s (x52551 over 6d2h)`: how long ago, how often, since when.
fn read_age(event: &mut Event, cell: &str) {
    let (last, repeated) = cell.split_once(" (").unwrap_or((cell, ""));
    event.last_age = words::age(last);
    let repeated = repeated.trim_end_matches(')');
    if let Some((times, first)) = repeated.split_once(" over ") {
        event.count = times.trim_start_matches('x').parse().unwrap_or(event.count);
        event.first_age = words::age(first);
    }
}
