//! Network policy with real packets: pods on nodes of a lab try to reach each other, and policies come and go.

#[expect(dead_code, reason = "shared with the tests of routes, which use more of it")]
#[path = "../between/scene.rs"]
mod scene;

mod calico;
mod on_kubernetes;
mod town;
mod windows;
