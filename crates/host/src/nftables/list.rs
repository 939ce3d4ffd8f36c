//! What a table holds, listed.

use std::collections::BTreeMap;

use super::change::HEADER;
use super::numbers::*;
use super::object::{Chain, Counter, Element, Rule, Set};
use super::{Nftables, read};
use crate::HostError;
use crate::netlink::{Message, Request};

/// How often a table is read again that changes while it is read.
const TRIES: usize = 20;

/// Everything in a table, as of one generation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    pub generation: u32,
    pub chains: Vec<Chain>,
    /// By chain, in order.
    pub rules: BTreeMap<String, Vec<Rule>>,
    pub sets: BTreeMap<String, (Set, Vec<Element>)>,
    pub counters: BTreeMap<String, Counter>,
}

impl Nftables {
    /// The number that grows with each change of any rules in this namespace.
    pub fn generation(&mut self) -> Result<u32, HostError> {
        let what = "read the generation of the nftables rules";
        let found = self.netlink.get(Request::new(what, Message::new(NFT_MSG_GETGEN, &HEADER), 0))?;
        let generation = read::generation(found.kind, &found.body).map(|(generation, _)| generation);
        generation.ok_or_else(|| HostError::Malformed {
            what: what.to_owned(),
            problem: "there is no number in it".to_owned(),
        })
    }

    pub fn has_table(&mut self, table: &str) -> Result<bool, HostError> {
        let listed =
            self.netlink.dump("list nftables", &Message::new(NFT_MSG_GETTABLE, &HEADER), |kind, body| {
                read::table(kind, body)
            })?;
        Ok(listed.iter().any(|found| found == table))
    }

    /// A whole table, as of one generation; `None` where it is not.
    pub fn list(&mut self, table: &str) -> Result<Option<Table>, HostError> {
        for _ in 0..TRIES {
            let before = self.generation()?;
            let found = match self.list_parts(table) {
                // A set that was just deleted cannot be listed.
                Err(error) if error.errno() == Some(libc::ENOENT) => None,
                found => found?,
            };
            if self.generation()? == before {
                return Ok(found.map(|found| Table { generation: before, ..found }));
            }
        }
        Err(HostError::Malformed {
            what: format!("list the nftables table {table}"),
            problem: "it changed faster than it could be listed".to_owned(),
        })
    }

    fn list_parts(&mut self, table: &str) -> Result<Option<Table>, HostError> {
        if !self.has_table(table)? {
            return Ok(None);
        }
        let mut found = Table { chains: self.chains(table)?, ..Table::default() };
        let message = Message::new(NFT_MSG_GETRULE, &HEADER).with_text(NFTA_RULE_TABLE, table);
        let rules =
            self.netlink.dump(&format!("list the rules of table {table}"), &message, |kind, body| {
                read::rule(table, kind, body)
            })?;
        for rule in rules {
            found.rules.entry(rule.chain.clone()).or_default().push(rule);
        }
        for set in self.sets(table)? {
            let elements = self.elements(table, &set.name)?;
            found.sets.insert(set.name.clone(), (set, elements));
        }
        let counters = self.counters(table)?.into_iter();
        found.counters = counters.map(|counter| (counter.name.clone(), counter)).collect();
        Ok(Some(found))
    }

    fn chains(&mut self, table: &str) -> Result<Vec<Chain>, HostError> {
        let what = format!("list the chains of table {table}");
        self.netlink.dump(&what, &Message::new(NFT_MSG_GETCHAIN, &HEADER), |kind, body| {
            read::chain(table, kind, body)
        })
    }

    fn sets(&mut self, table: &str) -> Result<Vec<Set>, HostError> {
        let message = Message::new(NFT_MSG_GETSET, &HEADER).with_text(NFTA_SET_TABLE, table);
        let what = format!("list the sets of table {table}");
        self.netlink.dump(&what, &message, |kind, body| read::set(table, kind, body))
    }

    /// The members of a set, in no order.
    pub fn elements(&mut self, table: &str, set: &str) -> Result<Vec<Element>, HostError> {
        let message = Message::new(NFT_MSG_GETSETELEM, &HEADER)
            .with_text(NFTA_SET_ELEM_LIST_TABLE, table)
            .with_text(NFTA_SET_ELEM_LIST_SET, set);
        let what = format!("list the elements of set {set}");
        let found = self.netlink.dump(&what, &message, |kind, body| Some(read::elements(kind, body)))?;
        Ok(found.into_iter().flatten().collect())
    }

    /// All counters of a table that have names.
    pub fn counters(&mut self, table: &str) -> Result<Vec<Counter>, HostError> {
        let message = Message::new(NFT_MSG_GETOBJ, &HEADER)
            .with_text(NFTA_OBJ_TABLE, table)
            .with_be32(NFTA_OBJ_TYPE, NFT_OBJECT_COUNTER);
        let what = format!("list the counters of table {table}");
        self.netlink.dump(&what, &message, |kind, body| read::counter(table, kind, body))
    }
}
