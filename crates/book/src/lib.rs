//! The address book on a store: carries out what `ipam` decides.
