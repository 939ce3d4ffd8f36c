//! DEL: the kernel first, then the records, all of it fenced by the sandbox. What is gone already is done.

use host::Host;
use ipam::release_handle;
use jiff::Timestamp;
use model::Key;
use store::{Change, Record};
use tracing::{info, warn};

use super::book::{Book, Held, Patience, changes, is_of_interface};
use super::endpoint::EndpointId;
use super::error::CniError;
use super::services::Found;
use super::{Call, Services, endpoint, node};

pub(super) async fn run(call: &Call, services: &Services) -> Result<(), CniError> {
    // An address must not be free while something still answers to it.
    let removed = Host::here()?.remove_links_of(&call.sandbox)?;
    for link in &removed {
        info!("removed {} of {}", link.name, link.owner);
    }
    match services.existing_store(&call.netconf).await? {
        Found::Store(store) => release(&Book::new(&*store), call, None).await,
        Found::NoStore(reason) => {
            info!("{reason}, so nothing is recorded");
            Ok(())
        }
    }
}

/// Gives back the attachment's addresses and removes its endpoint record, in one commit. With `restore`, that record
/// is put back in the endpoint's place. A record of another sandbox is never touched.
pub(super) async fn release(book: &Book<'_>, call: &Call, restore: Option<&Record>) -> Result<(), CniError> {
    let mut patience = Patience::new();
    loop {
        let held = book.held(&call.sandbox).await?;
        let mut all = endpoint_changes(book, call, &held, restore).await?;
        let freed = held.addresses.clone();
        all.extend(address_changes(book, call, held).await?);
        if all.is_empty() {
            return Ok(());
        }
        all.insert(0, book.require_unlocked().await?);
        match book.commit(all).await {
            Ok(()) => {
                info!("{}: gave back {freed:?}", call.sandbox);
                return Ok(());
            }
            Err(error) => patience.after(error).await?,
        }
    }
}

async fn address_changes(book: &Book<'_>, call: &Call, held: Held) -> Result<Vec<Change>, CniError> {
    let Some(handle) = &held.handle else { return Ok(Vec::new()) };
    let cooldown = book.config().await?.map_or(0, |config| config.value.ip_cooldown_seconds);
    let cooldown_from = (cooldown > 0).then(Timestamp::now);
    let is_meant = |_, attribute: &model::ipam::BlockAttribute, _| is_of_interface(attribute, &call.sandbox);
    let released = release_handle(&call.sandbox.handle(), handle, held.blocks, is_meant, cooldown_from);
    for corrupt in &released.corrupt {
        warn!("nothing is released into it: {corrupt}");
    }
    Ok(changes(&released.steps))
}

async fn endpoint_changes(
    book: &Book<'_>,
    call: &Call,
    held: &Held,
    restore: Option<&Record>,
) -> Result<Vec<Change>, CniError> {
    let mut found = Vec::new();
    for key in endpoint_keys(call, held) {
        let Some((record, resource)) = book.endpoint(&key).await? else { continue };
        if endpoint::container_id(&resource) != call.sandbox.container_id() {
            info!("{key} belongs to sandbox {}, and stays", endpoint::container_id(&resource));
            continue;
        }
        found.push(match restore.filter(|earlier| earlier.key == key) {
            Some(earlier) => Change::update(key, earlier.value.clone(), record.revision),
            None => Change::delete(key, record.revision),
        });
    }
    Ok(found)
}

/// Where the endpoint was recorded: as noted down with the address, and as node and pod are called now.
fn endpoint_keys(call: &Call, held: &Held) -> Vec<Key> {
    let noted = held.attributes.as_ref();
    let noted = noted.and_then(|attribute| EndpointId::from_allocation(attribute, &call.sandbox));
    let current = node::name(&call.netconf).ok();
    let current = current.map(|node| EndpointId::new(&node, call.request.pod.as_ref(), &call.sandbox));
    let mut keys: Vec<Key> = noted.into_iter().chain(current).filter_map(|id| id.key().ok()).collect();
    keys.dedup();
    keys
}
