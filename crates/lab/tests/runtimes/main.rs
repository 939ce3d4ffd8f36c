//! Our plugin in the hands of container runtimes that nobody here wrote.

/// Makes each of these functions two tests: one with the agent, one where the plugin does all by itself.
macro_rules! with_and_without_agent {
    ($($name:ident),+ $(,)?) => {
        mod with_agent {
            $(#[test]
            fn $name() {
                super::$name(concat!("with_agent::", stringify!($name)), crate::node::Service::Agent);
            })+
        }
        mod without_agent {
            $(#[test]
            fn $name() {
                super::$name(concat!("without_agent::", stringify!($name)), crate::node::Service::OneShot);
            })+
        }
    };
}

#[expect(dead_code, reason = "shared with the tests of the agent, which use more of it")]
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
