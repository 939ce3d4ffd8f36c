//! `kubectl get pods [-o wide] [-A]`, with its header or, after a `grep`, without.

use model::NodeName;

use crate::command;
use crate::draft::{Draft, Section};
use crate::words;
use evidence::answers::Row;
use evidence::{Pod, PodName};
use model::text::Line;

pub(super) fn row(row: &Row<'_>, line: &Line, section: &Section, draft: &mut Draft) -> Option<()> {
    let asked = || command::namespace(section.command.as_deref()?);
    let namespace = row.get("NAMESPACE").or_else(asked).map(str::to_owned);
    let name = PodName { namespace, name: row.get("NAME")?.to_owned() };
    let mut pod = Pod {
        name,
        status: row.get("STATUS")?.to_owned(),
        ready: row.get("READY").and_then(ready),
        age: row.get("AGE").and_then(words::age),
        node: row.get("NODE").map(NodeName::from),
        ..Pod::default()
    };
    pod.addresses
        .extend(row.get("IP").into_iter().flat_map(|cell| cell.split(',')).filter_map(words::address));
    add(pod, line, draft);
    Some(())
}

/// `[NAMESPACE] NAME 1/1 Running 0 41m 10.0.0.1 node`.
pub(super) fn bare_row(line: &Line, draft: &mut Draft) -> Option<()> {
    let mut cells: Vec<&str> = line.text.split_whitespace().collect();
    // `3 (5d ago)`: how often, and when last.
    if let Some(open) = cells.iter().position(|cell| cell.starts_with('(')) {
        let close = cells.iter().position(|cell| cell.ends_with(')')).filter(|close| *close >= open)?;
        cells.drain(open..=close);
    }
    let at = cells.iter().position(|cell| ready(cell).is_some()).filter(|at| matches!(at, 1 | 2))?;
    let [status, restarts, age] = cells.get(at + 1..at + 4)? else { return None };
    restarts.parse::<u32>().ok()?;
    let name = cells.get(at.checked_sub(1)?)?;
    let namespace = cells.first().filter(|_| at == 2).map(|namespace| (*namespace).to_owned());
    let mut pod = Pod {
        name: PodName { namespace, name: (*name).to_owned() },
        status: (*status).to_owned(),
        ready: cells.get(at).and_then(|cell| ready(cell)),
        age: Some(words::age(age)?),
        ..Pod::default()
    };
    pod.addresses.extend(cells.get(at + 4).and_then(|cell| words::address(cell)));
    pod.node = cells.get(at + 5).filter(|cell| !cell.starts_with('<')).map(|cell| NodeName::from(*cell));
    add(pod, line, draft);
    Some(())
}

fn add(pod: Pod, line: &Line, draft: &mut Draft) {
    let pod = draft.sight(line, pod);
    draft.cluster.pods.get_or_insert_default().push(pod);
}

fn ready(cell: &str) -> Option<(u32, u32)> {
    let (ready, all) = cell.split_once('/')?;
    Some((ready.parse().ok()?, all.parse().ok()?))
}
