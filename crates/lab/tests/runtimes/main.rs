//! Our plugin in the hands of container runtimes that nobody here wrote.

#[path = "../common/books.rs"]
mod books;
mod containerd;
mod image;
mod machine;
mod node;
mod podman;

mod with_cnitool;
mod with_containerd;
mod with_podman;
