//! A whole call in one text: as a plugin hands it to the agent, and as it is kept in the queue.

#![cfg_attr(not(test), deny(clippy::string_slice, clippy::indexing_slicing))]

use std::collections::BTreeMap;

use model::Sandbox;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::environment::Environment;

const VERSION: u32 = 1;
/// More than any runtime sends.
pub(crate) const REQUEST_BYTES_MAX: u32 = 1024 * 1024;

/// As what a runtime, or another plugin, calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Gives a pod its network.
    Network,
    /// Only gives addresses, to another plugin.
    Ipam,
}

impl Role {
    pub(crate) fn parse(text: &str) -> Option<Role> {
        [Role::Network, Role::Ipam].into_iter().find(|role| role.as_str() == text)
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Role::Network => "network",
            Role::Ipam => "ipam",
        }
    }
}

/// One call, as a plugin hands it over, and as it is kept in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CallRequest {
    pub(crate) role: Role,
    pub(crate) environment: Environment,
    /// The network configuration as it came.
    pub(crate) config: String,
}

#[derive(Debug, Deserialize, Serialize)]
struct Written {
    version: u32,
    role: String,
    environment: BTreeMap<String, String>,
    config: String,
}

/// Why a request cannot be served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BadRequest {
    #[error("the request is longer than {REQUEST_BYTES_MAX} bytes")]
    TooLong,
    #[error("the request cannot be understood")]
    NotUnderstood(#[source] serde_json::Error),
    #[error("version {0} of the agent's protocol is not known here")]
    Version(u32),
    #[error("role {0:?} is not known here")]
    Role(String),
    #[error("the connection ended in the middle of a request")]
    CutOff(#[source] std::io::Error),
}

impl CallRequest {
    pub(crate) fn decode(text: &[u8]) -> Result<CallRequest, BadRequest> {
        let written: Written = serde_json::from_slice(text).map_err(BadRequest::NotUnderstood)?;
        if written.version != VERSION {
            return Err(BadRequest::Version(written.version));
        }
        let role = Role::parse(&written.role).ok_or(BadRequest::Role(written.role))?;
        Ok(CallRequest {
            role,
            environment: written.environment.into_iter().collect(),
            config: written.config,
        })
    }

    /// Whom it is about; `None` if that cannot be told.
    pub(crate) fn sandbox(&self) -> Option<Sandbox> {
        let config: Value = serde_json::from_str(&self.config).ok()?;
        let (container, interface) =
            (self.environment.get("CNI_CONTAINERID")?, self.environment.get("CNI_IFNAME")?);
        Sandbox::new(config.get("name")?.as_str()?, container, interface).ok()
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let environment = self.environment.iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
        let written = Written {
            version: VERSION,
            role: self.role.as_str().to_owned(),
            environment: environment.collect(),
            config: self.config.clone(),
        };
        serde_json::to_vec(&written).expect("texts can be written")
    }
}
