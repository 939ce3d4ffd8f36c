//! ipam
