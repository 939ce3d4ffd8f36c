//! What a table of nf_tables holds, as the kernel has it: one step below [`policy::ruleset`]. Here a match is some steps of a small machine
//! with registers.

/// A register of four bytes, 0 to 15. A longer value takes the following ones as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Register(pub u8);

/// A chain, perhaps with the place where packets enter it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    pub name: String,
    pub base: Option<Base>,
}

/// What makes a chain a base chain. All of ours accept what they do not decide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base {
    /// `NF_INET_PRE_ROUTING` and so on.
    pub hook: u32,
    pub priority: i32,
    /// `filter`, `nat` or `route`.
    pub kind: String,
    pub drops_by_default: bool,
}

/// What a set or map is made of, without its members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set {
    pub name: String,
    /// The number by which `nft` calls the type of its members. Of use to readers alone.
    pub key_type: u32,
    pub key_length: u32,
    pub has_intervals: bool,
    /// The lengths of the fields of which a key consists, if they are several.
    pub fields: Vec<u32>,
    pub is_verdict_map: bool,
    pub is_anonymous: bool,
}

/// A member of a set. An interval of single values takes two: where it begins, and where the next one might begin.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Element {
    pub key: Vec<u8>,
    /// The last value, for intervals of concatenated fields.
    pub last: Option<Vec<u8>>,
    pub ends_interval: bool,
    pub verdict: Option<Verdict>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    Accept,
    Drop,
    Continue,
    Return,
    Jump(String),
    Goto(String),
    /// One that we never use.
    Other(i32),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub chain: String,
    /// The kernel's number for it; none for a rule that is yet to be made.
    pub handle: u64,
    pub expressions: Vec<Expression>,
    pub comment: Option<String>,
}

/// A counter with a name of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counter {
    pub name: String,
    pub packets: u64,
    pub bytes: u64,
}

/// A set by its name. An anonymous one has a number as well, which counts only within its transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetName {
    pub name: String,
    pub id: Option<u32>,
}

/// One step of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expression {
    LoadMeta {
        key: u32,
        into: Register,
    },
    StoreMeta {
        key: u32,
        from: Register,
    },
    LoadCt {
        key: u32,
        direction: Option<u8>,
        into: Register,
    },
    StoreCt {
        key: u32,
        from: Register,
    },
    LoadPayload {
        base: u32,
        offset: u32,
        length: u32,
        into: Register,
    },
    LoadFib {
        result: u32,
        flags: u32,
        into: Register,
    },
    /// `into = (from & mask) ^ xor`.
    Bitwise {
        from: Register,
        into: Register,
        mask: Vec<u8>,
        xor: Vec<u8>,
    },
    Compare {
        from: Register,
        operation: u32,
        value: Vec<u8>,
    },
    Range {
        from: Register,
        is_outside: bool,
        low: Vec<u8>,
        high: Vec<u8>,
    },
    Lookup {
        set: SetName,
        from: Register,
        is_missing: bool,
    },
    /// The verdict that a map has for the value.
    LookupVerdict {
        set: SetName,
        from: Register,
    },
    Load {
        into: Register,
        value: Vec<u8>,
    },
    Verdict(Verdict),
    /// A counter of the rule's own.
    Count,
    /// A counter with a name.
    CountIn(String),
    Log {
        prefix: String,
        level: u32,
    },
    /// To programs that listen to this group.
    LogToGroup {
        prefix: String,
        group: u16,
        length: u32,
    },
    Limit {
        rate: u64,
        seconds: u64,
        burst: u32,
        is_over: bool,
    },
    Reject {
        kind: u32,
        code: u8,
    },
    NoTrack,
    /// One that we never use, or not in this way.
    Other {
        name: String,
    },
}

/// A step of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub table: String,
    pub change: Change,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Or leave it as it is.
    AddTable,
    /// With all that it holds.
    DeleteTable,
    AddChain(Chain),
    DeleteChain(String),
    FlushChain(String),
    AddSet {
        set: Set,
        id: Option<u32>,
    },
    DeleteSet(String),
    AddElements {
        set: SetName,
        elements: Vec<Element>,
    },
    DeleteElements {
        set: SetName,
        elements: Vec<Element>,
    },
    FlushSet(String),
    /// Behind all others of its chain.
    AddRule(Rule),
    DeleteRule {
        chain: String,
        handle: u64,
    },
    AddCounter(Counter),
    DeleteCounter(String),
}
