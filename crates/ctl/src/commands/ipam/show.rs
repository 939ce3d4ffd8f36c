//! `plumb ipam show`: pools and blocks, one address, what is borrowed, the settings.

use std::io::{BufWriter, Write};
use std::net::IpAddr;
use std::sync::Arc;

use book::Book;
use ipam::{Allocation, is_cooling_down};
use model::{HandleId, TextMap};
use serde_json::{Value, json};
use store::Store;

use super::{borrowed, format, settings, usage};
use crate::cli::{Global, IpamShow};
use crate::connect;
use crate::failure::{Failure, Failures, Problems};
use crate::output::document::Syntax;

pub(crate) async fn run(global: &Global, show: &IpamShow) -> Result<(), Failures> {
    let format = format(&show.output)?;
    let store = connect::open_for_reading(global).await?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut problems = Problems::default();
    if let Some(address) = show.ip {
        show_address(&store, address, format, &mut out).await?;
    } else if show.show_borrowed {
        borrowed::show(&store, format, &mut out, &mut problems).await?;
    } else if show.show_configuration {
        settings::show(&store, format, &mut out).await?;
    } else {
        usage::show(&store, show.show_blocks, format, &mut out, &mut problems).await?;
    }
    out.flush()?;
    problems.finish()
}

/// Unlike calicoctl this also finds an address whose pool is disabled or gone.
async fn show_address(
    store: &Arc<dyn Store>,
    address: IpAddr,
    format: Option<Syntax>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let found = Book::new(Arc::clone(store)).lookup(address).await;
    let found = found.map_err(|error| Failure::of(&error).maybe_hint(error.hint()))?;
    match format {
        Some(syntax) => syntax.write_bare(out, &document(address, found.as_ref()))?,
        None => write_text(address, found.as_ref(), out)?,
    }
    Ok(())
}

fn write_text(address: IpAddr, found: Option<&Allocation>, out: &mut dyn Write) -> std::io::Result<()> {
    let Some(found) = found else { return writeln!(out, "{address} is not assigned") };
    let attribute = &found.attribute;
    if let Some(time) = &attribute.released_at {
        return writeln!(
            out,
            "{address} is not assigned\nReleased at {time}; it is not allocated again until its cooldown has ended"
        );
    }
    writeln!(out, "IP {address} is in use")?;
    writeln!(out, "Handle ID: {}", attribute.handle().map_or("<none>", HandleId::as_str))?;
    match attribute.secondary.is_empty() {
        true => writeln!(out, "No Active Owner attributes defined")?,
        false => write_attributes("Active Owner Attributes", &attribute.secondary, out)?,
    }
    write_attributes("Alternate Owner Attributes", &attribute.alternate_owner, out)
}

fn write_attributes(title: &str, attributes: &TextMap<String>, out: &mut dyn Write) -> std::io::Result<()> {
    if attributes.is_empty() {
        return Ok(());
    }
    writeln!(out, "{title}:")?;
    // Others wrote these: they may not move the cursor.
    let clean = |text: &str| text.replace(char::is_control, " ");
    attributes.iter().try_for_each(|(name, value)| writeln!(out, "  {}: {}", clean(name), clean(value)))
}

fn document(address: IpAddr, found: Option<&Allocation>) -> Value {
    let Some(found) = found else { return json!({"ip": address, "inUse": false}) };
    let is_cooling_down = is_cooling_down(&found.attribute);
    json!({
        "ip": address,
        "inUse": !is_cooling_down,
        "block": found.block.to_string(),
        "handle": found.attribute.handle(),
        "attributes": found.attribute.secondary,
        "alternateOwnerAttributes": found.attribute.alternate_owner,
        "sequenceNumber": found.sequence_number,
        "releasedAt": found.attribute.released_at,
    })
}
