//! A hostile pod against its node and its neighbours: what it may not send does not arrive, and everything else does.

#[expect(dead_code, reason = "shared with the tests of pods, which use more of it")]
#[path = "../common/mod.rs"]
mod common;
#[expect(dead_code, reason = "shared with the tests of the agent, which use more of it")]
#[path = "../agent/running.rs"]
mod running;
#[expect(dead_code, reason = "shared with the tests between nodes, which use more of it")]
#[path = "../between/scene.rs"]
mod scene;

mod attacks;
mod modes;
mod packet;
mod raw;
mod rules;
mod single;
