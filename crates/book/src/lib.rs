//! The address book on a store: carries out what `ipam` decides.
//!
//! A [`Book`] reads what a decision wants to see, commits what was decided, and starts over when someone else was
//! faster. It decides nothing itself. Any number of books, in any number of processes, may work on one store.
//!
//! | to | call |
//! |---|---|
//! | give an owner addresses, whichever are free | [`Book::assign`] with an [`AssignRequest`] |
//! | give an owner the addresses it names | [`Book::assign_addresses`] with a [`GivenRequest`] |
//! | give back what a handle holds, or some of it | [`Book::release_handle`] with a [`HandleRequest`] |
//! | give back addresses by name, handle and number | [`Book::release_addresses`] |
//! | see what a handle holds; whose an address is; say so anew | [`Book::held`]; [`Book::lookup`]; [`Book::change_owner`] |
//! | claim blocks, or have one at hand; give them up: some, a network's, a host's, a pool's | [`Book::claim_blocks`], [`Book::ensure_blocks`]; [`Book::release_blocks`], [`Book::release_network`], [`Book::release_host`], [`Book::release_pool`] |
//! | give up blocks that a node should not have, or does not need | [`Book::release_deselected`], [`Book::release_spare`] |
//! | keep a node's tunnel addresses right | [`Book::ensure_tunnel_address`], [`Book::release_tunnel_address`] |
//! | put right what interrupted operations left | [`Book::recover`], [`Book::recover_if_few`] |
//! | find a node's affinities that an earlier release of Calico wrote | [`Book::label_affinities`] |
//! | write the reuse delay down; read and change settings; count | [`Book::settle_cooldown`]; [`Book::config`], [`Book::change_config`]; [`Book::usage`] |
//!
//! # Together or not at all
//!
//! A caller's own records can go with its addresses: [`Additions`] are made from the addresses that were found (an
//! endpoint), [`HandleRequest::with`] takes those that go with a release. If one of them is not as the caller thought,
//! only this caller fails, with [`BookError::Addition`]: read it and ask again.
//!
//! # Who waits for whom
//!
//! Assignments and releases by handle that arrive while a commit is on its way go together in the next one, so that a
//! burst writes each block once. The others go straight to the store. Lost races are tried again, with growing, random
//! delays, for as long as [`Settings::patience`] says; the error names what was fought over.
//!
//! # One commit and nothing else
//!
//! A long-lived agent takes [`Book::following`]: what assignments on its node start from is kept up to date by watches,
//! and an address out of a block that the node has is one round trip, the commit itself; so is giving it back. What is
//! remembered may be out of date; the commit notices, and the next attempt reads. A [`Book::new`] without memory takes
//! three: surroundings and handle, blocks, commit. Neither depends on how many blocks there are.
//!
//! # Answers that get lost
//!
//! A commit whose answer was lost ([`store::StoreError::Uncertain`]) is settled by looking: every attempt of an
//! assignment writes its owner's handle at the revision that was read, so at most one of them happened, and the block
//! tells which. A caller who stops waiting gets nothing: what was committed for it is given back.
//!
//! # Stores without transactions
//!
//! Steps are done one by one, in the order that [`ipam::step`] explains. Whoever is stopped before the addresses are
//! its own gives back what it got. Crashes leave what [`Book::recover`] puts right.

mod additions;
mod addresses;
mod batch;
mod beside;
mod blocks;
mod book;
mod carry;
mod error;
/// Whole parts of a store at once. The recovery pass and `plumb ipam check` both read the books with it.
pub mod load;
mod look;
mod make;
mod patience;
mod request;
mod sameness;
mod scene;
mod settings;
mod survey;
mod tend;
mod tunnel;
mod upkeep;
mod warm;

pub use additions::{Addition, Additions};
pub use addresses::{GivenRequest, HeldAddress, Holding, ReleasedAddresses};
pub use batch::GivenBack;
pub use blocks::{Claims, GivenUp};
pub use book::Book;
pub use error::BookError;
pub use patience::Patience;
pub use request::{AssignRequest, HandleRequest};
pub use settings::Settings;
pub use upkeep::{Looks, Recovery};
