//! CHECK: compares everything that ADD made with what should exist, and reports all differences.

use std::net::IpAddr;

use host::PodNamespace;
use model::{DeviceName, Key, Resource};
use plan::{Attachment, PodWiring};

use super::endpoint::{EndpointId, Keeping, Wired};
use super::error::{CniError, code};
use super::known::Known;
use super::records::Held;
use super::{Call, delegate, endpoint, node, result};
use crate::services::{FoundBook, Services};

pub(super) async fn run(call: &Call, services: Services<'_>) -> Result<(), CniError> {
    let version = &call.netconf.cni_version;
    if !result::has_check(version) {
        return Err(CniError::new(code::VERSION, format!("cniVersion {version} has no CHECK")));
    }
    let earlier = call
        .netconf
        .prev_result
        .as_ref()
        .ok_or_else(|| CniError::configuration("CHECK needs prevResult, the result of ADD"))?;
    let annotated = annotated(call, services).await?;
    let call = annotated.as_ref().unwrap_or(call);
    let mut answered = result::addresses_of(earlier, call.sandbox.interface());
    answered.sort_unstable();
    let mut problems = Vec::new();
    let recorded = check_records(call, services, &answered, &mut problems).await?;
    // What another program made is its own to check.
    if call.netconf.calico.backend.is_none() {
        check_kernel(call, services, recorded, &answered, &mut problems).await?;
    }
    if problems.is_empty() {
        return Ok(());
    }
    Err(CniError::new(code::CHECK, format!("{} is not wired as expected", call.sandbox))
        .hint(problems.join("; ")))
}

/// The call with what its pod asks for, where the store tells that.
async fn annotated(call: &Call, services: Services<'_>) -> Result<Option<Call>, CniError> {
    let Some(book) = services.existing_book_if_any(&call.netconf).await? else { return Ok(None) };
    let node = services.node_name(&call.netconf)?;
    Known::read(call, &node, &book, services).await.map(|known| known.annotated)
}

/// IPAM records and endpoint must agree with ADD's result. Returns the wiring that the endpoint records.
async fn check_records(
    call: &Call,
    services: Services<'_>,
    answered: &[IpAddr],
    problems: &mut Vec<String>,
) -> Result<Option<Wired>, CniError> {
    let book = match services.existing_book(&call.netconf).await? {
        FoundBook::Book(book) => book,
        FoundBook::NoStore(reason) => {
            problems.push(reason);
            return Ok(None);
        }
    };
    let (keeping, node) = (Keeping::of(&book), services.node_name(&call.netconf)?);
    let key = EndpointId::of_call(keeping, &node, call).key()?;
    let recorded = Held::read(&book, &call.sandbox, key.clone().into_iter().collect()).await?;
    let mut held = recorded.addresses();
    held.sort_unstable();
    if call.netconf.goes_without_book() {
        delegate::check(call).await?;
        held = answered.to_vec();
    } else if held != answered {
        problems.push(format!("the IPAM records hold {held:?} for it, expected {answered:?}"));
    }
    let endpoint = recorded.endpoints.first().map(|(_, resource)| resource);
    // Where endpoints are views of pods, not every attachment has one.
    Ok(key.and_then(|key| check_endpoint(call, &key, endpoint, &held, problems)))
}

fn check_endpoint(
    call: &Call,
    key: &Key,
    endpoint: Option<&Resource>,
    held: &[IpAddr],
    problems: &mut Vec<String>,
) -> Option<Wired> {
    let Some(resource) = endpoint else {
        problems.push(format!("{key} is missing"));
        return None;
    };
    let recorded_id = endpoint::container_id(resource);
    if recorded_id != call.sandbox.container_id() {
        problems.push(format!("{key} belongs to sandbox {recorded_id:?}"));
        return None;
    }
    let mut wired = endpoint::wired(resource);
    if let Some(wired) = &mut wired {
        wired.addresses.sort_unstable();
    }
    match &wired {
        None => problems.push(format!("{key} names no device, MAC or address")),
        Some(wired) if wired.addresses != held => {
            problems.push(format!("{key} has the addresses {:?}, expected {held:?}", wired.addresses));
        }
        Some(_) => {}
    }
    wired
}

async fn check_kernel(
    call: &Call,
    services: Services<'_>,
    recorded: Option<Wired>,
    answered: &[IpAddr],
    problems: &mut Vec<String>,
) -> Result<(), CniError> {
    let netns = call.request.netns.clone().ok_or_else(|| CniError::environment("CNI_NETNS is not set"))?;
    let expected = node::device_name(call.request.pod.as_ref(), &call.sandbox)?;
    let own_mac = || call.netconf.asked.mac.unwrap_or_else(|| call.sandbox.mac());
    let mut attachment = Attachment {
        sandbox: call.sandbox.clone(),
        device: recorded.as_ref().map_or(expected, |recorded| recorded.device.clone()),
        mac: recorded.as_ref().map_or_else(own_mac, |recorded| recorded.mac),
        mtu: node::mtu(&call.netconf)?,
        addresses: answered.to_vec(),
        pod_forwards: call.netconf.pod_forwards,
        pod_routes: call.netconf.pod_routes.clone(),
    };
    let checked = services.in_kernel(move |host| {
        let mut pod = PodNamespace::open(&netns)?;
        if recorded.is_none() {
            let own = host.owned_links()?.into_iter().find(|link| link.owner == attachment.sandbox);
            let name = own.and_then(|link| DeviceName::new(&link.name).ok());
            attachment.device = name.unwrap_or(attachment.device);
        }
        let wiring = match PodWiring::new(&attachment, &host.facts()?) {
            Ok(wiring) => wiring,
            Err(error) => return Ok(vec![error.to_string()]),
        };
        Ok(host.check(&mut pod, &wiring)?.iter().map(ToString::to_string).collect())
    });
    problems.extend(checked.await?);
    Ok(())
}
