//! The same stories of one node on each kind of store.

/// Makes two tests of each story: one on SQLite, one on Kubernetes.
macro_rules! on_sqlite_and_kubernetes {
    ($($story:ident)*) => {
        mod on_sqlite {
            $(#[test]
            fn $story() {
                $crate::common::Bench::on_sqlite(concat!(module_path!(), "::", stringify!($story)), super::$story);
            })*
        }

        mod on_kubernetes {
            $(#[test]
            fn $story() {
                let name = concat!(module_path!(), "::", stringify!($story));
                $crate::common::Bench::on_kubernetes(name, super::$story);
            })*
        }
    };
}

pub(crate) use on_sqlite_and_kubernetes;
