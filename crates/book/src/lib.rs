//! The address book on a store: carries out what `ipam` decides.

/// Whole parts of a store at once. The recovery pass and `plumb ipam check` both read the books with it.
pub mod load;
