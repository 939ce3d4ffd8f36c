//! A record while edits are made in it. Nothing is written here: what comes out is its new text, and how to take it back.

use std::net::IpAddr;

use ipnet::IpNet;
use jiff::Timestamp;
use model::ipam::{Affinity, Block, BlockAttribute, Handle};
use model::{HandleId, Key, Mac, Resource};
use serde_json::Value;

use super::edit::{Edit, Holding, Is};

/// A record as it was read, and as it will be written.
#[derive(Clone, Debug)]
pub struct Page {
    key: Key,
    revision: Option<String>,
    before: Option<Vec<u8>>,
    now: Option<Vec<u8>>,
    is_touched: bool,
}

/// How one edit went.
#[derive(Clone, Debug, PartialEq)]
pub enum Edited {
    /// It is so already.
    Already,
    /// It was made; this takes it back. `None`: only the record as it was does ([`Page::take_back`]).
    Made(Option<Box<Edit>>),
}

/// The record is not as the plan says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {said}")]
pub struct Surprise {
    pub key: Key,
    pub said: String,
}

impl Page {
    /// A record as it was read: its text and its revision.
    pub fn new(key: Key, record: Option<(&[u8], &str)>) -> Page {
        let before = record.map(|(text, _)| text.to_vec());
        let revision = record.map(|(_, revision)| revision.to_owned());
        Page { key, revision, now: before.clone(), before, is_touched: false }
    }

    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The revision it was read at; `None`: it was not there.
    pub fn revision(&self) -> Option<&str> {
        self.revision.as_deref()
    }

    /// Its text as it was read.
    pub fn text(&self) -> Option<&[u8]> {
        self.before.as_deref()
    }

    /// `None`: nothing to write. `Some(None)`: it goes away.
    pub fn written(&self) -> Option<Option<&[u8]>> {
        (self.is_touched && self.now != self.before).then_some(self.now.as_deref())
    }

    /// Puts the whole record back, unless somebody has changed it since.
    pub fn take_back(&self) -> Edit {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let from = self.now.as_deref().map(|now| Is::Text(text(now)));
        Edit::Record { key: self.key.clone(), from, to: self.before.as_deref().map(text) }
    }

    /// Makes an edit. A surprise leaves the page as it was.
    pub fn edit(&mut self, edit: &Edit, now: Timestamp) -> Result<Edited, Surprise> {
        match edit {
            Edit::Allocation { address, from, to, .. } => {
                let mut block = self.block()?;
                let edited = self.allocation(&mut block, *address, from.as_ref(), to.as_ref())?;
                self.put_block(block, &edited);
                Ok(edited)
            }
            Edit::Owner { from, to, .. } => {
                let mut block = self.block()?;
                let edited = self.owner(&mut block, from.as_deref(), to.as_deref())?;
                self.put_block(block, &edited);
                Ok(edited)
            }
            Edit::Lists { owners, .. } => {
                let mut block = self.block()?;
                if block.contradictions().is_empty() {
                    return Ok(Edited::Already);
                }
                ipam::mend_lists(&mut block, owners);
                self.put_block(block, &Edited::Made(None));
                Ok(Edited::Made(None))
            }
            Edit::NewBlock { owner, holds, replaces_unreadable, .. } => {
                self.new_block(owner.as_deref(), holds, *replaces_unreadable, now)
            }
            Edit::Count { block, from, to, .. } => self.count(*block, *from, *to),
            Edit::Field { field, from, to, .. } => self.field(field, from.as_ref(), to.as_ref()),
            Edit::Record { from, to, .. } => self.record(from.as_ref(), to.as_deref(), now),
        }
    }

    fn surprise(&self, said: impl Into<String>) -> Surprise {
        Surprise { key: self.key.clone(), said: said.into() }
    }

    fn block(&self) -> Result<Block, Surprise> {
        let Key::Block(cidr) = &self.key else { return Err(self.surprise("it is not a block")) };
        let text = self.now.as_deref().ok_or_else(|| self.surprise("it no longer exists"))?;
        Block::decode(cidr, text).map_err(|error| self.surprise(error.to_string()))
    }

    /// Each write of a block counts once, however many edits there are in it.
    fn put_block(&mut self, mut block: Block, edited: &Edited) {
        if *edited == Edited::Already {
            return;
        }
        if !self.is_touched {
            ipam::count_write(&mut block);
        }
        self.put(Some(block.encode()));
    }

    fn put(&mut self, text: Option<Vec<u8>>) {
        self.is_touched = true;
        self.now = text;
    }

    fn allocation(
        &self,
        block: &mut Block,
        address: IpAddr,
        from: Option<&Holding>,
        to: Option<&Holding>,
    ) -> Result<Edited, Surprise> {
        let ordinal = block.ordinal(address).filter(|ordinal| *ordinal < block.allocations.len());
        let ordinal = ordinal.ok_or_else(|| self.surprise(format!("{address} is not in it")))?;
        let found = block.attribute(ordinal).cloned();
        let sequence = block.sequence_of(ordinal);
        let is = |holding: Option<&Holding>| match (holding, &found) {
            (None, found) => found.is_none(),
            (Some(holding), Some(found)) => {
                is_same_owner(&holding.attribute, found)
                    && holding.sequence.is_none_or(|meant| meant == sequence)
            }
            (Some(_), None) => false,
        };
        let is_already = match is_only_told_more(from, to) {
            true => found.as_ref() == to.map(|to| &to.attribute),
            false => is(to.map(|to| Holding { sequence: None, ..to.clone() }).as_ref()),
        };
        if is_already {
            return Ok(Edited::Already);
        }
        if !is(from) {
            let whose = found
                .as_ref()
                .map_or("free", |found| found.handle().map_or("held without a handle", HandleId::as_str));
            return Err(self.surprise(format!("{address} is {whose} now")));
        }
        ipam::set_allocation(block, ordinal, to.map(|to| to.attribute.clone()));
        let undo = Edit::Allocation {
            block: block.cidr,
            address,
            from: to.map(|to| Holding { sequence: None, ..to.clone() }),
            to: found.map(|attribute| Holding { attribute, sequence: None }),
        };
        Ok(Edited::Made(Some(Box::new(undo))))
    }

    fn owner(&self, block: &mut Block, from: Option<&str>, to: Option<&str>) -> Result<Edited, Surprise> {
        let found = block.owner().map(|owner| format!("{}:{}", owner.type_word(), owner.name()));
        if found.as_deref() == to {
            return Ok(Edited::Already);
        }
        if found.as_deref() != from {
            return Err(self.surprise(format!("its owner is {} now", found.as_deref().unwrap_or("none"))));
        }
        block.affinity = to.map(str::to_owned);
        block.host_affinity = None;
        let undo = Edit::Owner { block: block.cidr, from: to.map(str::to_owned), to: found };
        Ok(Edited::Made(Some(Box::new(undo))))
    }

    /// Makes a block where there is none, or none that can be read. One that is there by now is right if it says the same of these
    /// addresses.
    fn new_block(
        &mut self,
        owner: Option<&str>,
        holds: &[(IpAddr, BlockAttribute)],
        replaces_unreadable: bool,
        now: Timestamp,
    ) -> Result<Edited, Surprise> {
        let Key::Block(cidr) = self.key.clone() else { return Err(self.surprise("it is not a block")) };
        let holds_all = |block: &Block| {
            let held =
                |address: &IpAddr| block.ordinal(*address).and_then(|ordinal| block.attribute(ordinal));
            holds.iter().all(|(address, owner)| held(address).is_some_and(|held| is_same_owner(held, owner)))
        };
        let is_unreadable = self.now.as_deref().is_some_and(|text| !is_readable(&self.key, text));
        if replaces_unreadable && self.now.is_none() {
            return Err(self.surprise("it no longer exists"));
        }
        if self.now.is_some() && !(replaces_unreadable && is_unreadable) {
            return match holds_all(&self.block()?) {
                true => Ok(Edited::Already),
                false => Err(self.surprise("it exists now, with different content")),
            };
        }
        let number = u64::try_from(now.as_nanosecond()).unwrap_or_default();
        let mut block = Block::new(cidr, None, number);
        block.affinity = owner.map(str::to_owned);
        for (address, owner) in holds {
            let ordinal = block.ordinal(*address).filter(|ordinal| *ordinal < block.allocations.len());
            let ordinal = ordinal.ok_or_else(|| self.surprise(format!("{address} is not in it")))?;
            ipam::set_allocation(&mut block, ordinal, Some(owner.clone()));
        }
        self.put(Some(block.encode()));
        Ok(Edited::Made(None))
    }

    fn count(&mut self, block: model::Cidr, from: i64, to: i64) -> Result<Edited, Surprise> {
        let Key::Handle(id) = self.key.clone() else { return Err(self.surprise("it is not a handle")) };
        let mut handle = match self.now.as_deref() {
            Some(text) => Handle::decode(&id, text).map_err(|error| self.surprise(error.to_string()))?,
            None => Handle::default(),
        };
        let found = handle.count(&block);
        if found == to && (to != 0 || !handle.block.contains_key(&block.to_string())) {
            return Ok(Edited::Already);
        }
        if found != from {
            return Err(self.surprise(format!("it counts {found} addresses in {block} now")));
        }
        match to {
            0 => handle.block.remove(&block.to_string()),
            to => handle.block.insert(block.to_string(), to),
        };
        let is_used = !handle.block.is_empty();
        self.put(is_used.then(|| handle.encode()));
        let undo = Edit::Count { handle: id, block, from: to, to: found };
        Ok(Edited::Made(Some(Box::new(undo))))
    }

    fn field(&mut self, field: &str, from: Option<&Value>, to: Option<&Value>) -> Result<Edited, Surprise> {
        let text = self.now.as_deref().ok_or_else(|| self.surprise("it no longer exists"))?;
        let mut document: Value =
            serde_json::from_slice(text).map_err(|error| self.surprise(error.to_string()))?;
        let found = document.pointer(field).filter(|value| !value.is_null()).cloned();
        if is_same_value(found.as_ref(), to) {
            return Ok(Edited::Already);
        }
        if !is_same_value(found.as_ref(), from) {
            let words = found.map_or("nothing".to_owned(), |value| value.to_string());
            return Err(self.surprise(format!("{field} is {words} now")));
        }
        set_field(&mut document, field, to)
            .ok_or_else(|| self.surprise(format!("it has no field {field}")))?;
        self.put(Some(document.to_string().into_bytes()));
        let undo =
            Edit::Field { key: self.key.clone(), field: field.to_owned(), from: to.cloned(), to: found };
        Ok(Edited::Made(Some(Box::new(undo))))
    }

    fn record(&mut self, from: Option<&Is>, to: Option<&str>, now: Timestamp) -> Result<Edited, Surprise> {
        let same_as_to = match (self.now.as_deref(), to) {
            (None, None) => true,
            (Some(found), Some(to)) => is_same_record(found, to.as_bytes()),
            _ => false,
        };
        if same_as_to {
            return Ok(Edited::Already);
        }
        let is_meant = match (from, self.now.as_deref()) {
            (None, found) => found.is_none(),
            (Some(_), None) => return Err(self.surprise("it no longer exists")),
            (Some(is), Some(found)) => self.is(is, found),
        };
        if !is_meant {
            return Err(self.surprise(match from {
                None => "it already exists, with different content",
                Some(_) => "it has been changed",
            }));
        }
        let text = to.map(|to| keep_counting(&self.key, self.now.as_deref(), to.as_bytes(), now));
        let before = self.now.clone();
        self.put(text);
        let as_text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let undo = Edit::Record {
            key: self.key.clone(),
            from: self.now.clone().map(|text| Is::Text(as_text(text))),
            to: before.map(as_text),
        };
        Ok(Edited::Made(Some(Box::new(undo))))
    }

    fn is(&self, is: &Is, found: &[u8]) -> bool {
        match is {
            Is::Revision(revision) => !self.is_touched && self.revision.as_deref() == Some(revision),
            Is::Text(text) => is_same_record(found, text.as_bytes()),
            Is::Sandbox(id) => {
                let document: Option<Value> = serde_json::from_slice(found).ok();
                let named = document.as_ref().and_then(|document| document.pointer("/spec/containerID"));
                let named = named.and_then(Value::as_str).filter(|named| !named.is_empty());
                document.is_some() && named == id.as_deref()
            }
            Is::Unreadable => !is_readable(&self.key, found),
            Is::EmptyBlock => self.block().is_ok_and(|block| ipam::is_empty(&block)),
        }
    }
}

/// Whether two texts are the same record. A store that keeps fields, as Kubernetes does, returns them in another order, and without
/// those that say nothing.
pub fn is_same_record(one: &[u8], other: &[u8]) -> bool {
    let parsed = |text: &[u8]| serde_json::from_slice(text).map(without_nulls).ok();
    one == other || parsed(one).is_some_and(|one: Value| parsed(other) == Some(one))
}

/// Entries of lists stay: their places mean something.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| (name, without_nulls(value)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        Value::Array(items) => items.into_iter().map(without_nulls).collect::<Vec<_>>().into(),
        other => other,
    }
}

/// Whether `from` and `to` differ in nothing but what is known about the owner.
fn is_only_told_more(from: Option<&Holding>, to: Option<&Holding>) -> bool {
    match (from, to) {
        (Some(from), Some(to)) => is_same_owner(&from.attribute, &to.attribute),
        _ => false,
    }
}

fn is_same_owner(one: &BlockAttribute, other: &BlockAttribute) -> bool {
    one.handle() == other.handle() && one.released_at == other.released_at
}

fn is_readable(key: &Key, text: &[u8]) -> bool {
    match key {
        Key::Block(cidr) => Block::decode(cidr, text).is_ok(),
        Key::Handle(id) => Handle::decode(id, text).is_ok(),
        Key::Affinity { owner, block } => Affinity::decode(owner, block, text).is_ok(),
        Key::Resource { kind, .. } => Resource::decode(key, *kind, text, "").is_ok(),
        Key::IpamConfig => model::ipam::IpamConfig::decode(text).is_ok(),
    }
}

/// A block's number never goes back: whoever remembers an old one must not meet it again.
fn keep_counting(key: &Key, found: Option<&[u8]>, text: &[u8], now: Timestamp) -> Vec<u8> {
    let Key::Block(cidr) = key else { return text.to_vec() };
    let Ok(mut block) = Block::decode(cidr, text) else { return text.to_vec() };
    let found = found.and_then(|found| Block::decode(cidr, found).ok()).map(|found| found.sequence_number);
    let least = match found {
        Some(number) => number,
        None => u64::try_from(now.as_nanosecond()).unwrap_or_default(),
    };
    block.sequence_number = block.sequence_number.max(least).wrapping_add(1);
    block.encode()
}

/// Whether two values say the same: addresses are spelled in many ways.
fn is_same_value(one: Option<&Value>, other: Option<&Value>) -> bool {
    match (one, other) {
        (Some(Value::Array(one)), Some(Value::Array(other))) => {
            let mut pairs = one.iter().zip(other);
            one.len() == other.len() && pairs.all(|(one, other)| is_same_value(Some(one), Some(other)))
        }
        (Some(Value::String(one)), Some(Value::String(other))) => is_same_text(one, other),
        // Some writers leave an empty text out, others do not.
        (None, Some(Value::String(text))) | (Some(Value::String(text)), None) => text.is_empty(),
        (one, other) => one == other,
    }
}

fn is_same_text(one: &str, other: &str) -> bool {
    let network =
        |text: &str| text.parse::<IpNet>().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from));
    let mac = |text: &str| text.parse::<Mac>().ok();
    one == other
        || network(one).is_some_and(|one| network(other) == Some(one))
        || mac(one).is_some_and(|one| mac(other) == Some(one))
}

/// Sets or removes a field; objects on the way are made. `None` if something on the way is no object.
fn set_field(document: &mut Value, pointer: &str, to: Option<&Value>) -> Option<()> {
    let mut place = document;
    let mut names = pointer.strip_prefix('/')?.split('/').peekable();
    while let Some(name) = names.next() {
        let name = name.replace("~1", "/").replace("~0", "~");
        if place.is_null() {
            *place = Value::Object(serde_json::Map::new());
        }
        let object = place.as_object_mut()?;
        if names.peek().is_none() {
            match to {
                Some(value) => object.insert(name, value.clone()),
                None => object.remove(&name),
            };
            return Some(());
        }
        place = object.entry(name).or_insert(Value::Null);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_the_same_in_any_order_of_its_fields() {
        let written =
            br#"{"cidr":"10.0.0.0/30","affinity":"host:a","hostAffinity":null,"allocations":[0,null]}"#;
        let same = br#"{"affinity":"host:a","allocations":[0,null],"cidr":"10.0.0.0/30"}"#;
        assert!(is_same_record(written, same));
        for other in [
            &br#"{"affinity":"host:a","allocations":[null,0],"cidr":"10.0.0.0/30"}"#[..],
            br#"{"allocations":[0]"#,
            b"",
        ] {
            assert!(!is_same_record(written, other), "{}", String::from_utf8_lossy(other));
        }
        assert!(is_same_record(b"no record", b"no record"));
    }
}
